"""Segments whose files somebody removes, moves away or replaces while the store is in use.

copy what the removed file still gives while it is open ▶ sync ▶ give that its name ▶ verify
"""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator

from dittomq.commitlog.disk.log import Log
from dittomq.commitlog.disk.scanning import ReadablePages
from dittomq.commitlog.disk.segment_maker import SegmentMaker
from dittomq.commitlog.disk.storage import reading
from dittomq.commitlog.locks import StoreLocks
from dittomq.commitlog.options import StoreOptions
from dittomq.errors import CorruptRecord, NotReady
from dittomq.offsets import PhysicalOffset

_COPY_BYTES = 1024 * 1024


class DeletedFiles(ABC):
    """What a store does about them. Of the segment that is written nothing: what was appended there is lost, and the next sync says so."""

    flushed: PhysicalOffset
    _options: StoreOptions
    _gate: StoreLocks
    _maker: SegmentMaker
    _log: Log

    def rescue(self, position: int) -> None:
        """Durably give the segment around `position` another file, if its own was removed and is still open: with all that that one gives.

        Appends go on meanwhile; nobody repairs. A process that dies leaves the segment without a file, or with the whole copy. Raises
        NotReady and DiskFull where there is none: then the removed file stays open, and it can be tried again. One is copied at a time,
        also where the caller gives up and the copy goes on: NotReady.
        """
        log, node = self._log, self._options.node
        start, end = log.segment_of(position)
        if self._looked(self._maker.is_named, start) or not log.min_offset < end <= self.flushed:
            return
        with self._only_copy(), self._gate.guard("rescue"), reading(node), log.held_open(start) as is_open:
            if not is_open:
                return
            self.check_room(log.segment_bytes)
            with self._maker.saving(_pieces(log, start, end)) as is_saved:
                if not is_saved:
                    raise NotReady(node, f"its disk takes no copy of the segment at byte {start:,}, whose file was removed")
                self._put_back(log, start)
        self.verify(start, end)

    @contextlib.contextmanager
    def _only_copy(self) -> Iterator[None]:
        """Nobody waits for another one: that would take a thread from readers for as long."""
        copying = self._gate.copying
        if not copying.acquire(blocking=False):
            raise NotReady(self._options.node, "a segment whose file was removed is copied just now")
        try:
            yield
        finally:
            copying.release()

    def _put_back(self, log: Log, start: int) -> None:
        """Use what was saved, unless the segment was cut or dropped meanwhile, or has a file again."""
        with self._gate.filing, self._gate.syncing, self._gate.writing("rescue"), reading(self._options.node):
            if log is self._log and log.min_offset <= start and not self._looked(self._maker.is_named, start):
                self._maker.put_back(start)
                log.take_file(start)

    def _make_again(self, start: int, end: int) -> None:
        """Let the segment [start, end) have a file again, if its own was removed: the one that has its name now, verified.

        Where none has, it is made, and CorruptRecord raised. Not the one that is written: what was appended there since is lost, and the
        next sync says so.
        """
        if self._has_file(start):  # so nobody need wait, as nearly always
            return
        with self._gate.filing, self._gate.syncing, self._gate.writing("make_again"):
            if self._has_file(start) or not self._log.min_offset < end <= self.flushed:
                return
            with reading(self._options.node):
                is_there = self._log.take_file(start)
            if not is_there:
                self._persist_damage_now([(start, end)])
                self._log.make_again(start)
                raise CorruptRecord(self._options.node, start, "the file of its segment was removed; all that was in it is fetched again")
        self.verify(start, end)

    def _has_file(self, start: int) -> bool:
        """As `Log.has_file`. Raises NotReady where that cannot be known."""
        return self._looked(self._log.has_file, start)

    def _looked(self, is_there: Callable[[int], bool], start: int) -> bool:
        """Raises NotReady where that cannot be known, whatever the disk says: it says nothing of the bytes."""
        try:
            return is_there(start)
        except OSError as error:
            raise NotReady(self._options.node, f"it cannot look for a file of its store now: {error}") from error

    @abstractmethod
    def verify(self, start: int, end: int) -> object:
        """Verify the records of the range; what is not whole is durably noted."""

    @abstractmethod
    def check_room(self, size: int) -> None:
        """Raise DiskFull when the disk cannot take that many bytes and keep its reserve."""

    @abstractmethod
    def _persist_damage_now(self, ranges: list[tuple[int, int]]) -> None:
        """Durably note damage, for who files."""


def _pieces(log: Log, at: int, end: int) -> Iterator[bytes]:
    """The bytes [at, end) of one segment; zeros where the disk does not give them."""
    source = ReadablePages(log)
    while at < end:
        yield (data := source.read(at, min(_COPY_BYTES, end - at), end))
        at += len(data)
