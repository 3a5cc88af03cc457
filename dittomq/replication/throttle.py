"""④ How fast the log may leave for slaves, and in which portions. Pure: the caller owns the clock and sends nothing before its time.

Byte-accurate: within any second, no more than the limit and one chunk, of a stream or of a range that a replica fetches. Only chunks are
held back, whatever they are for; heartbeats and news of what is confirmed never wait.
"""

from typing import Final

LEAST_CHUNK_BYTES: Final = 256 * 1024
MOST_CHUNK_BYTES: Final = 1024 * 1024
_CHUNKS_A_SECOND: Final = 16
_MOST_NODES: Final = 64


def chunk_bytes(bytes_per_s: int) -> int:
    """What a line that carries so much takes a sixteenth of a second for: so long a heartbeat may wait behind a chunk."""
    return min(MOST_CHUNK_BYTES, max(LEAST_CHUNK_BYTES, bytes_per_s // _CHUNKS_A_SECOND))


class TokenBucket:
    """A limit in bytes a second, 0 for none; each chunk begins when the one before it, sent at just that rate, would have ended."""

    def __init__(self, bytes_per_s: int) -> None:
        self._bytes_per_s = bytes_per_s
        self._free_at = float("-inf")
        self._late_s = 0.0

    def book(self, size: int, now: float) -> float:
        """When the chunk may leave, now or later, as long as nothing before it is late. Whoever books first goes first."""
        if not self._bytes_per_s:
            return now
        leaves_at = max(now - self._late_s, self._free_at)
        self._free_at = leaves_at + size / self._bytes_per_s
        return leaves_at

    def departure_of(self, booked: float) -> float:
        """When a chunk that was booked may leave, as things stand."""
        return booked + self._late_s

    def delay_by(self, seconds: float) -> None:
        """A chunk leaves so long after its moment: so do those that were booked behind it."""
        if self._bytes_per_s:
            self._late_s += seconds


class ThrottleTurns:
    """One stream's turns, or one fetched range's: its slave's own limit comes first, then the one that all share. One chunk at a time."""

    def __init__(self, own: TokenBucket, shared: TokenBucket) -> None:
        self._own = own
        self._shared = shared
        self._booked: float | None = None
        self._leaves_at: float | None = None

    def due(self, size: int, now: float) -> float:
        """When to ask again for this chunk; it leaves when that is not after `now`."""
        if self._booked is None:
            self._booked = self._own.book(size, now)
        if self._leaves_at is None:
            moment = self._own.departure_of(self._booked)
            if moment > now:
                return moment
            self._leaves_at = self._shared.book(size, now)
            self._own.delay_by(self._leaves_at - moment)
        due = self._leaves_at
        if due <= now:
            self._booked = self._leaves_at = None
        return due


class Throttle:
    """The limits of one node: for each replica by its name, and for all of them."""

    def __init__(self, *, shared_bytes_per_s: int, own_bytes_per_s: int) -> None:
        self._shared = TokenBucket(shared_bytes_per_s)
        self._own_bytes_per_s = own_bytes_per_s
        self._own: dict[str, TokenBucket] = {}

    def of(self, node: str) -> ThrottleTurns:
        """Turns of one more stream, or of one more fetched range, within the limit of that replica, whatever else it takes.

        Replicas that do not say who they are share one. Of very many names those that were heard first are forgotten.
        """
        own = self._own.get(node)
        if own is None:
            own = self._own[node] = TokenBucket(self._own_bytes_per_s)
            if len(self._own) > _MOST_NODES:
                del self._own[next(iter(self._own))]
        return ThrottleTurns(own, self._shared)
