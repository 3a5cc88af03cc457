"""Proves a store on disk against itself: every checksum, dense queue offsets, and queues that name exactly the log's records."""

import itertools
import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

import numpy as np

from dittomq.commitlog.disk.segment import path_of
from dittomq.commitlog.offline.bulk_verify import Prover, WholeRun
from dittomq.commitlog.offline.expected_units import NO_QUEUE, Expected, Units
from dittomq.commitlog.offline.open_store import Item, Progress, StoreOnDisk, pieces, view_of
from dittomq.commitlog.offline.queue_check import QueueNames, agree, code_fits, samples
from dittomq.commitlog.offline.queue_files import QueueFiles
from dittomq.commitlog.queues import index_checkpoint
from dittomq.commitlog.queues.index_checkpoint import QueueBound, QueueKey
from dittomq.commitlog.records.columnar_codec import Numbers, RecordColumns, Truths
from dittomq.commitlog.records.decoding import Record, decode
from dittomq.commitlog.records.format import MAX_RECORD_BYTES, queue_problem
from dittomq.commitlog.records.record_scanner import Sort, problem_of, span_at
from dittomq.commitlog.records.rocketmq_records import INNER_BATCH, MULTI_DISPATCH, in_queues
from dittomq.delays import SCHEDULE_TOPIC

MAX_FINDINGS = 1_000
# So many units of a queue behind the end that was seen are compared with what a broker that runs has written there since.
_LOOKED_AT = 64
_COUNT = re.compile("[0-9]{1,9}", re.ASCII)


class StoreFault(StrEnum):
    """What can be wrong. Only the last four are about what is derived from the log."""

    DAMAGED = "damaged"
    UNSUPPORTED = "unsupported"
    TORN_END = "torn end"
    QUEUE_GAP = "queue gap"
    UNIT_DIFFERS = "unit differs"
    UNIT_MISSING = "unit missing"
    UNIT_SURPLUS = "unit surplus"
    UNIT_UNREADABLE = "unit unreadable"


@dataclass(frozen=True, slots=True)
class StoreFinding:
    """`position` is a byte of the log; `queue_offset` -1 where no message is meant."""

    kind: StoreFault
    position: int
    topic: str
    queue: int
    queue_offset: int
    problem: str


@dataclass(slots=True)
class Report:
    """Counts, and the first MAX_FINDINGS findings. `undispatched`: records at the end that their queues do not have yet.

    `without_queue`: records of queues that have no file and may rightly have none, as after a deletion, or before they are built again.
    """

    records: int = 0
    bodies_bytes: int = 0
    low: int = 0
    end: int = 0
    undispatched: int = 0
    without_queue: int = 0
    hidden: int = 0
    counts: dict[StoreFault, int] = field(default_factory=dict)
    findings: list[StoreFinding] = field(default_factory=list)

    def add(self, finding: StoreFinding) -> None:
        """Count a finding, and keep it if there is room."""
        self.counts[finding.kind] = self.counts.get(finding.kind, 0) + 1
        if len(self.findings) < MAX_FINDINGS:
            self.findings.append(finding)

    @property
    def whole(self) -> bool:
        """Whether nothing is wrong; a torn end is what a kill leaves and recovery cuts."""
        return not set(self.counts) - {StoreFault.TORN_END}


class VerifyListener(Protocol):
    """Hears of every whole record once; those of one queue in order."""

    def record(self, record: Record) -> None:
        """One record."""
        ...

    def records(self, key: QueueKey, columns: RecordColumns, rows: Numbers) -> None:
        """Some rows, all of one queue."""
        ...


def verify(
    store: StoreOnDisk, progress: Progress | None = None, listener: VerifyListener | None = None, *, one_by_one: bool = False
) -> Report:
    """Read the whole log and compare the queues with it.

    Most of it is proven many records at a time; what that does not settle is judged record by record. `one_by_one`: all of it is.
    """
    report = Report(low=store.starts[0], end=store.starts[0])
    queues = _Queues(store, report, listener)
    torn: Item | None = None
    for item in pieces(store, None if one_by_one else Prover(store.seals, queues.expected, store.flushed), progress):
        if torn is not None:
            report.add(_finding(torn, StoreFault.TORN_END if isinstance(item, Item) and item.is_torn else StoreFault.DAMAGED))
        torn = None
        if isinstance(item, WholeRun):
            report.end = item.end
            queues.check_run(item)
            continue
        torn = item if item.sort is Sort.RECORD and item.problem and item.record is None else None
        if item.problem and torn is None:
            report.add(_finding(item, _kind_of(item)))
        if not item.problem:
            report.end = item.end
        if item.record is not None and not item.problem:
            queues.check(item.record)
    if torn is not None:
        report.add(_finding(torn, StoreFault.TORN_END))
    queues.finish()
    return report


def _finding(item: Item, kind: StoreFault) -> StoreFinding:
    return StoreFinding(kind, item.start, "", -1, -1, item.problem)


def _kind_of(item: Item) -> StoreFault:
    if item.is_torn:
        return StoreFault.TORN_END
    return StoreFault.UNSUPPORTED if item.is_unsupported else StoreFault.DAMAGED


@dataclass(slots=True)
class _QueueSeen:
    """What the log has said of one queue. `missing` are offsets without a unit, of which no later one had one yet.

    `replaced` are messages whose units name later records: right if RocketMQ made the topic again behind them.
    """

    next: int
    missing: list[tuple[int, int]] = field(default_factory=list)
    replaced: list[StoreFinding] = field(default_factory=list)


class _Queues:
    """The queues of a store, compared record by record, or a run of records at a time where nothing is wrong."""

    def __init__(self, store: StoreOnDisk, report: Report, listener: VerifyListener | None) -> None:
        self._store = store
        self._report = report
        self._listener = listener
        self._units = QueueFiles(store)
        self.expected = Expected(self._units.read)
        self._names = QueueNames()
        self._agreed: dict[QueueKey, int] = {}
        self._seen: dict[QueueKey, _QueueSeen] = {}
        self._minimums: dict[QueueKey, QueueBound] = index_checkpoint.load_minimums(store.storage) if store.ours else {}

    def check(self, record: Record) -> None:
        """Compare one record, the next in the log."""
        self._report.records += 1
        self._report.bodies_bytes += len(record.body)
        self._check(record)
        if self._listener is not None:
            self._listener.record(record)

    def check_run(self, run: WholeRun) -> None:
        """Compare the next records in the log. A queue of which one is in any way odd is compared record by record."""
        units, agrees = self._agreeing(run)
        disagree = np.flatnonzero(~agrees).tolist()
        nowhere = {row: problem for row in disagree if (problem := queue_problem(run.record(row)))}
        odd = {row: self._decoded(run, row) for row in disagree if row not in nowhere}
        left = {(record.topic, record.queue) for record in odd.values()}
        dense: list[tuple[QueueKey, Numbers]] = []
        opened: dict[int, QueueKey] = {}
        for key, rows in self._by_queue(units, np.flatnonzero(agrees)):
            if key in left or not self._go_on(key, units.offsets[rows]):
                odd.update((row, self._decoded(run, row)) for row in rows.tolist())
                continue
            dense.append((key, rows))
            if key not in self._seen:
                opened[int(rows[0])] = key
        for row in sorted([*odd, *opened, *nowhere]):
            if row in nowhere:
                self._report.add(StoreFinding(StoreFault.DAMAGED, run.base + int(run.columns.starts[row]), "", -1, -1, nowhere[row]))
            elif row in odd:
                self.check(odd[row])
            else:
                self._seen[opened[row]] = _QueueSeen(0)
        for key, rows in dense:
            self._seen[key].next = int(units.offsets[rows[-1]]) + 1
            self._report.records += len(rows)
            self._report.bodies_bytes += int(run.columns.field("body_bytes")[rows].sum())
            if self._listener is not None:
                self._listener.records(key, run.columns, rows)
        self._learn(self._agreed)
        self._agreed = {}

    def _agreeing(self, run: WholeRun) -> tuple[Units, Truths]:
        """The units of the records, and which records are certainly what theirs say, after learning of queues that are new here."""
        starts, columns = run.starts, run.columns
        sealed = self._store.seals.at(int(starts[0])).sealed
        units = self.expected.of(starts)
        new: dict[QueueKey, int] = {}
        for row in samples(columns, np.flatnonzero(units.queues == NO_QUEUE)):
            record = self._decoded(run, row)
            key = (record.topic, record.queue)
            if key not in self.expected.numbers and record.topic != SCHEDULE_TOPIC and self._units.has(key):
                new.setdefault(key, record.queue_offset)
        if new:
            self._learn(new)
            units = self.expected.of(starts)
        return units, agree(columns, units, self._names, sealed=sealed)

    def _learn(self, goes_on: dict[QueueKey, int]) -> None:
        if goes_on:
            self.expected.expect(goes_on)
            self._names.learn(self.expected.keys)

    def _by_queue(self, units: Units, rows: Numbers) -> Iterator[tuple[QueueKey, Numbers]]:
        numbers = units.queues[rows].astype(np.int32)
        order = np.argsort(numbers, kind="stable")
        rows, numbers = rows[order], numbers[order]
        borders = [0, *(np.flatnonzero(numbers[1:] != numbers[:-1]) + 1).tolist(), len(rows)]
        for low, high in itertools.pairwise(borders):
            if low < high:
                yield self.expected.keys[int(numbers[low])], rows[low:high]

    def _go_on(self, key: QueueKey, offsets: Numbers) -> bool:
        """Whether these messages, which agree with their units, are the queue's next, and no question about it is open."""
        seen, minimum, first = self._seen.get(key), self._minimums.get(key), int(offsets[0])
        if seen is None:
            follows = first == 0 or self._store.starts[0] > 0
        else:
            follows = seen.next == first and not seen.missing
        return (
            follows
            and (minimum is None or (not minimum.is_reset and first >= minimum.low))
            and bool((offsets[1:] == offsets[:-1] + 1).all())
        )

    def _decoded(self, run: WholeRun, row: int) -> Record:
        return decode(run.record(row), int(run.columns.starts[row]) + run.base)

    def _check(self, record: Record) -> None:
        key = (record.topic, record.queue)
        offset = record.queue_offset
        sealed = self._store.seals.at(record.physical_offset).sealed
        if not sealed and not in_queues(record.system_flag):
            return
        if record.system_flag & INNER_BATCH:  # counts as many as it holds, in a queue of another kind
            self._seen[key] = _QueueSeen(offset + self._messages_in(record))
            return
        seen = self._seen.get(key)
        if seen is None:
            seen = self._seen[key] = _QueueSeen(0 if self._store.starts[0] == 0 else offset)
        if offset == 0 and seen.next > 0 and not sealed:
            self._restart_queue(key, seen)
        elif offset != seen.next:
            self._record(StoreFault.QUEUE_GAP, record, f"it is message {offset:,} of its queue and {seen.next:,} was next")
        seen.next = offset + 1
        minimum = self._minimums.get(key)
        if minimum is not None and (record.physical_offset < minimum.end if minimum.is_reset else offset < minimum.low):
            self._report.hidden += 1
        else:
            self._compare(key, seen, record)

    def _messages_in(self, record: Record) -> int:
        text = record.properties.get("INNER_NUM", "1")
        if _COUNT.fullmatch(text):
            return int(text)
        self._record(StoreFault.UNSUPPORTED, record, f"it is a batch, and its INNER_NUM is no number of messages: {text[:20]}")
        return 1

    def finish(self) -> None:
        """Say what is left open at the end of the log."""
        for seen in self._seen.values():
            self._report.undispatched += len(seen.missing)
            for finding in seen.replaced:
                self._report.add(finding)
        for key in dict.fromkeys((*self._seen, *self._units.keys())):
            self._find_surplus(key)

    def _find_surplus(self, key: QueueKey) -> None:
        """Note the first unit behind the queue's last message in the log, however far behind, that names none.

        And before it those that cannot be read, which may name one, and those that name what the disk does not give of the log.
        """
        seen, rightly = self._seen.get(key), 0
        unread: list[tuple[int, int, str]] = []
        for offset, unit in self._units.behind(key, 0 if seen is None else seen.next):
            if isinstance(unit, str):
                first = unread.pop()[0] if unread and unread[-1][1] == offset else offset
                unread.append((first, offset + 1, unit))
                continue
            position = unit[0]
            if (seen is None and position < self._store.starts[0]) or (rightly == _LOOKED_AT and position >= self._report.end):
                continue  # it went with the log's beginning; or a broker that runs writes faster than this can look
            is_right, reason = self._is_right(key, offset, unit)
            if reason:
                self._report.add(
                    StoreFinding(StoreFault.UNIT_UNREADABLE, position, *key, offset, f"whether the log has it is not known: {reason}")
                )
                continue
            if not is_right:
                problem = f"the queue has a message {offset:,} at {position:,}, which the log does not have"
                self._report.add(StoreFinding(StoreFault.UNIT_SURPLUS, position, *key, offset, problem))
                break
            rightly += 1
        for first, stop, reason in unread:
            problem = f"units {first:,} to {stop - 1:,} behind the queue's end cannot be read: {reason}"
            self._report.add(StoreFinding(StoreFault.UNIT_UNREADABLE, self._report.end, *key, first, problem))

    def _restart_queue(self, key: QueueKey, seen: _QueueSeen) -> None:
        """RocketMQ has made the topic again: its queue holds what comes now, and a minimum spoke of what came before."""
        minimum = self._minimums.get(key)
        if minimum is not None and minimum.low <= seen.next and not minimum.is_reset:
            del self._minimums[key]
        self._report.hidden += len(seen.missing) + len(seen.replaced)
        seen.missing.clear()
        seen.replaced.clear()

    def _compare(self, key: QueueKey, seen: _QueueSeen, record: Record) -> None:
        if not self._units.has(key):
            if self._units.had(key, record.queue_offset):
                self._record(StoreFault.UNIT_MISSING, record, "its queue has no file")
            else:
                self._report.without_queue += 1
            return
        unit = self._units.at(key, record.queue_offset)
        problem = self._units.problem(key, record.queue_offset)
        if problem:  # a part of it may be there, and name another place
            self._record(StoreFault.UNIT_MISSING, record, f"its queue's unit cannot be read: {problem}")
            return
        if unit is None or unit[1] <= 0:
            if len(seen.missing) < MAX_FINDINGS:
                seen.missing.append((record.queue_offset, record.physical_offset))
            else:
                self._report.undispatched += 1
            return
        if seen.missing:
            self._record_missing(key, seen)
        position, size, code = unit
        if (position, size) != (record.physical_offset, record.size):
            finding = _finding_of(StoreFault.UNIT_DIFFERS, record, f"its queue says {size:,} bytes at {position:,}")
            if position > record.physical_offset and len(seen.replaced) < MAX_FINDINGS:
                seen.replaced.append(finding)
            else:
                self._report.add(finding)
        elif not code_fits(record, code):
            self._record(StoreFault.UNIT_DIFFERS, record, f"its queue says tags code {code}")
        elif record.topic != SCHEDULE_TOPIC:
            self._agreed[key] = record.queue_offset + 1

    def _record_missing(self, key: QueueKey, seen: _QueueSeen) -> None:
        """A unit that was not there yet may be there now: a broker that runs writes them in order.

        Where it has dropped the log's beginning, the queue's files went with the segments.
        """
        self._units.forget(key)
        for offset, position in seen.missing:
            segment = self._store.starts[bisect_right(self._store.starts, position) - 1]
            if not self._store.storage.exists(path_of(segment)):
                continue
            unit = self._units.at(key, offset)
            if unit is None or unit[1] <= 0 or unit[0] != position:
                self._report.add(
                    StoreFinding(StoreFault.UNIT_MISSING, position, *key, offset, "its queue has no unit for it, and later ones")
                )
        seen.missing.clear()

    def _is_right(self, key: QueueKey, offset: int, unit: tuple[int, int, int]) -> tuple[bool, str]:
        """Whether the message of that unit is in the log by now, where a broker that runs wrote it behind the end that was seen.

        Or whether RocketMQ was told to put the message of another queue into this one too. And why that cannot be known, or "".
        """
        position, size, _ = unit
        if size > MAX_RECORD_BYTES or not self._store.storage.exists(path_of(position - position % self._store.segment_bytes)):
            return False, ""
        view, problem = view_of(self._store, position, size)
        sealed, is_new, span = self._store.seals.at(position).sealed, position >= self._report.end, span_at(view, position)
        if problem or (sealed and not is_new):
            return False, problem
        if span is None or span.sort is not Sort.RECORD or span.end != view.end or problem_of(view, span, sealed=sealed):
            return False, ""
        found = decode(view.data, position)
        if not sealed and MULTI_DISPATCH in found.properties:
            return True, ""
        return is_new and (found.topic, found.queue, found.queue_offset) == (*key, offset), ""

    def _record(self, kind: StoreFault, record: Record, problem: str) -> None:
        self._report.add(_finding_of(kind, record, problem))


def _finding_of(kind: StoreFault, record: Record, problem: str) -> StoreFinding:
    return StoreFinding(kind, record.physical_offset, record.topic, record.queue, record.queue_offset, problem)
