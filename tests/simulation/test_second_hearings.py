"""Who has noted an epoch is heard once more before it is taken, and who has not noted it is no witness then."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from dittomq.client import AsyncClient, PutStatus
from dittomq.errors import NotPermitted, NotReady
from dittomq.offsets import PhysicalOffset
from services.master.config import Mode, ReplicationTable
from services.slave.config import FlushMode
from services.slave.follower import Follower
from tests.simulation.group import Group, play
from tests.simulation.network import Socket
from tests.simulation.shapes import Shape
from tests.simulation.splits import begin, copies_in_sync, leads_in, until
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


async def asked_where_it_stands(mq: AsyncClient, node: str) -> AsyncIterator[Follower]:
    """That of the node, as often as it is asked."""
    asked: list[Follower] = []

    def check(self: Follower) -> None:
        if self._parts.config.name == node:
            asked.append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Follower, "check_taken_up", check)
        await mq.admin.change_role(node, old_master_is_stopped=True, validate_only=True)
    for each in asked:
        yield each


def test_a_slave_whose_log_is_cut_when_it_is_told_to_lead_does_not_take_the_place_with_what_is_left() -> None:
    """Of what another one has, and it has no more by then, nobody would have been told."""

    async def story(group: Group, mq: AsyncClient) -> None:
        await begin(group, mq)
        end = (await mq.admin.ha_status("a1:10911")).end
        async with mq.producer() as producer:
            await producer.publish("orders", b"on all copies", queue=0)
        [follower] = {each async for each in asked_where_it_stands(mq, "a/1")}
        await group.kill("a0")
        group.node("a1").faults.slowness = 300.0
        cutting = asyncio.create_task(follower.copy.cut(PhysicalOffset(end)))

        with pytest.raises(NotReady, match="its log was cut since that was decided"):
            await mq.admin.change_role("a1:10911", old_master_is_stopped=True)

        await cutting
        group.node("a1").faults.slowness = 1.0
        with pytest.raises(NotPermitted, match=r"a/2 has .* bytes that a/1 lacks"):
            await mq.admin.change_role("a1:10911", old_master_is_stopped=True)
        change = await mq.admin.change_role("a2:10911", old_master_is_stopped=True)
        await leads_in(mq, "a2", change.epoch)
        await until(lambda: copies_in_sync(mq, "a2", 2))

    play(story, Shape(2, ReplicationTable(mode=Mode.SYNC_MASTER, replicas_expected=2), FlushMode.SYNC_FLUSH))
