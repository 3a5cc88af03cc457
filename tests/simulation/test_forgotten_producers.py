"""The first message of a producer that was forgotten since is sent again: it is on no copy twice, and nobody says that it failed."""

import asyncio

import pytest

from dittomq.client import Ack, AsyncClient, Message, OutcomeUnknown
from dittomq.commitlog.queues import producer_state
from dittomq.errors import UnknownProducerId
from tests.simulation.group import Group, play
from tests.simulation.operator import as_client
from tests.simulation.workload import read_everything

FEW = 2


async def push_out(mq: AsyncClient) -> None:
    """Let as many other producers store something as a broker remembers."""
    for number in range(FEW):
        async with mq.producer(Ack.MASTER_RECEIVED, on_weak="return") as other:
            await other.publish("orders", b"other %d" % number, queue=0)


async def in_the_place_of_its_master(group: Group, mq: AsyncClient) -> None:
    """The slave leads."""
    await group.in_sync(mq)
    await group.switch_over("a/1")
    await group.in_sync(mq, "a/1")


async def bodies(mq: AsyncClient, node: str) -> list[bytes]:
    return [read.body for read in await read_everything(mq, node)]


@pytest.mark.parametrize("promoted", [False, True])
def test_first_message_of_a_forgotten_producer_is_in_doubt_after_a_lost_answer(monkeypatch: pytest.MonkeyPatch, promoted: bool) -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        network = group.world.network
        for topic in ("orders", "bills"):
            await mq.admin.create_topic(topic, 2)
        await asyncio.sleep(2)  # the slave hears of them
        async with mq.producer(timeout_s=3, retry_s=60) as orders:
            network.silence("a1", "a0")  # the message is stored, and waits for its slave
            lost = asyncio.create_task(orders.publish("orders", b"once", queue=0))
            await asyncio.sleep(0.5)
            network.cut("client", "a0")
            network.heal("a1", "a0")
            await as_client(group, "other", push_out)
            if promoted:
                await as_client(group, "operator", lambda others: in_the_place_of_its_master(group, others))
            network.heal("client", "a0")
            await asyncio.sleep(5)

            with pytest.raises(OutcomeUnknown) as unknown:
                await lost
            with pytest.raises(OutcomeUnknown) as again:
                await orders.send_again(unknown.value.handle, Message("orders", b"once"))
            with pytest.raises(OutcomeUnknown):
                await orders.resolve(unknown.value.handle)
            after = await orders.publish("orders", b"after", queue=0)

        assert isinstance(again.value.__cause__, UnknownProducerId)
        assert after.queue_offset == 1 + FEW
        for node in ("a/0", "a/1"):
            assert (await bodies(mq, node)).count(b"once") == 1

    monkeypatch.setattr(producer_state, "MAX_PRODUCERS", FEW)
    play(story)
