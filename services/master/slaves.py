"""What a master knows of its slaves: for status, and so that each replica has one stream."""

from collections import deque
from dataclasses import dataclass

from dittomq.doors.clock import Clock
from dittomq.offsets import PhysicalOffset

_RATE_WINDOW_S = 2.0
_MARKS = 2_400


@dataclass(slots=True)
class SlaveRecord:
    """One slave. Offsets in bytes, `since_ms` in wall milliseconds; None is unknown."""

    node: str
    replica_uuid: str
    state: str = "waiting"
    since_ms: int = 0
    connected: bool = False
    received: PhysicalOffset | None = None
    flushed: PhysicalOffset | None = None
    applied: PhysicalOffset | None = None
    proven_equal: PhysicalOffset = PhysicalOffset(0)
    last_drop_reason: str = ""
    bytes_per_s: int = 0
    window_started: float = 0.0
    window_bytes: int = 0

    def become(self, state: str, clock: Clock) -> None:
        """Enter a state, and note since when."""
        if state != self.state:
            self.state, self.since_ms = state, clock.wall_ms()

    def acked(self, received: PhysicalOffset, flushed: PhysicalOffset, applied: PhysicalOffset | None) -> None:
        """The slave said what it holds."""
        self.received, self.flushed, self.applied = received, flushed, applied

    def sent(self, size: int, clock: Clock) -> None:
        """Bytes left for the slave."""
        self.window_bytes += size
        elapsed = clock.monotonic() - self.window_started
        if elapsed >= _RATE_WINDOW_S:
            self.bytes_per_s = int(self.window_bytes / elapsed)
            self.window_started, self.window_bytes = clock.monotonic(), 0


class EndHistory:
    """Where the log's end was, lately: turns a position into a time. One mark a tick, the oldest go."""

    def __init__(self) -> None:
        self._marks: deque[tuple[float, PhysicalOffset]] = deque(maxlen=_MARKS)

    def mark(self, end: PhysicalOffset, now: float) -> None:
        """The end is here now."""
        self._marks.append((now, end))

    def lag_s(self, position: PhysicalOffset, end: PhysicalOffset, now: float) -> float | None:
        """How long ago `position` was the end; 0 when it still is, None when it was before all marks."""
        if position >= end:
            return 0.0
        for at, marked in reversed(self._marks):
            if marked <= position:
                return now - at
        return None
