"""Proves many neighbouring records of a log whole at once; the others it hands on to whoever judges them one by one. Changes nothing."""

import itertools
from collections.abc import Generator, Iterator
from dataclasses import dataclass

import numpy as np

from dittomq.commitlog.disk.damaged_pages import ReadableFile
from dittomq.commitlog.offline.expected_units import Expected, adjacent_units, tiles
from dittomq.commitlog.records.checksum_policy import ChecksumPolicy
from dittomq.commitlog.records.columnar_codec import Numbers, RecordColumns, Truths, body_crcs_hold, both_crcs_hold, columns_of, follow
from dittomq.commitlog.records.record_scanner import HEADER_BYTES, Sort, Span, View, span_at

# Enough records of a usual size for what a step costs by itself to be lost in it.
_BLOCK_BYTES = 6 * 1024 * 1024
# Fewer are sooner judged one by one.
_LEAST_ROWS = 16


@dataclass(frozen=True, slots=True, eq=False)
class WholeRun:
    """Neighbouring records [start, end), all whole. `columns.view` begins at position `base`."""

    base: int
    columns: RecordColumns

    @property
    def starts(self) -> Numbers:
        """The records' positions."""
        return self.columns.starts + self.base

    @property
    def end(self) -> int:
        return self.base + int(self.columns.ends[-1])

    def record(self, row: int) -> bytes:
        """The bytes of one of them."""
        return bytes(self.columns.view[int(self.columns.starts[row]) : int(self.columns.ends[row])])


class Prover:
    """Follows what the queues say through the log, and where they say nothing, the records' sizes."""

    def __init__(self, seals: ChecksumPolicy, expected: Expected, flushed: int) -> None:
        """Behind `flushed` another hand may have gone on in a sealed stretch: that is told record by record."""
        self._seals = seals
        self._expected = expected
        self._flushed = flushed

    def pieces(
        self, file: ReadableFile, at: int, limit: int, segment: tuple[int, int]
    ) -> Generator[WholeRun | tuple[Span, View], None, int]:
        """Records of a segment from `at` on, where one begins, that end below `limit`: whole ones in runs, others with their bytes.

        Returns the first position that it leaves alone: no record is certain to stand there.
        """
        start, stop = segment
        wanted = _BLOCK_BYTES
        while True:
            view = View(file.until_damage(min(wanted, limit - at), at - start), at, stop)
            columns = self._in_step(view)
            if len(columns) > 0:
                yield from self._sorted_out(columns, view)
                at, wanted = at + int(columns.ends[-1]), _BLOCK_BYTES
                continue
            span = span_at(view, at)
            needed = 0 if span is None else span.end + HEADER_BYTES - at
            if not wanted < needed <= limit - at:
                return at
            wanted = needed

    def _in_step(self, view: View) -> RecordColumns:
        """Records from the first byte on behind each of which another one, or a mark, begins."""
        columns = self._columns(view)
        for row in np.flatnonzero(~columns.fits).tolist():
            span = span_at(view, view.base + int(columns.starts[row]))
            if span is None or span.sort is not Sort.RECORD:
                return columns.first(max(0, row - 1))
        count = len(columns)
        if count == 0 or span_at(view, view.base + int(columns.ends[-1])) is not None:
            return columns
        return columns.first(count - 1)

    def _columns(self, view: View) -> RecordColumns:
        """Records that follow each other by their sizes, of one hand, from the first byte on."""
        expected = self._expected.between(view.base, view.end)
        starts = self._of_one_hand(view, adjacent_units(expected, view.base, view.end))
        columns = self._read(view, starts)
        if len(starts) > 0 and columns.follows[1:].all():
            rest = follow(view.data, int(columns.ends[-1]))
            return self._read(view, self._of_one_hand(view, np.append(starts, rest))) if rest else columns
        return self._read(view, self._of_one_hand(view, tiles(view.data, expected.positions - view.base)))

    def _of_one_hand(self, view: View, starts: Numbers) -> Numbers:
        hand = self._seals.at(view.base)
        border = min(hand.end, self._flushed) if hand.sealed else hand.end
        return starts[: np.searchsorted(starts, border - view.base)]

    def _read(self, view: View, starts: Numbers) -> RecordColumns:
        return columns_of(view.data, view.base, starts, view.segment_end, sealed=self._seals.at(view.base).sealed)

    def _sorted_out(self, columns: RecordColumns, view: View) -> Iterator[WholeRun | tuple[Span, View]]:
        whole = _are_whole(columns, sealed=self._seals.at(view.base).sealed)
        edges = [0, *(np.flatnonzero(whole[1:] != whole[:-1]) + 1).tolist(), len(columns)]
        for low, high in itertools.pairwise(edges):
            if whole[low] and high - low >= _LEAST_ROWS:
                yield WholeRun(view.base, columns.part(slice(low, high)))
                continue
            for row in range(low, high):
                yield Span(Sort.RECORD, view.base + int(columns.starts[row]), view.base + int(columns.ends[row])), view


def _are_whole(columns: RecordColumns, *, sealed: bool) -> Truths:
    """Which of them are certainly whole, by the rule of those who wrote them: see `dittomq.commitlog.records.format.problem_of`."""
    if sealed:
        return both_crcs_hold(columns)
    last = np.frombuffer(columns.view, np.uint8)[np.where(columns.fits, columns.ends - 1, 0)]
    whole: Truths = body_crcs_hold(columns) & ((last != 0) | (columns.properties_bytes == 0))
    return whole
