"""A topic that is deleted on the master is emptied on its slaves, and nothing else is."""

from pathlib import Path

from dittomq.broker.metadata_sync import MetadataPuller
from dittomq.errors import OutOfReach
from dittomq.metadata.formats import TOPICS
from dittomq.metadata.tables import Ask
from tests.support.fake_master import FakeMaster, Slave
from tests.support.metadata_node import MetadataNode, run


def test_deletions_arrive_and_empty_the_queues(tmp_path: Path) -> None:
    async def story() -> None:
        master = FakeMaster()
        master.topics("orders", "paid", "sent", counter=1)
        slave = Slave(tmp_path, master)
        slave.store.ranges = {("orders", 0): (0, 7), ("orders", 1): (2, 3), ("paid", 0): (0, 9), ("sent", 0): (4, 4)}
        await slave.puller.pull_once()
        assert slave.store.deleted == []

        master.topics("paid", counter=2)
        await slave.puller.pull_once()

        assert slave.node.topics == ["paid"]
        assert slave.store.ranges == {("orders", 0): (7, 7), ("orders", 1): (3, 3), ("paid", 0): (0, 9), ("sent", 0): (4, 4)}

    run(story())


def test_a_log_that_brings_more_of_a_deleted_topic_is_emptied_again(tmp_path: Path) -> None:
    async def story() -> None:
        master = FakeMaster()
        master.topics("paid", counter=2)
        slave = Slave(tmp_path, master)
        slave.store.ranges = {("orders", 0): (0, 7)}
        await slave.puller.pull_once()

        slave.store.ranges["orders", 0] = (7, 12)
        await slave.puller.pull_once()

        assert slave.store.ranges == {("orders", 0): (12, 12)}

    run(story())


def test_a_table_that_never_held_anything_and_a_pull_that_fails_empty_nothing(tmp_path: Path) -> None:
    def silent(kind: str, ask: Ask) -> None:
        raise OutOfReach("a/0", "connection refused")

    async def story() -> None:
        master = FakeMaster()
        slave = Slave(tmp_path, master)
        slave.store.ranges = {("orders", 0): (0, 7)}
        await slave.puller.pull_once()

        master.topics("paid", counter=2)
        master.before = silent
        await slave.puller.pull_once()

        assert slave.store.deleted == []

    run(story())


def test_the_system_s_own_topics_are_never_emptied(tmp_path: Path) -> None:
    async def story() -> None:
        master = FakeMaster()
        master.topics("paid", counter=2)
        slave = Slave(tmp_path, master)
        slave.store.ranges = {("RMQ_SYS_TRANS_OP_HALF_TOPIC", 0): (0, 7)}

        await slave.puller.pull_once()

        assert slave.store.deleted == []

    run(story())


def test_a_recovering_master_takes_a_slaves_tables_and_leaves_its_queues_alone(tmp_path: Path) -> None:
    async def story() -> None:
        slave = FakeMaster()
        slave.topics("orders", counter=7, epoch=3)
        node = MetadataNode.make(tmp_path)
        await MetadataPuller(slave, node.metadata, node.clock, queues=None).pull_once()

        await node.metadata.lead(4)

        assert node.topics == ["orders"]
        assert node.metadata.table(TOPICS).version.state_version == 4

    run(story())
