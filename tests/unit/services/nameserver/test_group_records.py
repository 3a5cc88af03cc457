"""What a nameserver answers about group records, and when: a change after the write that holds it."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Generator
from typing import TypeVar

import pytest

from dittomq._pb.ditto.coordination.v1 import coordination_pb2 as pb
from dittomq.doors.coordination import GroupKey
from dittomq.errors import DiskFull, InvalidField, LimitReached, StorageFailure, WrongCluster
from dittomq.wire import coordination as wire
from services.nameserver import group_records
from services.nameserver.group_records import MAX_PENDING, MAX_WATCHES, GroupRecords
from services.nameserver.group_records_file import MAX_GROUPS, KeptRecord, opened
from tests.support.failing_storage import CrashingStorage
from tests.support.inline_lane import InlineLane
from tests.support.stores import Machine
from tests.support.virtual_time import played_by, under

P = TypeVar("P")
R = TypeVar("R")
A = GroupKey("test", "a")
B = GroupKey("test", "b")


class HeldLane:
    """Begins each piece of work when `may_go` says so."""

    def __init__(self) -> None:
        self.begun = 0
        self.may_go = asyncio.Semaphore(0)

    async def run(self, steps: Generator[P, None, R], progress: Callable[[P], None] | None = None) -> R:
        raise NotImplementedError

    async def call(self, work: Callable[[], R]) -> R:
        self.begun += 1
        await self.may_go.acquire()
        return work()


class Kept:
    """Records at work on a disk that takes what `lane` lets through."""

    def __init__(self, tasks: asyncio.TaskGroup, found: dict[str, KeptRecord]) -> None:
        self.machine = Machine(random.Random(1))
        with opened(storage := CrashingStorage(self.machine.storage()), "/data"):
            self.storage = storage
        self.lane = HeldLane()
        self.records = GroupRecords("test", found, self.storage, self.lane, chance=random.SystemRandom())
        self.tasks = tasks
        self.running = tasks.create_task(self.records.run())

    def change(self, key: GroupKey, expected: str, document: str) -> "asyncio.Task[str | None]":
        return self.tasks.create_task(self.records.compare_and_set(key, expected, document))

    def let_write(self, times: int = 100) -> None:
        for _ in range(times):
            self.lane.may_go.release()


async def turns() -> None:
    """All that can happen without another word has happened."""
    for _ in range(20):
        await asyncio.sleep(0)


def act(story: Callable[[Kept], Awaitable[None]], found: dict[str, KeptRecord] | None = None) -> None:
    async def acted() -> None:
        async with asyncio.TaskGroup() as tasks:
            kept = Kept(tasks, found or {})
            await story(kept)
            kept.running.cancel()

    asyncio.run(acted())


@played_by(act)
async def test_a_change_is_answered_and_read_after_it_is_on_the_disk(kept: Kept) -> None:
    change = kept.change(A, "", "one")
    await turns()
    assert not change.done()
    assert kept.records.read(A) == ("", "")

    kept.let_write()
    version = await change
    assert version
    assert kept.records.read(A) == ("one", version)
    with opened(kept.machine.beside(), "/data") as rows:
        assert rows == {"a": KeptRecord("one", version)}


@played_by(act)
async def test_changes_that_come_during_a_write_share_the_next(kept: Kept) -> None:
    kept.change(A, "", "one")
    await turns()
    others = [kept.change(GroupKey("test", f"g{number}"), "", "one") for number in range(500)]
    racing = [kept.change(B, "", f"{number}") for number in range(10)]
    await turns()
    kept.let_write()

    assert all([await other for other in others])
    assert [await each is not None for each in racing] == [True] + [False] * 9
    assert kept.lane.begun == 2


@played_by(act)
async def test_a_conflict_writes_nothing(kept: Kept) -> None:
    kept.let_write()
    version = await kept.change(A, "", "one")
    assert version
    begun = kept.lane.begun

    assert await kept.change(A, "", "two") is None
    assert await kept.change(A, "other", "two") is None
    assert await kept.change(A, "other", "") is None
    assert await kept.change(B, "other", "two") is None
    assert kept.records.read(A) == ("one", version)
    assert kept.lane.begun == begun


@played_by(act)
async def test_a_deletion_forgets_the_record_and_its_version_for_good(kept: Kept) -> None:
    kept.let_write()
    version = await kept.change(A, "", "one")
    assert version
    assert await kept.change(A, version, "") == ""
    assert kept.records.read(A) == ("", "")
    assert await kept.change(A, "", "") == ""

    again = await kept.change(A, "", "one")
    assert again not in {None, version}
    assert await kept.change(A, version, "two") is None


def test_a_lost_file_brings_no_version_again() -> None:
    versions: list[str | None] = []

    async def story(kept: Kept) -> None:
        kept.let_write()
        versions.append(await kept.change(A, "", "one"))

    act(story)
    act(story)
    assert len(set(versions)) == 2


@played_by(act)
async def test_a_full_disk_refuses_a_change_and_all_that_share_its_write(kept: Kept) -> None:
    kept.storage.free = 1_000
    changes = [kept.records.compare_and_set(key, "", "one") for key in (A, B, A)]
    kept.let_write()

    refused = await asyncio.gather(*changes, return_exceptions=True)
    assert [type(each) for each in refused] == [DiskFull] * 3
    assert kept.records.read(A) == ("", "")
    kept.storage.free = None
    assert await kept.change(A, "", "one")


@under(asyncio.run)
async def test_a_failed_sync_ends_the_nameserver_and_its_answers() -> None:
    with opened(storage := CrashingStorage(Machine(random.Random(1)).storage()), "/data"):
        records = GroupRecords("test", {}, storage, InlineLane(), chance=random.Random(2))
    storage.failing = "fsync"
    running = asyncio.ensure_future(records.run())

    refused = await asyncio.gather(*(records.compare_and_set(key, "", "one") for key in (A, B)), return_exceptions=True)
    assert [type(each) for each in refused] == [StorageFailure] * 2
    with pytest.raises(StorageFailure):
        records.read(A)
    with pytest.raises(StorageFailure):
        await running


@played_by(act)
async def test_a_caller_that_leaves_stops_no_other_change(kept: Kept) -> None:
    leaving, staying = kept.change(A, "", "one"), kept.change(B, "", "one")
    await turns()
    leaving.cancel()
    kept.let_write()

    assert await staying
    assert kept.records.read(A)[0] == "one"  # its write had begun


@played_by(act)
async def test_a_watch_hints_at_its_beginning_and_at_changes_of_its_group_only(kept: Kept) -> None:
    kept.let_write()
    hints = kept.records.watch(A)
    await anext(hints)
    await kept.change(B, "", "one")
    waiting = asyncio.ensure_future(anext(hints))
    await turns()
    assert not waiting.done()

    await kept.change(A, "", "one")
    await waiting
    kept.records.end_watches()
    with pytest.raises(StopAsyncIteration):
        await anext(hints)


@played_by(act)
async def test_limits_are_kept(kept: Kept, /, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_records, "MAX_GROUPS", 3)

    watches = [kept.records.watch(A) for _ in range(MAX_WATCHES)]
    for watch in watches:
        await anext(watch)
    with pytest.raises(LimitReached, match="list of watches"):
        await anext(kept.records.watch(A))
    await watches[0].aclose()  # type: ignore[attr-defined]
    await anext(kept.records.watch(B))

    kept.let_write()
    for number in range(3):
        assert await kept.change(GroupKey("test", f"g{number}"), "", "one")
    with pytest.raises(LimitReached, match="list of group records"):
        await kept.records.compare_and_set(A, "", "one")
    assert MAX_GROUPS == 10_000


@played_by(act)
async def test_changes_that_wait_are_bounded(kept: Kept) -> None:
    kept.change(A, "", "one")
    await turns()
    waiting = [kept.change(GroupKey("test", f"g{number}"), "", "one") for number in range(MAX_PENDING)]
    await turns()
    with pytest.raises(LimitReached, match="queue of changes"):
        await kept.records.compare_and_set(B, "", "one")
    kept.let_write()
    assert all([await each for each in waiting])


@played_by(act)
async def test_another_cluster_is_refused(kept: Kept) -> None:
    other = GroupKey("other", "a")
    with pytest.raises(WrongCluster, match='cluster is "test" here, not "other"'):
        kept.records.read(other)
    with pytest.raises(WrongCluster):
        await kept.records.compare_and_set(other, "", "one")
    with pytest.raises(WrongCluster):
        await anext(kept.records.watch(other))


@pytest.mark.parametrize("broker", ["", "a" * 64, "a/b", "ä", "a b"])
def test_a_name_that_no_broker_group_has_is_refused(broker: str) -> None:
    with pytest.raises(InvalidField, match="is not 1 to 63 letters, digits"):
        wire.group_key(pb.GetRequest(cluster="test", broker=broker))


@pytest.mark.parametrize(("record", "problem"), [(b"x" * 65_537, "has 65,537 bytes"), (b"\xff", "is no UTF-8 text")])
def test_a_document_that_no_record_is_is_refused(record: bytes, problem: str) -> None:
    with pytest.raises(InvalidField, match=f"record: {problem}"):
        wire.document(pb.CompareAndSetRequest(cluster="test", broker="a", record=record))
