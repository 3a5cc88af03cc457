"""A disk that stops at a chosen call, for sweeps over every point where a crash can fall."""

import errno

from dittomq.commitlog.storage import File, HeldLock, Storage
from dittomq.errors import StoreFailed


class Crashed(BaseException):
    """The process is gone; no handler of the product may carry on."""


class CrashingFile:
    """A file of a CrashingStorage; a write that crashes leaves half of its bytes."""

    def __init__(self, file: File, storage: "CrashingStorage") -> None:
        self._file = file
        self._storage = storage

    def pread(self, length: int, offset: int) -> bytes:
        return self._file.pread(length, offset)

    def pwrite(self, data: bytes | bytearray | memoryview, offset: int) -> None:
        try:
            self._storage.count()
        except Crashed:
            self._file.pwrite(data[: len(data) // 2], offset)
            raise
        self._file.pwrite(data, offset)

    def fdatasync(self) -> None:
        self._storage.count()
        self._storage.fail_if_asked("fdatasync")
        self._file.fdatasync()

    def truncate(self, size: int) -> None:
        self._storage.count()
        self._file.truncate(size)

    def size(self) -> int:
        return self._file.size()

    def close(self) -> None:
        self._file.close()


class CrashingStorage:
    """Crashes at call number `crash_at` of those that change the disk, before its effect; the operation named by `failing` fails."""

    def __init__(self, storage: Storage, crash_at: int | None = None) -> None:
        self._storage = storage
        self._crash_at = crash_at
        self.calls = 0
        self.failing = ""
        self.free: int | None = None

    def count(self) -> None:
        self.calls += 1
        if self._crash_at is not None and self.calls >= self._crash_at:
            raise Crashed

    def fail_if_asked(self, operation: str) -> None:
        if self.failing == operation:
            raise StoreFailed(operation, "the disk", "Input/output error")

    def open(self, path: str, *, create: bool = False, readonly: bool = False) -> File:
        if create:
            self.count()
        return CrashingFile(self._storage.open(path, create=create, readonly=readonly), self)

    def exists(self, path: str) -> bool:
        return self._storage.exists(path)

    def list_folder(self, path: str) -> list[str]:
        return self._storage.list_folder(path)

    def make_folder(self, path: str) -> None:
        self.count()
        self._storage.make_folder(path)

    def rename(self, old: str, new: str) -> None:
        self.count()
        if self.failing == "rename":
            raise OSError(errno.EIO, "Input/output error", new)
        self._storage.rename(old, new)

    def unlink(self, path: str) -> None:
        self.count()
        self._storage.unlink(path)

    def remove_folder(self, path: str) -> None:
        self.count()
        self._storage.remove_folder(path)

    def sync_folder(self, path: str) -> None:
        self.count()
        self.fail_if_asked("fsync")
        self._storage.sync_folder(path)

    def free_bytes(self) -> int:
        return self._storage.free_bytes() if self.free is None else self.free

    def boot_id(self) -> str:
        return self._storage.boot_id()

    def lock(self, path: str) -> HeldLock:
        return self._storage.lock(path)
