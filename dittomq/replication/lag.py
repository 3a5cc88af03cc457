"""What replication tells of itself: how far behind in time, how many bytes a second. Pure: the caller owns the clock."""

from bisect import bisect_right
from collections import deque
from operator import itemgetter
from typing import Final

from dittomq.offsets import PhysicalOffset

_FINE_MARKS: Final = 2_400
_COARSE_MARKS: Final = 10_080
_COARSE_S: Final = 60.0
_WINDOW_S: Final = 5.0
_SLICE_S: Final = 0.25
_LEAST_S: Final = 1.0


_Mark = tuple[float, PhysicalOffset]


class LagHistory:
    """Where an end was: turns a position into a time. The newest 2,400 marks, and one a minute of the last 10,080 minutes.

    An end may go back. Marks that lie behind a newer one say nothing that it does not say of less long ago, so all are kept in order.
    """

    def __init__(self) -> None:
        self._fine: deque[_Mark] = deque(maxlen=_FINE_MARKS)
        self._coarse: deque[_Mark] = deque(maxlen=_COARSE_MARKS)

    def mark(self, end: PhysicalOffset, now: float) -> None:
        """The end is here now."""
        _add(self._fine, (now, end))
        if not self._coarse or now - self._coarse[-1][0] >= _COARSE_S or end < self._coarse[-1][1]:
            _add(self._coarse, (now, end))

    def lag_s(self, position: PhysicalOffset | None, end: PhysicalOffset, now: float) -> float | None:
        """How long ago `position` was the end; 0 when it still is. None when that was before all marks, or for no position.

        Never too little; too much by the time between two marks.
        """
        if position is None:
            return None
        if position >= end:
            return 0.0
        for marks in (self._fine, self._coarse):
            if newest := bisect_right(marks, position, key=itemgetter(1)):
                return now - marks[newest - 1][0]
        return None


def _add(marks: deque[_Mark], mark: _Mark) -> None:
    while marks and marks[-1][1] > mark[1]:
        marks.pop()
    marks.append(mark)


class Rate:
    """Bytes a second over the last 5 s, or since they began to flow if that is later; at least a second is looked at."""

    def __init__(self) -> None:
        self._slices: deque[tuple[float, int]] = deque()
        self._total = 0

    def add(self, size: int, now: float) -> None:
        """So many bytes went now."""
        self._total += size
        if self._slices and now - self._slices[-1][0] < _SLICE_S:
            began, before = self._slices.pop()
            self._slices.append((began, before + size))
        else:
            self._forget(now)
            self._slices.append((now, size))

    def bytes_per_s(self, now: float) -> int:
        """The rate as of now: it falls while nothing goes."""
        self._forget(now)
        if not self._slices:
            return 0
        return int(self._total / max(_LEAST_S, now - self._slices[0][0]))

    def _forget(self, now: float) -> None:
        while self._slices and now - self._slices[0][0] > _WINDOW_S:
            self._total -= self._slices.popleft()[1]
