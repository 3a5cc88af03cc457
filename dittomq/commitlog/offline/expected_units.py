"""What consume queues say lies ahead in the log: units of many queues, sorted by where their messages lie.

A hint, never believed: whoever follows it compares it with the log. Memory is bounded, whatever the number of queues.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from dittomq.commitlog.queues.index_checkpoint import QueueKey
from dittomq.commitlog.records.columnar_codec import Numbers, Truths, follow
from dittomq.commitlog.records.format import FIXED_BYTES, UNIT_BYTES

NO_QUEUE = -1
_ON_DISK = np.dtype([("position", ">i8"), ("size", ">i4"), ("code", ">i8")])
_SIZES = np.dtype(">i4")
# So far ahead units are read; then they are sorted once.
_STRIDE_BYTES = 32 * 1024 * 1024
_READ_UNITS = (32, 4_096)
_ALL_READ_UNITS = 256 * 1_024
_NOTHING_AHEAD = np.iinfo(np.int64).max


class Units(NamedTuple):
    """Columns: `offsets` in the queue, and `queues`, their numbers. Not a structured array, numpy moves those one field at a time."""

    positions: Numbers
    sizes: Numbers
    codes: Numbers
    offsets: Numbers
    queues: Numbers

    def rows(self, rows: Numbers | Truths | slice) -> "Units":
        """Some of them."""
        return Units(*(column[rows] for column in self))


class Expected:
    """The units of all queues that were heard of. `read` gives up to so many bytes of a queue's units from an offset on."""

    def __init__(self, read: Callable[[QueueKey, int, int], bytes]) -> None:
        self.keys: list[QueueKey] = []
        self.numbers: dict[QueueKey, int] = {}
        self._read = read
        self._next: list[int] = []
        self._newest: Numbers = np.zeros(0, np.int64)
        self._units = Units(*(np.zeros(0, np.int64) for _ in Units._fields))
        self._more: list[Units] = []
        self._known_to = 0

    @property
    def held(self) -> int:
        """How many units are in memory."""
        return len(self._units.positions) + sum(len(units.positions) for units in self._more)

    def expect(self, goes_on: Mapping[QueueKey, int]) -> None:
        """The queues go on at these offsets."""
        self._sort(0)
        again = [number for key in goes_on if (number := self.numbers.get(key)) is not None]
        if again:
            self._units = self._units.rows(~np.isin(self._units.queues, again))
        for key in goes_on:
            self.numbers.setdefault(key, len(self.numbers))
        new = list(self.numbers)[len(self.keys) :]
        self.keys += new
        self._next += [0] * len(new)
        self._newest = np.append(self._newest, np.zeros(len(new), np.int64))
        for key, offset in goes_on.items():
            number = self.numbers[key]
            self._next[number], self._newest[number] = offset, -1
            self._load(number)

    def between(self, low: int, high: int) -> Units:
        """What is said to begin in [low, high) of the log, in order; `low` never goes back."""
        if high > self._known_to:
            self._known_to = high + _STRIDE_BYTES
            for number in np.flatnonzero(self._newest < self._known_to).tolist():
                self._load(number)
        self._sort(low)
        first, stop = np.searchsorted(self._units.positions, (low, high)).tolist()
        return self._units.rows(slice(first, stop))

    def of(self, positions: Numbers) -> Units:
        """The unit that says that a message lies there, for each position, none below what was last asked for; NO_QUEUE where none does."""
        self._sort(0)
        units = self._units
        if len(units.positions) == 0:
            return Units(*(np.full(len(positions), NO_QUEUE) for _ in Units._fields))
        first = int(np.searchsorted(units.positions, positions[0]))
        neighbours = units.rows(slice(first, first + len(positions)))
        if np.array_equal(neighbours.positions, positions):
            return neighbours
        rows = np.searchsorted(units.positions, positions)
        found = units.rows(np.minimum(rows, len(units.positions) - 1))
        return found._replace(queues=np.where(found.positions == positions, found.queues, NO_QUEUE))

    def _load(self, number: int) -> None:
        least, most = _READ_UNITS
        count = max(least, min(most, _ALL_READ_UNITS // len(self.keys)))
        while self._newest[number] < self._known_to:
            block = self._read(self.keys[number], self._next[number], count * UNIT_BYTES)
            found = np.frombuffer(block, _ON_DISK, len(block) // UNIT_BYTES)
            there = int(np.argmin(np.append(found["size"], 0) > 0))
            if there == 0:
                self._newest[number] = _NOTHING_AHEAD
                return
            positions, sizes, codes = (found[name][:there].astype(np.int64) for name in ("position", "size", "code"))
            offsets = np.arange(self._next[number], self._next[number] + there)
            self._more.append(Units(positions, sizes, codes, offsets, np.full(there, number)))
            self._next[number] += there
            self._newest[number] = positions[-1]

    def _sort(self, low: int) -> None:
        """Take in what was read, and forget what lies below `low`."""
        if self._more:
            units = Units(*(np.concatenate(columns) for columns in zip(self._units, *self._more, strict=True)))
            self._more = []
            order = np.argsort(units.positions, kind="stable")  # few runs that are in order already
            self._units = units.rows(order[np.searchsorted(units.positions, low, sorter=order) :])


def adjacent_units(units: Units, base: int, stop: int) -> Numbers:
    """Indexes of messages that by their units lie one behind the other from position `base` on, all below `stop`; else none."""
    starts, ends = units.positions - base, units.positions + units.sizes - base
    if len(starts) == 0 or starts[0] != 0 or not np.array_equal(starts[1:], ends[:-1]):
        return starts[:0]
    return starts[: np.searchsorted(ends, stop - base, side="right")]


def tiles(data: bytes, expected: Numbers) -> Numbers:
    """Indexes at which records begin, one behind the other from the first byte on, all of them whole in `data` by their sizes.

    `expected` are indexes where that is likely, in order: between neighbours that touch, nothing is looked at but their sizes.
    """
    expected = expected[expected <= len(data) - FIXED_BYTES]
    whole: Any = np.ndarray((max(0, len(data) - 3),), _SIZES, data, 0, (1,))
    ends = expected + whole[expected]
    touching = ends[:-1] == expected[1:]
    stops = np.append(np.flatnonzero(~touching), len(expected) - 1)
    parts: list[Any] = []
    at = 0
    while at < len(data):
        row = int(np.searchsorted(expected, at))
        if row < len(expected) and expected[row] == at:
            stop = int(stops[np.searchsorted(stops, row)])
            parts.append(expected[row : stop + 1])
            at, before = int(ends[stop]), int(expected[stop])
            if at - before < FIXED_BYTES or at > len(data):
                parts[-1] = parts[-1][:-1]
                break
        else:
            walked = follow(data, at, 1 if row < len(expected) else len(data))
            if not walked:
                break
            parts.append(np.array(walked, np.int64))
            at = walked[-1] + int(whole[walked[-1]])
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)
