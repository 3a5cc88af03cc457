"""A disk that stops or fails at a chosen call, for sweeps over every point where a crash can fall."""

import contextlib
import errno
from collections.abc import Callable, Iterator
from enum import StrEnum

from dittomq.commitlog.disk.storage import File, HeldLock, Storage
from dittomq.errors import StorageFailure


class Crashed(BaseException):
    """The process is gone; no handler of the product may carry on."""


class Harm(StrEnum):
    """What happens at the chosen call."""

    CRASH = "crash"
    """The process is gone."""
    ERROR = "error"
    """That call fails, later ones succeed: as on Linux after a write-back error was reported."""
    DEAD = "dead"
    """That call and all later ones fail."""


def _half(length: int) -> int:
    return length // 2


def _nothing() -> None:
    return


class CrashingFile:
    """A file of a CrashingStorage; a write that is struck leaves a part of its bytes."""

    def __init__(self, file: File, path: str, storage: "CrashingStorage") -> None:
        self._file = file
        self._path = path
        self._storage = storage

    def pread(self, length: int, offset: int) -> bytes:
        return self._file.pread(length, offset)

    def pwrite(self, data: bytes | bytearray | memoryview, offset: int) -> None:
        try:
            with self._storage.reported("write", self._path):
                self._storage.count(f"write {self._path}")
        except (Crashed, StorageFailure):
            self._file.pwrite(data[: self._storage.tear(len(data))], offset)
            raise
        self._file.pwrite(data, offset)

    def fdatasync(self) -> None:
        try:
            with self._storage.reported("fdatasync", self._path):
                self._storage.count(f"fdatasync {self._path}")
                self._storage.fail_if_asked("fdatasync")
        except StorageFailure:
            self._storage.break_sync()
            self._file.fdatasync()
            raise
        self._file.fdatasync()

    def truncate(self, size: int) -> None:
        with self._storage.reported("truncate", self._path):
            self._storage.count(f"truncate {self._path}")
        self._file.truncate(size)

    def size(self) -> int:
        return self._file.size()

    def disk_bytes(self) -> int:
        return self._file.disk_bytes()

    def data_from(self, offset: int) -> int:
        return self._file.data_from(offset)

    def is_named(self) -> bool:
        return self._file.is_named()

    def close(self) -> None:
        self._file.close()


class CrashingStorage:
    """Does its harm at call number `crash_at` of those that change the disk, before its effect; the operation named by `failing` fails.

    `tear` says how much of a write is left; `break_sync` makes the disk below fail the sync that comes next.
    """

    def __init__(
        self,
        storage: Storage,
        crash_at: int | None = None,
        *,
        harm: Harm = Harm.CRASH,
        tear: Callable[[int], int] = _half,
        break_sync: Callable[[], None] = _nothing,
    ) -> None:
        self._storage = storage
        self._crash_at = crash_at
        self.harm = harm
        self.struck = ""
        self.tear = tear
        self.break_sync = break_sync
        self.heard: list[str] = []
        self.failing = ""
        self.free: int | None = None

    @property
    def calls(self) -> int:
        """How many have changed the disk."""
        return len(self.heard)

    def strike_in(self, calls: int, harm: Harm) -> None:
        """Do that harm at so many calls from now."""
        self._crash_at = self.calls + calls
        self.harm = harm
        self.struck = ""

    def count(self, call: str) -> None:
        self.heard.append(call)
        if self._crash_at is None or self.calls < self._crash_at or (self.struck and self.harm is Harm.ERROR):
            return
        self.struck = self.struck or call
        if self.harm is Harm.CRASH:
            raise Crashed
        raise OSError(errno.EIO, "Input/output error", call)

    def fail_if_asked(self, operation: str) -> None:
        if self.failing == operation:
            raise StorageFailure(operation, "the disk", "Input/output error")

    @contextlib.contextmanager
    def reported(self, operation: str, path: str) -> Iterator[None]:
        """Fail as the real door does, where it says more than the operating system."""
        try:
            yield
        except OSError as error:
            raise StorageFailure(operation, path, str(error)) from error

    def open(self, path: str, *, create: bool = False, readonly: bool = False) -> File:
        if create:
            self.count(f"open {path}")
        return CrashingFile(self._storage.open(path, create=create, readonly=readonly), path, self)

    def exists(self, path: str) -> bool:
        return self._storage.exists(path)

    def list_folder(self, path: str) -> list[str]:
        return self._storage.list_folder(path)

    def make_folder(self, path: str) -> None:
        self.count(f"make {path}")
        self._storage.make_folder(path)

    def rename(self, old: str, new: str) -> None:
        self.count(f"rename to {new}")
        if self.failing == "rename":
            raise OSError(errno.EIO, "Input/output error", new)
        self._storage.rename(old, new)

    def unlink(self, path: str) -> None:
        self.count(f"unlink {path}")
        self._storage.unlink(path)

    def remove_folder(self, path: str) -> None:
        self.count(f"remove {path}")
        self._storage.remove_folder(path)

    def sync_folder(self, path: str) -> None:
        with self.reported("fsync", path):
            self.count(f"fsync {path or '.'}")
        self.fail_if_asked("fsync")
        self._storage.sync_folder(path)

    def sync_below(self, path: str) -> bool:
        with self.reported("syncfs", path):
            self.count(f"syncfs {path}")
        self.fail_if_asked("syncfs")
        return self._storage.sync_below(path)

    def free_bytes(self) -> int:
        return self._storage.free_bytes() if self.free is None else self.free

    def total_bytes(self) -> int:
        return self._storage.total_bytes()

    def boot_id(self) -> str:
        return self._storage.boot_id()

    def lock(self, path: str) -> HeldLock:
        return self._storage.lock(path)
