"""What we make of a log of RocketMQ's when nothing else is there."""

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
    options = StoreOptions(segment_bytes=next(log.iterdir()).stat().st_size, queue_file_units=QUEUE_FILE_UNITS, min_free_bytes=0)
    store = Store.open(OsStorage(folder), options, chance=os_chance(), wall_ms=OsClock().wall_ms())
    store.dispatch(store.end)
    return store
