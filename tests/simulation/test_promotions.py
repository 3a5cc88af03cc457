"""Who may be told to lead when most of the group is away, and what becomes of two that lead at once."""

import asyncio
import contextlib
import copy
from collections.abc import Awaitable, Callable

import pytest

from dittomq.client import AsyncClient, PutStatus
from dittomq.errors import DittoError, NotPermitted, OutOfReach
from dittomq.routes import Role
from services.master.config import Mode, ReplicationTable
from services.slave.config import FlushMode
from tests.simulation.group import Group, bodies, play
from tests.simulation.shapes import Shape
from tests.simulation.test_outdated_masters import confirms_alone
from tests.simulation.world import Power

TWO_SLAVES = Shape(2, ReplicationTable(mode=Mode.SYNC_MASTER, replicas_expected=2), FlushMode.SYNC_FLUSH)
NAMESERVER_SETTLES_S = 40.0

Asked = Callable[[], Awaitable[bool]]


async def topic(mq: AsyncClient) -> None:
    [created] = await mq.admin.create_topic("orders", 1)
    assert created.error is None


def leads(mq: AsyncClient, address: str) -> Asked:
    """Whether the node there takes writes."""

    async def ask() -> bool:
        try:
            return (await mq.admin.ha_status(address)).writable
        except DittoError:
            return False

    return ask


def follows(mq: AsyncClient, address: str) -> Asked:
    """Whether the node there is a slave by now."""

    async def ask() -> bool:
        try:
            return (await mq.admin.ha_status(address)).role == Role.SLAVE
        except DittoError:
            return False

    return ask


def is_followed(mq: AsyncClient, master: str, slave: str) -> Asked:
    """Whether the master at that address has the slave in sync."""

    async def ask() -> bool:
        try:
            return any((view.node, view.state) == (slave, "in sync") for view in (await mq.admin.ha_status(master)).nodes)
        except DittoError:
            return False

    return ask


async def until(ask: Asked, *, is_so: bool = True) -> None:
    while await ask() is not is_so:  # noqa: ASYNC110  # nodes tell nobody
        await asyncio.sleep(0.1)


def test_an_old_demotion_lets_nobody_lead_while_the_one_that_led_since_is_away() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await topic(mq)
        async with mq.producer(timeout_s=20.0, retry_s=60.0, on_weak="return") as producer:
            await producer.publish("orders", b"before", queue=0)
            await mq.admin.change_role("a/1")
            await group.kill("a0")
            await until(is_followed(mq, "a1:10911", "a/2"))
            assert (await producer.publish("orders", b"confirmed", queue=0)).status is PutStatus.PUT_OK
        for name in ("a1", "a2", "ns"):
            await group.kill(name)
        group.node("ns").lose_disk()
        for name in ("ns", "a0"):
            group.node(name).start()
        await asyncio.sleep(NAMESERVER_SETTLES_S)

        with pytest.raises(NotPermitted, match="a/0 made room for a/1, which may have led since"):
            await mq.admin.change_role("a/0")
        with pytest.raises(NotPermitted, match="1 of the 2 slaves answer that together hold all that was confirmed"):
            await mq.admin.change_role("a/0", old_master_is_stopped=True)

        for name in ("a1", "a2"):
            group.node(name).start()
        await group.in_sync(mq, "a/1")
        assert await bodies(mq, "a/1") == [b"before", b"confirmed"]

    play(story, TWO_SLAVES)


def test_a_slave_that_too_few_others_answer_names_whom_to_start_and_what_is_lost_without_that_one() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await topic(mq)
        async with mq.producer() as producer:
            await producer.publish("orders", b"before", queue=0)
        for name in ("a0", "a2"):
            await group.kill(name)

        with pytest.raises(NotPermitted, match="Start a/2, or add --accept-loss: what only those hold that do not answer may be lost"):
            await mq.admin.change_role("a1:10911", old_master_is_stopped=True)
        change = await mq.admin.change_role("a1:10911", accept_loss=True, old_master_is_stopped=True)

        assert change.may_be_lost.startswith("what only slaves hold that are not heard: a/2")

    play(story, TWO_SLAVES)


def test_a_slave_with_an_empty_disk_does_not_lead_while_the_one_that_may_hold_all_is_away() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await topic(mq)
        async with mq.producer() as producer:
            assert (await producer.publish("orders", b"confirmed", queue=0)).status is PutStatus.PUT_OK
        for name in ("a0", "ns"):
            await group.kill(name)
        await group.replace_disk("a1")
        group.node("ns").start()
        await asyncio.sleep(20.0)

        with pytest.raises(NotPermitted, match="a/1 holds nothing and hears 0 of the other 1 nodes"):
            await mq.admin.change_role("a/1")

        group.node("a0").start()
        await group.in_sync(mq)
        assert await bodies(mq, "a/0") == [b"confirmed"]

    play(story)


def test_of_two_masters_that_opened_the_same_epoch_the_one_that_was_promoted_last_leads_on_and_the_other_follows_it() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await topic(mq)
        async with mq.producer() as producer:
            await producer.publish("orders", b"before", queue=0)
        network = group.world.network
        for other in ("a0", "a2", "ns"):
            network.cut("a1", other)
        with contextlib.suppress(OutOfReach):  # it leaves at once, and its answer may be lost by that
            await mq.admin.change_role("a1:10911", accept_loss=True, old_master_is_stopped=True)  # which is not so
        await group.kill("a0")
        group.node("a0").start()
        await until(is_followed(mq, "a0:10911", "a/2"))
        assert await leads(mq, "a0:10911")()
        assert await leads(mq, "a1:10911")()
        assert {(await mq.admin.ha_status(address)).epoch for address in ("a0:10911", "a1:10911")} == {2}
        for other in ("a0", "a2", "ns"):
            network.heal("a1", other)

        await asyncio.sleep(60.0)

        assert await leads(mq, "a1:10911")()
        assert not await leads(mq, "a0:10911")()
        await group.in_sync(mq, "a/1")

    play(story, TWO_SLAVES)


def test_a_master_that_lacks_confirmed_data_lets_no_other_slave_give_up_what_it_has() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await topic(mq)
        node, network = group.node("a0"), group.world.network
        async with mq.producer() as producer:
            await producer.publish("orders", b"before", queue=0)
            await node.stop()
            old = copy.deepcopy(node.disk)
            node.start()
            await group.in_sync(mq)
            assert (await producer.publish("orders", b"more", queue=0)).status is PutStatus.PUT_OK
        group.node("a2").crash(Power.KILL)  # before it has heard that this is confirmed
        await asyncio.sleep(1.0)
        await group.kill("a0")
        node.disk = old
        network.cut("a0", "a1")
        node.start()
        await until(leads(mq, "a0:10911"))
        await confirms_alone(mq)
        network.heal("a0", "a1")
        await until(leads(mq, "a0:10911"), is_so=False)

        group.node("a2").start()
        await asyncio.sleep(30.0)

        assert (await mq.admin.ha_status("a2:10911")).end == (await mq.admin.ha_status("a1:10911")).end
        assert not (await mq.admin.ha_status("a0:10911")).writable

    play(story, TWO_SLAVES)


def test_a_word_that_does_not_go_past_what_is_missing_is_refused_and_the_remedy_may_follow_at_once() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await topic(mq)
        async with mq.producer() as producer:
            await producer.publish("orders", b"before", queue=0)
        await asyncio.sleep(11.0)  # every slave knows the topic
        split = [("a0", "a1"), ("a1", "a2"), ("a2", "ns")]
        for ends in split:
            group.world.network.cut(*ends)
        await group.kill("a0")
        await mq.admin.change_role("a/1", accept_loss=True, old_master_is_stopped=True)
        async with mq.producer(retry_s=60.0, on_weak="return") as producer:
            assert (await producer.publish("orders", b"alone", queue=0)).epoch == 2
        for name in ("a1", "ns"):
            await group.kill(name)
        group.node("ns").lose_disk()
        for name in ("ns", "a0"):  # who have never heard of epoch 2
            group.node(name).start()
        await until(leads(mq, "a0:10911"))
        for ends in split:
            group.world.network.heal(*ends)
        group.node("a1").start()
        await asyncio.sleep(NAMESERVER_SETTLES_S)

        with pytest.raises(NotPermitted, match=r"a/1 cannot lead all the same; it waits for its id: .* belongs to a/0 at a0:10911"):
            await mq.admin.change_role("a1:10911", accept_loss=True)
        await mq.admin.change_role("a1:10911", leads=False)

        await group.in_sync(mq)

    play(story, TWO_SLAVES)


@pytest.mark.parametrize("messages", [0, 1])
def test_an_old_master_that_starts_again_does_not_lead_beside_one_whose_promotion_no_nameserver_has_heard_of(messages: int) -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await topic(mq)
        async with mq.producer() as producer:
            for number in range(messages):
                await producer.publish("orders", b"%d" % number, queue=0)
        await asyncio.sleep(NAMESERVER_SETTLES_S)
        group.world.network.cut("a1", "ns")
        await group.kill("a0")
        with contextlib.suppress(OutOfReach):  # it leaves at once, and its answer may be lost by that
            await mq.admin.change_role("a1:10911", old_master_is_stopped=True)
        await until(leads(mq, "a1:10911"))

        group.node("a0").start()

        for _ in range(100):
            await asyncio.sleep(0.1)
            assert not await leads(mq, "a0:10911")()
        group.world.network.heal("a1", "ns")
        await group.in_sync(mq, "a/1")
        assert (await mq.admin.ha_status("a1:10911")).epoch == 2

    play(story)


def test_nobody_is_granted_the_epoch_that_another_slave_is_taking_though_the_old_master_has_made_room_already() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        promoting = asyncio.create_task(mq.admin.change_role("a/1"))
        async with asyncio.timeout(60):
            while not any("stepped_down node=a/0" in line for line in group.world.transcript.lines):  # noqa: ASYNC110  # nodes tell nobody
                await asyncio.sleep(0.0001)
        group.node("a1").faults.slowness = 1_000.0
        await until(follows(mq, "a0:10911"))

        with pytest.raises(NotPermitted, match="a/1 is told to lead just now"):
            await mq.admin.change_role("a/2")

        group.node("a1").faults.slowness = 1.0
        assert (await promoting).epoch == 2
        await group.in_sync(mq, "a/1")
        assert (await mq.admin.ha_status("a/1")).epoch == 2

    play(story, TWO_SLAVES)


def test_a_slave_whose_disk_was_replaced_lets_nobody_lead_without_what_only_its_old_disk_and_the_silent_master_had() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await topic(mq)
        async with mq.producer() as producer:
            await producer.publish("orders", b"on all three", queue=0)
            await group.in_sync(mq)
            await group.kill("a2")
            receipt = await producer.publish("orders", b"on the master and a1", queue=0)
        assert receipt.status is PutStatus.PUT_OK
        await group.kill("a0")
        await group.replace_disk("a1")
        group.node("a2").start()
        await until(follows(mq, "a1:10911"))
        await until(follows(mq, "a2:10911"))

        for _ in range(2):
            with pytest.raises(NotPermitted, match=r"a/1 may lack what it acknowledged: its disk is new"):
                await mq.admin.change_role("a2:10911", old_master_is_stopped=True)
            await group.kill("a1")  # and it does not forget that it is new
            group.node("a1").start()
            await until(follows(mq, "a1:10911"))

        group.node("a0").start()
        await group.in_sync(mq)
        await asyncio.sleep(2)
        await group.kill("a0")
        await mq.admin.change_role("a1:10911", old_master_is_stopped=True)  # it has caught up, and is a witness again
        group.node("a0").start()
        await group.in_sync(mq, "a/1")
        assert await bodies(mq, "a/1") == [b"on all three", b"on the master and a1"]

    play(story, TWO_SLAVES)


def test_a_copy_that_was_promoted_before_it_noted_that_it_was_filled_is_a_witness_when_it_is_a_slave_again() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await topic(mq)
        async with mq.producer() as producer:
            await producer.publish("orders", b"on all three", queue=0)
            await group.replace_disk("a1")
            await until(follows(mq, "a1:10911"))  # not the process before it
            await until(is_followed(mq, "a0:10911", "a/1"))
            await mq.admin.change_role("a/1")
            await until(is_followed(mq, "a1:10911", "a/0"))
            await mq.admin.change_role("a/0")
            await until(is_followed(mq, "a0:10911", "a/1"))
        for machine in ("a0", "a1", "a2"):
            await group.kill(machine)
        for machine in ("a1", "a2"):
            group.node(machine).start()
            await until(follows(mq, f"{machine}:10911"))

        change = await mq.admin.change_role("a2:10911", old_master_is_stopped=True)

        assert change.may_be_lost == "what a/0 confirmed on fewer than 2 copies, if anything: only that one knows"

    play(story, TWO_SLAVES)


@pytest.mark.parametrize("floor", [1, 2])
def test_what_a_silent_master_confirmed_alone_is_named_as_what_may_be_lost_where_it_could(floor: int) -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await topic(mq)
        async with mq.producer(on_weak="return", timeout_s=20.0, retry_s=5.0) as producer:
            await producer.publish("orders", b"on both", queue=0)
            await asyncio.sleep(3.0)
            await group.kill("a1")
            for _ in range(3):  # it gives the slave up after two
                with contextlib.suppress(DittoError):
                    await producer.publish("orders", b"on the master", queue=0)
            status = await mq.admin.ha_status("a0:10911")
            assert (status.confirmed == status.end) == (floor == 1)
        await group.kill("a0")
        group.node("a1").start()
        await until(follows(mq, "a1:10911"))

        with pytest.raises(NotPermitted, match="a/1 lacks nothing confirmed" + (" by 2 copies" if floor == 1 else "$")):
            await mq.admin.change_role("a1:10911")
        change = await mq.admin.change_role("a1:10911", old_master_is_stopped=True)
        assert ("what a/0 confirmed on fewer than 2 copies" in change.may_be_lost) == (floor == 1)

    play(story, Shape(1, ReplicationTable(mode=Mode.SYNC_MASTER, replicas_expected=1, min_in_sync_replicas=floor), FlushMode.SYNC_FLUSH))


def test_a_master_on_an_empty_disk_waits_while_one_that_led_before_it_gives_way_to_the_epoch_it_has_opened() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await topic(mq)
        async with mq.producer(timeout_s=20.0, retry_s=60.0) as producer:
            await mq.admin.change_role("a/1")
            await until(leads(mq, "a1:10911"))
            await group.in_sync(mq, "a/1")
            await group.kill("a1")
            await mq.admin.change_role("a0:10911", old_master_is_stopped=True)
            await until(is_followed(mq, "a0:10911", "a/2"))
            assert (await producer.publish("orders", b"confirmed", queue=0)).status is PutStatus.PUT_OK
        await asyncio.sleep(2.0)
        await group.kill("a2")
        await group.replace_disk("a0")
        await asyncio.sleep(NAMESERVER_SETTLES_S)  # it has its id there again
        group.node("a1").start()  # it has never heard of the epoch that a/0 has opened

        await until(follows(mq, "a1:10911"))
        await asyncio.sleep(2.0)
        group.node("a2").start()
        await group.in_sync(mq, "a/0")
        assert await bodies(mq, "a/0") == await bodies(mq, "a/1") == [b"confirmed"]

    play(story, TWO_SLAVES)
