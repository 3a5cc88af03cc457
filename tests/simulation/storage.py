"""The storage door: one process's view of its machine's disk, with faults."""

import errno
import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

from dittomq.commitlog.disk.storage import File, HeldLock
from dittomq.errors import StorageFailure, StoreLocked
from tests.simulation import fibers
from tests.simulation.disk import PAGE, Deed, Disk, Inode, Operation, parent
from tests.simulation.simulated_process import Life, Phase

_SYNC_S = (0.000_05, 0.000_4)
_BYTES_PER_S = 400e6
_LONGEST_S = 30.0
_STOPS_WRITING, _STOPS_READING = 0.4, 0.1  # of the calls of a fiber; every sync does
_LOG, _WATERMARK = "commitlog/", "dittomq/watermark"
_KNOW_OF_THE_LOG = ("dittomq/tmp-dittomq-checkpoint", "dittomq/tmp-dittomq-producers", "dittomq/tmp-dittomq-watermark")


def _nobody(*_: object) -> None:
    return


@dataclass(slots=True)
class Faults:
    """What is wrong with a disk. They stay until they are taken back."""

    slowness: float = 1.0
    read_bytes_per_s: float = math.inf
    failing_reads: int = 0
    """So many of the next reads fail as if the process had too many files open."""
    failing_syncs: int = 0
    """So many of the next syncs fail."""
    sync_failed: Callable[[], None] = _nobody
    """Called when one does."""
    synced: Callable[[str, float], None] = _nobody
    """Called with the path of what is synced and the seconds that it takes."""
    shortened: Callable[[str], None] = _nobody
    """Called with the path of a file that has just lost its last bytes."""
    skips_syncs: bool = False
    """Syncs say they are done and do nothing: a lie that checkers must notice."""
    operations_to_live: int | None = None
    """After so many further operations the process dies inside one."""


class SimulatedStorage:
    """A data directory for one life of a node. `die` ends that life.

    With `syncs_take_time` a sync has its effect when the lane that called it says that its time has passed, or at the next operation of
    the same step: a crash may fall into that time, and other lanes go on meanwhile. A step that is a fiber waits for it instead.
    """

    def __init__(self, disk: Disk, life: Life, faults: Faults, die: Callable[[], None], *, syncs_take_time: bool = False) -> None:
        self.disk = disk
        self.life = life
        self.faults = faults
        self._die = die
        self.open_files = 0
        self._locks: dict[str, None] = {}
        self._cost_s = 0.0
        self._syncs_take_time = syncs_take_time
        self._unfinished: Callable[[], None] | None = None
        self._under_way: dict[Callable[[], None], str] = {}
        self._behind: dict[Callable[[], None], Callable[[], None]] = {}  # by the sync of the log, the watermark's after it

    def open(self, path: str, *, create: bool = False, readonly: bool = False) -> File:
        self.begin()
        inode = self.disk.names.files.get(path)
        if inode is None:
            if not create or readonly:
                raise FileNotFoundError(2, "No such file or directory", path)
            self._demand_folder(path)
            inode = Inode()
            self.disk.do(Operation(Deed.MADE, path, inode))
        return SimulatedFile(self, inode, path, readonly=readonly)

    def exists(self, path: str) -> bool:
        self.begin()
        return path in self.disk.names.files or path in self.disk.names.folders

    def list_folder(self, path: str) -> list[str]:
        self.begin()
        names = self.disk.names
        return sorted(name.rpartition("/")[2] for name in [*names.files, *names.folders] if name and parent(name) == path)

    def make_folder(self, path: str) -> None:
        self.begin()
        parts = path.split("/") if path else []
        for depth in range(1, len(parts) + 1):
            folder = "/".join(parts[:depth])
            if folder not in self.disk.names.folders:
                self.disk.do(Operation(Deed.MADE, folder, None))

    def rename(self, old: str, new: str) -> None:
        self.begin()
        for effect in [effect for effect, path in self._under_way.items() if path == old]:
            self._had(effect)  # whoever gives a file a name has waited for the end of its sync
        self._demand_folder(new)
        inode = self.disk.names.files.get(old)
        if inode is None and old not in self.disk.names.folders:
            raise FileNotFoundError(2, "No such file or directory", old)
        if inode is None and self._inside(new):
            raise OSError(39, "Directory not empty", new)
        self.disk.do(Operation(Deed.RENAMED, old, inode, new))

    def unlink(self, path: str) -> None:
        self.begin()
        inode = self.disk.names.files.get(path)
        if inode is None:
            raise FileNotFoundError(2, "No such file or directory", path)
        self.disk.do(Operation(Deed.REMOVED, path, inode))

    def remove_folder(self, path: str) -> None:
        self.begin()
        if path not in self.disk.names.folders:
            raise FileNotFoundError(2, "No such file or directory", path)
        if self._inside(path):
            raise OSError(39, "Directory not empty", path)
        self.disk.do(Operation(Deed.REMOVED, path, None))

    def sync_folder(self, path: str) -> None:
        self.begin()
        if path not in self.disk.names.folders:
            raise FileNotFoundError(2, "No such file or directory", path)
        self.sync("fsync", path or ".", lambda: self.disk.sync_folder(path))

    def sync_below(self, path: str) -> bool:
        self.begin()
        inodes = self.disk.inodes_below(path)

        def sync() -> None:
            for inode in inodes:
                inode.sync()
            self.disk.sync_below(path)

        try:
            self.sync("syncfs", path, sync)
        except StorageFailure:
            for inode in inodes:
                inode.fail_sync()
            raise
        return True

    def free_bytes(self) -> int:
        self.begin()
        return self.disk.free_bytes()

    def total_bytes(self) -> int:
        self.begin()
        return self.disk.capacity_bytes

    def boot_id(self) -> str:
        self.begin()
        return f"{self.life.name}-boot-{self.disk.boot}"

    def lock(self, path: str) -> HeldLock:
        self.open(path, create=True)
        if path in self._locks:
            raise StoreLocked(path)
        self._locks[path] = None
        return _Lock(self._locks, path)

    # For its files and lanes.

    def begin(self) -> None:
        """Every operation asks first whether its process still lives; some die here."""
        self.life.check()
        self.finish()
        left = self.faults.operations_to_live
        if left is not None:
            self.faults.operations_to_live = left - 1 if left else None
            if left == 0:
                self._die()
                self.life.check()

    def sync(self, operation: str, path: str, effect: Callable[[], None]) -> None:
        """Spend the time of a sync and have its effect; StorageFailure when this one is to fail."""
        low, high = _SYNC_S
        seconds = low + (high - low) * self.disk.chance.random()
        self.spend(seconds)
        self.faults.synced(path, seconds * self.faults.slowness)
        if self.faults.failing_syncs:
            self.faults.failing_syncs -= 1
            self.faults.sync_failed()
            raise StorageFailure(operation, path, "[Errno 5] Input/output error")
        if fibers.pause():
            if not self.faults.skips_syncs:
                effect()
            return
        if not self.faults.skips_syncs and not self._waits_for_the_log(path, effect):
            self._unfinished = effect
            self._under_way[effect] = path
        if not self._syncs_take_time:
            self.finish()

    def _waits_for_the_log(self, path: str, effect: Callable[[], None]) -> bool:
        """A step is never interrupted: in the memory of its process the log is flushed as soon as its sync begins, and not when it ends.

        So the watermark, which others write meanwhile, is on the disk when that sync is over; its writer would have known of less. Who
        replaces a file that tells of the log would have waited for its end: it has ended by then.
        """
        syncs = [each for each, synced in self._under_way.items() if synced.startswith(_LOG)]
        if syncs and path == _WATERMARK:
            self._behind[syncs[-1]] = effect
            return True
        for each in syncs if path in _KNOW_OF_THE_LOG else ():
            self._had(each)
        return False

    def finish(self) -> None:
        """The time of the last operation has passed."""
        self.take_effect()()

    def take_effect(self) -> Callable[[], None]:
        """What the last operation has yet to do, for whoever lets its time pass."""
        effect, self._unfinished = self._unfinished, None
        return _nobody if effect is None else functools.partial(self._had, effect)

    def _had(self, effect: Callable[[], None]) -> None:
        """A sync has ended."""
        if self._under_way.pop(effect, None) is not None and self.life.phase is Phase.RUNNING:
            effect()
            self._behind.pop(effect, _nobody)()

    def spend(self, seconds: float) -> None:
        """Let the lane wait for the disk."""
        self._cost_s += seconds * self.faults.slowness

    def take_cost(self) -> float:
        """Seconds that operations have cost since the last time this was asked; a disk hangs no longer, however many they are."""
        cost, self._cost_s = self._cost_s, 0.0
        return min(cost, _LONGEST_S)

    def _demand_folder(self, path: str) -> None:
        if parent(path) not in self.disk.names.folders:
            raise FileNotFoundError(2, "No such file or directory", path)

    def _inside(self, folder: str) -> bool:
        return any(name.startswith(f"{folder}/") for name in [*self.disk.names.files, *self.disk.names.folders])


class SimulatedFile:
    """An open file of one life."""

    def __init__(self, storage: SimulatedStorage, inode: Inode, path: str, *, readonly: bool) -> None:
        self._storage = storage
        self._inode = inode
        self._path = path
        self._readonly = readonly
        self._closed = False
        storage.open_files += 1

    def pread(self, length: int, offset: int) -> bytes:
        self._begin()
        if self._storage.faults.failing_reads:
            self._storage.faults.failing_reads -= 1
            raise OSError(errno.EMFILE, "Too many open files", self._path)
        if self._inode.bad and not self._inode.gives(length, offset):
            raise OSError(errno.EIO, "Input/output error", self._path)
        if fibers.Fiber.running is not None and self._storage.disk.chance.random() < _STOPS_READING:
            fibers.pause()
        content = self._inode.read(length, offset)
        self._storage.spend(len(content) / self._storage.faults.read_bytes_per_s)
        return content

    def pwrite(self, data: bytes | bytearray | memoryview, offset: int) -> None:
        disk = self._storage.disk
        if self._storage.faults.operations_to_live == 0 and not self._readonly:
            self._inode.write(memoryview(data)[: disk.chance.randint(0, len(data))], offset, disk.chance)
        self._begin()
        if self._readonly:
            raise StorageFailure("write", self._path, "[Errno 9] Bad file descriptor")
        content = memoryview(data)
        if self._inode.bad and not self._inode.takes(len(content), offset):
            raise StorageFailure("write", self._path, "[Errno 5] Input/output error")
        self._storage.spend(len(content) / _BYTES_PER_S)
        wanted = self._inode.new_pages(len(content), offset) * PAGE
        room = disk.free_bytes() if wanted else 0
        if wanted > room:
            fits = disk.chance.randint(0, len(content) - 1)
            while self._inode.new_pages(fits, offset) * PAGE > room:
                fits //= 2
            self._inode.write(content[:fits], offset, disk.chance)
            raise StorageFailure("write", self._path, "[Errno 28] No space left on device")
        first = disk.chance.randint(0, len(content)) if fibers.Fiber.running is not None and disk.chance.random() < _STOPS_WRITING else 0
        if first:
            self._inode.write(content[:first], offset, disk.chance)
            fibers.pause()
        self._inode.write(content[first:], offset + first, disk.chance)

    def fdatasync(self) -> None:
        self._begin()
        try:
            self._storage.sync("fdatasync", self._path, self._inode.begin_sync())
        except StorageFailure:
            self._inode.fail_sync()
            raise

    def truncate(self, size: int) -> None:
        self._begin()
        before = self._inode.size
        if size % PAGE and size // PAGE in self._inode.bad:  # zeros behind an end inside a page are written with the rest of it
            raise StorageFailure("truncate", self._path, "[Errno 5] Input/output error")
        self._inode.truncate(size, self._storage.disk.chance)
        if size < before:
            self._storage.faults.shortened(self._path)

    def size(self) -> int:
        self._begin()
        return self._inode.size

    def disk_bytes(self) -> int:
        self._begin()
        return len(self._inode.pages) * PAGE

    def data_from(self, offset: int) -> int:
        self._begin()
        return self._inode.data_from(offset)

    def is_named(self) -> bool:
        self._begin()
        return self._storage.disk.names.files.get(self._path) is self._inode

    def close(self) -> None:
        self._storage.open_files -= not self._closed
        self._closed = True

    def _begin(self) -> None:
        self._storage.begin()
        if self._closed:
            raise ValueError(f"{self._path} is closed")


class _Lock:
    def __init__(self, held: dict[str, None], path: str) -> None:
        self._held = held
        self._path = path

    def release(self) -> None:
        self._held.pop(self._path, None)
