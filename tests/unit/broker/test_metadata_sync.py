"""A slave's tables are some version of its master's: whole, never older than one it has shown, with nothing that was deleted."""

import asyncio
import contextlib
import itertools
from pathlib import Path

import pytest
import structlog

from dittomq.commitlog.disk.storage import OsStorage
from dittomq.errors import StorageFailure, Unavailable
from dittomq.metadata.formats import CONSUMER_OFFSETS, DELAY_OFFSETS, GROUPS, KINDS, TOPICS
from dittomq.metadata.rows import ConsumerOffset, DelayOffset, GroupConfig
from dittomq.metadata.tables import Ask
from dittomq.metadata.topics import TopicConfig
from dittomq.routes import DataVersion
from tests.support.failing_storage import CrashingStorage
from tests.support.fake_master import FakeMaster, Slave, running
from tests.support.metadata_node import MetadataNode, run, whole_table
from tests.support.virtual_time import under


@under(run)
async def test_all_four_tables_arrive_and_are_on_the_disk(tmp_path: Path) -> None:
    master, version = FakeMaster(), DataVersion(2, 1_000, 7)
    master.put(TOPICS, [TopicConfig("orders", 4, 4, other_fields={"x": {1: 2}})], version)
    master.put(GROUPS, [GroupConfig("billing", retry_max_times=3)], version)
    master.put(CONSUMER_OFFSETS, [ConsumerOffset("orders", "billing", 3, 40)], version)
    master.put(DELAY_OFFSETS, [DelayOffset(1, 5, 5)], version)
    slave = Slave(tmp_path, master)

    await slave.puller.pull_once()

    await slave.offsets.save()
    again = MetadataNode.make(tmp_path)
    await again.metadata.load()
    for kind in KINDS:
        assert whole_table(again.metadata, kind) == whole_table(slave.node.metadata, kind) == master.tables[kind.name]


@under(run)
async def test_the_first_round_comes_after_3_s_and_the_next_ones_every_10_s(tmp_path: Path) -> None:
    master = FakeMaster()
    slave = Slave(tmp_path, master)
    async with running(slave):
        await asyncio.sleep(30)

    times = [round(at, 1) for at, kind, _ in master.asked if kind == TOPICS.name]
    assert times == [3.0, 13.0, 23.0]


def topic_pulls(master: FakeMaster) -> list[float]:
    return [round(at, 1) for at, kind, _ in master.asked if kind == TOPICS.name]


@under(run)
async def test_a_slave_that_hears_of_newer_topics_pulls_them_at_once(tmp_path: Path) -> None:
    master = FakeMaster()
    master.topics("orders", counter=1)
    slave = Slave(tmp_path, master)
    async with running(slave):
        await asyncio.sleep(5)
        master.topics("orders", "paid", counter=2)
        slave.puller.topics_at(DataVersion(1, 1_000, 2))
        await asyncio.sleep(0.1)
        assert slave.node.topics == ["orders", "paid"]


@under(run)
async def test_hearing_of_the_version_that_is_held_or_one_of_an_older_epoch_pulls_nothing(tmp_path: Path) -> None:
    master = FakeMaster()
    master.topics("orders", counter=5)
    slave = Slave(tmp_path, master)
    async with running(slave):
        await asyncio.sleep(5)
        for version in (DataVersion(1, 1_000, 5), DataVersion(0, 2_000, 9)):
            slave.puller.topics_at(version)
        await asyncio.sleep(5)

    assert topic_pulls(master) == [3.0]


@under(run)
async def test_whoever_needs_newer_topics_has_them_and_all_share_one_pull_a_second(tmp_path: Path) -> None:
    master = FakeMaster()
    slave = Slave(tmp_path, master)

    async def need(at: float) -> list[str]:
        await asyncio.sleep(at)
        await slave.puller.newer_topics()
        return slave.node.topics

    async def make(at: float) -> None:
        await asyncio.sleep(at)
        master.topics("orders", counter=1)

    async with running(slave), asyncio.TaskGroup() as tasks:
        early = [tasks.create_task(need(0.5)) for _ in range(100)]
        tasks.create_task(make(0.8))
        late = [tasks.create_task(need(1 + number / 100)) for number in range(40)]

    assert {tuple(task.result()) for task in early} == {()}
    assert {tuple(task.result()) for task in late} == {("orders",)}
    assert topic_pulls(master) == [0.5, 1.5]


@under(run)
async def test_caller_waits_at_most_2_s_for_newer_topics_of_a_silent_master(tmp_path: Path) -> None:
    master = FakeMaster()
    slave = Slave(tmp_path, master)
    master.silent_about = {kind.name for kind in KINDS}
    loop = asyncio.get_running_loop()
    async with running(slave):
        await asyncio.sleep(4)
        began = loop.time()
        await slave.puller.newer_topics()

    assert round(loop.time() - began, 3) == 2.0
    assert slave.puller.topics_age_s is None


def age_s(slave: Slave) -> int:
    """Whole seconds; -1 for unknown."""
    age_s = slave.puller.topics_age_s
    return -1 if age_s is None else round(age_s)


@under(run)
async def test_the_age_of_the_topics_is_counted_from_the_last_answer(tmp_path: Path) -> None:
    def fail(kind: str, ask: Ask) -> None:
        raise Unavailable("a/0", "connection refused")

    master = FakeMaster()
    slave = Slave(tmp_path, master)
    assert age_s(slave) == -1
    await slave.puller.pull_once()
    assert age_s(slave) == 0

    master.before = fail
    await asyncio.sleep(42)
    await slave.puller.pull_once()

    assert age_s(slave) == 42


@under(run)
async def test_equal_versions_move_no_rows_and_write_nothing(tmp_path: Path) -> None:
    master = FakeMaster()
    master.topics("orders", counter=1)
    slave = Slave(tmp_path, master)
    await slave.puller.pull_once()
    written = (tmp_path / "config" / "topics.json").stat().st_mtime_ns
    changes = len(slave.node.heard.changes)

    await slave.puller.pull_once()

    assert master.asked[-4:][0][2].known == DataVersion(1, 1_000, 1)
    assert (tmp_path / "config" / "topics.json").stat().st_mtime_ns == written
    assert len(slave.node.heard.changes) == changes


@pytest.mark.parametrize("count", [1, 2_000, 2_001, 4_001])
@under(run)
async def test_every_topic_arrives_also_the_one_alone_on_the_last_page(tmp_path: Path, count: int) -> None:
    master = FakeMaster()
    master.topics(*(f"t{number:05}" for number in range(count)), counter=1)
    slave = Slave(tmp_path, master)

    await slave.puller.pull_once()

    assert slave.node.topics == [f"t{number:05}" for number in range(count)]


@under(run)
async def test_a_reader_never_sees_a_mix_or_an_empty_window(tmp_path: Path) -> None:
    master = FakeMaster()
    master.page_size = 7
    whole: dict[DataVersion, list[str]] = {DataVersion(): []}

    def publish(counter: int) -> None:
        master.topics(*(f"v{counter}-{number}" for number in range(50)), counter=counter)
        table = master.tables[TOPICS.name]
        whole[table.version] = list(table.rows)

    publish(1)
    slave = Slave(tmp_path, master)
    seen: list[DataVersion] = []

    async def read() -> None:
        for turn in itertools.count():
            table = slave.node.metadata.table(TOPICS)
            assert list(table.rows) == whole[table.version]
            if not seen or seen[-1] != table.version:
                seen.append(table.version)
            await asyncio.sleep(0 if turn % 50 else 0.0001)

    reader = asyncio.create_task(read())
    for counter in range(2, 12):
        await slave.puller.pull_once()
        publish(counter)
    reader.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await reader

    assert len(seen) >= 10
    assert seen == sorted(seen, key=lambda version: version.counter)


@under(run)
async def test_a_table_that_moves_on_between_pages_is_pulled_again_from_its_first_page(tmp_path: Path) -> None:
    master = FakeMaster()
    master.page_size = 2
    master.topics("a", "b", "c", "d", "e", counter=1)

    def move_on(kind: str, ask: Ask) -> None:
        if kind == TOPICS.name and ask.page_token and master.tables[kind].version.counter < 3:
            master.topics("a", "c", "e", "g", counter=master.tables[kind].version.counter + 1)

    master.before = move_on
    slave = Slave(tmp_path, master)

    await slave.puller.pull_once()

    assert slave.node.topics == ["a", "c", "e", "g"]
    assert slave.node.metadata.table(TOPICS).version.counter == 3


@under(run)
async def test_a_table_that_moves_on_again_and_again_is_left_for_the_next_round(tmp_path: Path) -> None:
    master = FakeMaster()
    master.page_size = 1
    master.topics("a", "b", counter=1)
    master.put(GROUPS, [GroupConfig("billing")], DataVersion(1, 1_000, 1))

    def move_on(kind: str, ask: Ask) -> None:
        if kind == TOPICS.name and ask.page_token:
            master.topics("a", "b", counter=master.tables[kind].version.counter + 1)

    master.before = move_on
    slave = Slave(tmp_path, master)

    await slave.puller.pull_once()

    assert slave.node.topics == []
    assert "changed since that version was read" in slave.puller.status[TOPICS.name].problem
    assert list(slave.node.metadata.table(GROUPS).rows) == ["billing"]


@under(run)
async def test_a_call_that_fails_is_tried_again_in_the_same_round(tmp_path: Path) -> None:
    master = FakeMaster()
    master.topics("orders", counter=1)
    failures = ["one", "two"]

    def fail(kind: str, ask: Ask) -> None:
        if failures:
            raise Unavailable("a/0", failures.pop())

    master.before = fail
    slave = Slave(tmp_path, master)

    await slave.puller.pull_once()

    assert slave.node.topics == ["orders"]
    assert slave.puller.status[TOPICS.name].problem == ""


@under(run)
async def test_one_table_that_cannot_be_had_keeps_no_other_from_arriving(tmp_path: Path) -> None:
    master = FakeMaster()
    master.put(DELAY_OFFSETS, [DelayOffset(1, 5, 5)], DataVersion(1, 1_000, 1))

    def fail(kind: str, ask: Ask) -> None:
        if kind == TOPICS.name:
            raise Unavailable("a/0", "connection refused")
        if kind == GROUPS.name:
            raise StorageFailure("fdatasync", "config/x", "the disk of the master, not ours")

    master.before = fail
    slave = Slave(tmp_path, master)

    await slave.puller.pull_once()

    assert list(slave.node.metadata.table(DELAY_OFFSETS).rows) == [1]
    assert "connection refused" in slave.puller.status[TOPICS.name].problem
    assert slave.puller.status[TOPICS.name].last_success_s is None
    assert slave.puller.status[DELAY_OFFSETS.name].last_success_s is not None


@under(run)
async def test_a_table_that_the_master_is_silent_about_keeps_no_other_waiting(tmp_path: Path) -> None:
    master = FakeMaster()
    master.put(DELAY_OFFSETS, [DelayOffset(1, 5, 5)], DataVersion(1, 1_000, 1))
    master.silent_about = {TOPICS.name}
    slave = Slave(tmp_path, master)
    async with running(slave):
        await asyncio.sleep(4)

        assert list(slave.node.metadata.table(DELAY_OFFSETS).rows) == [1]


@under(run)
async def test_a_disk_that_fails_on_the_slave_ends_the_puller(tmp_path: Path) -> None:
    master = FakeMaster()
    master.topics("orders", counter=1)
    storage = CrashingStorage(OsStorage(tmp_path))
    slave = Slave(tmp_path, master, storage)
    storage.failing = "fdatasync"

    with pytest.raises(StorageFailure):
        await slave.puller.run()


@under(run)
async def test_a_full_disk_keeps_the_old_table_and_the_puller_goes_on(tmp_path: Path) -> None:
    master = FakeMaster()
    master.topics("orders", counter=1)
    storage = CrashingStorage(OsStorage(tmp_path))
    slave = Slave(tmp_path, master, storage)
    storage.free = 0
    async with running(slave):
        await asyncio.sleep(4)
        assert slave.node.topics == []
        assert "bytes left" in slave.puller.status[TOPICS.name].problem
        storage.free = None
        await asyncio.sleep(10)
        assert slave.node.topics == ["orders"]


def test_each_new_reason_why_a_table_is_not_taken_is_logged_once(tmp_path: Path) -> None:
    """A master that was away may come back with older tables: who reads the log must hear of both."""
    away = True

    def before(kind: str, _: Ask) -> None:
        if kind == TOPICS.name and away:
            raise Unavailable("a/0", "connection refused")

    async def story() -> None:
        nonlocal away
        master = FakeMaster()
        master.topics("orders", counter=5, epoch=2)
        slave = Slave(tmp_path, master)
        away = False
        await slave.puller.pull_once()
        away, master.before = True, before
        for _ in range(2):
            await slave.puller.pull_once()
        away = False
        for counter in (8, 9):
            master.topics("orders", counter=counter)
            await slave.puller.pull_once()

    with structlog.testing.capture_logs() as logged:
        run(story())
    reasons = [line["reason"] for line in logged if line["event"] == "metadata_not_pulled"]
    assert len(reasons) == 2
    assert "connection refused" in reasons[0]
    assert "older than" in reasons[1]


@under(run)
async def test_slave_is_sent_what_has_changed_and_writes_the_whole_table(tmp_path: Path) -> None:
    master = FakeMaster()
    master.tells_changes = True
    master.topics("bills", "orders", "users", counter=1)
    slave = Slave(tmp_path, master)
    await slave.puller.pull_once()
    before = slave.node.metadata.table(TOPICS)
    master.told.clear()
    table = master.tables[TOPICS.name].with_row(TopicConfig("more", 2, 2), 1, 2_000).without("bills", 1, 3_000).hiding({("bills", 0): 7})
    master.tables[TOPICS.name] = table

    await slave.puller.pull_once()

    assert [(page.is_delta, len(page.rows), page.removed) for page in master.told if page.is_delta] == [(True, 1, ("bills",))]
    now = slave.node.metadata.table(TOPICS)
    assert now == table
    assert now.rows["orders"] is before.rows["orders"]
    assert slave.store.hidden == {("bills", 0): 7}
    again = MetadataNode.make(tmp_path)
    await again.metadata.load()
    assert again.metadata.table(TOPICS) == table


@under(run)
async def test_rows_of_a_whole_pull_that_have_not_changed_stay_the_same_objects(tmp_path: Path) -> None:
    master = FakeMaster()
    master.topics("bills", "orders", counter=1)
    slave = Slave(tmp_path, master)
    await slave.puller.pull_once()
    before = slave.node.metadata.table(TOPICS)
    master.topics("bills", "more", "orders", counter=2)

    await slave.puller.pull_once()

    now = slave.node.metadata.table(TOPICS)
    assert (list(now.rows), now.rows["bills"] is before.rows["bills"]) == (["bills", "more", "orders"], True)


@under(run)
async def test_whoever_takes_all_tables_has_commits_that_a_pull_in_flight_lacks(tmp_path: Path) -> None:
    """That one asked a moment before, and is answered a moment before."""
    master, later = FakeMaster(), [5, 9]
    slave = Slave(tmp_path, master)

    def put(offset: int) -> None:
        master.put(CONSUMER_OFFSETS, [ConsumerOffset("orders", "billing", 0, offset)], DataVersion(1, 1_000, offset))

    def commit(kind: str, _: Ask) -> None:
        asked = sum(name == CONSUMER_OFFSETS.name for _, name, _ in master.asked)
        if kind == CONSUMER_OFFSETS.name and asked == 2:  # both have asked
            put(later.pop(0) if later else 9)

    put(1)
    await slave.puller.pull_once()
    master.asked.clear()
    master.before = commit

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(slave.puller.pull_once())
        tasks.create_task(slave.puller.take_all())

    assert [row.offset for row in slave.offsets.table.rows()] == [9]
