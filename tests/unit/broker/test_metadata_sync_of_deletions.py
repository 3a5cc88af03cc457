"""What a slave hides of deleted topics: what its master hides, before a topic made again is seen, and nothing else."""

import asyncio
from pathlib import Path

import pytest

from dittomq.broker.metadata_sync import MetadataPuller, take_tables
from dittomq.errors import StorageFailure, Unavailable
from dittomq.metadata.formats import TOPICS
from dittomq.metadata.tables import Ask, QueueMinimums
from dittomq.offsets import Epoch
from tests.support.fake_master import FakeMaster, Slave, running
from tests.support.metadata_node import MetadataNode, run
from tests.support.virtual_time import under


@under(run)
async def test_a_deletion_arrives_and_empties_the_queues(tmp_path: Path) -> None:
    master = FakeMaster()
    master.topics("orders", "paid", counter=1)
    slave = Slave(tmp_path, master)
    slave.store.ranges = {("orders", 0): (0, 7), ("orders", 1): (2, 3), ("paid", 0): (0, 9)}
    await slave.puller.pull_once()
    assert slave.store.hidden == {}

    master.topics("paid", counter=2, minimums={("orders", 0): 7, ("orders", 1): 3})
    await slave.puller.pull_once()

    assert slave.node.topics == ["paid"]
    assert slave.store.ranges == {("orders", 0): (7, 7), ("orders", 1): (3, 3), ("paid", 0): (0, 9)}


@under(run)
async def test_topic_recreated_between_two_pulls_shows_no_old_message(tmp_path: Path) -> None:
    master = FakeMaster()
    master.topics("orders", counter=1)
    slave = Slave(tmp_path, master)
    slave.store.ranges = {("orders", 0): (0, 7)}
    await slave.puller.pull_once()

    master.topics("orders", counter=3, minimums={("orders", 0): 7})
    await slave.puller.pull_once()

    assert slave.node.topics == ["orders"]
    assert slave.store.ranges == {("orders", 0): (7, 7)}


@under(run)
async def test_queues_begin_at_their_minimum_before_the_table_that_says_so_is_seen(tmp_path: Path) -> None:
    master = FakeMaster()
    master.topics("orders", counter=3, minimums={("orders", 0): 7})
    slave = Slave(tmp_path, master)
    seen: list[list[str]] = []
    slave.before_hiding = lambda: seen.append(slave.node.topics)

    await slave.puller.pull_once()

    assert seen == [[]]
    assert slave.node.topics == ["orders"]


@under(run)
async def test_a_table_whose_minimums_cannot_be_kept_is_not_seen(tmp_path: Path) -> None:
    def fail() -> None:
        raise StorageFailure("replacement", "dittomq/queue-minimums", "Input/output error")

    master = FakeMaster()
    master.topics("orders", counter=3, minimums={("orders", 0): 7})
    slave = Slave(tmp_path, master)
    slave.before_hiding = fail

    with pytest.raises(StorageFailure):
        await slave.puller.pull_once()

    assert slave.node.topics == []


@under(run)
async def test_minimums_are_hidden_again_in_each_round_and_at_the_start(tmp_path: Path) -> None:
    master = FakeMaster()
    master.topics("orders", counter=3, minimums={("orders", 0): 7})
    slave = Slave(tmp_path, master)
    await slave.puller.pull_once()
    slave.store.ranges["orders", 0] = (0, 5)  # a cut has lowered it

    await slave.puller.pull_once()
    assert slave.store.ranges["orders", 0] == (7, 7)

    again = Slave(tmp_path, master)
    await again.node.metadata.load()
    again.store.ranges["orders", 0] = (0, 5)
    async with running(again):
        await asyncio.sleep(0.1)
    assert again.store.ranges["orders", 0] == (7, 7)


@under(run)
async def test_a_pull_that_fails_hides_nothing_new(tmp_path: Path) -> None:
    def silent(kind: str, ask: Ask) -> None:
        raise Unavailable("a/0", "connection refused")

    master = FakeMaster()
    slave = Slave(tmp_path, master)
    slave.store.ranges = {("orders", 0): (0, 7)}
    await slave.puller.pull_once()

    master.topics("paid", counter=2, minimums={("orders", 0): 7})
    master.before = silent
    await slave.puller.pull_once()

    assert slave.store.ranges == {("orders", 0): (0, 7)}


@under(run)
async def test_only_the_master_of_its_epoch_says_where_queues_are_shown_again(tmp_path: Path) -> None:
    master, shown = FakeMaster(), []

    async def show_again(minimums: QueueMinimums) -> None:
        shown.append(dict(minimums))

    master.topics("orders", counter=3, epoch=2, minimums={("paid", 0): 4})
    slave = Slave(tmp_path, master)
    puller = MetadataPuller(master, slave.node.metadata, slave.node.clock, slave.hide, show_again=show_again)
    for led in (0, 1):  # it does not lead, or has not changed them since it leads
        master.led = Epoch(led)
        await puller.pull_once()
    master.topics("old", counter=2, epoch=2)
    await puller.pull_once()
    assert shown == []

    master.topics("orders", counter=3, epoch=2, minimums={("paid", 0): 4})
    master.led = Epoch(2)
    await puller.pull_once()
    assert shown == [{("paid", 0): 4}]


@under(run)
async def test_queues_of_a_topic_that_the_master_never_had_are_left_alone(tmp_path: Path) -> None:
    master = FakeMaster()
    master.topics("paid", counter=2)
    slave = Slave(tmp_path, master)
    slave.store.ranges = {("orders", 0): (0, 7), ("RMQ_SYS_TRANS_OP_HALF_TOPIC", 0): (0, 7)}

    await slave.puller.pull_once()

    assert slave.store.hidden == {}


@under(run)
async def test_a_recovering_master_takes_over_a_slaves_tables_with_their_minimums(tmp_path: Path) -> None:
    slave = FakeMaster()
    slave.topics("orders", counter=7, epoch=3, minimums={("paid", 1): 40})
    node = MetadataNode.make(tmp_path)
    await take_tables(slave, node.metadata, node.clock)

    await node.metadata.lead(Epoch(4), {("paid", 1): 20, ("sent", 0): 5})

    table = node.metadata.table(TOPICS)
    assert (list(table.rows), table.version.state_version) == (["orders"], 4)
    assert table.minimums == {("paid", 1): 40, ("sent", 0): 5}


@under(run)
async def test_recovering_master_keeps_tables_newer_than_a_slaves(tmp_path: Path) -> None:
    """It takes the others."""
    slave, node = FakeMaster(), MetadataNode.make(tmp_path)
    slave.topics("orders", "paid", counter=8, epoch=3)
    await take_tables(slave, node.metadata, node.clock)
    slave.topics("orders", counter=7, epoch=3)

    await take_tables(slave, node.metadata, node.clock)

    assert list(node.metadata.table(TOPICS).rows) == ["orders", "paid"]
