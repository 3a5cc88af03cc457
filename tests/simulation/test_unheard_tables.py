"""A slave that is to lead before it has heard of the tables of its master, which RocketMQ wrote."""

import asyncio
import contextlib

import pytest

from dittomq.broker.config_files import ConfigFiles
from dittomq.broker.doors import BrokerDoors
from dittomq.client import AsyncClient
from dittomq.errors import NotReady, OutOfReach
from dittomq.metadata.formats import CONSUMER_OFFSETS
from dittomq.metadata.rows import ConsumerOffset
from dittomq.metadata.tables import Table, sorted_rows
from dittomq.routes import DataVersion
from tests.simulation.disk import BOUNDLESS
from tests.simulation.group import Group, play
from tests.simulation.network import Socket
from tests.simulation.streams import Opened
from tests.simulation.world import Power

NAMESERVER_SETTLES_S = 40.0
ONLY_THE_OLD_MASTER_KNOWS = "what a/0 confirmed on fewer than 2 copies, if anything: only that one knows"
OF_ROCKETMQ = Table(DataVersion(0, 1_000, 7), sorted_rows([ConsumerOffset("orders", "billing", 0, 1)]))


async def begin_anew_beside_rocketmqs_tables(group: Group, mq: AsyncClient) -> None:
    """The master leads alone, with messages and with offsets of consumers; its slave has just started on an empty disk."""
    async with mq.producer() as producer:
        await mq.admin.create_topic("orders", 1)
        await producer.publish("orders", b"before", queue=0)
    await asyncio.sleep(NAMESERVER_SETTLES_S)
    await group.node("a0").stop()
    group.node("a1").crash(Power.LOSS)
    await group.world.buried()
    group.node("a1").lose_disk()
    serve = group.node("a0").serve

    async def write(doors: BrokerDoors, _: asyncio.Event) -> None:
        for _step in ConfigFiles(doors.storage, "a/0").save(CONSUMER_OFFSETS, OF_ROCKETMQ):
            pass

    group.node("a0").serve = write
    group.node("a0").start()
    await group.node("a0").ended()
    group.node("a0").serve = serve
    group.node("a0").start()
    await asyncio.sleep(2.0)
    async with mq.producer(on_weak="return") as producer:
        await producer.publish("orders", b"after", queue=0)
    group.node("a1").start()


def has_offsets(group: Group, machine: str) -> bool:
    return CONSUMER_OFFSETS.path in group.node(machine).disk.names.files


def break_whoever_asks_for_tables(sender: Socket, payload: object) -> None:
    match payload:
        case (int(), Opened(method)) if "/GetAll" in method:
            sender.break_here("it asks for a table")


async def copied(mq: AsyncClient) -> None:
    """Wait until the slave has the whole log."""
    while True:
        with contextlib.suppress(OutOfReach):
            if (await mq.admin.ha_status("a1:10911")).flushed == (await mq.admin.ha_status("a0:10911")).end:
                return
        await asyncio.sleep(0.1)


def test_a_slave_that_leads_before_it_has_heard_of_its_masters_tables_names_them_as_what_may_be_lost() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        group.world.network.tap = break_whoever_asks_for_tables
        await begin_anew_beside_rocketmqs_tables(group, mq)
        await copied(mq)
        await group.kill("a0")
        assert not has_offsets(group, "a1")

        change = await mq.admin.change_role("a1:10911", old_master_is_stopped=True)

        said = "a/1 has not heard of its master's topics, subscription groups, consumer offsets, delay offsets yet"
        assert change.may_be_lost == f"{said}; {ONLY_THE_OLD_MASTER_KNOWS}"
        assert any("promoted" in line and said in line for line in group.world.transcript.lines)
        group.node("a0").start()
        await group.in_sync(mq, "a/1")

    play(story)


def test_a_slave_that_cannot_hear_of_its_masters_tables_asks_that_one_to_step_down_when_it_can() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        group.world.network.tap = break_whoever_asks_for_tables
        await begin_anew_beside_rocketmqs_tables(group, mq)
        await copied(mq)
        with pytest.raises(NotReady, match=r"has not heard of its master's .*consumer offsets.* yet; give the command again"):
            await mq.admin.change_role("a1:10911")
        group.world.network.tap = lambda *_: None
        await asyncio.sleep(2.0)  # its next connection

        change = await mq.admin.change_role("a1:10911")

        assert change.may_be_lost == ""
        assert has_offsets(group, "a1")
        await group.in_sync(mq, "a/1")

    play(story)


def test_a_slave_that_starts_again_without_its_master_and_holds_tables_says_nothing_of_those_that_are_empty() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await mq.admin.create_topic("orders", 1)
        await asyncio.sleep(2.0)
        for machine in ("a0", "a1"):
            await group.kill(machine)
        group.node("a1").start()
        await asyncio.sleep(15.0)

        change = await mq.admin.change_role("a1:10911", old_master_is_stopped=True)

        assert change.may_be_lost == ONLY_THE_OLD_MASTER_KNOWS

    play(story)


def test_a_promoted_master_serves_on_when_its_disk_has_no_room_for_a_topic_that_only_its_log_knows() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        node = group.node("a1")
        async with mq.producer() as producer:
            await mq.admin.create_topic("orders", 1)
            await producer.publish("orders", b"before", queue=0)
            await asyncio.sleep(5.0)
            group.world.network.tap = break_whoever_asks_for_tables
            await mq.admin.create_topic("late", 1)
            await producer.publish("late", b"confirmed", queue=0)
        await group.kill("a0")

        async def fill() -> None:
            while not any("epoch_opened node=a/1" in line for line in group.world.transcript.lines):  # noqa: ASYNC110  # nodes tell nobody
                await asyncio.sleep(0.00005)
            node.disk.capacity_bytes = node.disk.used_bytes() + 512 * 1024

        filling = asyncio.create_task(fill())
        with contextlib.suppress(OutOfReach):
            await mq.admin.change_role("a1:10911", old_master_is_stopped=True)
        await filling
        lives = node.lives
        await asyncio.sleep(30.0)
        assert (node.running, node.lives) == (True, lives)

        node.disk.capacity_bytes = BOUNDLESS
        await asyncio.sleep(3.0)
        page = await mq.reader("late", queue=0, node="a/1").pull(0)
        assert [message.body for message in page.messages] == [b"confirmed"]

    play(story)
