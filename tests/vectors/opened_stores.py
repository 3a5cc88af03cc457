"""Stores of RocketMQ opened here: as they are, and what we make of a log when nothing else is there."""

import shutil
from pathlib import Path

from dittomq.commitlog.disk.storage import OsStorage
from dittomq.commitlog.store import Store, StoreOptions
from dittomq.doors.chance import os_chance
from dittomq.doors.clock import OsClock

NOT_READ = ["queues-5.3.3/master", "queues-5.3.3/slave"]
QUEUE_FILE_UNITS = 1_000


def rebuilt(log: Path, folder: Path) -> Store:
    """A store of the log alone, its queues and index built."""
    shutil.copytree(log, folder / "commitlog")
    store = _open(folder)
    store.dispatch(store.end)
    return store


def open_copy(original: Path, folder: Path) -> Store:
    """A copy of that store."""
    shutil.copytree(original, folder)
    return _open(folder)


def _open(folder: Path) -> Store:
    segment_bytes = next((folder / "commitlog").iterdir()).stat().st_size
    options = StoreOptions(segment_bytes=segment_bytes, queue_file_units=QUEUE_FILE_UNITS, min_free_bytes=0)
    return Store.open(OsStorage(folder), options, chance=os_chance(), wall_ms=OsClock().wall_ms())
