"""Small disks of a test's own, mounted for a block. They need root; elsewhere the test is skipped with the reason."""

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


@contextmanager
def ext4_device(image: Path, size_bytes: int) -> Iterator[Path]:
    """A block device with an empty file system, in a file that is made."""
    with image.open("wb") as file:
        file.truncate(size_bytes)
    with loop_device(image) as device:
        subprocess.run(["mkfs.ext4", "-q", "-F", device], check=True)
        yield device


@contextmanager
def mounted_ext4(device: Path, folder: Path) -> Iterator[None]:
    """The device's files at `folder`, which is made. The journal commits when it is asked to, not by the clock."""
    folder.mkdir(parents=True, exist_ok=True)
    with _mounted("-t", "ext4", "-o", "commit=600,errors=remount-ro", str(device), str(folder)):
        yield


@contextmanager
def _mounted(*arguments: str) -> Iterator[None]:
    mounted = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"{arguments[1]} cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", arguments[-1]], check=True)
