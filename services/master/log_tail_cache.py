"""The newest bytes of the log, kept in memory for slaves that keep up: what was just written needs no read."""

from bisect import bisect_left, bisect_right

from dittomq.commitlog.store import AppendGroup
from dittomq.offsets import PhysicalOffset
from dittomq.replication.throttle import MOST_CHUNK_BYTES

TAIL_BYTES = 16 * 1024 * 1024


class LogTailCache:
    """Pieces of whole records, neighbours in the log, at most TAIL_BYTES and one group."""

    def __init__(self) -> None:
        self._starts: list[PhysicalOffset] = []
        self._pieces: list[bytes] = []
        self._gone = 0  # so many of them, at the beginning, are no longer kept
        self._bytes = 0

    def add(self, group: AppendGroup) -> None:
        """Keep what was written, in pieces of at most a chunk, or one record that is larger."""
        for start, data in group.pieces:
            if len(data) <= MOST_CHUNK_BYTES:
                self._keep(start, data)
            else:
                self._split(start, data, group)
        while self._bytes > TAIL_BYTES and len(self._pieces) - self._gone > 1:
            self._bytes -= len(self._pieces[self._gone])
            self._pieces[self._gone] = b""
            self._gone += 1
        if 2 * self._gone > len(self._pieces):
            del self._starts[: self._gone], self._pieces[: self._gone]
            self._gone = 0

    def read(self, start: PhysicalOffset, limit: PhysicalOffset, max_bytes: int) -> bytes | None:
        """Whole records from `start` on, below `limit`, at most `max_bytes` or one piece; None when they are no longer here."""
        at = bisect_left(self._starts, start, self._gone)
        if at == len(self._starts) or self._starts[at] != start:
            return None
        first, end, size = at, start, 0
        while at < len(self._pieces):
            length = len(self._pieces[at])
            if end + length > limit or (at > first and size + length > max_bytes):
                break
            end, size, at = PhysicalOffset(end + length), size + length, at + 1
        if at == first:
            return None
        return self._pieces[first] if at == first + 1 else b"".join(self._pieces[first:at])

    def _split(self, start: PhysicalOffset, data: bytes, group: AppendGroup) -> None:
        frames = [frame for frame in group.placed if isinstance(frame, list)]
        borders = sorted(one.physical_offset for frame in frames for run in frame if not run.duplicate for one in run.each())
        at, end = int(start), start + len(data)
        while end - at > MOST_CHUNK_BYTES:
            fits = bisect_right(borders, at + MOST_CHUNK_BYTES)
            if fits == 0 or borders[fits - 1] <= at:  # one record that is larger than a chunk
                fits += 1
            stop = min(borders[fits - 1], end) if fits <= len(borders) else end
            self._keep(PhysicalOffset(at), data[at - start : stop - start])
            at = stop
        if at < end:
            self._keep(PhysicalOffset(at), data[at - start :])

    def _keep(self, start: PhysicalOffset, data: bytes) -> None:
        self._starts.append(start)
        self._pieces.append(data)
        self._bytes += len(data)
