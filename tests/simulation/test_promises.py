"""What a slave has noted for a node that was to lead, or written under it, and a master that was not told of that one."""

import asyncio
import contextlib
from collections.abc import Sequence

import pytest

from dittomq.client import Ack, AsyncClient, PutStatus
from dittomq.errors import DittoError, LevelNotReached, NotPermitted
from dittomq.offsets import Epoch
from dittomq.replication.events import Hello
from dittomq.routes import Opening
from services.master.config import Mode, ReplicationTable
from services.slave.config import FlushMode
from services.slave.follower import Follower
from services.slave.line import ReplicationLine
from services.slave.stream import SlaveSays
from tests.simulation.group import Group, bodies, play
from tests.simulation.shapes import Shape
from tests.simulation.splits import (
    THREE_OF_TWO_NAMESERVERS,
    THREE_SLAVES,
    all_in_sync,
    begin,
    copies_in_sync,
    leads_in,
    opened,
    pull_down,
    split,
    start_apart,
    take_its_place,
    until,
    wall,
)
from tests.simulation.test_announced_epochs import announce
from tests.simulation.test_promotions import follows

TWO_SLAVES = Shape(2, ReplicationTable(mode=Mode.SYNC_MASTER, replicas_expected=2, min_in_sync_replicas=2), FlushMode.SYNC_FLUSH)


def confirms_nothing_with_one_that_noted_another_epoch(starts: int, after: Sequence[bytes] = (b"after",)) -> None:
    """`after` is what the promoted master confirms before the network is split otherwise."""

    async def story(group: Group, mq: AsyncClient) -> None:
        await begin(group, mq)
        await split(group, mq, starts=starts)
        await until(lambda: copies_in_sync(mq, "a1", 3))
        async with mq.producer() as producer:
            for body in after:
                await producer.publish("orders", body, queue=0)
        wall(group, ["a2"], ["a1", "a3", "ns"])
        pull_down(group, ["a2"], ["a0", "ns2"])

        for _ in range(300):
            await asyncio.sleep(0.1)
            with contextlib.suppress(DittoError):
                status = await mq.admin.ha_status("a0:10911")
                assert not any((view.node, view.state) == ("a/2", "in sync") for view in status.nodes)
        assert await bodies(mq, "a/1") == [b"before", *after]

        pull_down(group, ["a0", "a2", "ns2"], ["a1", "a2", "a3", "ns"])
        await until(lambda: all_in_sync(group, mq))
        async with mq.producer() as producer:
            await producer.publish("orders", b"healed", queue=0)
        await asyncio.sleep(11)
        for machine in ("a/0", "a/1", "a/2", "a/3"):
            assert await bodies(mq, machine) == [b"before", *after, b"healed"]

    play(story, THREE_OF_TWO_NAMESERVERS)


def test_an_old_master_that_opened_the_same_epoch_confirms_nothing_with_a_slave_that_noted_it_for_another_node() -> None:
    confirms_nothing_with_one_that_noted_another_epoch(starts=1)


def test_an_old_master_that_opened_a_newer_epoch_confirms_nothing_with_a_slave_that_noted_one_that_it_was_not_told_of() -> None:
    confirms_nothing_with_one_that_noted_another_epoch(starts=2)


@pytest.mark.parametrize("starts", [1, 2])
def test_an_old_master_confirms_nothing_with_a_slave_that_has_followed_another_one_in_an_epoch_without_a_byte(starts: int) -> None:
    confirms_nothing_with_one_that_noted_another_epoch(starts, after=())


def test_a_slave_that_noted_an_epoch_of_a_node_that_never_led_follows_as_soon_as_that_one_says_so() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await begin(group, mq)
        wall(group, ["a2"], ["a0", "a1", "a3", "ns"])
        await announce(group, "a2", Opening(Epoch(2), 1))
        await group.kill("a0")
        wall(group, ["a1"], ["a0"])
        group.node("a0").start()
        await leads_in(mq, "a0", 2)
        pull_down(group, ["a2"], ["a0", "a1", "a3", "ns"])
        await asyncio.sleep(30)
        assert not await all_in_sync(group, mq)
        status = await mq.admin.ha_status("a0:10911")
        [dropped] = [view.last_drop_reason for view in status.nodes if view.node == "a/2"]
        assert "a/2 has noted epoch 2 of a/1, of which a/0 was not told when it opened its own" in dropped

        pull_down(group, ["a1"], ["a0"])

        await until(lambda: all_in_sync(group, mq))
        assert (await mq.admin.ha_status("a0:10911")).epoch == 2

    play(story, THREE_SLAVES)


def test_an_old_master_gives_way_where_no_slave_has_what_it_wrote_though_some_have_only_noted_who_took_its_place() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await begin(group, mq)
        await start_apart(group, mq, starts=1)
        await publish_alone(mq, b"of a/0")
        await take_its_place(mq)
        wall(group, ["a1"], ["a2", "a3"])
        await group.kill("a0")
        await publish_alone(mq, b"of a/1")
        group.node("a0").start()
        await until(lambda: opened(mq, "a0", 3))
        pull_down(group, ["a0", "ns2"], ["a1", "a2", "a3", "ns"])
        pull_down(group, ["a1"], ["a2", "a3"])

        await until(lambda: all_in_sync(group, mq))
        await asyncio.sleep(11)
        for machine in group.cluster.brokers:
            assert await bodies(mq, f"a/{machine[1:]}") == [b"before", b"of a/1"]

    play(story, THREE_OF_TWO_NAMESERVERS)


async def publish_alone(mq: AsyncClient, body: bytes) -> None:
    """The master that is found has it, and nobody confirms it."""
    async with mq.producer(retry_s=30.0, on_weak="return") as producer:
        receipt = await producer.publish("orders", body, queue=0)
    assert receipt.levels_reached == {Ack.MASTER_RECEIVED, Ack.MASTER_FLUSHED}


@pytest.mark.parametrize("leader", ["a0", "a1"])
def test_an_opener_with_another_disk_says_nothing_of_what_it_confirmed_with_a_slave_that_has_noted_its_epoch(leader: str) -> None:
    """Nor does it know when it leads itself."""

    async def story(group: Group, mq: AsyncClient) -> None:
        await begin(group, mq)
        await split(group, mq, starts=2)
        await until(lambda: copies_in_sync(mq, "a1", 3))
        await group.kill("a3")
        async with mq.producer() as producer:
            receipt = await producer.publish("orders", b"of a/1 and a/2", queue=0)
        assert (receipt.status, len(receipt.copies)) == (PutStatus.PUT_OK, 2)
        await group.kill("a2")  # which knew for a moment only that this is confirmed
        await group.replace_disk("a1")
        wall(group, ["a1", "a2"], ["ns", "a3"])
        pull_down(group, ["a1"], ["a0", "ns2"])
        await until(lambda: copies_in_sync(mq, "a0", 2))
        if leader == "a1":
            await asyncio.sleep(11)
            await mq.admin.change_role("a1:10911")
            await until(lambda: copies_in_sync(mq, "a1", 2))
        for _ in range(2):
            pull_down(group, ["a2"], ["a0", "a1", "ns2"])
            group.node("a2").start()
            await asyncio.sleep(20)
            [view] = [view for view in (await mq.admin.ha_status(f"{leader}:10911")).nodes if view.node == "a/2"]
            assert view.state not in {"in sync", "catching up", "following"}
            assert ("a/2 has noted epoch 2 of a/1, on an earlier disk" in view.last_drop_reason) is (leader == "a1")
            await group.kill("a2")
            await group.kill("a1")  # what it has noted of its disk outlives it
            group.node("a1").start()
            await until(lambda: copies_in_sync(mq, leader, 2))

        for node in ("a0", "a1"):
            await group.kill(node)
        group.node("a2").start()
        await asyncio.sleep(60)
        assert await bodies(mq, "a/2") == [b"before", b"of a/1 and a/2"]

    play(story, THREE_OF_TWO_NAMESERVERS)


def test_planned_masters_hand_on_what_they_know_of_an_epoch_without_a_byte_whose_opener_is_gone() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await begin(group, mq)
        await group.kill("a0")
        group.node("a0").start()
        await until(lambda: copies_in_sync(mq, "a0", 4))
        await group.kill("a2")
        await mq.admin.change_role("a1:10911")
        await until(lambda: copies_in_sync(mq, "a1", 3))
        await group.kill("a0")

        await mq.admin.change_role("a3:10911")
        group.node("a2").start()

        await until(lambda: copies_in_sync(mq, "a3", 3))

    play(story, THREE_SLAVES)


def test_who_is_told_again_to_lead_knows_what_the_master_knew_that_had_made_room_for_it_before_it_died() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await begin(group, mq)
        await group.kill("a0")
        group.node("a0").start()
        await until(lambda: copies_in_sync(mq, "a0", 4))
        await mq.admin.change_role("a1:10911")
        await until(lambda: copies_in_sync(mq, "a1", 4))
        await group.kill("a0")
        asking = asyncio.create_task(mq.admin.change_role("a3:10911"))
        while not any("stepped_down node=a/1" in line for line in group.world.transcript.lines):  # noqa: ASYNC110  # nodes tell nobody
            await asyncio.sleep(0.0001)
        await group.kill("a3")
        await asyncio.wait([asking])
        assert asking.exception() is not None
        await until(follows(mq, "a1:10911"))
        group.node("a3").start()
        await until(follows(mq, "a3:10911"))

        assert (await mq.admin.change_role("a3:10911")).may_be_lost == ""

        await until(lambda: copies_in_sync(mq, "a3", 3))

    play(story, THREE_SLAVES)


def test_a_slave_that_notes_an_epoch_while_its_hello_is_on_its_way_does_not_obey_the_answer_to_it() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await begin(group, mq)
        await group.kill("a0")
        wall(group, ["a0", "ns2"], ["a1", "a3", "ns"])
        wall(group, ["ns2"], ["a2"])
        link = group.world.network.link("a0", "a2")
        link.slowness = 5_000.0  # some seconds, also at the best
        with pytest.MonkeyPatch.context() as patch:
            said = tell_when_it_says_hello(patch, "a/2")
            group.node("a0").start()
            await said.wait()
        await leads_in(mq, "a0", 2)
        await announce(group, "a2", Opening(Epoch(2), 1))
        link.slowness = 1.0
        async with mq.producer() as producer:
            with pytest.raises(LevelNotReached):
                await producer.publish("orders", b"after", queue=0)
        await asyncio.sleep(30)
        status = await mq.admin.ha_status("a0:10911")
        assert status.epoch == 2
        assert status.confirmed < status.end

        pull_down(group, ["a0", "ns2"], ["a1", "a2", "a3", "ns"])
        await until(lambda: all_in_sync(group, mq))

    play(story, THREE_OF_TWO_NAMESERVERS)


def tell_when_it_says_hello(patch: pytest.MonkeyPatch, node: str) -> asyncio.Event:
    """Set as soon as that slave has said what it holds."""
    said, honest = asyncio.Event(), ReplicationLine.write

    async def say(self: ReplicationLine, message: SlaveSays) -> None:
        await honest(self, message)
        if isinstance(message, Hello) and message.node == node:
            said.set()

    patch.setattr(ReplicationLine, "write", say)
    return said


def tell_when_it_says_where_it_stands(patch: pytest.MonkeyPatch, node: str) -> asyncio.Event:
    """Set as soon as somebody has asked that slave."""
    told, honest = asyncio.Event(), Follower.check_taken_up

    def check(self: Follower) -> None:
        honest(self)
        if self._parts.config.name == node:
            told.set()

    patch.setattr(Follower, "check_taken_up", check)
    return told


def test_what_a_slave_acknowledged_to_a_living_master_after_it_was_heard_and_before_it_noted_the_epoch_is_no_ones_to_lose() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await begin(group, mq)
        network = group.world.network
        network.cut("a0", "a1")
        for source, target in (("a1", "a2"), ("a2", "a1")):
            network.link(source, target).slowness = 150.0  # some 0.2 s each way
        async with mq.producer(retry_s=60.0) as producer:
            with pytest.MonkeyPatch.context() as patch:
                told = tell_when_it_says_where_it_stands(patch, "a/2")
                promoting = asyncio.create_task(mq.admin.change_role("a1:10911", accept_loss=True))
                await told.wait()
            receipt = await producer.publish("orders", b"more", queue=0)
            assert receipt.status is PutStatus.PUT_OK
            with pytest.raises(
                NotPermitted, match=r"since it was decided what may be lost has changed: .* a/2 has .* bytes that a/1 lacks"
            ):
                await promoting

        change = await mq.admin.change_role("a2:10911", old_master_is_stopped=True)
        await leads_in(mq, "a2", change.epoch)
        page = await mq.reader("orders", queue=0, node="a/2").pull(receipt.queue_offset)
        assert [message.body for message in page.messages][:1] == [b"more"]

    play(story, TWO_SLAVES)


def test_an_operator_may_give_up_what_a_node_that_is_gone_confirmed_in_an_epoch_that_a_slave_noted_for_it() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await begin(group, mq)
        wall(group, ["a2"], ["a0", "a1", "a3", "ns"])
        await announce(group, "a2", Opening(Epoch(2), 1))
        await group.kill("a0")
        await group.kill("a1")
        group.node("a0").start()
        await leads_in(mq, "a0", 2)
        pull_down(group, ["a2"], ["a0", "a3", "ns"])
        await asyncio.sleep(30)

        change = await mq.admin.change_role("a/0", accept_loss=True)

        assert change.may_be_lost == "what a/1 confirmed in epoch 2, if anything: it does not answer as a slave of this log with that disk"
        await leads_in(mq, "a0", change.epoch)
        await until(lambda: copies_in_sync(mq, "a0", 3))

    play(story, THREE_SLAVES)


def test_who_is_given_its_place_by_a_master_knows_of_all_epochs_that_that_one_was_promoted_above() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await begin(group, mq)
        await group.kill("a0")
        await mq.admin.change_role("a1:10911", old_master_is_stopped=True)  # a2 has noted its epoch
        for machine in ("a1", "ns"):
            await group.kill(machine)
        group.node("ns").lose_disk()
        for machine in ("ns", "a0"):
            group.node(machine).start()
        await until(follows(mq, "a0:10911"))
        change = await mq.admin.change_role("a2:10911", old_master_is_stopped=True)
        await leads_in(mq, "a2", change.epoch)
        await until(lambda: copies_in_sync(mq, "a2", 2))

        handed_over = await mq.admin.change_role("a0:10911")

        await leads_in(mq, "a0", handed_over.epoch)
        await until(lambda: copies_in_sync(mq, "a0", 2))

    play(story, TWO_SLAVES)
