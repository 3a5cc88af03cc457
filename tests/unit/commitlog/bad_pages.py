"""A disk that does not give some of its pages, and stores on it."""

import errno
import os
import random
from collections import defaultdict
from dataclasses import replace
from typing import cast

from dittomq.commitlog.disk.storage import File, Storage
from dittomq.commitlog.queues.key_format import KeySizes
from dittomq.commitlog.store import AppendBatch, Store, StoreOptions
from dittomq.errors import StorageFailure
from tests.support.stores import SMALL, Machine
from tests.unit.commitlog.queues.key_index_files import kept, keyed

PAGE = 4_096
WIDE = KeySizes(slots=5_000, entries=400)  # a file's first pages hold slots, the fifth one entries too
OPTIONS = replace(SMALL, key_sizes=WIDE, queue_file_units=600)


class BadPages:
    """A door to a disk that does not give some pages of files. As Linux does, it takes no part of such a page without reading the rest."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.renew()
        self.bad: dict[str, set[int]] = defaultdict(set)
        self.refused = ""
        self.says = errno.EIO  # of them

    def renew(self) -> None:
        """Be the door of a new process; the one before is over."""
        self._storage = self.machine.storage()

    def __getattr__(self, name: str) -> object:
        return getattr(self._storage, name)

    def open(self, path: str, *, create: bool = False, readonly: bool = False) -> File:
        """`refused`: files that this process may not open, or not now."""
        if self.refused and path.startswith(self.refused) and not readonly:
            raise OSError(errno.EMFILE, "Too many open files", path)
        file = self._storage.open(path, create=create, readonly=readonly)
        return cast("File", PagedFile(file, path, self))

    def unlink(self, path: str) -> None:
        """The next file of that name lies elsewhere on the disk."""
        self._storage.unlink(path)
        self.bad.pop(path, None)


class PagedFile:
    def __init__(self, file: File, path: str, door: BadPages) -> None:
        self._file = file
        self._path = path
        self._door = door

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)

    def pread(self, length: int, offset: int) -> bytes:
        if any(page * PAGE < offset + length and offset < (page + 1) * PAGE for page in self._door.bad[self._path]):
            raise OSError(self._door.says, os.strerror(self._door.says))
        return self._file.pread(length, offset)

    def pwrite(self, data: bytes | bytearray | memoryview, offset: int) -> None:
        bad = self._door.bad[self._path]
        touched = {page for page in bad if page * PAGE < offset + len(data) and offset < (page + 1) * PAGE}
        if any(page * PAGE < offset or offset + len(data) < (page + 1) * PAGE for page in touched):
            raise StorageFailure("write", self._path, "Input/output error")
        bad -= touched
        self._file.pwrite(data, offset)

    def truncate(self, size: int) -> None:
        """Zeros behind an end inside a page are written with the rest of it; whole pages behind are given back."""
        bad = self._door.bad[self._path]
        if size % PAGE and size // PAGE in bad:
            raise StorageFailure("truncate", self._path, "Input/output error")
        self._door.bad[self._path] = {page for page in bad if page * PAGE < size}
        self._file.truncate(size)


def opened(machine: Machine) -> tuple[Store, BadPages]:
    door = BadPages(machine)
    return Store.open(cast("Storage", door), machine.options, chance=random.Random(1), wall_ms=9_000), door


def in_use(options: StoreOptions = OPTIONS, messages: int = 120) -> tuple[Machine, Store, BadPages]:
    """A store that was closed and opened again, and has messages with keys."""
    machine = Machine(random.Random(1), options)
    store = machine.lead()
    add(store, range(messages))
    store.persist_recovery_point(store.end, store.end)
    store.close(clean=True)
    return machine, *opened(machine)


def add(store: Store, numbers: range) -> None:
    for number in numbers:
        store.append([AppendBatch([keyed(f"key-{number}")])], number)
    kept(store)
