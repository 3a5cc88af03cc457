"""The newest bytes of the log, kept in memory for slaves that keep up: what was just written needs no read."""

from collections import deque
from itertools import islice

from dittomq.commitlog.store import Group
from dittomq.offsets import PhysicalOffset

TAIL_BYTES = 16 * 1024 * 1024
CHUNK_BYTES = 1024 * 1024


class Tail:
    """Pieces of whole records, neighbours in the log, at most TAIL_BYTES and one group."""

    def __init__(self) -> None:
        self._pieces: deque[tuple[PhysicalOffset, bytes]] = deque()
        self._bytes = 0

    def add(self, group: Group) -> None:
        """Keep what was written, in pieces of at most a chunk, or one record that is larger."""
        borders = sorted(
            placed.physical_offset for frame in group.placed if isinstance(frame, list) for placed in frame if not placed.duplicate
        )
        for start, data in group.pieces:
            self._split(start, data, borders)
        while self._bytes > TAIL_BYTES and len(self._pieces) > 1:
            self._bytes -= len(self._pieces.popleft()[1])

    def read(self, start: PhysicalOffset, limit: PhysicalOffset) -> bytes | None:
        """Whole records from `start` on, below `limit`, at most a chunk; None when they are no longer here."""
        if not self._pieces or start < self._pieces[0][0]:
            return None
        back = 0
        for offset, _ in reversed(self._pieces):
            back += 1
            if offset <= start:
                break
        first = len(self._pieces) - back
        if self._pieces[first][0] != start:
            return None
        taken: list[bytes] = []
        size = 0
        for offset, data in islice(self._pieces, first, None):
            if offset + len(data) > limit or (taken and size + len(data) > CHUNK_BYTES):
                break
            taken.append(data)
            size += len(data)
        if not taken:
            return None
        return taken[0] if len(taken) == 1 else b"".join(taken)

    def _split(self, start: PhysicalOffset, data: bytes, borders: list[PhysicalOffset]) -> None:
        end = start + len(data)
        if len(data) <= CHUNK_BYTES:
            self._keep(start, data)
            return
        piece_start = last = int(start)
        for border in [*(border for border in borders if start < border < end), PhysicalOffset(end)]:
            if border - piece_start > CHUNK_BYTES and last > piece_start:
                self._keep(PhysicalOffset(piece_start), data[piece_start - start : last - start])
                piece_start = last
            last = border
        self._keep(PhysicalOffset(piece_start), data[piece_start - start :])

    def _keep(self, start: PhysicalOffset, data: bytes) -> None:
        self._pieces.append((start, data))
        self._bytes += len(data)
