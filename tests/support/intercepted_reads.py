"""A disk whose reads are heard of before they happen, and may be refused."""

from collections.abc import Callable
from typing import cast

from dittomq.commitlog.disk.storage import File, Storage

Hear = Callable[[str, int, int], object]
"""Hears of the path, the offset and the length; what it raises the read raises."""


class HeardReads:
    """A door that tells `hear` of each read of a file."""

    def __init__(self, storage: Storage, hear: Hear) -> None:
        self._storage = storage
        self._hear = hear

    def __getattr__(self, name: str) -> object:
        return getattr(self._storage, name)

    def open(self, path: str, *, create: bool = False, readonly: bool = False) -> File:
        file = self._storage.open(path, create=create, readonly=readonly)
        return cast("File", HeardFile(file, lambda offset, length: self._hear(path, offset, length)))


class HeardFile:
    def __init__(self, file: File, hear: Callable[[int, int], object]) -> None:
        self._file = file
        self._hear = hear

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)

    def pread(self, length: int, offset: int) -> bytes:
        self._hear(offset, length)
        return self._file.pread(length, offset)


def hearing(storage: Storage, hear: Hear) -> Storage:
    """The same, as the product sees it."""
    return cast("Storage", HeardReads(storage, hear))
