"""Small disks of a test's own, mounted for a block. They need root; elsewhere the test is skipped with the reason."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


def demand_root() -> None:
    """Skip the test where nothing can be mounted."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a disk")


@contextmanager
def small_tmpfs(folder: Path, size_bytes: int) -> Iterator[None]:
    """A disk in memory at `folder`, which is made."""
    demand_root()
    folder.mkdir(parents=True)
    with _mounted("-t", "tmpfs", "-o", f"size={size_bytes}", "dittomq-test", str(folder)):
        yield


@contextmanager
def loop_device(image: Path) -> Iterator[Path]:
    """A block device whose bytes are those of the file."""
    demand_root()
    if shutil.which("losetup") is None or shutil.which("mkfs.ext4") is None:
        pytest.skip("losetup and mkfs.ext4 are not on PATH")
    made = subprocess.run(["losetup", "--find", "--show", image], capture_output=True, text=True, check=False)
    if made.returncode:
        pytest.skip(f"no loop device is to be had here: {made.stderr.strip()}")
    device = Path(made.stdout.strip())
    try:
        yield device
    finally:
        subprocess.run(["losetup", "--detach", device], check=True)


def new_image(image: Path, size_bytes: int) -> Path:
    """A file with an empty file system, which takes no room yet; its path."""
    with image.open("wb") as file:
        file.truncate(size_bytes)
    with loop_device(image) as device:
        subprocess.run(["mkfs.ext4", "-q", "-F", device], check=True)
    return image


@contextmanager
def mounted_ext4(device: Path, folder: Path) -> Iterator[None]:
    """The device's files at `folder`, which is made. The journal commits when it is asked to, not by the clock."""
    folder.mkdir(parents=True, exist_ok=True)
    with _mounted("-t", "ext4", "-o", "commit=600,errors=remount-ro", str(device), str(folder)):
        yield


class ThinDisk:
    """A disk that promises more room than there is behind it.

    Once it `runs_out`, write-back to a block that held nothing fails, as on a disk that breaks: the sync of such bytes fails once, the
    next one says that all is well, and the bytes are in the page cache only. What is mounted anew has lost them.
    """

    def __init__(self, path: Path, behind: Path, size_bytes: int) -> None:
        """It appears at `path` while it is mounted; what there is of it lies in `behind`, which is made."""
        self.path = path
        self._behind = behind
        self._image = self._behind / "image"
        self._filler = self._behind / "filler"
        self._size_bytes = size_bytes

    @contextmanager
    def made(self) -> Iterator[None]:
        """It is there during the block, not mounted yet."""
        with small_tmpfs(self._behind, self._size_bytes + 1024 * 1024):
            self._image.write_bytes(bytes(self._size_bytes))
            with loop_device(self._image) as device:
                options = "nodiscard,lazy_itable_init=0,lazy_journal_init=0"
                subprocess.run(["mkfs.ext4", "-q", "-F", "-b", "4096", "-E", options, device], check=True)
            # All of it takes room, also what the kernel or mkfs zeroed by making a hole: inodes are not to be lost, only what is in files.
            self._image.write_bytes(self._image.read_bytes())
            yield

    @contextmanager
    def mounted(self) -> Iterator[None]:
        """Mounted, with an empty page cache."""
        with loop_device(self._image) as device, mounted_ext4(device, self.path):
            yield

    def runs_out(self) -> None:
        """Take all that no file of the disk has yet from behind it."""
        for command in ("sync --file-system", "fstrim"):  # what was freed and not committed is not taken
            subprocess.run([*command.split(), self.path], check=True)
        with contextlib.suppress(OSError), self._filler.open("wb", buffering=0) as file:
            while file.write(bytes(64 * 1024)):
                pass

    def has_room(self) -> None:
        """Give it back."""
        self._filler.unlink()


@contextmanager
def _mounted(*arguments: str) -> Iterator[None]:
    mounted = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"{arguments[1]} cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", arguments[-1]], check=True)
