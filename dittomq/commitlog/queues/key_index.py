"""The key index on disk: `index/`, files of a fixed number of entries, built with the queues so that RocketMQ finds messages by key.

    entries wait in memory, a bounded number ▶ a file's header ▶ its entries ▶ its slots ▶ sync ▶ the checkpoint names files and count

An entry never changes once it is written. So the entries below the checkpoint's count are there after any stop, and the slots follow
from them. Where power was not lost, a header with that very count and end proves that no slot was changed since; otherwise the
slots of the last file are built again, as those are that the disk does not give.

One thread adds entries; one at a time writes them.
"""

import contextlib
import struct
import sys
import threading
from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from dittomq.commitlog.disk.file_cache import OpenFiles
from dittomq.commitlog.disk.log import Log
from dittomq.commitlog.disk.storage import PAGE_BYTES, File, Storage, gives, speaks_of_bytes, zero_behind
from dittomq.commitlog.queues.key_format import (
    ENTRY,
    HEADER_BYTES,
    SLOT,
    Header,
    KeyMark,
    KeySizes,
    file_name,
    key_hash,
    keys_of,
    seconds_since,
)
from dittomq.commitlog.records.format import store_ms_of

FOLDER = "index"
MAX_WAITING_KEYS = 65_536
_MAX_FILLING = 2
_NEAR_PAGES = 8
_READ_ENTRIES = 65_536
_HEAD_BYTES = 76
_TEMPORARY = "dittomq/tmp-index"


class Keyed(NamedTuple):
    """A message that has keys: `properties` are its encoded ones."""

    topic: str
    position: int
    store_ms: int
    properties: bytes


@dataclass(slots=True)
class _Filling:
    """A file that is not all on disk yet; `written` is its header there. `count` and the ends cover what waits, too.

    What waits: hash, position, seconds, store ms.
    """

    name: str
    written: Header
    waiting: list[tuple[int, int, int, int]] = field(default_factory=list)
    count: int = field(init=False)
    begin_ms: int = field(init=False)
    begin: int = field(init=False)
    end_ms: int = field(init=False)
    end: int = field(init=False)

    def __post_init__(self) -> None:
        self.resume(self.written)

    @property
    def path(self) -> str:
        return _path(self.name)

    def take(self, hashed: int, position: int, store_ms: int) -> None:
        """Add an entry. Another thread may write it at once: then what the header is made of is there already."""
        entry = hashed, position, seconds_since(self.begin_ms, store_ms), store_ms
        if self.count == 1:
            self.begin_ms, self.begin = store_ms, position
        self.end_ms, self.end = store_ms, position
        self.count += 1
        self.waiting.append(entry)

    def resume(self, header: Header) -> None:
        """Go on from what is on disk."""
        self.written = header
        self.count = header.count
        self.begin_ms, self.begin, self.end_ms, self.end = header.begin_ms, header.begin_position, header.end_ms, header.end_position


class KeyIndex:
    """All files of a store's key index."""

    def __init__(self, storage: Storage, files: OpenFiles, mark: KeyMark, last: Header | None) -> None:
        """`mark` says what is on disk, `last` is the header of its last file; None when there is no file."""
        self._storage = storage
        self._files = files
        self._sizes = mark.sizes
        self._names = list(mark.files)
        self._filling: deque[_Filling] = deque()
        if last is not None:
            self._filling.append(_Filling(mark.files[-1], last))
        # The last file's slots may have been built again by a process that died before it had synced them.
        self._unsynced: dict[str, None] = {each.path: None for each in self._filling}
        self._writing = threading.Lock()

    @property
    def mark(self) -> KeyMark:
        """How far the index is built once all that waits is written. Nobody adds meanwhile."""
        if not self._filling:
            return KeyMark(self._sizes)
        last = self._filling[-1]
        return KeyMark(self._sizes, tuple(self._names), last.count, last.end)

    @property
    def waiting_bytes(self) -> int:
        """What writing all that waits may take of the disk: each entry touches a page of the slots at most. Nobody adds meanwhile."""
        filling = tuple(self._filling)  # another thread may be writing
        waiting = sum(len(each.waiting) for each in filling)
        return waiting * ENTRY.size + min(waiting * PAGE_BYTES, len(filling) * self._sizes.slots * SLOT.size)

    def add(self, messages: Iterable[Keyed]) -> None:
        """Take in messages, in the order of the log."""
        for topic, position, store_ms, properties in messages:
            for key in keys_of(properties):
                self._add(key_hash(topic, key), position, store_ms)
        if self._filling and (len(self._filling) > _MAX_FILLING or len(self._filling[-1].waiting) > MAX_WAITING_KEYS):
            self.write()

    def positions(self, topic: str, key: str, from_ms: int, to_ms: int) -> Iterator[int]:
        """Where messages lie that may have this key and may have been stored in [from_ms, to_ms): newest first, any thread.

        Others have the same hash: who asks looks at the messages. What the disk does not give is left out.
        """
        hashed = key_hash(topic, key)
        with self._writing:
            names = list(self._names)
            filling = {each.name: (each.written, each.waiting[:]) for each in self._filling}
        below: int | None = None
        for name in reversed(names):
            written, waiting = filling.get(name, (None, []))
            if written is not None and waiting and written.count == 1 and not any(each[0] == hashed for each in waiting):
                continue
            for position in self._positions_in(name, hashed, (from_ms, to_ms), waiting, is_made=written is None or written.count > 1):
                if below is None or position < below:
                    below = position
                    yield position

    def _positions_in(
        self, name: str, hashed: int, span: tuple[int, int], waiting: Sequence[tuple[int, int, int, int]], *, is_made: bool
    ) -> Iterator[int]:
        yield from (position for each, position, _, store_ms in reversed(waiting) if each == hashed and span[0] <= store_ms < span[1])
        if not is_made:
            return
        sizes = self._sizes
        try:
            with self._files.borrow(_path(name)) as file:
                header = Header.decode(file.pread(HEADER_BYTES, 0))
                (number,) = SLOT.unpack(file.pread(SLOT.size, sizes.slot_at(hashed % sizes.slots)))
            if header.end_ms < span[0] or header.begin_ms >= span[1]:
                return
            while 0 < number < sizes.entries:
                with self._files.borrow(_path(name)) as file:
                    found, position, _, before = ENTRY.unpack(file.pread(ENTRY.size, sizes.entry_at(number)))
                if found == hashed:
                    yield position
                number = before if before < number else 0
        except (FileNotFoundError, struct.error):  # it was dropped, or never made
            return
        except OSError as error:
            if not speaks_of_bytes(error):
                raise

    def write(self) -> None:
        """Write all that waits; not synced."""
        with self._writing:
            while len(self._filling) > 1:
                self._write(self._filling[0])
                self._filling.popleft()
            if self._filling:
                self._write(self._filling[0])

    def sync(self) -> None:
        """Write all that waits, and make the index survive power loss, or raise StorageFailure."""
        self.write()
        for path in list(self._unsynced):
            del self._unsynced[path]
            with self._files.borrow(path) as file:
                file.fdatasync()

    def drop_before(self, offset: int) -> list[str]:
        """Forget the files whose messages all lie before `offset`, which is in the log, and return their paths; the newest stays.

        Nobody adds meanwhile. They may be unlinked once a checkpoint no longer names them.
        """
        count = 0
        with self._writing:
            filling = {each.name for each in self._filling}
            for number, name in enumerate(self._names[:-1], 1):
                if name in filling:  # nor may it be there yet
                    break
                end = self._end_of(name)
                if end is not None and end >= offset:
                    break
                count = count if end is None else number  # with a later one goes what the disk does not give: positions grow
            doomed = self._names[:count]
            del self._names[:count]
        paths = [_path(name) for name in doomed]
        for path in paths:
            self._unsynced.pop(path, None)
        return paths

    def repair(self, log: Log) -> bool:
        """Build slots and header of the last file again from the entries that the mark vouches for; behind them it is empty then.

        False, and nothing is changed, when the disk does not give these entries.
        """
        [last] = self._filling
        sizes, count = self._sizes, last.count
        end_ms = _stored_ms(log, last.end)
        with self._files.borrow(last.path) as file:
            try:
                slots, used = _slots_of(file, sizes, count)
            except OSError as error:
                if not speaks_of_bytes(error):
                    raise
                return False
            header = replace(last.written, end_ms=last.end_ms if end_ms is None else end_ms, used_slots=used)
            zero_behind(file, sizes.entry_at(count), sizes.file_bytes)
            file.pwrite(slots, sizes.slot_at(0))
            file.pwrite(header.encode(), 0)
        last.resume(header)
        return True

    def _end_of(self, name: str) -> int | None:
        """The position of the newest message in a full file; None when it cannot be read, whatever the reason."""
        with contextlib.suppress(OSError), self._files.borrow(_path(name)) as file:
            return Header.decode(file.pread(HEADER_BYTES, 0)).end_position
        return None

    def _add(self, hashed: int, position: int, store_ms: int) -> None:
        last = self._filling[-1] if self._filling else None
        if last is None or last.count >= self._sizes.entries:
            last = self._begin_file(last, store_ms)
        last.take(hashed, position, store_ms)

    def _begin_file(self, before: _Filling | None, store_ms: int) -> _Filling:
        name = file_name(store_ms)
        if self._names:
            name = max(name, f"{int(self._names[-1]) + 1:017d}")  # RocketMQ takes them in the order of their names
        end_ms, end = (before.end_ms, before.end) if before else (0, 0)
        filling = _Filling(name, Header(end_ms, end_ms, end, end, 0, 1))
        self._names.append(name)
        self._filling.append(filling)
        return filling

    def _write(self, filling: _Filling) -> None:
        waiting = filling.waiting[:]
        if not waiting:
            return
        sizes, first = self._sizes, filling.written.count
        if first == 1:
            self._make_file(filling)
        with self._files.borrow(filling.path) as file:
            slots = _read_slots(file, sizes, filling.written)
            entries, changed, used = _chain(slots, waiting, first)
            _, end, _, end_ms = waiting[-1]
            header = Header(filling.begin_ms, end_ms, filling.begin, end, filling.written.used_slots + used, first + len(waiting))
            file.pwrite(header.encode(), 0)
            file.pwrite(entries, sizes.entry_at(first))
            for low, high in _runs(changed, len(slots)):
                file.pwrite(memoryview(slots)[low:high], sizes.slot_at(0) + low)
        filling.written = header
        del filling.waiting[: len(waiting)]
        self._unsynced[filling.path] = None

    def _make_file(self, filling: _Filling) -> None:
        """Make the file; its full size is durable before its name is."""
        self._storage.make_folder(FOLDER)
        with contextlib.closing(self._storage.open(_TEMPORARY, create=True)) as file:
            file.truncate(0)
            file.truncate(self._sizes.file_bytes)
            file.fdatasync()
        self._storage.rename(_TEMPORARY, filling.path)
        for folder in ("", FOLDER, "dittomq"):
            self._storage.sync_folder(folder)


def is_complete(storage: Storage, mark: KeyMark) -> bool:
    """Whether the files that the checkpoint vouches for are there. The last one may be cut off behind its entries."""
    for name in mark.files:
        needed = mark.sizes.entry_at(mark.count) if name == mark.files[-1] else mark.sizes.file_bytes
        if not storage.exists(_path(name)):
            return False
        with contextlib.closing(storage.open(_path(name), readonly=True)) as file:
            if not needed <= file.size() <= mark.sizes.file_bytes:
                return False
    return True


def begin(storage: Storage, files: OpenFiles, sizes: KeySizes) -> KeyIndex:
    """An empty index; what is there goes."""
    files.forget(f"{FOLDER}/")
    _leave_only(storage, ())
    return KeyIndex(storage, files, KeyMark(sizes), None)


def resume(storage: Storage, files: OpenFiles, mark: KeyMark, log: Log, *, power_lost: bool) -> KeyIndex | None:
    """The index as the checkpoint knows it; everything behind that goes. `is_complete` has said that it is there.

    None when its last file ends with another entry than the checkpoint says, or the disk does not give it.
    """
    _leave_only(storage, mark.files)
    if not mark.files:
        return KeyIndex(storage, files, mark, None)
    with files.borrow(_path(mark.files[-1])) as file:
        whole = file.size() == mark.sizes.file_bytes
        try:
            header = Header.decode(file.pread(HEADER_BYTES, 0))
            end = _position_at(file, mark.sizes, mark.count - 1)
        except OSError as error:
            if not speaks_of_bytes(error):
                raise
            return None
    if end != mark.end:
        return None
    index = KeyIndex(storage, files, mark, replace(header, count=mark.count, end_position=end))
    is_to_repair = power_lost or not whole or (header.count, header.end_position) != (mark.count, mark.end)
    return None if is_to_repair and not index.repair(log) else index


def mark_at(storage: Storage, mark: KeyMark, to: int) -> KeyMark:
    """What of the index is about records that begin below `to`; changes no file."""
    names, count = list(mark.files), mark.count
    while names:
        with contextlib.closing(storage.open(_path(names[-1]), readonly=True)) as file:
            kept = bisect_left(range(1, count), to, key=lambda number: _position_at(file, mark.sizes, number))
            if kept:
                return KeyMark(mark.sizes, tuple(names), 1 + kept, _position_at(file, mark.sizes, kept))
        names.pop()
        count = mark.sizes.entries
    return KeyMark(mark.sizes)


def _leave_only(storage: Storage, names: Sequence[str]) -> None:
    for name in storage.list_folder(FOLDER):
        if name not in names:
            storage.unlink(_path(name))
    if storage.exists(FOLDER):
        storage.sync_folder(FOLDER)  # also what a process that died here has unlinked


def _stored_ms(log: Log, position: int) -> int | None:
    """When the record there was stored; None when it is not in the log any more, or the disk does not give it."""
    if not log.min_offset <= position < log.stop:
        return None
    try:
        return store_ms_of(log.read(position, _HEAD_BYTES, log.stop))
    except OSError as error:
        if not speaks_of_bytes(error):
            raise
        return None


def _path(name: str) -> str:
    return f"{FOLDER}/{name}"


def _chain(slots: bytearray, waiting: list[tuple[int, int, int, int]], first: int) -> tuple[bytes, dict[int, None], int]:
    """Put entries, numbered from `first`, into the slots: their bytes, the pages of slots that changed, how many slots are new in use."""
    entries: list[bytes] = []
    changed: dict[int, None] = {}
    used, slot_count = 0, len(slots) // SLOT.size
    for number, (hashed, position, seconds, _) in enumerate(waiting, first):
        at = hashed % slot_count * SLOT.size
        (before,) = SLOT.unpack_from(slots, at)
        entries.append(ENTRY.pack(hashed, position, seconds, before))
        SLOT.pack_into(slots, at, number)
        used += before == 0
        changed[at // PAGE_BYTES] = None
    return b"".join(entries), changed, used


def _runs(pages: Iterable[int], length: int) -> Iterator[tuple[int, int]]:
    """Stretches of bytes that cover the pages, near ones together."""
    low = high = -1
    for page in sorted(pages):
        if low >= 0 and page - high > _NEAR_PAGES:
            yield low * PAGE_BYTES, high * PAGE_BYTES
            low = page
        low, high = (page if low < 0 else low), page + 1
    if low >= 0:
        yield low * PAGE_BYTES, min(high * PAGE_BYTES, length)


def _read_slots(file: File, sizes: KeySizes, header: Header) -> bytearray:
    """The slots of a file whose entries are all on disk, and whose header is this one.

    Pages that the disk does not give are written again, whole, from the entries. Raises OSError when it does not give these either.
    """
    try:
        return bytearray(file.pread(sizes.slots * SLOT.size, sizes.slot_at(0)))
    except OSError as error:
        if not speaks_of_bytes(error):
            raise
        slots, _ = _slots_of(file, sizes, header.count)
    front = header.encode() + slots
    for at in range(0, len(front), PAGE_BYTES):
        page = front[at : at + PAGE_BYTES]
        if not gives(file, at, at + len(page)):
            file.pwrite(page, at)
    return bytearray(slots)


def _slots_of(file: File, sizes: KeySizes, count: int) -> tuple[bytes, int]:
    """The slots as the entries below `count` make them, and how many are in use."""
    slots, used = array("i", bytes(sizes.slots * SLOT.size)), 0
    for first in range(1, count, _READ_ENTRIES):
        data = file.pread(min(_READ_ENTRIES, count - first) * ENTRY.size, sizes.entry_at(first))
        for number, (hashed, _, _, _) in enumerate(ENTRY.iter_unpack(data), first):
            slot = hashed % sizes.slots
            used += slots[slot] == 0
            slots[slot] = number
    if sys.byteorder == "little":
        slots.byteswap()
    return slots.tobytes(), used


def _position_at(file: File, sizes: KeySizes, number: int) -> int:
    position: int = ENTRY.unpack(file.pread(ENTRY.size, sizes.entry_at(number)))[1]
    return position
