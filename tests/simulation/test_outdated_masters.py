"""A master that another one has replaced, or that lacks what its slaves know to be confirmed: what it still says, and what it becomes."""

import asyncio
import contextlib
import copy
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from dittomq.client import AsyncClient, PutStatus
from dittomq.errors import DittoError, NotPermitted, NotReady
from dittomq.offsets import Epoch
from dittomq.routes import Opening, Role
from services.master import handover
from services.master.config import Mode, ReplicationTable
from services.master.node import MasterNode
from services.master.replication import Replication
from services.master.term import Term
from services.slave.config import FlushMode
from tests.simulation.bugs.patches import Patches, always
from tests.simulation.group import Group, bodies, play
from tests.simulation.happened import SAVED_TAIL
from tests.simulation.network import Network
from tests.simulation.shapes import Shape

TWO_SLAVES = Shape(2, ReplicationTable(mode=Mode.SYNC_MASTER, replicas_expected=2), FlushMode.SYNC_FLUSH)


async def is_followed(mq: AsyncClient, master: str, slave: str) -> None:
    """Wait until the master says that the slave, which it hears, is in sync."""
    while True:
        with contextlib.suppress(DittoError):
            if any((view.node, view.state) == (slave, "in sync") for view in (await mq.admin.ha_status(master)).nodes):
                return
        await asyncio.sleep(0.1)


@pytest.fixture
def _asks_no_slave() -> Iterator[None]:
    """A master of an older version: it hears of its successor by nameservers alone."""
    patches = Patches()
    patches.put(Replication, "behind", always([]))
    yield
    patches.undo()


@pytest.mark.usefixtures("_asks_no_slave")
def test_a_slave_that_nameservers_tell_of_a_newer_epoch_confirms_nothing_more_for_the_old_master() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        [created] = await mq.admin.create_topic("orders", 1)
        assert created.error is None
        network = group.world.network
        async with mq.producer(timeout_s=2.0, on_weak="return") as producer:
            await producer.publish("orders", b"before", queue=0)
            for other in ("a1", "ns"):  # from now on the old master has nobody but one slave and this producer
                network.cut("a0", other)
            await mq.admin.change_role("a/1", old_master_is_stopped=True)
            await is_followed(mq, "a1:10911", "a/2")

            late = await producer.publish("orders", b"late", queue=0)

        assert (late.epoch, [str(each) for each in late.copies]) == (1, ["a/0 flushed"])
        assert late.status is not PutStatus.PUT_OK

    play(story, TWO_SLAVES)


def test_a_slave_that_an_old_master_lets_wait_leaves_it_for_the_one_that_nameservers_name() -> None:
    """The old one cannot hear that another one leads, so it lets nobody do anything, for as long as that is so."""

    async def story(group: Group, mq: AsyncClient) -> None:
        [created] = await mq.admin.create_topic("orders", 1)
        assert created.error is None
        async with mq.producer() as producer:
            await producer.publish("orders", b"before", queue=0)
        await group.kill("a0")
        for other in ("a2", "ns"):
            group.world.network.cut("a0", other)
        group.node("a0").start()
        await asyncio.sleep(3.0)
        assert "whether another node leads" in (await mq.admin.ha_status("a0:10911")).waiting_for
        await mq.admin.change_role("a2:10911", old_master_is_stopped=True)

        async with asyncio.timeout(30.0):
            await is_followed(mq, "a2:10911", "a/1")

    play(story, TWO_SLAVES)


def test_a_master_that_hears_of_its_successor_answers_nobody_more_and_follows_it_by_itself() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        [created] = await mq.admin.create_topic("orders", 1)
        assert created.error is None
        async with mq.producer(timeout_s=30.0, on_weak="return") as producer:
            await producer.publish("orders", b"before", queue=0)
            group.world.network.cut("a0", "a1")
            late = asyncio.create_task(producer.publish("orders", b"late", queue=0))  # waits for a1
            await asyncio.sleep(1.0)
            change = await mq.admin.change_role("a/1", old_master_is_stopped=True)
            await asyncio.sleep(1.0)
            assert not late.done()
            group.world.network.heal("a0", "a1")

            receipt = await late
            await group.in_sync(mq, "a/1")

        assert (receipt.epoch, receipt.status) == (change.epoch, PutStatus.PUT_OK)
        assert group.node("a0").lives == 2  # it came back once, and nobody started it
        await asyncio.sleep(11)
        assert await bodies(mq, "a/0") == await bodies(mq, "a/1") == [b"before", b"late"]

    play(story)


def cut(network: Network, other: str) -> None:
    network.cut("a0", other)


def silence(network: Network, other: str) -> None:
    network.silence("a0", other)
    network.silence(other, "a0")


@pytest.mark.parametrize("part", [cut, silence])
def test_a_master_that_was_passed_over_out_of_reach_acknowledges_nothing_more_two_seconds_after_its_links_are_healed(
    part: Callable[[Network, str], None],
) -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        [created] = await mq.admin.create_topic("orders", 1)
        assert created.error is None
        async with mq.producer(timeout_s=2.0, on_weak="return") as producer:
            await producer.publish("orders", b"before", queue=0)
            others = ["a1", "a2", "ns"]
            for other in others:
                part(group.world.network, other)
            change = await mq.admin.change_role("a/1", old_master_is_stopped=True)
            await is_followed(mq, "a1:10911", "a/2")
            late = await producer.publish("orders", b"late", queue=0)  # it has the route of before
            assert (late.epoch, [str(each) for each in late.copies]) == (1, ["a/0 flushed"])

            for other in others:
                group.world.network.heal("a0", other)
            await asyncio.sleep(2.0)

            with contextlib.suppress(DittoError):
                assert not (await mq.admin.ha_status("a0:10911")).writable
            assert (await producer.publish("orders", b"after", queue=0)).epoch == change.epoch
        async with asyncio.timeout(60):
            await group.in_sync(mq, "a/1")

    play(story, TWO_SLAVES)


async def takes_writes(mq: AsyncClient) -> None:
    """Wait until a0 does."""
    while True:
        with contextlib.suppress(DittoError):
            if (await mq.admin.ha_status("a0:10911")).writable:
                return
        await asyncio.sleep(0.1)


async def writes_alone(mq: AsyncClient) -> None:
    """The master a0 writes the message `own` while it has no slave."""
    async with mq.producer(on_weak="return") as producer:
        await producer.publish("orders", b"own", queue=0)


async def confirms_alone(mq: AsyncClient) -> None:
    """The master a0 confirms two messages `own`: for the first one it waits in vain for its slave, twice."""
    for _ in range(2):
        await writes_alone(mq)
    await asyncio.sleep(1.0)
    status = await mq.admin.ha_status("a0:10911")
    assert status.confirmed == status.end


async def come_back_on_an_old_disk(group: Group, mq: AsyncClient, meanwhile: Callable[[AsyncClient], Awaitable[None]]) -> None:
    """The master leads on a disk that lacks the message `more`, which it confirmed; what it does meanwhile; and its slave tells it so."""
    node = group.node("a0")
    async with mq.producer() as producer:
        await producer.publish("orders", b"before", queue=0)
        await node.stop()
        old = copy.deepcopy(node.disk)
        node.start()
        await group.in_sync(mq)
        assert (await producer.publish("orders", b"more", queue=0)).status is PutStatus.PUT_OK
    await asyncio.sleep(11)  # its slave hears that this is confirmed
    await group.kill("a0")
    node.disk = old
    group.world.network.cut("a0", "a1")
    node.start()
    await takes_writes(mq)
    await meanwhile(mq)
    group.world.network.heal("a0", "a1")
    while (await mq.admin.ha_status("a0:10911")).writable:  # noqa: ASYNC110  # it tells nobody
        await asyncio.sleep(0.1)


def test_a_leading_master_that_lacks_confirmed_data_leads_on_without_it_at_the_operators_word_alone() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        [created] = await mq.admin.create_topic("orders", 1)
        assert created.error is None
        await come_back_on_an_old_disk(group, mq, confirms_alone)
        assert await bodies(mq, "a/1") == [b"before", b"more"]
        with pytest.raises(NotPermitted, match=r"takes no writes: a/1 knows .* to be confirmed"):
            await mq.admin.change_role("a/0")

        change = await mq.admin.change_role("a/0", accept_loss=True)
        await group.in_sync(mq)

        assert "a/1 knows" in change.may_be_lost
        async with mq.producer() as producer:
            assert (await producer.publish("orders", b"after", queue=0)).epoch == change.epoch
        assert await bodies(mq, "a/0") == [b"before", b"own", b"own", b"after"]
        await asyncio.sleep(11)
        assert await bodies(mq, "a/1") == [b"before", b"own", b"own", b"after"]

    play(story)


@pytest.fixture
def opening() -> Iterator[asyncio.Event]:
    """A master that has decided to lead opens its epoch when this is set."""
    may_open, patches = asyncio.Event(), Patches()

    def waiting(honest: Any) -> Any:
        async def open_term(node: MasterNode, decision: Any) -> Any:
            await may_open.wait()
            return await honest(node, decision)

        return open_term

    patches.put(MasterNode, "open_term", waiting)
    yield may_open
    patches.undo()


def test_a_master_that_hears_of_its_successor_while_it_opens_its_epoch_does_not_lead_in_it(opening: asyncio.Event) -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        [created] = await mq.admin.create_topic("orders", 1)
        assert created.error is None
        async with mq.producer() as producer:
            await producer.publish("orders", b"before", queue=0)
        opening.clear()
        await group.kill("a0")
        group.node("a0").start()
        await asyncio.sleep(5.0)  # it has decided to lead
        group.world.network.cut("a0", "a1")
        await mq.admin.change_role("a/1", old_master_is_stopped=True)
        await asyncio.sleep(5.0)  # nameservers have told it of its successor
        group.world.network.cut("a0", "ns")  # and tell it nothing more

        opening.set()
        async with asyncio.timeout(5.0):
            await group.node("a0").ended()

        await asyncio.sleep(1.0)
        statuses = [await mq.admin.ha_status(address) for address in ("a0:10911", "a1:10911")]
        assert [(status.role, status.epoch) for status in statuses] == [(Role.SLAVE, 2), (Role.SYNC_MASTER, 3)]

    opening.set()
    play(story)


@pytest.fixture
def _superseded_while_it_steps_down() -> Iterator[None]:
    """A master hears that node 2 has opened epoch 9 when its writes wait already and all is confirmed."""
    patches = Patches()

    def hearing(honest: Any) -> Any:
        async def all_confirmed(term: Term, successor: str) -> bool:
            term.end("nameservers know of epoch 9", Opening(Epoch(9), 2))
            await asyncio.sleep(1.0)
            return bool(await honest(term, successor))

        return all_confirmed

    patches.put(handover, "_all_confirmed", hearing)
    yield
    patches.undo()


@pytest.mark.usefixtures("_superseded_while_it_steps_down")
def test_a_master_that_hears_of_its_successor_while_it_steps_down_makes_room_for_nobody_else() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        with pytest.raises(NotReady, match="its epoch is over: nameservers know of epoch 9"):
            await mq.admin.change_role("a/1")

        await asyncio.sleep(3.0)
        for address in ("a0:10911", "a1:10911"):
            assert (await mq.admin.ha_status(address)).role == Role.SLAVE

    play(story)


@pytest.fixture
def _superseded_while_its_successor_is_behind() -> Iterator[None]:
    """A master hears of epoch 9 when its writes wait for a slave that never comes to hold all of its log."""
    patches = Patches()

    def hearing(honest: Any) -> Any:
        async def all_confirmed(term: Term, _: str) -> bool:
            asyncio.get_running_loop().call_later(0.2, term.end, "nameservers know of epoch 9", Opening(Epoch(9), 2))
            return bool(await honest(term, "a/7"))

        return all_confirmed

    patches.put(handover, "_all_confirmed", hearing)
    yield
    patches.undo()


@pytest.mark.usefixtures("_superseded_while_its_successor_is_behind")
def test_a_master_that_hears_of_its_successor_while_it_steps_down_says_so_before_its_time_is_over() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        began = group.now
        with pytest.raises(NotReady, match="its epoch is over: nameservers know of epoch 9"):
            await mq.admin.change_role("a/1")
        assert group.now - began < 2.0  # a change of places has 3 s

    play(story)


def test_a_master_whose_slaves_confirmed_with_another_one_copies_them_and_cuts_what_it_wrote_alone() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await mq.admin.create_topic("orders", 1)
        await come_back_on_an_old_disk(group, mq, writes_alone)

        async with asyncio.timeout(60):
            await group.in_sync(mq, "a/0")

        assert await bodies(mq, "a/0") == [b"before", b"more"]
        assert any(path.startswith(SAVED_TAIL) for path in group.node("a0").disk.names.files)

    play(story)


def test_a_master_that_led_on_without_a_byte_copies_what_its_slaves_confirmed_meanwhile_and_nobody_decides() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await mq.admin.create_topic("orders", 1)
        async with mq.producer(timeout_s=20.0, retry_s=60.0) as producer:
            await producer.publish("orders", b"before", queue=0)
            await group.in_sync(mq)
            await group.kill("a0")
            await mq.admin.change_role("a/1", old_master_is_stopped=True)
            await is_followed(mq, "a1:10911", "a/2")
            assert (await producer.publish("orders", b"confirmed", queue=0)).status is PutStatus.PUT_OK
        await asyncio.sleep(11.0)  # the slave hears that this is confirmed
        for name in ("a1", "a2", "ns"):
            await group.kill(name)
        group.node("ns").lose_disk()
        group.node("ns").start()
        for _ in range(2):  # nobody has heard of the other, so it leads, the second time in a newer epoch
            if group.node("a0").running:
                await group.kill("a0")
            group.node("a0").start()
            await takes_writes(mq)

        for name in ("a1", "a2"):
            group.node(name).start()

        async with asyncio.timeout(120):
            await group.in_sync(mq, "a/0")
        assert await bodies(mq, "a/0") == [b"before", b"confirmed"]
        assert (await mq.admin.ha_status("a/0")).epoch == 4

    play(story, TWO_SLAVES)
