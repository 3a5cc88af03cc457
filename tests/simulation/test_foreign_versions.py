"""A store of RocketMQ's controller mode: its tables carry a state version that our first epochs do not reach."""

import asyncio

from dittomq.broker.config_files import ConfigFiles
from dittomq.broker.doors import BrokerDoors
from dittomq.client import AsyncClient
from dittomq.metadata.formats import TOPICS, decode
from dittomq.metadata.tables import Table, sorted_rows
from dittomq.metadata.topics import TopicConfig
from dittomq.routes import DataVersion
from tests.simulation.group import Group, play
from tests.simulation.test_unheard_tables import break_whoever_asks_for_tables

OF_ROCKETMQ = Table(DataVersion(100, 1_000, 7), sorted_rows([TopicConfig("orders", 1, 1)]))


async def bring_tables(group: Group, machine: str) -> None:
    """While the node is stopped, its topics become those of a store of RocketMQ."""
    await group.node(machine).stop()
    serve = group.node(machine).serve

    async def write(doors: BrokerDoors, _: asyncio.Event) -> None:
        for _step in ConfigFiles(doors.storage, machine).save(TOPICS, OF_ROCKETMQ):
            pass

    group.node(machine).serve = write
    group.node(machine).start()
    await group.node(machine).ended()
    group.node(machine).serve = serve
    group.node(machine).start()


def topics(group: Group, machine: str) -> tuple[DataVersion, list[str]]:
    file = group.node(machine).disk.names.files[TOPICS.path]
    table = decode(TOPICS, file.read(file.size, 0))
    return table.version, sorted(table.rows)


def test_a_master_that_others_were_promoted_past_takes_their_tables_whatever_version_rocketmq_gave_them() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await bring_tables(group, "a0")
        await group.in_sync(mq)
        await asyncio.sleep(12.0)
        assert topics(group, "a1") == topics(group, "a0")
        group.world.network.tap = break_whoever_asks_for_tables
        for number in range(3):
            await mq.admin.create_topic(f"late-{number}", 1)
        await group.kill("a0")
        group.world.network.tap = lambda *_: None

        await mq.admin.change_role("a1:10911", old_master_is_stopped=True)
        group.node("a0").start()
        await group.in_sync(mq, "a/1")
        await asyncio.sleep(15.0)

        assert topics(group, "a0") == topics(group, "a1")
        assert topics(group, "a1")[1] == ["orders"]

    play(story)


def test_a_master_that_takes_such_a_store_over_opens_no_epoch_below_it() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await mq.admin.create_topic("orders", 1)
        async with mq.producer() as producer:
            await producer.publish("orders", b"one", queue=0)
        await bring_tables(group, "a1")
        await group.in_sync(mq)

        await group.replace_disk("a0")
        await group.in_sync(mq)

        assert (await mq.admin.ha_status("a0:10911")).epoch > OF_ROCKETMQ.version.state_version

    play(story)
