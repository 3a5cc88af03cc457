"""What a store keeps of many ordinary records at once: units for their queues, sequences of their producers. Pure.

The same as `dittomq.commitlog.records.format.scan` tells record by record, at a fraction of the cost. It takes records from the front of a
stretch for as long as `dittomq.commitlog.records.columnar_codec` vouches for them; what comes behind is for the plain way to judge.
"""

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dittomq.commitlog.records import format as plain
from dittomq.commitlog.records.columnar_codec import UNITS, Numbers, RecordColumns, Truths, columns_of, follow, record_crcs_hold, windows
from dittomq.commitlog.records.format import (
    CRC_BYTES,
    FIXED_BYTES,
    KEY_NAME,
    ROLLED_BACK,
    UNIT_BYTES,
    safe_topic,
    scheduled_code,
    sequence_of,
    tags_code_of,
)
from dittomq.delays import SCHEDULE_TOPIC

DAY_MS = 86_400_000
# With fewer records a step for each is cheaper.
FEW = 96
_MOST = 4_096
# Properties are looked at so far for all records at once; longer ones one by one.
_HEAD_BYTES = 128
_TAGS_NAME = b"TAGS\x01"
_PID_NAME = np.frombuffer(b"PID\x01", np.uint32)[0]
_SEQ_NAME = np.frombuffer(b"SEQ\x01", np.uint32)[0]
_END = 2
_MOST_DIGITS = 18
_POWERS = 10 ** np.arange(_MOST_DIGITS - 1, -1, -1, dtype=np.int64)
# So many lengths of producers' ids, and of sequences, are told apart; what is left is looked at one by one.
_MOST_SHAPES = 16


class OffsetRun(NamedTuple):
    """Messages of one queue with neighbouring offsets from `first` on. `rows` says which records of the batch they are."""

    topic: str
    queue: int
    first: int
    rows: Numbers
    units: bytes

    def between(self, low: int, high: int) -> "OffsetRun":
        """Of these only records [low, high) of the batch."""
        if low <= self.rows[0] and self.rows[-1] < high:
            return self
        start, stop = np.searchsorted(self.rows, (low, high)).tolist()
        return self._replace(first=self.first + start, rows=self.rows[start:stop], units=self.units[start * UNIT_BYTES : stop * UNIT_BYTES])


class KeyedRecord(NamedTuple):
    """A record of the batch with keys: its topic and all its properties."""

    row: int
    topic: str
    properties: bytes


class Sequences(NamedTuple):
    """Neighbouring sequences of a producer and the positions where they lie; all of one day (UTC), the first stored at `store_ms`."""

    producer_id: str
    first: int
    positions: "array[int]"
    store_ms: int


@dataclass(frozen=True, slots=True, eq=False)
class RecordBatch:
    """Whole records, each behind the other; record `row` lies at [starts[row], ends[row]). Holds nothing of their bytes.

    Every row is in one of the `runs`; those of one queue, `named` and `sequences` are in the order of the log.
    """

    starts: Numbers
    ends: Numbers
    store_ms: Numbers
    runs: list[OffsetRun]
    named: list[KeyedRecord]
    sequences: list[Sequences]

    def __len__(self) -> int:
        return len(self.starts)


def gather(data: bytes, base: int, segment_end: int) -> tuple[list[RecordBatch], int]:
    """Ordinary whole records from the first byte on, and the index in `data` at which others, or few, or none begin.

    `data` begins with a record at position `base` of a segment that ends at `segment_end`.
    """
    batches: list[RecordBatch] = []
    at = 0
    while len(data) - at >= FEW * FIXED_BYTES:
        starts = follow(data, at, _MOST)
        if len(starts) < FEW:
            break
        batch = _batch(columns_of(data, base, np.array(starts, np.int64), segment_end), base)
        if batch is None:
            break
        batches.append(batch)
        at = int(batch.ends[-1]) - base
        if len(batch) < len(starts):
            break
    return batches, at


def whole_end(data: bytes, base: int, segment_end: int) -> tuple[int, str]:
    """Like `dittomq.commitlog.records.format.whole_end`, ordinary records many at once."""
    at = 0
    while len(data) - at >= FEW * FIXED_BYTES and len(starts := follow(data, at, _MOST)) >= FEW:
        columns = columns_of(data, base, np.array(starts, np.int64), segment_end)
        count = _leading(record_crcs_hold(columns))
        at = int(columns.ends[count - 1]) if count else at
        if count < len(starts):
            break
    return plain.whole_end(data, base, segment_end, at)


def _batch(columns: RecordColumns, base: int) -> RecordBatch | None:
    """The rows from the first on that are ordinary and whole; None for too few."""
    count = _leading(columns.plain)
    if count < FEW:
        return None
    columns = columns.first(count)
    columns = columns.first(_leading(record_crcs_hold(columns)))
    names, which = _name(columns)
    columns = columns.first(len(which))
    if not len(columns):
        return None
    starts = columns.starts + base
    heads = _heads(columns)
    codes, keyed = _search(columns, heads)
    scheduled = [number for number, (topic, _) in enumerate(names) if topic == SCHEDULE_TOPIC]
    if scheduled:
        stored_ms = columns.field("store_ms").tolist()
        for row, properties in _properties(columns, np.flatnonzero(np.isin(which, scheduled)).tolist()):
            codes[row] = scheduled_code(properties, stored_ms[row])
    named = [KeyedRecord(row, names[int(which[row])][0], properties) for row, properties in keyed]
    units = np.empty(len(columns), UNITS)
    units["position"], units["size"], units["code"] = starts, columns.field("size"), codes
    runs = list(_runs(columns, units, names, which))
    return RecordBatch(starts, columns.ends + base, columns.field("store_ms"), runs, named, _sequences(columns, heads, starts))


def _leading(truths: Truths) -> int:
    """How many are true before the first that is not."""
    return len(truths) if truths.all() else int(truths.argmin())


def _name(columns: RecordColumns) -> tuple[list[tuple[str, int]], Numbers]:
    """Topics and queues in the order in which they come, and which of them each row names; ends before a topic that cannot be one."""
    lengths, queues = columns.topic_bytes, columns.field("queue")
    width = int(lengths.max(initial=1))
    topics = _filled(columns, columns.topics, width)
    alike = (lengths[1:] == lengths[:-1]) & (queues[1:] == queues[:-1])
    same = topics[1:] == topics[:-1]
    if not same.all():
        alike &= (same | (np.arange(width) >= lengths[1:, None])).all(axis=1)
    firsts = [0, *(np.flatnonzero(~alike) + 1).tolist()]
    numbers: dict[tuple[bytes, int], int] = {}
    names: list[tuple[str, int]] = []
    numbered: list[int] = []
    count = len(columns)
    for row in firsts if count else ():
        name = topics[row, : lengths[row]].tobytes()
        queue = int(queues[row])
        number = numbers.setdefault((name, queue), len(names))
        if number == len(names):
            topic = safe_topic(name)
            if not topic:
                count = row
                break
            names.append((topic, queue))
        numbered.append(number)
    borders = [*firsts[: len(numbered)], count]
    return names, np.repeat(np.array(numbered, np.int64), np.diff(borders))


def _runs(columns: RecordColumns, units: NDArray[np.void], names: list[tuple[str, int]], which: Numbers) -> Iterator[OffsetRun]:
    order = np.argsort(which, kind="stable") if len(names) > 1 else np.arange(len(which))
    which, offsets = which[order], columns.field("queue_offset")[order]
    packed = units[order].tobytes()
    news = np.flatnonzero((which[1:] != which[:-1]) | (offsets[1:] != offsets[:-1] + 1)) + 1
    for start, stop in pairwise([0, *news.tolist(), len(which)]):
        topic, queue = names[int(which[start])]
        yield OffsetRun(topic, queue, int(offsets[start]), order[start:stop], packed[start * UNIT_BYTES : stop * UNIT_BYTES])


def _heads(columns: RecordColumns) -> NDArray[np.uint8]:
    """The first bytes of all properties; behind shorter ones stands what comes next in the log, or zeros."""
    longest = int(columns.properties_bytes.max()) - CRC_BYTES
    return _filled(columns, columns.properties, min(_HEAD_BYTES, max(longest, 8)))


def _filled(columns: RecordColumns, at: Numbers, count: int) -> NDArray[np.uint8]:
    """`count` bytes from each of these ascending indexes on; zeros for what lies behind the view."""
    view = columns.view
    inside = int(at.searchsorted(len(view) - count, side="right"))
    if inside == len(at):
        return windows(view, at, count)
    found = np.zeros((len(at), count), np.uint8)
    if inside:
        found[:inside] = windows(view, at[:inside], count)
    for row in range(inside, len(at)):
        there = np.frombuffer(view[int(at[row]) :], np.uint8)
        found[row, : len(there)] = there
    return found


def _search(columns: RecordColumns, heads: NDArray[np.uint8]) -> tuple[Numbers, list[tuple[int, bytes]]]:
    """The tags code of each row, and rows with keys with all their properties. A find that is none costs a look."""
    codes: Numbers = np.zeros(len(columns), np.int64)
    keyed: list[tuple[int, bytes]] = []
    width = heads.shape[1]
    flat = heads.tobytes()
    rows = {at // width for name in (_TAGS_NAME, KEY_NAME) for at in _places(flat, name)}
    rows.update(np.flatnonzero(columns.properties_bytes - CRC_BYTES > width).tolist())
    if not rows:
        return codes, keyed
    flags = columns.field("system_flag").tolist()
    for row, properties in _properties(columns, sorted(rows)):
        if properties.find(_TAGS_NAME) >= 0:
            codes[row] = tags_code_of(properties)
        if properties.find(KEY_NAME) >= 0 and flags[row] & ROLLED_BACK != ROLLED_BACK:
            keyed.append((row, properties))
    return codes, keyed


def _places(flat: bytes, name: bytes) -> Iterator[int]:
    at = flat.find(name) if flat.find(name[:1]) >= 0 else -1  # a single byte is found much quicker
    while at >= 0:
        yield at
        at = flat.find(name, at + 1)


def _sequences(columns: RecordColumns, heads: NDArray[np.uint8], starts: Numbers) -> list[Sequences]:
    """Sequences of producers, neighbours together: the next one of the same producer, whatever others lie between."""
    rows = np.flatnonzero(_word(heads, 0) == _PID_NAME)
    if not len(rows):
        return []
    heads = heads[rows]
    id_ends, numbers = _identities(heads, columns.properties_bytes[rows] - CRC_BYTES)
    differs = (heads[1:] == heads[:-1]).argmin(axis=1)  # the first column that does; 0 when none does, for all begin alike
    joins = (
        (id_ends[1:] == id_ends[:-1]) & (id_ends[1:] > 0) & ((differs == 0) | (differs > id_ends[1:])) & (numbers[1:] == numbers[:-1] + 1)
    )
    store_ms = columns.field("store_ms")[rows]
    days = store_ms // DAY_MS
    joins &= days[1:] == days[:-1]
    firsts = [0, *(np.flatnonzero(~joins) + 1).tolist()]
    unusual = dict(_properties(columns, rows[id_ends == 0].tolist()))
    positions = array("q", starts[rows].tobytes())
    found = []
    for start, stop in pairwise([*firsts, len(rows)]):
        end = int(id_ends[start])
        if end:
            producer_id, first = heads[start, 4:end].tobytes().decode("utf-8", "replace"), int(numbers[start])
        else:
            producer_id, first = sequence_of(unusual[int(rows[start])])
        if producer_id:
            found.append(Sequences(producer_id, first, positions[start:stop], int(store_ms[start])))
    return found


def _identities(heads: NDArray[np.uint8], lengths: Numbers) -> tuple[Numbers, Numbers]:
    """For each row the index behind the producer's id, and the sequence; 0 for an unusual one, which must be looked at by itself."""
    id_ends, numbers = np.zeros(len(heads), np.int64), np.zeros(len(heads), np.int64)
    for end, rows in _shapes((heads == _END).argmax(axis=1)):
        first = end + 5
        if end <= 4 or first >= heads.shape[1]:
            continue
        mine = heads[rows]
        values, usual = _decimals(mine[:, first:])
        usual &= (_word(mine, end + 1) == _SEQ_NAME) & (lengths[rows] > end)
        id_ends[rows] = np.where(usual, end, 0)
        numbers[rows] = values
    return id_ends, numbers


def _decimals(texts: NDArray[np.uint8]) -> tuple[Numbers, Truths]:
    """The number with which each text begins and whether it is one: digits, and a property's end.

    It never reaches behind the properties: what comes there is the record CRC, which begins with neither.
    """
    values, usual = np.zeros(len(texts), np.int64), np.zeros(len(texts), np.bool_)
    for count, rows in _shapes((texts == _END).argmax(axis=1)):
        if not 1 <= count <= _MOST_DIGITS:
            continue
        digits = texts[rows, :count] - np.uint8(ord("0"))
        values[rows] = digits.astype(np.int64) @ _POWERS[-count:]
        usual[rows] = (digits <= 9).all() or (digits <= 9).all(axis=1)
    return values, usual


def _shapes(columns: Numbers) -> Iterator[tuple[int, Numbers | slice]]:
    """Each value that occurs, up to _MOST_SHAPES of them, and its rows."""
    if (columns == columns[0]).all():
        yield int(columns[0]), slice(None)
        return
    for column in sorted(set(columns.tolist()))[:_MOST_SHAPES]:
        yield column, np.flatnonzero(columns == column)


def _word(heads: NDArray[np.uint8], at: int) -> NDArray[np.uint32]:
    """Four bytes of each row as a number of this machine."""
    return np.ascontiguousarray(heads[:, at : at + 4]).view(np.uint32).reshape(-1)


def _properties(columns: RecordColumns, rows: list[int]) -> Iterator[tuple[int, bytes]]:
    """These rows, and what stands before the record CRC in each."""
    if rows:
        starts, lengths = columns.properties.tolist(), columns.properties_bytes.tolist()
        for row in rows:
            yield row, bytes(columns.view[starts[row] : starts[row] + lengths[row] - CRC_BYTES])
