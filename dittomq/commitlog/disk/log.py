"""③ The log's bytes: segments in order, written at the end, read anywhere. Knows nothing of records.

One thread writes and one syncs; any number read beside them. `end` is published after its bytes are there. A segment has its
full size, durably, before its first byte is written; its name becomes durable with the first sync behind that.
"""

import contextlib
import errno
from collections.abc import Iterator

from dittomq.commitlog.disk.file_cache import OpenFiles
from dittomq.commitlog.disk.segment import path_of
from dittomq.commitlog.disk.segment_maker import SegmentMaker
from dittomq.commitlog.disk.storage import PAGE_BYTES, gives
from dittomq.errors import OffsetOutOfRange, StorageFailure

_REWRITE_BYTES = 1024 * 1024
_ZEROS = bytes(1024 * 1024)


class Log:
    """Bytes [min_offset, end) in segments of one size. `min_offset` is raised by whoever drops the first segments."""

    def __init__(self, maker: SegmentMaker, files: OpenFiles, starts: list[int], begin: int = 0) -> None:
        """`starts` of neighbouring segments, `begin` where there are none; the log is taken to be empty until `set_end`."""
        self.segment_bytes = maker.segment_bytes
        self.min_offset = starts[0] if starts else begin
        self.end = self.min_offset
        self._maker = maker
        self._files = files
        self._stop = self.min_offset + len(starts) * self.segment_bytes
        self._unsynced: dict[int, None] = {}
        self._zeroed = self.min_offset
        self.is_truncated = False

    @property
    def stop(self) -> int:
        """One past the last byte of the last segment; bytes between `end` and here are zeros."""
        return self._stop

    def set_end(self, end: int, *, unsynced_from: int) -> None:
        """Say how far the log reaches, when that was found on disk; what lies behind `unsynced_from` may be in memory only."""
        self.end = self._zeroed = end
        first, _ = self.segment_of(unsynced_from)
        self._unsynced = dict.fromkeys(range(first, self._stop, self.segment_bytes))

    def truncate_to(self, end: int) -> None:
        """Say that files lose all behind `end` from now on: whoever reads on finds its end here, and may meet half of what was."""
        self.end, self.is_truncated = end, True

    def segment_of(self, offset: int) -> tuple[int, int]:
        """The segment of that size in which a byte lies, whether it exists or not."""
        start = offset - offset % self.segment_bytes
        return start, start + self.segment_bytes

    def read(self, start: int, length: int, limit: int | None = None) -> bytes:
        """Up to `length` bytes, up to the segment's end and up to `limit` (default: the end of the log).

        What a file does not reach that somebody cut short is withheld as by a bad disk: OSError.
        """
        low, high = self.min_offset, self.end if limit is None else limit
        if not low <= start <= high:
            raise OffsetOutOfRange("byte", start, low, high)
        segment_start, segment_end = self.segment_of(start)
        length = min(length, segment_end - start, high - start)
        if length <= 0 or start >= self._stop:
            return b""
        try:
            with self._files.borrow(path_of(segment_start)) as file:
                found = file.pread(length, start - segment_start)
        except FileNotFoundError:
            if start >= self.min_offset:
                raise
            raise OffsetOutOfRange("byte", start, self.min_offset, high) from None  # dropped meanwhile
        if len(found) < length:
            raise OSError(errno.ENODATA, "the file was cut short", path_of(segment_start))
        return found

    @staticmethod
    def withheld(_start: int, _end: int) -> None:
        """Nothing: what a disk does not give is not read either."""

    def write(self, data: bytes | memoryview, *, gap: int = 0) -> None:
        """Write at the end, within one segment, then leave `gap` bytes of zeros."""
        start, stop = self.segment_of(self.end)
        assert self.end + len(data) + gap <= stop, "a piece never spans segments"
        if self.end == self._stop:
            self._zeroed = self._stop + self._maker.roll(self._stop)
            self._stop += self.segment_bytes
        with self._files.borrow(path_of(start)) as file:
            file.pwrite(data, self.end - start)
        self._unsynced[start] = None
        self.end += len(data) + gap

    def sync(self) -> None:
        """Make everything durable that was written when this was called, or raise StorageFailure."""
        self.sync_names()
        for start in list(self._unsynced):
            del self._unsynced[start]
            if not self.has_file(start):
                raise StorageFailure("fdatasync", path_of(start), "it was removed while it was written")
            with self._files.borrow(path_of(start)) as file:
                file.fdatasync()

    def has_file(self, start: int) -> bool:
        """Whether the segment that begins at `start` still has its file: nobody removed it, moved it away or put another in its place."""
        try:
            with self._files.borrow(path_of(start)) as file:
                return file.is_named()
        except FileNotFoundError:
            return False

    @contextlib.contextmanager
    def held_open(self, start: int) -> Iterator[bool]:
        """Keep the file of the segment that begins at `start` open, if it is; whether it is."""
        with contextlib.ExitStack() as held:
            try:
                held.enter_context(self._files.borrow(path_of(start)))
            except FileNotFoundError:
                yield False
            else:
                yield True

    def take_file(self, start: int) -> bool:
        """Use the file that has the name of the segment that begins at `start` now, not one that had it before; whether one has.

        Somebody put it there, and need not have made it durable: it is then. Nobody writes meanwhile.
        """
        if not self._maker.take(start):
            return False
        self._files.forget(path_of(start))
        with self._files.borrow(path_of(start)) as file:
            file.fdatasync()
        self.sync_names()
        return True

    def make_again(self, start: int) -> None:
        """Durably give the segment that begins at `start`, whose file was removed, another one, of zeros. Nobody writes meanwhile.

        Whoever wants what the removed one still gives while it is open has saved it before. A removed segment of which nothing is
        damaged is not noticed while it is open, and gone with the process.
        """
        self._files.forget(path_of(start))
        self._maker.roll(start)
        self.sync_names()

    def sync_names(self) -> None:
        """Make the names of the segments durable, or raise StorageFailure."""
        self._maker.sync_names()

    def rewrite(self, start: int, data: bytes) -> int:
        """Durably write over bytes below the end, within one segment; returns up to where that was done. Nobody writes meanwhile.

        A disk takes no part of a page whose other bytes it does not give. Where `data` begins inside such a page nothing is written, where
        it ends inside one nothing of that page is; but behind the log's end are zeros, which are written with it. A file that was cut short
        has its full size then.
        """
        segment_start, segment_end = self.segment_of(start)
        end = start + len(data)
        assert end <= min(segment_end, self.end), "what is repaired lies in one segment"
        low, high = start - segment_start, end - segment_start
        page_start, page_end = high - high % PAGE_BYTES, min(high + -high % PAGE_BYTES, self.segment_bytes)
        with self._files.borrow(path_of(segment_start)) as file:
            if not gives(file, low - low % PAGE_BYTES, low):
                return start
            if not gives(file, high, page_end):
                data = data + bytes(page_end - high) if end == self.end else data[: max(0, page_start - low)]
            if data:
                if file.size() < self.segment_bytes:  # it was cut short
                    file.truncate(self.segment_bytes)
                file.pwrite(data, low)
                file.fdatasync()
        return min(start + len(data), end)

    def is_hole(self, start: int, end: int) -> bool:
        """Whether these bytes of one segment fill pages for which the disk has no blocks, so that to write them takes room."""
        segment_start, _ = self.segment_of(start)
        low, high = start + -start % PAGE_BYTES - segment_start, end - end % PAGE_BYTES - segment_start
        with self._files.borrow(path_of(segment_start)) as file:
            return low < high <= file.data_from(low)

    def write_again(self, start: int) -> None:
        """Write the bytes from `start` to the end over themselves, so that the next sync really writes them.

        After a sync that failed, Linux calls the pages clean: a later sync succeeds and writes nothing.
        """
        while start < self.end:
            segment_start, segment_end = self.segment_of(start)
            stop = min(segment_end, self.end, start + _REWRITE_BYTES)
            with self._files.borrow(path_of(segment_start)) as file:
                file.pwrite(file.pread(stop - start, start - segment_start), start - segment_start)
            self._unsynced[segment_start] = None
            start = stop

    def zero_ahead(self, window: int, step: int) -> bool:
        """Write zeros over zeros behind the end, at most `step` bytes and `window` bytes ahead; False when there is nothing to do.

        They go on in the segment that is prepared; there they are durable at once.

        Bytes written later then change no block allocation, so their sync is quicker.
        """
        start = max(self._zeroed, self.end)
        segment_start, segment_end = self.segment_of(self.end)
        count = min(step, len(_ZEROS), min(self.end + window, segment_end, self._stop) - start)
        if count <= 0:
            return self._maker.zero(self.end + window - self._stop, step)
        with self._files.borrow(path_of(segment_start)) as file:
            file.pwrite(_ZEROS[:count], start - segment_start)
        self._unsynced[segment_start] = None
        self._zeroed = start + count
        return True
