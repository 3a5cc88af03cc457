"""How a new slave copies a log, seen from outside: from what lies in the first segment of its log."""

import asyncio
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_LOOK_EVERY_S = 0.005


class CopyEnded(Exception):
    """Nothing more comes, or nobody waits for it."""


@dataclass(frozen=True, slots=True)
class Copied:
    """Until its first byte, from the first to the last, and how many."""

    size: int
    first_byte_s: float
    seconds: float


def first_segment(store: Path) -> Path:
    """The file that begins the commit log of a store."""
    return store / "commitlog" / f"{0:020d}"


def wait_for_bytes(file: Path, at: int, size: int, within_s: float, *, ended: Callable[[], bool]) -> float:
    """When, on the performance counter, there first was something at `at`.

    TimeoutError when there is nothing in time, CopyEnded as soon as `ended` says so.
    """
    deadline = time.monotonic() + within_s
    while not _holds(file, at, size):
        if ended():
            raise CopyEnded(f"{file} holds nothing at {at:,}")
        if time.monotonic() > deadline:
            raise TimeoutError(f"{file} held nothing at {at:,} within {within_s:g} s")
        time.sleep(_LOOK_EVERY_S)
    return time.perf_counter()


async def bytes_came(file: Path, at: int, size: int, within_s: float) -> float:
    """The same beside the loop; a caller that is cancelled leaves no thread that waits on."""
    left = threading.Event()
    try:
        return await asyncio.to_thread(wait_for_bytes, file, at, size, within_s, ended=left.is_set)
    finally:
        left.set()


def _holds(file: Path, at: int, size: int) -> bool:
    if not file.exists():
        return False
    with file.open("rb") as log:
        return bool(os.pread(log.fileno(), size, at).strip(b"\0"))
