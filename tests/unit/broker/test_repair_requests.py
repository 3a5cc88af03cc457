"""What a node is asked to repair: how much of its log is verified, what is reported, and what happens to the log meanwhile."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import pytest

from dittomq.broker.repair import Repairer, RepairerParts, RepairSource
from dittomq.commitlog.store import Store
from dittomq.copies import RangeOutcome, RepairRequest
from dittomq.errors import InvalidField, OffsetOutOfRange
from dittomq.offsets import PhysicalOffset
from tests.support.inline_lane import InlineLane
from tests.support.intercepted_reads import hearing
from tests.support.record_damage import HARMS, entries
from tests.support.stores import SMALL, Machine, dispatched, whole_log
from tests.unit.broker.repair_runs import messages_of, named, repair
from tests.unit.broker.repair_sources import copy_of, serving
from tests.unit.commitlog.repaired_stores import rot

R = TypeVar("R")


def test_repair_verifies_unread_records_in_the_asked_range_only() -> None:
    """It repairs what it finds."""
    machine, other = (Machine(random.Random(seed)) for seed in (1, 2))
    store = dispatched(machine)
    log = whole_log(store)
    peers = [RepairSource("a/2", serving(copy_of(store, other)))]
    places = [entries(log)[number] for number in (4, 30)]
    for start, end in places:
        rot(machine, whole_log(store), HARMS["body"], start, end=end)
    (first, _), (second, last) = places

    around = repair(store, RepairRequest("a/1", PhysicalOffset(second + 5), PhysicalOffset(second + 6)), peers)
    everything = repair(store, RepairRequest("a/1"), peers)

    assert around.ranges == (RangeOutcome(PhysicalOffset(second), PhysicalOffset(last), "a/2"),)
    assert around.is_done
    assert [each.start for each in everything.ranges] == [first]
    assert (everything.start, everything.end, everything.is_done) == (0, len(log), True)
    assert whole_log(store) == log
    assert repair(store, RepairRequest("a/1")).ranges == ()


def test_a_repair_of_a_range_looks_at_no_record_behind_it() -> None:
    machine = Machine(random.Random(1))
    store = dispatched(machine)
    log = whole_log(store)
    places = entries(log)
    (start, _), (_, end), behind = places[16], places[19], places[20]
    rotten_cold(machine, store, 20)

    exactly = repair(store, RepairRequest("a/1", PhysicalOffset(start), PhysicalOffset(end)))
    cutting = repair(store, RepairRequest("a/1", PhysicalOffset(start + 5), PhysicalOffset(end - 5)))

    assert (exactly.start, exactly.end, exactly.ranges, exactly.is_done) == (start, end, (), True)
    assert (cutting.start, cutting.end, cutting.ranges, cutting.is_done) == (start + 5, end, (), True)
    assert store.damaged == []
    touching = repair(store, RepairRequest("a/1", PhysicalOffset(start), PhysicalOffset(end + 1)))
    assert [(each.start, each.end) for each in touching.ranges] == [behind]
    assert touching.end == behind[1]


@pytest.mark.parametrize("name", HARMS)
def test_bad_record_across_an_asked_range_is_damaged_to_its_end(name: str) -> None:
    """Whatever is wrong with it."""
    machine = Machine(random.Random(1))
    store = dispatched(machine)
    log = whole_log(store)
    start, end = entries(log)[20]
    rot(machine, log, HARMS[name], start, end=end)

    for stop in (start + 1, start + 8, start + 40, end - 1):
        report = repair(store, RepairRequest("a/1", PhysicalOffset(start - 1), PhysicalOffset(stop)))
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
        rot(machine, whole_log(store), HARMS["body"], start, end=end)
    return found


@pytest.mark.parametrize("calls_before", [1, 2, 3])
def test_a_repair_names_what_is_repaired_in_the_background_while_it_verifies(calls_before: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dittomq.broker.repair.VERIFY_BYTES", 5_000)
    machine, other = (Machine(random.Random(seed)) for seed in (1, 2))
    store = dispatched(machine)
    log = whole_log(store)
    peers = [RepairSource("a/2", serving(copy_of(store, other)))]
    rotten = rotten_cold(machine, store, 4, 20, 30)

    async def found() -> Sequence[RepairSource]:
        return peers

    lane, reads = InlineLane(), MeanwhileLane()
    mender = Repairer(RepairerParts("a/1", store, lane, lane, reads, random.Random(1)), found)
    reads.calls_before, reads.meanwhile = calls_before, lambda: mender.repair_ranges(store.damaged)
    report = asyncio.run(mender.repair(RepairRequest("a/1")))

    assert report.ranges == tuple(RangeOutcome(*each, "a/2") for each in rotten)
    assert whole_log(store) == log
    assert store.damaged == []


def test_a_repair_goes_on_where_the_last_call_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dittomq.broker.repair.REPAIR_BYTES", 20_000)
    monkeypatch.setattr("dittomq.broker.repair.VERIFY_BYTES", 5_000)
    store = dispatched(Machine(random.Random(1)))
    at, calls = None, 0

    while True:
        report = repair(store, RepairRequest("a/1", at))
        at, calls = report.end, calls + 1
        if report.is_done:
            break

    assert at == store.flushed
    assert calls > 1


def shifting(reads_before: int, shrink: Callable[[Store], object]) -> Store:
    """A store whose log shrinks behind so many reads of it."""
    machine = Machine(random.Random(1))
    dispatched(machine).close(clean=True)
    reads = iter(range(reads_before + 1))
    is_used = False

    def hear(path: str, _: int, __: int) -> None:
        if is_used and path.startswith("commitlog/") and next(reads, None) == reads_before:
            shrink(store)

    store = Store.open(hearing(machine.storage(), hear), machine.options, chance=machine.chance, wall_ms=1_000)
    store.persist_recovery_point(store.end, store.end)
    is_used = True
    return store


@pytest.mark.parametrize("verify_bytes", [5_000, 1 << 20])
@pytest.mark.parametrize("reads_before", range(3))
def test_a_repair_goes_on_where_the_log_begins_when_retention_overtakes_it(
    verify_bytes: int, reads_before: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dittomq.broker.repair.VERIFY_BYTES", verify_bytes)
    store = shifting(reads_before, lambda store: store.drop_before(2 * SMALL.segment_bytes))

    report = repair(store, RepairRequest("a/1"))

    assert store.min_offset == 2 * SMALL.segment_bytes
    assert (report.start, report.end, report.is_done) == (0, store.flushed, True)
    assert store.damaged == []


@pytest.mark.parametrize("verify_bytes", [5_000, 1 << 20])
@pytest.mark.parametrize("reads_before", range(3))
def test_a_repair_ends_where_the_log_does_when_that_is_truncated_beside_it(
    verify_bytes: int, reads_before: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dittomq.broker.repair.VERIFY_BYTES", verify_bytes)
    store = shifting(reads_before, lambda store: store.truncate(entries(whole_log(store))[3][0]))

    report = repair(store, RepairRequest("a/1"))

    assert store.flushed < SMALL.segment_bytes
    assert report.is_done
    assert store.damaged == []


def test_dropped_part_of_an_asked_range_is_left_out() -> None:
    """A range that is gone is refused."""
    store = dispatched(Machine(random.Random(1)))
    store.persist_recovery_point(store.end, store.end)
    store.drop_before(SMALL.segment_bytes)
    begin = store.min_offset

    report = repair(store, RepairRequest("a/1", PhysicalOffset(begin - 5), PhysicalOffset(begin + 5)))

    assert (report.start, report.is_done) == (begin, True)
    with pytest.raises(OffsetOutOfRange):
        repair(store, RepairRequest("a/1", PhysicalOffset(begin - 5), begin))


@pytest.mark.parametrize("validate_only", [True, False])
def test_a_repair_of_another_node_or_outside_the_log_is_refused(validate_only: bool) -> None:
    store = dispatched(Machine(random.Random(1)))

    with pytest.raises(InvalidField, match="this is a/1"):
        repair(store, RepairRequest("a/2", validate_only=validate_only))
    with pytest.raises(InvalidField, match="end_offset"):
        repair(store, RepairRequest("a/1", PhysicalOffset(9), PhysicalOffset(9), validate_only))
    with pytest.raises(OffsetOutOfRange):
        repair(store, RepairRequest("a/1", PhysicalOffset(store.end + 1), validate_only=validate_only))
    with pytest.raises(OffsetOutOfRange):
        repair(store, RepairRequest("a/1", PhysicalOffset(-1), validate_only=validate_only))


def test_validated_repair_reports_its_ranges_and_changes_nothing() -> None:
    """It tells what it would verify."""
    machine, other = (Machine(random.Random(seed)) for seed in (1, 2))
    store = dispatched(machine)
    log = whole_log(store)
    peers = [RepairSource("a/2", serving(copy_of(store, other)))]
    (known, end), unknown = entries(log)[4], entries(log)[30]
    for start, stop in ((known, end), unknown):
        rot(machine, log, HARMS["body"], start, end=stop)
    repair(store, RepairRequest("a/1", PhysicalOffset(known), PhysicalOffset(end)))  # nobody has it now: it is noted
    before = store.damaged

    report = repair(store, RepairRequest("a/1", validate_only=True), peers)

    assert (report.start, report.end, report.is_done) == (0, len(log), True)
    assert [(each.start, each.end, each.source) for each in report.ranges] == [(known, end, "")]
    assert store.damaged == before


def test_a_repair_names_each_message_that_no_copy_has_and_no_other() -> None:
    machine, other = (Machine(random.Random(seed)) for seed in (1, 2))
    store = dispatched(machine)
    log = whole_log(store)
    copy = copy_of(store, other)
    lost = [entries(log)[number] for number in (2, 6, 7, 8, 9)]
    for each, disk in ((store, machine), (copy, other)):
        for start, end in lost:
            rot(disk, whole_log(each), HARMS["magic"], start, end=end)
        each.verify(0, each.end)
    rotten_cold(machine, store, 12)

    validated = repair(store, RepairRequest("a/1", validate_only=True))
    report = repair(store, RepairRequest("a/1"), [RepairSource("a/2", serving(copy))])

    alone, together, repaired = report.ranges
    for outcome in (*validated.ranges, alone, together):
        assert named(outcome) == messages_of(log, outcome.start, outcome.end)
        assert not outcome.more_messages
    assert (alone.start, together.start, together.end) == (lost[0][0], lost[1][0], lost[-1][1])
    assert sum(map(len, named(together).values())) == 4
    assert (repaired.source, repaired.messages, repaired.more_messages) == ("a/2", (), False)


def test_messages_in_an_unread_missing_range_are_reported_as_unnamed() -> None:
    machines = [Machine(random.Random(seed)) for seed in (1, 2)]
    log = whole_log(dispatched(machines[0]))
    slave = machines[1].open()
    slave.replace_epoch_history(dispatched(Machine(random.Random(1))).epoch_history)
    first, last = entries(log)[6][0], entries(log)[7][1]
    slave.write_chunk(0, log[:first])
    slave.skip_range(first, last)
    slave.write_chunk(last, log[last : slave.segment_bytes])
    slave.sync()
    slave.dispatch(slave.end)

    [outcome] = repair(slave, RepairRequest("a/1")).ranges

    assert (outcome.start, outcome.messages, outcome.more_messages) == (first, (), True)


def test_messages_of_the_first_ranges_only_are_named_of_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The others are reported as not searched."""
    machine = Machine(random.Random(1))
    store = dispatched(machine)
    rotten_cold(machine, store, 4, 12, 20)
    monkeypatch.setattr("dittomq.commitlog.damage_report.MAX_SEARCHES", 2 * len(store.queues()))

    ranges = repair(store, RepairRequest("a/1")).ranges

    assert [(bool(each.messages), each.more_messages) for each in ranges] == [(True, False), (True, False), (False, True)]


def test_only_the_unrepaired_rest_of_a_range_is_called_damaged() -> None:
    """Only its messages are named."""
    machine, other = (Machine(random.Random(seed)) for seed in (1, 2))
    store = dispatched(machine)
    log = whole_log(store)
    copy = copy_of(store, other)
    for each, disk, numbers in ((store, machine, (6, 7, 8, 9)), (copy, other, (7,))):
        for start, end in (entries(log)[number] for number in numbers):
            rot(disk, whole_log(each), HARMS["magic"], start, end=end)
        each.verify(0, each.end)
    start, end = entries(log)[7]

    report = repair(store, RepairRequest("a/1"), [RepairSource("a/2", serving(copy))])

    assert [(each.start, each.end, each.source) for each in report.ranges] == [
        (entries(log)[6][0], start, "a/2"),
        (start, end, ""),
        (end, entries(log)[9][1], "a/2"),
    ]
    assert [named(each) for each in report.ranges] == [{}, messages_of(log, start, end), {}]
