"""④ How fast the log may leave for slaves, and in which portions. Pure: the caller owns the clock and sends nothing before its time.

Byte-accurate: within any second, no more than the limit and one chunk. Only chunks are held back, whatever they are for; heartbeats
and news of what is confirmed never wait.
"""

from typing import Final

LEAST_CHUNK_BYTES: Final = 256 * 1024
MOST_CHUNK_BYTES: Final = 1024 * 1024
_CHUNKS_A_SECOND: Final = 16


def chunk_bytes(bytes_per_s: int) -> int:
    """What a line that carries so much takes a sixteenth of a second for: so long a heartbeat may wait behind a chunk."""
    return min(MOST_CHUNK_BYTES, max(LEAST_CHUNK_BYTES, bytes_per_s // _CHUNKS_A_SECOND))


class Pace:
    """A limit in bytes a second, 0 for none; each chunk begins when the one before it, sent at just that rate, would have ended."""

    def __init__(self, bytes_per_s: int) -> None:
        self._bytes_per_s = bytes_per_s
        self.free_at = float("-inf")

    def book(self, size: int, now: float) -> float:
        """When the chunk may leave, now or later. Whoever books first goes first."""
        if not self._bytes_per_s:
            return now
        leaves_at = max(now, self.free_at)
        self.free_at = leaves_at + size / self._bytes_per_s
        return leaves_at


class SlavePace:
    """One stream's turns: its slave's own limit comes first, then the one that all slaves share. One chunk at a time."""

    def __init__(self, own: Pace, shared: Pace) -> None:
        self._own = own
        self._shared = shared
        self._booked: float | None = None

    def due(self, size: int, now: float) -> float:
        """When to ask again for this chunk; it leaves when that is not after `now`."""
        if self._booked is None:
            if self._own.free_at > now:
                return self._own.free_at
            self._booked = self._shared.book(size, now)
            self._own.book(size, self._booked)
        due = self._booked
        if due <= now:
            self._booked = None
        return due
