"""What became of the last sequences of each idempotent producer; every replica derives the same table from its log.

At most 1,024 producers, the longest unused in log order forgotten first; of each the last 8,192 sequences, at most 128 KiB of memory. With
the first record of any producer on a new day (UTC, by store time), whoever has no record of that day or the 7 days before it is forgotten.
So the bounds depend on the log alone: not on a clock, and not on when a replica took the records in.

Of what is forgotten one number is kept: nothing at or behind `removed_end` was. It tells who is new from who was forgotten.

A replica may forget more than another one, never contradict it: what dropped segments or damage hide is forgotten, and a cut does not
bring back whom the records that it took have pushed out.

*System producers* deliver what waits in the system's queues (`dittomq.delays`). There are few, none is ever forgotten by number or age, and
their sequences may leave numbers out. Of each the last records are kept, so that a cut leaves the last one before it; a cut of more makes
the next start read the log again. A snapshot, `dittomq/producers`, spares reading the log from its beginning.
"""

import json
import struct
from array import array
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Sequence
from typing import Annotated, NamedTuple, NotRequired, TypedDict

from msgspec import Meta

from dittomq.commitlog.disk import state_file
from dittomq.commitlog.disk.storage import Storage
from dittomq.commitlog.records.batch_index import DAY_MS
from dittomq.delays import is_system_producer
from dittomq.errors import OutOfOrderSequence, Refused, UnknownProducerId

MAX_PRODUCERS = 1_024
MAX_SEQUENCES = 8_192
MAX_SYSTEM_SEQUENCES = 1_024
MAX_AGE_DAYS = 7
"""Much longer than any client tries by itself: whoever asks what became of a message has a week."""
_NAME = "producers"
_KIND = b"PROD"
_PATH = f"{state_file.FOLDER}/{_NAME}"
_LENGTH = struct.Struct(">I")
_SAVED_ROW_BYTES = 256
_SAVED_SEQUENCE_BYTES = 40  # two numbers as text


class _Head(TypedDict):
    """How a snapshot begins: of each producer the first sequence and how many, at least one; their positions follow, 8 bytes each."""

    end: state_file.Number
    forgotten: NotRequired[state_file.Number]
    days: NotRequired[list[tuple[int, state_file.Number]]]
    producers: list[tuple[str, state_file.Number, Annotated[int, Meta(ge=1, lt=1 << 32)]]]
    system: NotRequired[list[tuple[str, list[state_file.Number], list[state_file.Number], bool]]]


class ProducerEntry:
    """Sequences [first, next) lie at `positions`, at least one; only the last MAX_SEQUENCES of them count."""

    __slots__ = ("first", "positions")

    def __init__(self, first: int, positions: "array[int]") -> None:
        self.first = first
        self.positions = positions

    @property
    def next(self) -> int:
        return self.first + len(self.positions)

    @property
    def oldest(self) -> int:
        """The first sequence that is remembered: the same on every replica."""
        return max(self.first, self.next - MAX_SEQUENCES)

    @property
    def last(self) -> int:
        """Where its newest record lies."""
        return self.positions[-1]


class SystemEntry:
    """The last records of a system producer: `sequences`, which grow, and their `positions`. `trimmed`: there were others before them."""

    __slots__ = ("positions", "sequences", "trimmed")

    def __init__(self) -> None:
        self.sequences = array("q")
        self.positions = array("q")
        self.trimmed = False

    def known(self, first: int, count: int) -> list[int] | None:
        """Positions of the leading ones of `count` sequences from `first` on; None when `first` was left out, or is no longer kept."""
        if not self.sequences or first > self.sequences[-1]:
            return []
        at = bisect_left(self.sequences, first)
        if self.sequences[at] != first:
            return None
        neighbours = zip(self.sequences[at : at + count], self.positions[at : at + count], strict=True)
        return [position for step, (sequence, position) in enumerate(neighbours, first) if step == sequence]

    def record(self, first: int, positions: Sequence[int]) -> None:
        """Sequences from `first` on lie there; of what was delivered twice the first counts. One that was missing may lie before others."""
        for sequence, position in enumerate(positions, first):
            if not self.sequences or sequence > self.sequences[-1]:
                self.positions.append(max(position, self.positions[-1]) if self.positions else position)
                self.sequences.append(sequence)
        if len(self.sequences) >= 2 * MAX_SYSTEM_SEQUENCES:
            self._trim(len(self.sequences) - MAX_SYSTEM_SEQUENCES)

    def _trim(self, count: int) -> None:
        self.trimmed = True
        del self.sequences[:count]
        del self.positions[:count]

    def truncate(self, to: int) -> bool:
        """Forget what lies at or behind `to`; returns whether the last one before it is still known, or that there was none."""
        keep = bisect_left(self.positions, to)
        del self.sequences[keep:]
        del self.positions[keep:]
        return keep > 0 or not self.trimmed


class Sequenced(NamedTuple):
    """A record of a producer."""

    producer_id: str
    sequence: int
    position: int
    store_ms: int


class Producers:
    """The table. One thread changes it."""

    def __init__(self) -> None:
        self._producers: OrderedDict[str, ProducerEntry] = OrderedDict()
        self._system: dict[str, SystemEntry] = {}
        self._days: list[tuple[int, int]] = []  # each day of the last ones that has a record, and where its first one lies
        self.removed_end = 0

    def known(self, producer_id: str, first: int, count: int, sent_since: int | None = None) -> list[int] | Refused:
        """Positions of those of `count` sequences from `first` on that are in the log already, the leading ones.

        No try of them can lie below `sent_since`. None: nobody says so, and sequence 0 of who is not remembered counts as new.
        Refused: one is missing in between, or what became of the first is no longer remembered.
        """
        if is_system_producer(producer_id):
            found = self._system[producer_id].known(first, count) if producer_id in self._system else []
            return self._expired(producer_id, first) if found is None else found
        producer = self._producers.get(producer_id)
        if producer is None:
            if (first > 0 or sent_since is not None) and self.removed_end > (sent_since or 0):
                return self._expired(producer_id, first)
            return OutOfOrderSequence(producer_id, 0, first) if first > 0 else []
        if first > producer.next:
            return OutOfOrderSequence(producer_id, producer.next, first)
        if first < producer.oldest:
            return self._expired(producer_id, first)
        at = first - producer.first
        return list(producer.positions[at : at + count])

    def last_sequence(self, producer_id: str) -> int | None:
        """Of a system producer, the greatest that is in the log; None when none is."""
        entry = self._system.get(producer_id)
        return entry.sequences[-1] if entry is not None and entry.sequences else None

    def find(self, producer_id: str, sequence: int, sent_since: int | None = None) -> int | None:
        """Where it lies; None when it is not in the log. Raises UnknownProducerId when that is no longer known.

        It cannot lie below `sent_since`; None: it may lie anywhere.
        """
        producer = self._producers.get(producer_id)
        if producer is None:
            if self.removed_end > (sent_since or 0):
                raise self._expired(producer_id, sequence)
            return None
        if sequence < producer.oldest:
            raise self._expired(producer_id, sequence)
        return producer.positions[sequence - producer.first] if sequence < producer.next else None

    def record(self, producer_id: str, first: int, positions: Sequence[int], store_ms: int) -> None:
        """Sequences from `first` on lie at these positions, behind all noted before; all were stored on the day of `store_ms`."""
        if not positions:
            return
        if is_system_producer(producer_id):
            self._system.setdefault(producer_id, SystemEntry()).record(first, positions)
            return
        producer = self._producers.get(producer_id)
        if producer is None:
            producer = self._producers[producer_id] = ProducerEntry(first, array("q"))
        else:
            self._producers.move_to_end(producer_id)
        if first != producer.next:  # it was forgotten in between and began again
            producer.first, producer.positions = first, array("q")
        producer.positions.extend(positions)
        surplus = len(producer.positions) - MAX_SEQUENCES
        if surplus >= MAX_SEQUENCES:
            producer.first += surplus
            del producer.positions[:surplus]
        if len(self._producers) > MAX_PRODUCERS:
            self._remove(next(iter(self._producers)))
        day = store_ms // DAY_MS
        if not self._days or day > self._days[-1][0]:
            self._begin_day(day, positions[0])

    def repair(self, records: Sequence[Sequenced]) -> None:
        """Records that were missing lie in the log. One that is no neighbour of what is known stays expired."""
        for record in (*records, *reversed(records)):  # those behind what is known, then those before it
            self._repair(record)
        self._sort()

    def drop_before(self, offset: int) -> None:
        """Forget what lies before `offset`: those sequences are expired, the ones behind them go on."""
        self._remove_before(offset)
        for producer in self._producers.values():
            gone = bisect_left(producer.positions, offset)
            producer.first += gone
            del producer.positions[:gone]

    def mark_unsure(self, behind: int) -> None:
        """Records before `behind` are missing: who has none at or behind it is forgotten, for its newest may be among them."""
        self._remove_before(behind)
        self.removed_end = max(self.removed_end, behind)

    def truncate(self, to: int) -> bool:
        """Forget what lies at or behind `to`: it was never stored. False: the log before it must be read for what system producers did."""
        wholes = [entry.truncate(to) for entry in self._system.values()]
        self.removed_end = min(self.removed_end, to)
        for producer_id, producer in list(self._producers.items()):
            keep = bisect_left(producer.positions, to)
            del producer.positions[keep:]
            if not producer.positions:
                if producer.first > 0:  # with older sequences forgotten, nobody knows any more which of them the cut took
                    self.removed_end = to
                del self._producers[producer_id]
        self._days = [(day, position) for day, position in self._days if position < to]
        self._sort()
        return all(wholes)

    def to_bytes(self, end: int) -> bytes:
        """A snapshot that covers the log up to `end`."""
        rows = [[producer_id, each.first, len(each.positions)] for producer_id, each in self._producers.items()]
        system = [[producer_id, *each] for producer_id, each in self._saved_system()]
        head = json.dumps({"end": end, "forgotten": self.removed_end, "days": self._days, "producers": rows, "system": system}).encode()
        return b"".join([_LENGTH.pack(len(head)), head, *(each.positions.tobytes() for each in self._producers.values())])

    @property
    def saved_bytes(self) -> int:
        """About how long `to_bytes` is, and no less."""
        each_system = (_SAVED_ROW_BYTES + _SAVED_SEQUENCE_BYTES * len(each.sequences) for each in self._system.values())
        return sum(each_system) + sum(_SAVED_ROW_BYTES + each.positions.itemsize * len(each.positions) for each in self._producers.values())

    def _saved_system(self) -> list[tuple[str, tuple[list[int], list[int], bool]]]:
        return [(name, (each.sequences.tolist(), each.positions.tolist(), each.trimmed)) for name, each in self._system.items()]

    def _repair(self, record: Sequenced) -> None:
        producer_id, sequence, position, store_ms = record
        if is_system_producer(producer_id):
            self._system.setdefault(producer_id, SystemEntry()).record(sequence, (position,))
            return
        producer = self._producers.get(producer_id)
        if producer is None:
            if position >= self.removed_end:  # otherwise newer ones may have been forgotten
                self.record(producer_id, sequence, (position,), store_ms)
        elif position > producer.last:
            self.record(producer_id, sequence, (position,), store_ms)
        elif sequence == producer.first - 1 and position < producer.positions[0]:
            producer.first = sequence
            producer.positions.insert(0, position)

    def _expired(self, producer_id: str, sequence: int) -> UnknownProducerId:
        newest = next(reversed(self._producers.values()), None)
        return UnknownProducerId(producer_id, sequence, max(self.removed_end, newest.last + 1 if newest is not None else 0))

    def _begin_day(self, day: int, position: int) -> None:
        self._days = [each for each in self._days if each[0] >= day - MAX_AGE_DAYS]
        self._days.append((day, position))
        self._remove_before(self._days[0][1])

    def _remove_before(self, position: int) -> None:
        """Forget who has no record at or behind the position."""
        for producer_id in [producer_id for producer_id, each in self._producers.items() if each.last < position]:
            self._remove(producer_id)

    def _remove(self, producer_id: str) -> None:
        self.removed_end = max(self.removed_end, self._producers.pop(producer_id).last + 1)

    def _sort(self) -> None:
        """The longest unused first again."""
        self._producers = OrderedDict(sorted(self._producers.items(), key=lambda each: each[1].last))


def from_bytes(payload: bytes) -> tuple[Producers, int]:
    """A table and the end of the log that it covers. Raises CorruptStateFile."""
    at = _LENGTH.size + int.from_bytes(payload[: _LENGTH.size], "big")
    head = state_file.parse(payload[_LENGTH.size : at], _Head, _PATH)
    table = Producers()
    if "days" not in head or "forgotten" not in head:  # by a version that did not count them: the log tells it all again
        return table, 0
    if len(payload) - at != 8 * sum(count for _, _, count in head["producers"]):
        raise state_file.CorruptStateFile(f"{_PATH} is damaged: it is whole and does not hold as many positions as it says")
    table.removed_end = head["forgotten"]
    table._days = [(day, position) for day, position in head["days"]]  # noqa: SLF001 - its own module
    for producer_id, sequences, places, trimmed in head.get("system", ()):
        entry = table._system[producer_id] = SystemEntry()  # noqa: SLF001 - its own module
        entry.sequences, entry.positions, entry.trimmed = array("q", sequences), array("q", places), trimmed
    for producer_id, first, count in head["producers"]:
        positions = array("q", payload[at : at + 8 * count])
        at += 8 * count
        table._producers[producer_id] = ProducerEntry(first, positions)  # noqa: SLF001 - its own module
    return table, head["end"]


def load(storage: Storage) -> tuple[Producers, int]:
    """The snapshot and the end it covers; an empty table and 0 when there is none. Raises CorruptStateFile."""
    payload = state_file.load(storage, _NAME, _KIND)
    return (Producers(), 0) if payload is None else from_bytes(payload)


def save(storage: Storage, payload: bytes) -> None:
    """Durably replace the snapshot with what `to_bytes` gave."""
    state_file.save(storage, _NAME, _KIND, payload)


def remove(storage: Storage) -> None:
    """Durably forget the snapshot: the next start reads the whole log."""
    state_file.remove(storage, _NAME)


def truncate_snapshot(storage: Storage, to: int) -> None:
    """Durably forget in the snapshot what lies at or behind `to`; a damaged one goes, the log tells it all again."""
    try:
        table, end = load(storage)
    except state_file.CorruptStateFile:
        remove(storage)
        return
    if end <= to:
        return
    if table.truncate(to):
        save(storage, table.to_bytes(to))
    else:
        remove(storage)
