"""A real process that uses a store on real files: `python -m tests.support.store_process DEED DATA_DIR [SWITCH]`.

It prints a number for each thing that is durable, at once; when its disk fails, the failure's sentence, and ends with status 3.
"""

import contextlib
import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from dittomq.commitlog.storage import OsStorage
from dittomq.commitlog.store import Frame, Store, StoreOptions
from dittomq.errors import StoreFailed
from tests.support.stores import draft, open_epoch

OPTIONS = StoreOptions(segment_bytes=256 * 1024, queue_file_units=100, reserve_bytes=0, zero_window_bytes=64 * 1024)
FAILED = 3
QUEUES = 3
FLUSHED = 400
STREAM_BYTES = 12 * 1024 * 1024


def body(number: int) -> bytes:
    """What message `number` says."""
    return f"{number:08d}".encode() * 100


def open_store(storage: OsStorage) -> Store:
    """Open it as all of these tests do."""
    return Store.open(storage, OPTIONS, chance=random.Random(1), wall_ms=1_000)


def fill(store: Store, numbers: Sequence[int]) -> None:
    """Append the messages, each to its queue, in one group."""
    store.append([Frame([draft("orders", number % QUEUES, body(number))]) for number in numbers], 1_000)


def middle(store: Store) -> int:
    """Where the message in the middle of `FLUSHED` ones lies, inside the first of two segments."""
    number = FLUSHED // 2
    return store.read_queue("orders", number % QUEUES, number // QUEUES, 1, 10_000).messages[0].physical_offset


def stream(store: Store, _: Callable[[], None]) -> None:
    """Append and sync for long; after each sync print how many messages are durable."""
    number = 0
    while store.end < STREAM_BYTES:
        fill(store, range(number, number + 4))
        number += 4
        store.sync()
        print(number, flush=True)
        fill(store, range(number, number + 2))
        number += 2
        if number % 60 == 0:
            store.dispatch(store.flushed)
            store.persist_watermark(store.flushed, store.flushed, ("a/1",))
        if number % 300 == 0:
            store.checkpoint()


def checkpoint(store: Store, breaks: Callable[[], None]) -> None:
    """Fill, then checkpoint on a disk that breaks."""
    fill(store, range(FLUSHED, FLUSHED + 100))
    store.dispatch(store.end)
    breaks()
    store.checkpoint()


def cut(store: Store, breaks: Callable[[], None]) -> None:
    """Cut the log at its middle, on a disk that breaks."""
    to = middle(store)
    breaks()
    store.cut(to)


DEEDS = {"stream": stream, "checkpoint": checkpoint, "cut": cut}


def main() -> int:
    """Open the store, do the deed, close it."""
    deed, root, *switch = sys.argv[1:]
    Path(root).mkdir(exist_ok=True)
    store = open_store(OsStorage(Path(root)))
    open_epoch(store)
    store.stamp_boot()
    try:
        DEEDS[deed](store, lambda: Path(*switch).touch())
    except StoreFailed as failure:
        print(failure, flush=True)
        with contextlib.suppress(StoreFailed):
            store.clear_boot_stamp()
        return FAILED
    finally:
        store.close(clean=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
