"""Damaged ranges fetched from other copies: whose bytes are taken, and whose are not."""

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TypeVar

import pytest

from dittomq.broker.fetching import MAX_FETCHES, RangeServing
from dittomq.broker.mending import Mender, MenderParts, Peer
from dittomq.commitlog.disk.storage import File
from dittomq.commitlog.store import Store
from dittomq.copies import RangeOutcome, RepairOrder, RepairReport
from dittomq.errors import CorruptRecord, InvalidField, OffsetOutOfRange, OutOfReach, QueueFull
from dittomq.offsets import PhysicalOffset
from dittomq.replication.events import RangePiece
from tests.store.test_damage import HARMS, entries
from tests.store.test_mending import rot
from tests.support.failing_storage import CrashingFile, CrashingStorage
from tests.support.lanes import InlineLane
from tests.support.metadata_node import run
from tests.support.stores import SMALL, Machine, filled, whole_log

R = TypeVar("R")


def store_of(machine: Machine) -> Store:
    store = filled(machine)
    store.dispatch(store.end)
    return store


def copy_of(store: Store, machine: Machine) -> Store:
    """Another replica's store with the same log."""
    copy = machine.open()
    log = whole_log(store)
    copy.adopt_lineage(store.lineage)
    for base in range(0, len(log), store.segment_bytes):
        copy.write_chunk(base, log[base : base + store.segment_bytes])
    copy.sync()
    return copy


def serving(store: Store) -> RangeServing:
    return RangeServing(lambda: (store,), InlineLane(), "test", "a", lambda _: None)


class Silent:
    """A peer that is out of reach; counts how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0

    async def fetch(self, start: PhysicalOffset, end: PhysicalOffset) -> AsyncGenerator[RangePiece, None]:
        self.asked += 1
        raise OutOfReach("a/7", "nobody is there")
        yield


class Changing:
    """A peer whose pieces come from elsewhere, or change on their way."""

    def __init__(self, peer: RangeServing, **changes: int) -> None:
        self._peer = peer
        self._changes = changes

    async def fetch(self, start: PhysicalOffset, end: PhysicalOffset) -> AsyncGenerator[RangePiece, None]:
        async for piece in self._peer.fetch(start, end):
            yield replace(piece, **self._changes)  # type: ignore[arg-type]


def mend(store: Store, peers: Sequence[Peer]) -> list[RangeOutcome]:
    async def found() -> Sequence[Peer]:
        return peers

    lane = InlineLane()
    return asyncio.run(Mender(MenderParts("a/1", store, lane, lane, lane, random.Random(1)), found).mend(store.damaged))


def damage(store: Store, machine: Machine, *numbers: int) -> list[tuple[PhysicalOffset, PhysicalOffset]]:
    all_of_them = entries(whole_log(store))
    found = [(PhysicalOffset(all_of_them[number][0]), PhysicalOffset(all_of_them[number][1])) for number in numbers]
    for start, end in found:
        rot(machine, whole_log(store), HARMS["body"], start, end)
    store.verify(0, store.end)
    return found


def test_what_one_copy_does_not_hold_whole_the_next_one_does() -> None:
    machine, other, third = (Machine(random.Random(seed)) for seed in (1, 2, 3))
    store = store_of(machine)
    log = whole_log(store)
    second, last = copy_of(store, other), copy_of(store, third)
    first_range, second_range = damage(store, machine, 20, 30)
    damage(second, other, 30)

    outcomes = mend(store, [Peer("a/2", serving(second)), Peer("a/3", serving(last))])

    assert outcomes == [RangeOutcome(*first_range, "a/2"), RangeOutcome(*second_range, "a/3")]
    assert whole_log(store) == log
    machine.lose_power(all_unsynced=True)
    assert machine.open().damaged == []


def test_damage_that_every_copy_has_stays_and_each_is_named_with_its_reason() -> None:
    machine, other = (Machine(random.Random(seed)) for seed in (1, 2))
    store = store_of(machine)
    second = copy_of(store, other)
    (found,) = damage(store, machine, 20)
    damage(second, other, 20)
    silent = Silent()

    (outcome,) = mend(store, [Peer("a/7", silent), Peer("a/2", serving(second))])

    assert (outcome.start, outcome.end, outcome.source) == (*found, "")
    assert "a/7: a/7 does not answer" in outcome.problem
    assert f"damaged at byte {found[0]:,}" in outcome.problem
    assert store.damaged == [found]


class Counted:
    """A peer that counts how often it was asked."""

    def __init__(self, peer: RangeServing) -> None:
        self.asked = 0
        self._peer = peer

    async def fetch(self, start: PhysicalOffset, end: PhysicalOffset) -> AsyncGenerator[RangePiece, None]:
        self.asked += 1
        assert self.asked < 100
        async for piece in self._peer.fetch(start, end):
            yield piece


def test_two_copies_that_lack_the_same_record_ask_each_other_ever_more_seldom() -> None:
    machines = [Machine(random.Random(seed)) for seed in (1, 2)]
    store = store_of(machines[0])
    stores = [store, copy_of(store, machines[1])]
    for copy, machine in zip(stores, machines, strict=True):
        damage(copy, machine, 20)
    peers: list[Counted] = []

    async def story() -> None:
        lane = InlineLane()

        def mender_of(at: int) -> Mender:
            async def other() -> Sequence[Peer]:
                return [Peer(f"a/{1 - at}", peers[1 - at])]

            return Mender(MenderParts(f"a/{at}", stores[at], lane, lane, lane, random.Random(at)), other)

        menders = [mender_of(0), mender_of(1)]
        for copy, mender in zip(stores, menders, strict=True):
            peers.append(Counted(RangeServing(lambda copy=copy: (copy,), lane, "test", "a", mender.suspect)))  # type: ignore[misc]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(300), asyncio.TaskGroup() as tasks:
                for mender in menders:
                    tasks.create_task(mender.run())

    run(story())
    assert all(5 <= peer.asked <= 15 for peer in peers)


def test_a_peer_that_is_out_of_reach_is_asked_once_for_all_ranges() -> None:
    machine, other = (Machine(random.Random(seed)) for seed in (1, 2))
    store = store_of(machine)
    second = copy_of(store, other)
    damage(store, machine, 4, 20, 30)
    silent = Silent()

    outcomes = mend(store, [Peer("a/7", silent), Peer("a/2", serving(second))])

    assert [each.source for each in outcomes] == ["a/2"] * 3
    assert silent.asked == 1


def test_bytes_of_another_master_or_that_changed_on_their_way_are_not_taken() -> None:
    machine, other = (Machine(random.Random(seed)) for seed in (1, 2))
    store = store_of(machine)
    second = serving(copy_of(store, other))
    (found,) = damage(store, machine, 20)
    peers = [
        Peer("other epoch", Changing(second, epoch=9)),
        Peer("other start", Changing(second, incarnation=9)),
        Peer("changed", Changing(second, crc=9)),
        Peer("elsewhere", Changing(second, offset=9)),
    ]

    (outcome,) = mend(store, peers)

    assert outcome.source == ""
    assert outcome.problem.count("written under another master") == 2
    assert outcome.problem.count("changed on their way") == 2
    assert store.damaged == [found]


def test_damage_that_the_disk_has_got_over_needs_nobody() -> None:
    machine = Machine(random.Random(1))
    store = store_of(machine)
    log = whole_log(store)
    ((start, end),) = damage(store, machine, 20)
    rot(machine, log, lambda *_: None, start, end)

    assert mend(store, []) == [RangeOutcome(start, end, "a/1")]
    assert store.damaged == []


def test_a_log_is_served_up_to_what_is_damaged_and_told_of_the_damage() -> None:
    machine = Machine(random.Random(1))
    store = store_of(machine)
    met: list[int] = []
    ((start, end),) = damage(store, machine, 20)
    ranges = RangeServing(lambda: (store,), InlineLane(), "test", "a", met.append)

    async def fetch(low: int, high: int) -> int:
        return sum([len(piece.data) async for piece in ranges.fetch(PhysicalOffset(low), PhysicalOffset(high))])

    assert asyncio.run(fetch(0, start)) == start
    with pytest.raises(CorruptRecord, match=f"{start:,}"):
        asyncio.run(fetch(start, end))
    assert met == [start]


def repair(store: Store, order: RepairOrder, peers: Sequence[Peer] = ()) -> RepairReport:
    async def found() -> Sequence[Peer]:
        return peers

    lane = InlineLane()
    return asyncio.run(Mender(MenderParts("a/1", store, lane, lane, lane, random.Random(1)), found).repair(order))


def test_a_repair_verifies_what_nobody_has_read_and_mends_it_and_only_what_is_asked_for() -> None:
    machine, other = (Machine(random.Random(seed)) for seed in (1, 2))
    store = store_of(machine)
    log = whole_log(store)
    peers = [Peer("a/2", serving(copy_of(store, other)))]
    places = [entries(log)[number] for number in (4, 30)]
    for start, end in places:
        rot(machine, whole_log(store), HARMS["body"], start, end)
    (first, _), (second, last) = places

    around = repair(store, RepairOrder("a/1", PhysicalOffset(second + 5), PhysicalOffset(second + 6)), peers)
    everything = repair(store, RepairOrder("a/1"), peers)

    assert around.ranges == (RangeOutcome(PhysicalOffset(second), PhysicalOffset(last), "a/2"),)
    assert around.is_done
    assert [each.start for each in everything.ranges] == [first]
    assert (everything.start, everything.end, everything.is_done) == (0, len(log), True)
    assert whole_log(store) == log
    assert repair(store, RepairOrder("a/1")).ranges == ()


def test_a_repair_of_a_range_looks_at_no_record_behind_it() -> None:
    machine = Machine(random.Random(1))
    store = store_of(machine)
    log = whole_log(store)
    places = entries(log)
    (start, _), (_, end), behind = places[16], places[19], places[20]
    rotten_cold(machine, store, 20)

    exactly = repair(store, RepairOrder("a/1", PhysicalOffset(start), PhysicalOffset(end)))
    cutting = repair(store, RepairOrder("a/1", PhysicalOffset(start + 5), PhysicalOffset(end - 5)))

    assert (exactly.start, exactly.end, exactly.ranges, exactly.is_done) == (start, end, (), True)
    assert (cutting.start, cutting.end, cutting.ranges, cutting.is_done) == (start + 5, end, (), True)
    assert store.damaged == []
    touching = repair(store, RepairOrder("a/1", PhysicalOffset(start), PhysicalOffset(end + 1)))
    assert [(each.start, each.end) for each in touching.ranges] == [behind]
    assert touching.end == behind[1]


@pytest.mark.parametrize("name", HARMS)
def test_whatever_is_wrong_with_the_record_that_an_asked_range_cuts_it_is_damaged_to_its_end(name: str) -> None:
    machine = Machine(random.Random(1))
    store = store_of(machine)
    log = whole_log(store)
    start, end = entries(log)[20]
    rot(machine, log, HARMS[name], start, end)

    for stop in (start + 1, start + 8, start + 40, end - 1):
        report = repair(store, RepairOrder("a/1", PhysicalOffset(start - 1), PhysicalOffset(stop)))
        assert (report.end, [(each.start, each.end) for each in report.ranges]) == (end, [(start, end)])


class MeanwhileLane(InlineLane):
    """Lets something else happen behind so many calls."""

    calls_before = 0
    meanwhile: Callable[[], Awaitable[object]] | None = None

    async def call(self, work: Callable[[], R]) -> R:
        result = await super().call(work)
        self.calls_before -= 1
        if self.meanwhile is not None and self.calls_before <= 0:
            happens, self.meanwhile = self.meanwhile, None
            await happens()
        return result


def rotten_cold(machine: Machine, store: Store, *numbers: int) -> list[tuple[PhysicalOffset, PhysicalOffset]]:
    """Records change on the disk, and nobody knows."""
    log = whole_log(store)
    found = [(PhysicalOffset(start), PhysicalOffset(end)) for start, end in (entries(log)[number] for number in numbers)]
    for start, end in found:
        rot(machine, whole_log(store), HARMS["body"], start, end)
    return found


@pytest.mark.parametrize("calls_before", [1, 2, 3])
def test_a_repair_names_what_is_mended_in_the_background_while_it_verifies(calls_before: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dittomq.broker.mending.VERIFY_BYTES", 5_000)
    machine, other = (Machine(random.Random(seed)) for seed in (1, 2))
    store = store_of(machine)
    log = whole_log(store)
    peers = [Peer("a/2", serving(copy_of(store, other)))]
    rotten = rotten_cold(machine, store, 4, 20, 30)

    async def found() -> Sequence[Peer]:
        return peers

    lane, reads = InlineLane(), MeanwhileLane()
    mender = Mender(MenderParts("a/1", store, lane, lane, reads, random.Random(1)), found)
    reads.calls_before, reads.meanwhile = calls_before, lambda: mender.mend(store.damaged)
    report = asyncio.run(mender.repair(RepairOrder("a/1")))

    assert report.ranges == tuple(RangeOutcome(*each, "a/2") for each in rotten)
    assert whole_log(store) == log
    assert store.damaged == []


def test_what_another_one_has_mended_by_its_turn_is_nobodys_work() -> None:
    machine, other = (Machine(random.Random(seed)) for seed in (1, 2))
    store = store_of(machine)
    peers = [Peer("a/2", serving(copy_of(store, other)))]
    rotten = damage(store, machine, 4, 20)

    async def found() -> Sequence[Peer]:
        await asyncio.sleep(0)
        return peers

    async def story() -> Sequence[list[RangeOutcome]]:
        lane = InlineLane()
        mender = Mender(MenderParts("a/1", store, lane, lane, lane, random.Random(1)), found)
        return await asyncio.gather(mender.mend(store.damaged), mender.mend(store.damaged))

    first, second = asyncio.run(story())
    assert first == [RangeOutcome(*each, "a/2") for each in rotten]
    assert second == []


def test_a_range_that_retention_drops_while_it_is_fetched_was_mended_by_nobody() -> None:
    machine, other = (Machine(random.Random(seed)) for seed in (1, 2))
    store = store_of(machine)
    store.persist_watermark(store.end, store.end, ())
    second = copy_of(store, other)
    damage(store, machine, 4)

    class Dropping:
        """A peer that takes so long that the range is gone."""

        async def fetch(self, start: PhysicalOffset, end: PhysicalOffset) -> AsyncGenerator[RangePiece, None]:
            store.drop_before(SMALL.segment_bytes)
            raise OutOfReach("a/2", "nobody is there")
            yield

    assert mend(store, [Peer("a/2", Dropping()), Peer("a/3", serving(second))]) == []
    assert store.damaged == []


def test_a_repair_goes_on_where_the_last_call_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dittomq.broker.mending.REPAIR_BYTES", 20_000)
    monkeypatch.setattr("dittomq.broker.mending.VERIFY_BYTES", 5_000)
    store = store_of(Machine(random.Random(1)))
    at, calls = None, 0

    while True:
        report = repair(store, RepairOrder("a/1", at))
        at, calls = report.end, calls + 1
        if report.is_done:
            break

    assert at == store.flushed
    assert calls > 1


class ShiftingDisk(CrashingStorage):
    """Lets something happen at one read of the log: after so many others."""

    reads_before = 0
    meanwhile: Callable[[], object] | None = None

    def open(self, path: str, *, create: bool = False, readonly: bool = False) -> File:
        return ShiftingFile(super().open(path, create=create, readonly=readonly), path, self)


class ShiftingFile(CrashingFile):
    _storage: ShiftingDisk

    def pread(self, length: int, offset: int) -> bytes:
        if self._path.startswith("commitlog/") and self._storage.meanwhile is not None:
            self._storage.reads_before -= 1
            if self._storage.reads_before < 0:
                happens, self._storage.meanwhile = self._storage.meanwhile, None
                happens()
        return super().pread(length, offset)


def shifting(reads_before: int, shrink: Callable[[Store], object]) -> Store:
    """A store whose log shrinks behind so many reads of it."""
    machine = Machine(random.Random(1))
    store_of(machine).close(clean=True)
    disk = ShiftingDisk(machine.storage())
    store = Store.open(disk, machine.options, chance=machine.chance, wall_ms=1_000)
    store.persist_watermark(store.end, store.end, ())
    disk.reads_before, disk.meanwhile = reads_before, lambda: shrink(store)
    return store


@pytest.mark.parametrize("verify_bytes", [5_000, 1 << 20])
@pytest.mark.parametrize("reads_before", range(3))
def test_a_repair_goes_on_where_the_log_begins_when_retention_overtakes_it(
    verify_bytes: int, reads_before: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dittomq.broker.mending.VERIFY_BYTES", verify_bytes)
    store = shifting(reads_before, lambda store: store.drop_before(2 * SMALL.segment_bytes))

    report = repair(store, RepairOrder("a/1"))

    assert store.min_offset == 2 * SMALL.segment_bytes
    assert (report.start, report.end, report.is_done) == (0, store.flushed, True)
    assert store.damaged == []


@pytest.mark.parametrize("verify_bytes", [5_000, 1 << 20])
@pytest.mark.parametrize("reads_before", range(3))
def test_a_repair_ends_where_the_log_does_when_that_is_cut_beside_it(
    verify_bytes: int, reads_before: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dittomq.broker.mending.VERIFY_BYTES", verify_bytes)
    store = shifting(reads_before, lambda store: store.cut(entries(whole_log(store))[3][0]))

    report = repair(store, RepairOrder("a/1"))

    assert store.flushed < SMALL.segment_bytes
    assert report.is_done
    assert store.damaged == []


def test_what_was_dropped_of_an_asked_range_is_left_out_and_a_range_that_is_gone_is_refused() -> None:
    store = store_of(Machine(random.Random(1)))
    store.persist_watermark(store.end, store.end, ())
    store.drop_before(SMALL.segment_bytes)
    begin = store.min_offset

    report = repair(store, RepairOrder("a/1", PhysicalOffset(begin - 5), PhysicalOffset(begin + 5)))

    assert (report.start, report.is_done) == (begin, True)
    with pytest.raises(OffsetOutOfRange):
        repair(store, RepairOrder("a/1", PhysicalOffset(begin - 5), begin))


def test_a_repair_of_another_node_or_outside_the_log_is_refused() -> None:
    store = store_of(Machine(random.Random(1)))

    with pytest.raises(InvalidField, match="this is a/1"):
        repair(store, RepairOrder("a/2"))
    with pytest.raises(InvalidField, match="end_offset"):
        repair(store, RepairOrder("a/1", PhysicalOffset(9), PhysicalOffset(9)))
    with pytest.raises(OffsetOutOfRange):
        repair(store, RepairOrder("a/1", PhysicalOffset(store.end + 1)))
    with pytest.raises(OffsetOutOfRange):
        repair(store, RepairOrder("a/1", PhysicalOffset(-1)))


def test_so_many_ranges_are_fetched_at_a_time_and_no_more() -> None:
    store = store_of(Machine(random.Random(7)))
    ranges, end = serving(store), store.end

    async def first_piece(fetching: AsyncGenerator[RangePiece, None]) -> RangePiece:
        return await anext(fetching)

    async def story() -> None:
        under_way = [ranges.fetch(PhysicalOffset(0), end) for _ in range(MAX_FETCHES)]
        for fetching in under_way:
            await first_piece(fetching)
        with pytest.raises(QueueFull):
            await first_piece(ranges.fetch(PhysicalOffset(0), end))
        await under_way[0].aclose()
        assert (await first_piece(ranges.fetch(PhysicalOffset(0), end))).offset == 0

    asyncio.run(story())
