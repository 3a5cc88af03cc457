"""Makes the log's segments, one ahead of need, so that an append that rolls only gives a file its name.

    made, whole and synced ▶ in idle moments zeros over its first bytes ▶ renamed by the append that rolls ▶ its name is synced with the log

Until it is renamed it is `dittomq/tmp-segment`: no part of the log, and removed by a start unseen. No later process uses it again. After a
power loss it may be a segment whose new name was lost, with records in it, or the second name of one whose old name was not.
"""

import contextlib
import threading
from collections.abc import Iterable, Iterator
from enum import Enum

from dittomq.commitlog.disk.segment import FOLDER, path_of
from dittomq.commitlog.disk.storage import File, Storage
from dittomq.errors import StorageFailure

_SPARE = "dittomq/tmp-segment"
_SAVED = "dittomq/tmp-saved-segment"
_ZEROS = bytes(1024 * 1024)


class _Spare(Enum):
    """The segment behind the last one."""

    MISSING = "missing"
    READY = "ready"
    UNWANTED = "unwanted"
    """The store is closed: what lies in its folder may be another process's."""


class SegmentMaker:
    """One thread rolls and one syncs, each for one log; any may prepare beside them."""

    def __init__(self, storage: Storage, segment_bytes: int) -> None:
        """Segments that are there already have durable names."""
        self.segment_bytes = segment_bytes
        self._storage = storage
        self._spare = _Spare.MISSING
        self._zeroed = 0
        self._lock = threading.Lock()  # held over one sync of an empty file at most: a roll never waits longer than when it makes its own
        self._made = 0
        self._named = 0  # of those made, how many have a durable name

    @property
    def is_wanted(self) -> bool:
        """Whether there is something to prepare."""
        return self._spare is _Spare.MISSING

    def prepare(self) -> bool:
        """Make the next segment, if there is none; whether that was done. A full disk leaves none; a failed sync raises StorageFailure."""
        with self._lock:
            if not self.is_wanted:
                return False
            try:
                file = self._create()
            except (OSError, StorageFailure):  # nothing is lost with it; a roll that needs one says what is wrong
                return False
            with contextlib.closing(file):
                file.fdatasync()
            self._spare = _Spare.READY
            return True

    def zero(self, window: int, step: int) -> bool:
        """Write zeros over the next zeros of what is prepared, `step` bytes, durably; False when the first `window` bytes are done."""
        with self._lock:
            count = min(step, len(_ZEROS), min(window, self.segment_bytes) - self._zeroed)
            if self._spare is not _Spare.READY or count <= 0:
                return False
            with contextlib.closing(self._storage.open(_SPARE)) as file:
                try:
                    file.pwrite(_ZEROS[:count], self._zeroed)
                except StorageFailure:  # the disk is full: what is prepared is whole without it
                    return False
                file.fdatasync()
            self._zeroed += count
            return True

    def roll(self, start: int) -> int:
        """Let the segment that begins at `start` be there; returns how many of its bytes are zeroed. Its name is not durable yet."""
        with self._lock:
            if self._spare is not _Spare.READY or not self._storage.exists(_SPARE):
                with contextlib.closing(self._create()) as file:
                    file.fdatasync()
            self.sync_names()  # of two new names a power loss could keep the later one, and leave a hole
            self._storage.rename(_SPARE, path_of(start))
            self._made += 1
            self._spare = _Spare.MISSING
            return self._zeroed

    @contextlib.contextmanager
    def saving(self, pieces: Iterable[bytes]) -> Iterator[bool]:
        """Durably put these neighbouring bytes of a segment into a file beside the log, for `put_back`; False where that takes no more.

        It goes with the block, or with the next start.
        """
        try:
            with contextlib.closing(self._storage.open(_SAVED, create=True)) as file:
                is_saved = self._is_written(file, pieces)
                if is_saved:
                    file.fdatasync()
            yield is_saved
        finally:
            with contextlib.suppress(OSError):
                self._storage.unlink(_SAVED)

    def put_back(self, start: int) -> None:
        """Let what was saved be the segment that begins at `start`, to be taken then."""
        self._storage.rename(_SAVED, path_of(start))

    def is_named(self, start: int) -> bool:
        """Whether a file has the name of the segment that begins at `start`, whoever made it. OSError where nobody can know."""
        return self._storage.exists(path_of(start))

    def take(self, start: int) -> bool:
        """Whether the segment that begins at `start` is there, made by somebody else. Its name is not durable yet."""
        is_there = self.is_named(start)
        self._made += is_there
        return is_there

    def sync_names(self) -> None:
        """Make the names of all segments durable, or raise StorageFailure."""
        made = self._made
        if made > self._named:
            self._storage.sync_folder(FOLDER)  # the old name may come back: a start removes it
            self._named = made

    def discard(self) -> None:
        """Remove what is prepared."""
        with self._lock:
            if self._spare is _Spare.READY:
                self._storage.unlink(_SPARE)
                self._spare = _Spare.MISSING

    def close(self) -> None:
        """Remove what is prepared and make nothing any more."""
        with self._lock:
            if self._spare is _Spare.READY:
                with contextlib.suppress(OSError):  # a start removes it
                    self._storage.unlink(_SPARE)
            self._spare = _Spare.UNWANTED

    def _create(self) -> File:
        """A new file of a segment's size; a name that is there is removed, never the bytes behind it."""
        with contextlib.suppress(FileNotFoundError):
            self._storage.unlink(_SPARE)
        file = self._storage.open(_SPARE, create=True)
        try:
            file.truncate(self.segment_bytes)
        except StorageFailure:
            file.close()
            raise
        self._zeroed = 0
        return file

    def _is_written(self, file: File, pieces: Iterable[bytes]) -> bool:
        at = 0
        try:
            file.truncate(self.segment_bytes)
            for data in pieces:
                file.pwrite(data, at)
                at += len(data)
        except StorageFailure:  # the disk is full: nothing is lost with it
            return False
        return True
