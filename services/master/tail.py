"""The newest bytes of the log, kept in memory for slaves that keep up: what was just written needs no read."""

from bisect import bisect_right
from collections import deque

from dittomq.commitlog.store import Group
from dittomq.offsets import PhysicalOffset
from dittomq.replication.pacing import MOST_CHUNK_BYTES

TAIL_BYTES = 16 * 1024 * 1024


class Tail:
    """Pieces of whole records, neighbours in the log, at most TAIL_BYTES and one group."""

    def __init__(self) -> None:
        self._pieces: deque[tuple[PhysicalOffset, bytes]] = deque()
        self._bytes = 0

    def add(self, group: Group) -> None:
        """Keep what was written, in pieces of at most a chunk, or one record that is larger."""
        for start, data in group.pieces:
            if len(data) <= MOST_CHUNK_BYTES:
                self._keep(start, data)
            else:
                self._split(start, data, group)
        while self._bytes > TAIL_BYTES and len(self._pieces) > 1:
            self._bytes -= len(self._pieces.popleft()[1])

    def read(self, start: PhysicalOffset, limit: PhysicalOffset, max_bytes: int) -> bytes | None:
        """Whole records from `start` on, below `limit`, at most `max_bytes` or one piece; None when they are no longer here."""
        if not self._pieces or start < self._pieces[0][0]:
            return None
        at = len(self._pieces) - 1
        while self._pieces[at][0] > start:  # a slave that keeps up asks for the last ones, and a deque is quick at its ends
            at -= 1
        if self._pieces[at][0] != start:
            return None
        taken: list[bytes] = []
        size = 0
        while at < len(self._pieces):
            offset, data = self._pieces[at]
            if offset + len(data) > limit or (taken and size + len(data) > max_bytes):
                break
            taken.append(data)
            size += len(data)
            at += 1
        if not taken:
            return None
        return taken[0] if len(taken) == 1 else b"".join(taken)

    def _split(self, start: PhysicalOffset, data: bytes, group: Group) -> None:
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
        self._pieces.append((start, data))
        self._bytes += len(data)
