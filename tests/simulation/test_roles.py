"""Which service a node is: as configured, until a role change decided otherwise."""

import asyncio

import pytest

from dittomq.broker.doors import BrokerDoors
from dittomq.broker.role import BrokerService, Grant, save_grant
from dittomq.cli.ha_report import build_report, report_lines
from dittomq.client import AsyncClient, Producer, PutStatus
from dittomq.errors import ChangeUnknown, DittoError, NotPermitted, NotReady, OutOfReach
from dittomq.offsets import Epoch, PhysicalOffset
from dittomq.wire.admin import RoleChange
from services.master.config import Mode, ReplicationTable
from services.slave.config import FlushMode
from tests.simulation.group import Group, play
from tests.simulation.network import Socket
from tests.simulation.shapes import Shape
from tests.simulation.streams import Opened, Status
from tests.simulation.world import Node, Power

NAMESERVER_SETTLES_S = 40.0
HANGS = 1_000_000.0  # 100 s and more for every frame
STRICT = Shape(2, ReplicationTable(mode=Mode.SYNC_MASTER, replicas_expected=2, min_in_sync_replicas=2), FlushMode.SYNC_FLUSH)


async def decide(node: Node, grant: Grant) -> None:
    """Write a role change down on the disk of a machine that stands still."""
    serve = node.serve

    async def write(doors: BrokerDoors, _: asyncio.Event) -> None:
        doors.storage.make_folder("dittomq")
        save_grant(doors.storage, grant)

    node.serve = write
    node.start()
    await node.ended()
    node.serve = serve


async def change_places(group: Group) -> None:
    for name in ("a1", "a0"):
        await group.node(name).stop()
    await decide(group.node("a0"), Grant(BrokerService.SLAVE, 1, Epoch(9), "a/1", PhysicalOffset(0)))
    await decide(group.node("a1"), Grant(BrokerService.MASTER, 0, Epoch(9), "a/0", PhysicalOffset(0)))


def test_nodes_obey_a_role_change_over_their_configuration_and_keep_every_message() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        [created] = await mq.admin.create_topic("orders", 1)
        assert created.error is None
        async with mq.producer() as producer:
            await producer.publish("orders", b"before", queue=0)
        await change_places(group)

        for name in ("a0", "a1"):
            group.node(name).start()
        await group.in_sync(mq, "a/1")

        assert (await mq.admin.ha_status("a1:10911")).node == "a/1"
        assert (await mq.admin.ha_status("a1:10911")).writable
        assert not (await mq.admin.ha_status("a0:10911")).writable
        async with mq.producer() as producer:
            assert (await producer.publish("orders", b"after", queue=0)).status is PutStatus.PUT_OK
        page = await mq.reader("orders", queue=0, max_messages=100).pull(0)
        assert [message.body for message in page.messages] == [b"before", b"after"]

    play(story)


def test_a_slave_that_is_told_to_lead_changes_places_with_its_master_and_nothing_is_lost_or_asked_twice() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        [created] = await mq.admin.create_topic("orders", 1)
        assert created.error is None
        async with mq.producer() as producer:
            for number in range(20):
                await producer.publish("orders", f"before {number}", queue=0)

            change = await mq.admin.change_role("a/1")
            receipts = [await producer.publish("orders", f"after {number}", queue=0) for number in range(20)]

        assert change.may_be_lost == ""
        assert {receipt.epoch for receipt in receipts} == {change.epoch}
        assert all(
            {(copy.node, copy.state.value) for copy in receipt.copies} == {("a/0", "flushed"), ("a/1", "flushed")} for receipt in receipts
        )
        await group.in_sync(mq, "a/1")
        roles = {node.name: node.broker_id for node in await mq.admin.list_brokers()}
        assert roles == {"a/1": 0, "a/0": 1}
        page = await mq.reader("orders", queue=0, max_messages=100).pull(0)
        assert [message.body for message in page.messages] == [f"{when} {n}".encode() for when in ("before", "after") for n in range(20)]

    play(story)


@pytest.mark.parametrize("seed", range(4))
def test_no_producer_waits_for_longer_than_a_second_while_places_are_changed(seed: int) -> None:
    """By the simulated clock, where a busy machine costs nothing: disks and networks take their time, starts of processes do not."""
    waits: list[float] = []

    async def publish(group: Group, producer: Producer, queue: int) -> None:
        while True:
            began = group.now
            receipt = await producer.publish("orders", b"under load", queue=queue)
            waits.append(group.now - began)
            assert receipt.status is PutStatus.PUT_OK

    async def story(group: Group, mq: AsyncClient) -> None:
        [created] = await mq.admin.create_topic("orders", 4)
        assert created.error is None
        async with mq.producer() as producer, asyncio.TaskGroup() as tasks:
            busy = [tasks.create_task(publish(group, producer, queue)) for queue in range(4)]
            for node in ("a/1", "a/2", "a/0", "a/1"):
                await asyncio.sleep(1.0)
                await mq.admin.change_role(node)
                await group.in_sync(mq, node)
            for task in busy:
                task.cancel()

    play(story, STRICT, seed)
    print(f"longest wait {max(waits):.3f} s of {len(waits):,}")
    assert max(waits) <= 1.0


def test_places_are_changed_back_by_the_same_command() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        for node in ("a/1", "a/0", "a/1"):
            await mq.admin.change_role(node)
            await group.in_sync(mq, node)

        assert {node.name: node.broker_id for node in await mq.admin.list_brokers()} == {"a/1": 0, "a/0": 1}

    play(story)


def _silence_when_about_to_step_down(group: Group, source: str, target: str) -> None:
    """From the moment at which the master has asked back whether it is to step down nothing gets from one machine to the other."""
    asked_back: set[int] = set()
    is_asked = False

    def delivered(sender: Socket, payload: object) -> None:
        nonlocal is_asked
        match payload:
            case (int(), Opened(method)) if method.endswith("/StepDown"):
                is_asked = True
            case (int(number), Opened(method)) if is_asked and sender.host == source and method.endswith("/DescribeReplica"):
                asked_back.add(number)
            case (int(number), Status()) if sender.host == target and number in asked_back:
                group.world.network.silence(source, target)
            case _:
                pass

    group.world.network.tap = delivered


@pytest.mark.parametrize(("silent_s", "is_told_in_time"), [(7.0, True), (90.0, False)])
def test_a_slave_that_does_not_hear_whether_its_master_stepped_down_leads_when_that_one_tells_it_in_its_new_place(
    silent_s: float, is_told_in_time: bool
) -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        [created] = await mq.admin.create_topic("orders", 1)
        assert created.error is None
        async with mq.producer(retry_s=200.0) as producer, asyncio.TaskGroup() as tasks:
            await producer.publish("orders", b"before", queue=0)
            _silence_when_about_to_step_down(group, "a0", "a1")
            changing = tasks.create_task(_lead_in_the_end(mq, "a/1"))
            await asyncio.sleep(2.0)
            after = tasks.create_task(producer.publish("orders", b"after", queue=0))
            await asyncio.sleep(silent_s - 2.0)
            assert _who_opened_epochs(group) == ["a/0"], "nobody leads on a guess"
            group.world.network.heal("a0", "a1")
            change, problems = await changing
            assert (change.may_be_lost, (await after).epoch) == ("", change.epoch)

        assert (not problems) is is_told_in_time
        assert all("did not hear whether that one did" in problem for problem in problems[:1])
        await group.in_sync(mq, "a/1")
        assert _who_opened_epochs(group) == ["a/0", "a/1"]
        assert (await mq.admin.ha_status("a/1")).degraded_bytes == 0
        page = await mq.reader("orders", queue=0, max_messages=100).pull(0)
        assert [message.body for message in page.messages] == [b"before", b"after"]

    play(story)


def test_a_master_that_hangs_when_it_is_asked_for_its_tables_keeps_nobody_waiting_for_what_became_of_a_change() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        def delivered(_: Socket, payload: object) -> None:
            match payload:
                case (int(), Opened(method)) if method.endswith("/GetAllTopicConfig"):
                    group.world.network.link("a0", "a1").slowness = HANGS

        await asyncio.sleep(4.0)  # the slave has heard of them once
        group.world.network.tap = delivered
        with pytest.raises(ChangeUnknown, match="did not hear whether that one did"):
            await mq.admin.change_role("a/1")

    play(story)


def test_writes_that_waited_for_a_change_that_is_refused_are_stored_by_the_master_that_leads_on() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        [created] = await mq.admin.create_topic("orders", 1)
        assert created.error is None
        async with mq.producer(timeout_s=8.0) as producer, asyncio.TaskGroup() as tasks:
            await producer.publish("orders", b"before", queue=0)
            group.world.network.silence("a2", "a0")  # what is written now cannot be confirmed
            unconfirmed = tasks.create_task(producer.publish("orders", b"unconfirmed", queue=0))
            await asyncio.sleep(0.5)
            changing = tasks.create_task(_refused_to_lead(mq, "a/1"))
            await asyncio.sleep(0.5)
            waiting = tasks.create_task(producer.publish("orders", b"waiting", queue=0))
            await asyncio.sleep(1.0)
            held = (await mq.admin.ha_status("a/0")).end
            assert "a/1 did not hold all of its log, confirmed, within 3 s" in await changing
            group.world.network.heal("a2", "a0")
            receipts = await unconfirmed, await waiting

        assert [(receipt.status, receipt.epoch, receipt.queue_offset) for receipt in receipts] == [
            (PutStatus.PUT_OK, 1, 1),
            (PutStatus.PUT_OK, 1, 2),
        ]
        assert receipts[1].physical_offset >= held, "it was not written while it waited"
        assert _who_opened_epochs(group) == ["a/0"]

    play(story, Shape(2, ReplicationTable(mode=Mode.SYNC_MASTER, replicas_expected=2, in_sync_replicas=3), FlushMode.SYNC_FLUSH))


def test_a_master_says_for_whom_it_drains_and_since_when_until_it_is_decided_whether_it_gives_its_place_up() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        [created] = await mq.admin.create_topic("orders", 1)
        assert created.error is None
        async with mq.producer(timeout_s=8.0) as producer, asyncio.TaskGroup() as tasks:
            group.world.network.silence("a2", "a0")  # what is written now cannot be confirmed
            unconfirmed = tasks.create_task(producer.publish("orders", b"unconfirmed", queue=0))
            await asyncio.sleep(0.5)
            began_ms = group.node("a0").clock.wall_ms()
            changing = tasks.create_task(_refused_to_lead(mq, "a/1"))
            await asyncio.sleep(1.0)

            drains = await mq.admin.ha_status("a/0")
            report = build_report(await mq.admin.list_brokers(), {"a/0": drains})

            assert (drains.writable, drains.waiting_for) == (False, "it hands its place over to a/1")
            assert drains.nodes[0].state == "handing over, to a/1"
            assert began_ms <= (drains.nodes[0].since_ms or 0) < began_ms + 1000
            assert "NO WRITES: it hands its place over to a/1" in report_lines(report, began_ms)[1]
            assert "did not hold all of its log" in await changing
            leads_on = await mq.admin.ha_status("a/0")
            assert (leads_on.writable, leads_on.nodes[0].state, leads_on.nodes[0].since_ms) == (True, "leading", None)
            group.world.network.heal("a2", "a0")
            await unconfirmed

    play(story, Shape(2, ReplicationTable(mode=Mode.SYNC_MASTER, replicas_expected=2, in_sync_replicas=3), FlushMode.SYNC_FLUSH))


async def _refused_to_lead(mq: AsyncClient, node: str) -> str:
    """Why."""
    try:
        await mq.admin.change_role(node)
    except NotReady as refused:
        return str(refused)
    return "it leads"


async def _lead_in_the_end(mq: AsyncClient, node: str) -> tuple[RoleChange, list[str]]:
    """Give the command until it is obeyed; the change, and why it was not at first."""
    problems: list[str] = []
    while True:
        try:
            return await mq.admin.change_role(node), problems
        except DittoError as unknown:
            problems.append(str(unknown))
        await asyncio.sleep(1.0)


def test_who_does_not_hear_what_became_of_a_change_is_told_that_it_may_have_happened() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await mq.admin.ha_status("a/1")  # there is a connection
        group.world.network.silence("a1", "client")
        with pytest.raises(OutOfReach, match=r"^a/1 does not answer: .*; its role may change all the same, which dittomq ha-status shows$"):
            await mq.admin.change_role("a/1")
        group.world.network.heal("a1", "client")
        await group.in_sync(mq, "a/1")

        await group.kill("a0")
        with pytest.raises(OutOfReach) as nothing_was_sent:
            await mq.admin.change_role("a/0")
        assert "all the same" not in str(nothing_was_sent.value)

    play(story)


def _who_opened_epochs(group: Group) -> list[str]:
    openings = [line.partition("epoch_opened node=")[2] for line in group.world.transcript.lines]
    return [opening.split()[0] for opening in openings if opening]


def test_what_only_the_old_master_wrote_before_its_power_failed_is_cut_when_it_comes_back_and_nothing_else_is() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        [created] = await mq.admin.create_topic("orders", 1)
        assert created.error is None
        await asyncio.sleep(4.0)  # its slaves have heard of the topic
        async with mq.producer(on_weak="return", timeout_s=1.0) as producer:
            before = await producer.publish("orders", b"before", queue=0)
            for slave in ("a1", "a2"):
                group.world.network.silence("a0", slave)
            alone = [await producer.publish("orders", b"alone %d" % number, queue=0) for number in range(2)]
        group.node("a0").crash(Power.LOSS)
        await group.world.buried()
        for slave in ("a1", "a2"):
            group.world.network.heal("a0", slave)
        change = await mq.admin.change_role("a/1", old_master_is_stopped=True)
        async with mq.producer(retry_s=60.0) as producer:
            after = await producer.publish("orders", b"after", queue=0)
        group.node("a0").start()
        await group.in_sync(mq, "a/1")

        assert [receipt.status for receipt in (before, *alone)] == [PutStatus.PUT_OK, *[PutStatus.FLUSH_SLAVE_TIMEOUT] * 2]
        assert alone[0].queue_offset == after.queue_offset, "two logs went on from one point"
        assert (change.may_be_lost, after.epoch) == ("", change.epoch)
        await asyncio.sleep(12)  # slaves hear the confirmed end
        for node in ("a/0", "a/1", "a/2"):
            page = await mq.reader("orders", queue=0, node=node, max_messages=100).pull(0)
            assert [message.body for message in page.messages] == [b"before", b"after"], node
        assert [line for line in group.world.transcript.lines if "log_cut node=a/0" in line]

    play(story, STRICT)


def test_a_promoted_slave_keeps_the_group_when_the_old_master_comes_back() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        [created] = await mq.admin.create_topic("orders", 1)
        assert created.error is None
        async with mq.producer(on_weak="return") as producer:
            await producer.publish("orders", b"before", queue=0)
            await group.kill("a0")  # before its slave has heard of the topic
            with pytest.raises(
                NotPermitted, match=r"a/0 has not confirmed its demotion and may still be writing.*a/1 lacks nothing confirmed"
            ):
                await mq.admin.change_role("a/1")
            change = await mq.admin.change_role("a/1", old_master_is_stopped=True)
            assert change.may_be_lost.startswith("a/1 has not heard of its master's topics")
            assert (await producer.publish("orders", b"after", queue=0)).epoch == change.epoch

        group.node("a0").start()
        await group.in_sync(mq, "a/1")

        assert {node.name: node.broker_id for node in await mq.admin.list_brokers()} == {"a/1": 0, "a/0": 1}
        assert not (await mq.admin.ha_status("a/0")).writable

    play(story)


def test_an_old_master_that_starts_the_moment_another_was_promoted_opens_no_epoch_beside_it() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await mq.admin.create_topic("orders", 1)
        async with mq.producer(on_weak="return") as producer:
            await producer.publish("orders", b"before", queue=0)
        await asyncio.sleep(NAMESERVER_SETTLES_S)
        await group.kill("a0")

        change = await mq.admin.change_role("a/1", old_master_is_stopped=True)
        group.node("a0").start()
        await group.in_sync(mq, "a/1")

        opened = [line for line in group.world.transcript.lines if "epoch_opened" in line and f"epoch={change.epoch} " in line]
        assert len(opened) == 1, opened
        assert not (await mq.admin.ha_status("a0:10911")).writable

    play(story)


def test_a_slave_tells_how_many_slaves_its_group_is_configured_with_also_when_its_master_is_gone() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await group.in_sync(mq)
        await group.kill("a0")
        await asyncio.sleep(NAMESERVER_SETTLES_S)

        assert [(await mq.admin.ha_status(f"a{number}:10911")).replicas_expected for number in (1, 2)] == [2, 2]

    play(story, STRICT)
