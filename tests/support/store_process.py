"""Real processes that use a store on real files: `python -m tests.support.store_process` makes one for each line of its input.

Each prints a number for each thing that is durable, at once; when its disk fails, the failure's sentence, and ends with status 3.
"""

import contextlib
import json
import os
import random
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from dittomq.broker.config_files import ConfigFiles
from dittomq.commitlog.disk.storage import OsStorage
from dittomq.commitlog.store import AppendBatch, Store, StoreOptions
from dittomq.epoch_history import EpochEntry
from dittomq.errors import StorageFailure
from dittomq.metadata.formats import TOPICS
from dittomq.metadata.tables import Table, sorted_rows
from dittomq.metadata.topics import TopicConfig
from dittomq.offsets import Epoch, PhysicalOffset
from dittomq.routes import DataVersion
from tests.simulation.parser import ParsedLog, parse_log
from tests.support.stores import draft, open_epoch

OPTIONS = StoreOptions(segment_bytes=256 * 1024, queue_file_units=100, min_free_bytes=0, zero_window_bytes=64 * 1024)
FAILED = 3
BROKEN = 70
QUEUES = 3
FLUSHED = 400
NUMBERS_BEHIND_A_CUT = range(10_000_000, 10_000_005)
CHUNK_BYTES = 60_000


def body(number: int) -> bytes:
    """What message `number` says."""
    return f"{number:08d}".encode() * 100


def table(rows: int) -> Table[TopicConfig]:
    """A table that differs from any other of these."""
    return Table(DataVersion(1, rows, rows), sorted_rows(TopicConfig(f"topic-{number}") for number in range(rows)))


def open_store(storage: OsStorage) -> Store:
    """Open it as all of these tests do."""
    return Store.open(storage, OPTIONS, chance=random.Random(1), wall_ms=1_000)


def fill(store: Store, numbers: Sequence[int]) -> None:
    """Append the messages, each to its queue, in one group."""
    store.append([AppendBatch([draft("orders", number % QUEUES, body(number))]) for number in numbers], 1_000)


def middle(store: Store) -> int:
    """Where the message in the middle of `FLUSHED` ones lies, inside the first of two segments."""
    number = FLUSHED // 2
    return store.read_queue("orders", number % QUEUES, number // QUEUES, 1, 10_000).messages[0].physical_offset


def log_of(root: Path) -> ParsedLog:
    """The log on the disk, by other code."""
    return parse_log({f"commitlog/{path.name}": path.read_bytes() for path in sorted((root / "commitlog").iterdir())})


def say(number: int) -> None:
    """So much is durable."""
    print(number, flush=True)


class Deeds:
    """What the process may be asked to do. `breaks` makes the switch."""

    def __init__(self, root: Path, breaks: Callable[[], None]) -> None:
        self.root = root
        self.storage = OsStorage(root)
        self.breaks = breaks

    def start(self) -> Store:
        """Open the store as a master that leads does."""
        store = open_store(self.storage)
        open_epoch(store)
        return store

    def recover(self, store: Store) -> None:
        """Nothing behind the start."""

    def append(self, store: Store) -> None:
        """Fill two segments more; print how many messages are durable."""
        self.breaks()
        for number in range(FLUSHED, 2 * FLUSHED, 80):
            fill(store, range(number, number + 80))
            store.sync()
            say(number + 80)
            store.dispatch(store.flushed)
        fill(store, range(2 * FLUSHED, 2 * FLUSHED + 20))
        store.checkpoint()
        say(2 * FLUSHED + 20)

    def checkpoint(self, store: Store) -> None:
        """Fill, then checkpoint on a disk that breaks."""
        fill(store, range(FLUSHED, FLUSHED + 100))
        store.dispatch(store.end)
        self.breaks()
        store.checkpoint()
        say(FLUSHED + 100)

    def cut(self, store: Store) -> None:
        """Cut the log at its middle, on a disk that breaks, and go on behind it with less; print how many messages are durable."""
        to = middle(store)
        self.breaks()
        store.truncate(to)
        say(FLUSHED // 2)
        open_epoch(store)
        fill(store, NUMBERS_BEHIND_A_CUT)
        store.sync()
        say(FLUSHED // 2 + len(NUMBERS_BEHIND_A_CUT))

    def config(self, _: Store) -> None:
        """Replace a config file again and again; print how many rows are durable."""
        files = ConfigFiles(self.storage, "a/0")
        self.breaks()
        for rows in (5, 300, 1):
            for _step in files.save(TOPICS, table(rows)):
                pass
            say(rows)

    def receive(self, store: Store) -> None:
        """Copy the log that lies beside this store, as a slave does; print how many bytes are durable."""
        content = log_of(self.root.parent / "master").content
        self.breaks()
        while (at := store.written_raw) < len(content):
            stop = min(at + CHUNK_BYTES, at - at % OPTIONS.segment_bytes + OPTIONS.segment_bytes)
            store.write_chunk(at, content[at:stop])
            say(store.sync())
            store.dispatch(store.end)
        store.checkpoint()


class SlaveDeeds(Deeds):
    """Those of a slave."""

    def start(self) -> Store:
        store = open_store(self.storage)
        store.replace_epoch_history((EpochEntry(Epoch(1), 0, 7_001, PhysicalOffset(0)),))
        return store


def do(deed: str, root: Path, switch: Path) -> int:
    """Open the store, do the deed, close it; the exit status."""
    root.mkdir(exist_ok=True)
    deeds = (SlaveDeeds if deed == "receive" else Deeds)(root, switch.touch)
    store = deeds.start()
    try:
        getattr(deeds, deed)(store)
    except StorageFailure as failure:
        print(failure, flush=True)
        with contextlib.suppress(StorageFailure):
            store.clear_boot_stamp()
        return FAILED
    finally:
        store.close(clean=False)
    return 0


def fork(deed: str, root: Path, switch: Path, environment: dict[str, str]) -> tuple[int, list[str]]:
    """Let a new process do it; how it ended, below 0 when by a signal, and the lines that it printed."""
    with tempfile.TemporaryFile("w+") as said:
        child = os.fork()
        if not child:
            os.environ.update(environment)
            os.dup2(said.fileno(), sys.stdout.fileno())
            try:
                status = do(deed, root, switch)
            except Exception:  # noqa: BLE001 - nothing of it may reach the process that goes on
                status = BROKEN
                traceback.print_exc()
            os._exit(status)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        said.seek(0)
        return status, said.read().splitlines()


def main() -> int:
    """Do each deed that a line of standard input asks for, in a process of its own."""
    for line in sys.stdin:
        deed, root, switch, environment = json.loads(line)
        print(json.dumps(fork(deed, Path(root), Path(switch), environment)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
