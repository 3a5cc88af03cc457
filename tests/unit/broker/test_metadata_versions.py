"""Which of two versions of a table a slave shows: the newer one, and of two masters of one epoch that of the one that leads."""

import asyncio
from pathlib import Path

import pytest

from dittomq.broker.metadata_sync import MetadataPuller
from dittomq.metadata.formats import GROUPS, TOPICS
from dittomq.metadata.rows import GroupConfig
from dittomq.metadata.tables import QueueMinimums
from dittomq.metadata.topics import TopicConfig
from dittomq.offsets import Epoch
from dittomq.routes import DataVersion
from tests.support.fake_master import FakeMaster, Slave, running
from tests.support.metadata_node import run
from tests.support.virtual_time import under


@pytest.mark.parametrize(
    "older", [DataVersion(1, 9_000, 9), DataVersion(2, 9_000, 4), DataVersion(2, 999, 5)], ids=["epoch", "counter", "timestamp"]
)
@under(run)
async def test_a_table_older_than_the_one_held_is_discarded(tmp_path: Path, older: DataVersion) -> None:
    master = FakeMaster()
    master.put(TOPICS, [TopicConfig("new")], DataVersion(2, 1_000, 5))
    slave = Slave(tmp_path, master)
    await slave.puller.pull_once()

    master.put(TOPICS, [TopicConfig("old")], older)
    master.tables[TOPICS.name] = master.tables[TOPICS.name].hiding({("new", 0): 7})
    await slave.puller.pull_once()

    assert slave.node.topics == ["new"]
    assert "older than" in slave.puller.status[TOPICS.name].problem
    assert slave.store.hidden == {}


@under(run)
async def test_tables_of_another_master_of_the_epoch_yield_to_the_leading_ones(tmp_path: Path) -> None:
    lonely, promoted = FakeMaster(), FakeMaster()
    lonely.topics("orders", "lonely", counter=6, epoch=2)
    promoted.topics("orders", counter=5, epoch=2)
    lonely.put(GROUPS, [GroupConfig("billing")], DataVersion(2, 1_000, 6))
    promoted.put(GROUPS, [GroupConfig("shipping")], DataVersion(2, 1_000, 5))
    await Slave(tmp_path, lonely).puller.pull_once()
    slave = Slave(tmp_path, promoted)
    await slave.node.metadata.load()
    for led in (0, 1, 3):
        promoted.led = Epoch(led)
        await slave.puller.pull_once()
        assert slave.node.topics == ["lonely", "orders"]

    promoted.led = Epoch(2)
    async with running(slave):
        slave.puller.topics_at(DataVersion(2, 1_000, 5))
        await asyncio.sleep(1.0)
        assert slave.node.topics == ["orders"]
        assert list(slave.node.metadata.table(GROUPS).rows) == ["shipping"]


@under(run)
async def test_of_two_pulls_that_overtake_each_other_the_newer_one_stays(tmp_path: Path) -> None:
    master = FakeMaster()
    master.topics("orders", counter=1)
    slave = Slave(tmp_path, master)
    master.led = Epoch(1)
    await slave.puller.pull_once()
    overtaken, goes_on = asyncio.Event(), asyncio.Event()

    async def wait_once(minimums: QueueMinimums) -> None:
        if not overtaken.is_set():
            overtaken.set()
            await goes_on.wait()

    slow = MetadataPuller(master, slave.node.metadata, slave.node.clock, wait_once)
    master.topics("orders", "paid", counter=2, minimums={("gone", 0): 1})
    pulling = asyncio.create_task(slow.pull_once())
    await overtaken.wait()
    master.topics("orders", counter=3)
    await slave.puller.pull_once()
    goes_on.set()
    await pulling

    assert slave.node.metadata.table(TOPICS).version == DataVersion(1, 1_000, 3)


@under(run)
async def test_a_table_held_from_before_a_restart_is_not_replaced_by_an_older_one(tmp_path: Path) -> None:
    master = FakeMaster()
    master.topics("new", counter=5)
    await Slave(tmp_path, master).puller.pull_once()

    master.topics("old", counter=4)
    slave = Slave(tmp_path, master)
    await slave.node.metadata.load()
    await slave.puller.pull_once()

    assert slave.node.topics == ["new"]
