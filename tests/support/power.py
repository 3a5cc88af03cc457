"""Machines whose power goes: a disk that is an image, and its photograph, without what only the page cache holds."""

import fcntl
import os
import shutil
import struct
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dittomq.commitlog.disk.storage import OsStorage
from tests.support.mounts import demand_root, loop_device, mounted_ext4
from tests.support.waiting import eventually

SECTOR = 512
_FIBMAP = 1
_BLOCK = struct.Struct("i")
_UNSYNCED_BYTES = b"never synced" * 1_000


class Rebooted(OsStorage):
    """The machine has booted since."""

    def boot_id(self) -> str:
        return "another boot"


@contextmanager
def fast_folder() -> Iterator[Path]:
    """A folder in memory, if there is one: a fast disk makes many moments."""
    demand_root()
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="dittomq-", dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder)


@dataclass(frozen=True, slots=True)
class Disk:
    """One that is mounted at `folder`."""

    image: Path
    device: Path
    folder: Path

    def photograph(self, copy: Path) -> None:
        """Copy it in a moment in which nothing is written to it, and just after a file on it was written that is never synced.

        Just then, because the system itself writes back what has waited for half a minute.
        """
        unsynced = self.folder / f"unsynced-{time.monotonic_ns()}"  # a name that it never had: ext4 syncs what replaces a file
        unsynced.write_bytes(_UNSYNCED_BYTES)

        def copied() -> bool:
            before = self._writes()
            shutil.copyfile(self.image, copy)
            return before[1] and self._writes() == before

        eventually(copied, "the disk is still while it is copied")
        unsynced.unlink()

    def _writes(self) -> tuple[int, bool]:
        """How many writes it has seen, and whether none is under way."""
        fields = Path(f"/sys/block/{self.device.name}/stat").read_text().split()
        return int(fields[4]), int(fields[8]) == 0


@contextmanager
def booted(image: Path, folder: Path) -> Iterator[Disk]:
    """The disk at `folder`, which is made."""
    with loop_device(image) as device, mounted_ext4(device, folder):
        yield Disk(image, device, folder)


@contextmanager
def after_power_loss(image: Path, folder: Path) -> Iterator[None]:
    """The disk of a photograph at `folder`, which is made."""
    with loop_device(image) as device, mounted_ext4(device, folder):
        there = [path for path in folder.glob("unsynced-*") if path.read_bytes() == _UNSYNCED_BYTES]
        assert not there, "this is no power loss: what was never synced is there"
        yield


@dataclass(frozen=True, slots=True)
class Blocks:
    """Where the blocks of a file lie on its disk: by the number of the one the number of the other."""

    size: int
    places: Mapping[int, int]

    def place(self, offset: int) -> int:
        """Where that byte of the file lies, in bytes."""
        number, rest = divmod(offset, self.size)
        return self.places[number] * self.size + rest


def blocks_of(path: Path) -> Blocks:
    """Those of a file; holes have none."""
    with path.open("rb") as file:
        size = os.fstatvfs(file.fileno()).f_bsize
        asked = (_BLOCK.pack(number) for number in range(path.stat().st_size // size))
        places = [_BLOCK.unpack(fcntl.ioctl(file, _FIBMAP, number))[0] for number in asked]
    return Blocks(size, {number: place for number, place in enumerate(places) if place})
