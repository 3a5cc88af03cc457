"""What replication tells of itself: how far behind in time, how many bytes a second. Pure: the caller owns the clock."""

from collections import deque
from collections.abc import Iterable
from itertools import chain
from typing import Final

from dittomq.offsets import PhysicalOffset

_FINE_MARKS: Final = 2_400
_COARSE_MARKS: Final = 10_080
_COARSE_S: Final = 60.0
_WINDOW_S: Final = 5.0
_SLICE_S: Final = 0.25
_LEAST_S: Final = 1.0


class EndHistory:
    """Where an end was: turns a position into a time. The newest 2,400 marks, and one a minute of the last 10,080 minutes."""

    def __init__(self) -> None:
        self._fine: deque[tuple[float, PhysicalOffset]] = deque(maxlen=_FINE_MARKS)
        self._coarse: deque[tuple[float, PhysicalOffset]] = deque(maxlen=_COARSE_MARKS)

    def mark(self, end: PhysicalOffset, now: float) -> None:
        """The end is here now."""
        self._fine.append((now, end))
        if not self._coarse or now - self._coarse[-1][0] >= _COARSE_S:
            self._coarse.append((now, end))

    def lag_s(self, position: PhysicalOffset | None, end: PhysicalOffset, now: float) -> float | None:
        """How long ago `position` was the end; 0 when it still is. None when that was before all marks, or for no position.

        Never too little; too much by the time between two marks.
        """
        if position is None:
            return None
        if position >= end:
            return 0.0
        marks: Iterable[tuple[float, PhysicalOffset]] = chain(reversed(self._fine), reversed(self._coarse))
        return next((now - at for at, marked in marks if marked <= position), None)


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
