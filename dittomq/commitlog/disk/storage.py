"""The only door to the disk: one node's data directory.

Paths are relative to that directory, with forward slashes. Everything here blocks; nothing here knows what the bytes mean.
What survives a power loss: bytes of a file after `fdatasync` returned; names (made, renamed, removed) after
`sync_folder` of the folder that holds them returned.
"""

import contextlib
import ctypes
import errno
import fcntl
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from dittomq.commitlog.disk.io_watch import IoWatch
from dittomq.errors import NotReady, StorageFailure, StoreLocked

PAGE_BYTES = 4_096
"""What Linux reads and writes at once: a disk gives such a page or does not, and takes no part of one that it does not give."""

# struct flock on 64-bit Linux: l_type, l_whence, l_start, l_len, l_pid.
_FLOCK = struct.Struct("hhqqi4x")
_F_OFD_SETLK = 37
# What st_blocks counts in, whatever the file system's own block is.
_BLOCK_BYTES = 512
_LARGEST_BLOCK_BYTES = 64 * 1024
# What Linux says of bytes that a disk or a file system does not give, or whose file is gone.
_OF_BYTES = frozenset({errno.EIO, errno.EBADMSG, errno.EUCLEAN, errno.ENODATA, errno.EILSEQ, errno.EREMOTEIO, errno.ENOENT})


class File(Protocol):
    """An open file. One writer at a time; any number of readers beside it."""

    def pread(self, length: int, offset: int) -> bytes:
        """Up to `length` bytes at `offset`; fewer only where the file ends."""
        ...

    def pwrite(self, data: bytes | bytearray | memoryview, offset: int) -> None:
        """Write all of `data` at `offset`, or raise StorageFailure with any part of it written."""
        ...

    def fdatasync(self) -> None:
        """Make the file's bytes and size survive power loss, or raise StorageFailure; never call it again after that."""
        ...

    def truncate(self, size: int) -> None:
        """Set the size; new bytes read as zeros and take no space."""
        ...

    def size(self) -> int:
        """Size in bytes."""
        ...

    def disk_bytes(self) -> int:
        """What its blocks take on the disk; less than its size where it has holes."""
        ...

    def data_from(self, offset: int) -> int:
        """Where the first byte at or behind `offset` lies that need not be zero: holes are passed over. The size when there is none."""
        ...

    def is_named(self) -> bool:
        """Whether its path still names it: nobody removed it, moved it away or put another in its place. OSError where nobody can know."""
        ...

    def close(self) -> None:
        """Release the descriptor; syncs nothing."""
        ...


class HeldLock(Protocol):
    """A lock that is held until released or until the process ends."""

    def release(self) -> None:
        """Let others have it."""
        ...


class Storage(Protocol):
    """One node's data directory."""

    def open(self, path: str, *, create: bool = False, readonly: bool = False) -> File:
        """Open a file; with `create`, make it when absent (its folder must exist). FileNotFoundError otherwise."""
        ...

    def exists(self, path: str) -> bool:
        """Whether a file or folder has that name. OSError where that cannot be known."""
        ...

    def list_folder(self, path: str) -> list[str]:
        """Names in a folder, sorted; empty when there is no such folder."""
        ...

    def make_folder(self, path: str) -> None:
        """Make a folder and its parents; nothing happens where it exists. The data directory itself, "", has a durable name then."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Give a file another name, replacing what has it."""
        ...

    def unlink(self, path: str) -> None:
        """Remove a file."""
        ...

    def remove_folder(self, path: str) -> None:
        """Remove an empty folder."""
        ...

    def sync_folder(self, path: str) -> None:
        """Make the names in a folder survive power loss, or raise StorageFailure."""
        ...

    def sync_below(self, path: str) -> bool:
        """Make all bytes and names below a folder survive power loss, or raise StorageFailure. Hundreds of files cost one wait.

        What others wrote to that disk is waited for too. False where nobody could say whether it failed: then nothing is promised.
        """
        ...

    def free_bytes(self) -> int:
        """Room left on the disk."""
        ...

    def total_bytes(self) -> int:
        """Room on the disk when it is empty."""
        ...

    def boot_id(self) -> str:
        """Names this boot of the machine: another one means that power may have been lost."""
        ...

    def lock(self, path: str) -> HeldLock:
        """Take the lock on byte 0 of a file that must exist or can be made, or raise StoreLocked."""
        ...


def speaks_of_bytes(error: OSError) -> bool:
    """Whether a read failed because the disk does not give these bytes. Too many open files or no memory say nothing of them."""
    return error.errno in _OF_BYTES


def gives(file: File, start: int, stop: int) -> bool:
    """Whether the disk gives these bytes of a file."""
    try:
        file.pread(stop - start, start)
    except OSError as error:
        if not speaks_of_bytes(error):
            raise
        return False
    return True


@contextlib.contextmanager
def reading(node: str) -> Iterator[None]:
    """Raise NotReady for what says nothing of the bytes that are read in the block; what speaks of them goes on."""
    try:
        yield
    except OSError as error:
        if speaks_of_bytes(error):
            raise
        raise NotReady(node, f"it cannot read its store now: {error}") from error


def read_file(storage: Storage, path: str) -> bytes:
    """The whole file."""
    with contextlib.closing(storage.open(path, readonly=True)) as file:
        return file.pread(file.size(), 0)


def replace_file(storage: Storage, path: str, data: bytes) -> None:
    """Durably replace a file: a crash leaves the old one or the new one, whole."""
    write_replacement(storage, path, data)
    put_in_place(storage, path)


def write_replacement(storage: Storage, path: str, data: bytes) -> None:
    """Durably write what `put_in_place` is to give that name."""
    storage.make_folder("dittomq")
    with contextlib.closing(storage.open(_replacement(path), create=True)) as file:
        file.truncate(0)
        file.pwrite(data, 0)
        file.fdatasync()


def put_in_place(storage: Storage, path: str, *, backup: str = "") -> None:
    """Durably let the replacement have the name. The file that had it goes, or has the name `backup`, in the same folder.

    A crash leaves the old one or the new one under the name; with `backup` it may leave the old one under that, and none under the name.
    """
    folder = path.rpartition("/")[0]
    if backup:
        storage.rename(path, backup)
    storage.rename(_replacement(path), path)
    storage.sync_folder(folder)
    if folder != "dittomq":
        storage.sync_folder("dittomq")


def _replacement(path: str) -> str:
    return f"dittomq/tmp-{path.replace('/', '-')}"


def zero_behind(file: File, keep: int, size: int) -> None:
    """Let a file have `size` bytes of which those behind `keep` are zeros; not synced.

    The last block may hold old bytes behind `keep` on the disk, when an earlier try died after the first step: so they are written over.
    """
    file.truncate(keep)
    file.truncate(size)
    file.pwrite(bytes(min(_LARGEST_BLOCK_BYTES, size - keep)), keep)


def remove_tree(storage: Storage, folder: str) -> None:
    """Remove a folder and all below it, if it is there; nothing of that is synced."""
    if not storage.exists(folder):
        return
    for name in storage.list_folder(folder):
        path = f"{folder}/{name}"
        try:
            storage.unlink(path)
        except OSError:  # a folder, as far as anybody can tell alike on every disk
            remove_tree(storage, path)
    storage.remove_folder(folder)


class OsFile:
    """A file of the operating system."""

    def __init__(self, descriptor: int, path: str, under_way: IoWatch) -> None:
        self._descriptor = descriptor
        self._path = path
        self._under_way = under_way

    def pread(self, length: int, offset: int) -> bytes:
        return os.pread(self._descriptor, length, offset)

    def pwrite(self, data: bytes | bytearray | memoryview, offset: int) -> None:
        with self._under_way.call("write", self._path):
            written = os.pwrite(self._descriptor, data, offset)
            while written < len(data):
                more = os.pwrite(self._descriptor, memoryview(data)[written:], offset + written)
                written += more

    def fdatasync(self) -> None:
        with self._under_way.sync("fdatasync", self._path):
            os.fdatasync(self._descriptor)

    def truncate(self, size: int) -> None:
        with self._under_way.call("truncate", self._path):
            os.ftruncate(self._descriptor, size)

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def disk_bytes(self) -> int:
        return os.fstat(self._descriptor).st_blocks * _BLOCK_BYTES

    def data_from(self, offset: int) -> int:
        try:
            return os.lseek(self._descriptor, offset, os.SEEK_DATA)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            return self.size()

    def is_named(self) -> bool:
        try:
            named = os.stat(self._path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return os.path.samestat(named, os.fstat(self._descriptor))

    def close(self) -> None:
        os.close(self._descriptor)


class OsLock:
    """An open-file-description lock: it stays until this very descriptor is closed."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor: int | None = descriptor

    def release(self) -> None:
        descriptor, self.descriptor = self.descriptor, None
        assert descriptor is not None, "a lock is released once"
        os.close(descriptor)


class OsStorage:
    """A folder of the operating system. Linux only: open-file-description locks and boot ids."""

    def __init__(self, root: Path) -> None:
        self._root = os.fspath(root)
        self._lock: OsLock | None = None
        self.under_way = IoWatch()

    def open(self, path: str, *, create: bool = False, readonly: bool = False) -> File:
        flags = os.O_RDONLY if readonly else os.O_RDWR | (os.O_CREAT if create else 0)
        name = self._at(path)
        flags |= os.O_CLOEXEC | os.O_NONBLOCK  # a pipe that lies there has nobody wait for its other end
        return OsFile(os.open(name, flags, 0o640), name, self.under_way)

    def exists(self, path: str) -> bool:
        try:
            os.stat(self._at(path))
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def list_folder(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(self._at(path)))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def make_folder(self, path: str) -> None:
        if not path:
            self._name_root()
        os.makedirs(self._at(path), exist_ok=True)

    def rename(self, old: str, new: str) -> None:
        os.rename(self._at(old), self._at(new))

    def unlink(self, path: str) -> None:
        os.unlink(self._at(path))

    def remove_folder(self, path: str) -> None:
        os.rmdir(self._at(path))

    def sync_folder(self, path: str) -> None:
        with _opened_folder(self._at(path)) as descriptor, self.under_way.sync("fsync", self._at(path)):
            os.fsync(descriptor)

    def sync_below(self, path: str) -> bool:
        since = self._lock.descriptor if self._lock is not None else None  # it is told of failures since that was opened
        if since is None or not _syncfs_reports() or os.stat(self._at(path)).st_dev != os.fstat(since).st_dev:
            return False
        if ctypes.CDLL(None, use_errno=True).syncfs(since) != 0:
            raise StorageFailure("syncfs", self._root, os.strerror(ctypes.get_errno()))
        return True

    def free_bytes(self) -> int:
        stat = os.statvfs(self._root)
        return stat.f_bavail * stat.f_frsize

    def total_bytes(self) -> int:
        stat = os.statvfs(self._root)
        return stat.f_blocks * stat.f_frsize

    def boot_id(self) -> str:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()

    def lock(self, path: str) -> HeldLock:
        descriptor = os.open(self._at(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            fcntl.fcntl(descriptor, _F_OFD_SETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0))
        except OSError as error:
            os.close(descriptor)
            if error.errno in (errno.EAGAIN, errno.EACCES):
                raise StoreLocked(self._root) from error
            raise
        self._lock = OsLock(descriptor)
        return self._lock

    def _name_root(self) -> None:
        """Make the data directory, each folder above it durable before the next: nobody syncs them later."""
        missing, folder = [], Path(self._root).absolute()
        while not folder.exists():
            missing.append(folder)
            folder = folder.parent
        if not folder.is_mount():  # who made it may have been killed before its name was durable
            with contextlib.suppress(PermissionError):
                _sync_name(folder)
        for each in reversed(missing):
            each.mkdir(exist_ok=True)
            _sync_name(each)

    def _at(self, path: str) -> str:
        return f"{self._root}/{path}"


@contextlib.contextmanager
def _opened_folder(path: str | Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _sync_name(folder: Path) -> None:
    with _opened_folder(folder.parent) as descriptor:
        os.fsync(descriptor)


def _syncfs_reports() -> bool:
    """Linux reports a failed write-back to `syncfs` since 5.8."""
    major, minor = os.uname().release.split(".")[:2]
    return (int(major), int("".join(digit for digit in minor if digit.isdigit()) or 0)) >= (5, 8)
