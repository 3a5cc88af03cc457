"""Who has noted an epoch is heard once more before it is taken, and who has not noted it is no witness then."""

import asyncio

import pytest

from dittomq.client import AsyncClient, PutStatus
from dittomq.errors import NotPermitted
from services.master.config import Mode, ReplicationTable
from services.slave.config import FlushMode
from tests.simulation.group import Group, play
from tests.simulation.network import Socket
from tests.simulation.shapes import Shape
from tests.simulation.streams import Opened, Status
from tests.simulation.test_promises import tell_when_it_says_where_it_stands
from tests.simulation.test_promotions import topic

TABLE = ReplicationTable(mode=Mode.SYNC_MASTER, replicas_expected=3, in_sync_replicas=3, min_in_sync_replicas=3)
THREE_OF_FOUR = Shape(3, TABLE, FlushMode.SYNC_FLUSH)


def falls_silent_when_it_has_noted(group: Group, node: str, opener: str, master: str) -> None:
    """Its master hears nothing more of it from when it is told of the epoch, and who told it nothing more behind its answer."""
    calls: set[tuple[int, int]] = set()

    def delivered(sender: Socket, payload: object) -> None:
        match payload:
            case (int(number), Opened(method)) if method.endswith("/AnnounceEpoch") and (sender.host, sender.peer_host) == (opener, node):
                calls.add((sender.number, number))
                group.world.network.silence(node, master)
            case (int(number), Status()) if (sender.peer.number, number) in calls:
                group.world.network.cut(opener, node)
            case _:
                pass

    group.world.network.tap = delivered


def test_a_slave_that_did_not_note_the_epoch_is_no_witness_in_the_place_of_one_that_noted_it_and_fell_silent() -> None:
    """It would acknowledge more to a master that lives on, and that with the silent one's copy would be confirmed."""

    async def story(group: Group, mq: AsyncClient) -> None:
        await topic(mq)
        async with mq.producer() as producer:
            await producer.publish("orders", b"before", queue=0)
        await asyncio.sleep(12.0)
        network = group.world.network
        network.cut("a0", "a1")
        network.silence("a0", "a3")
        for source, target in (("a1", "a2"), ("a2", "a1")):
            network.link(source, target).slowness = 150.0  # some 0.2 s each way
        falls_silent_when_it_has_noted(group, "a2", "a1", "a0")
        async with mq.producer(timeout_s=20.0, retry_s=60.0, on_weak="return") as producer:
            with pytest.MonkeyPatch.context() as patch:
                told = tell_when_it_says_where_it_stands(patch, "a/2")
                promoting = asyncio.create_task(mq.admin.change_role("a1:10911", old_master_is_stopped=True))  # which is not so
                await told.wait()
            network.cut("a1", "a3")
            sending = asyncio.create_task(producer.publish("orders", b"on two copies", queue=0))
            await asyncio.sleep(0.45)
            network.heal("a1", "a3")

            with pytest.raises(NotPermitted, match="1 of the 2 slaves answer that together hold all that was confirmed"):
                await promoting

            network.heal("a0", "a3")
            receipt = await sending
            assert (receipt.epoch, receipt.status) == (1, PutStatus.PUT_OK), "with the third copy it is confirmed"

    play(story, THREE_OF_FOUR)
