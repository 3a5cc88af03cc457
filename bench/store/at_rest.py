"""A master at rest that holds 100,000 queues and 20 GiB of log: its memory, its files, its disk, and what so many queues cost.

The store is made by appends like any other, by a process of its own. Its largest bodies are zeros, and its door to the disk leaves zeros
of a segment out, so that the log has all of its bytes and few of its blocks. The master is a real one, with all topics in its table; it
is looked at when it leads and has written its first checkpoint.

`python -m bench.store.at_rest make|use FOLDER QUEUES GIB` makes the store, or opens it and prints the seconds that things take.
"""

import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.machine import resident_bytes
from bench.ratios import Figure
from bench.store.stores import BORN_MS, lead, open_store
from dittomq.broker.config_files import ConfigFiles
from dittomq.commitlog import log_start_state
from dittomq.commitlog.disk.storage import File, OsStorage
from dittomq.commitlog.store import AppendBatch, Store, StoreOptions
from dittomq.message import MAX_BODY_BYTES, Draft
from dittomq.metadata.formats import TOPICS
from dittomq.metadata.tables import Table
from dittomq.metadata.topics import TopicConfig
from dittomq.testing import LocalCluster, Shape
from services.process import settle_memory

_MASTER = "a/0"
_QUEUES_A_TOPIC = 8
_FRAME = 1_000
_DISPATCHED = 512
_HOLE = bytes(64 * 1024)
_START_S = 120.0
_CHECKPOINT_S = 60.0
_LOOK_EVERY_S = 0.1
_MIB, _GIB = 1024 * 1024, 1024 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Rest:
    """A master at rest: bytes of memory, open files, bytes of its store in blocks and by the sizes of its files."""

    memory_bytes: int
    files: int
    disk_bytes: int
    apparent_bytes: int


def measure(folder: Path, quick: bool) -> list[Figure]:
    """Where a figure has a floor, it is the size that files seem to have."""
    queues, gib = (200, 0.03) if quick else (100_000, 20.0)
    rest = master_at_rest(folder, queues, gib, waits=not quick)
    seconds = json.loads(_deed("use", folder / "store", queues, gib))
    name = f"{queues:,} queues, {gib:g} GiB"
    return [
        Figure(f"{name}: memory of a master at rest", "MiB", [rest.memory_bytes / _MIB], at_most=300),
        Figure(f"{name}: its open files", "files", [rest.files], at_most=1024),
        Figure(f"{name}: disk in blocks, to its size", "GiB", [rest.disk_bytes / _GIB], [rest.apparent_bytes / _GIB]),
        *(Figure(f"{name}: {what}", "s", [took]) for what, took in seconds.items()),
    ]


def master_at_rest(folder: Path, queues: int, gib: float, *, waits: bool) -> Rest:
    """Start a master on such a store, which is left in `store` of the folder; `waits`: for its first checkpoint too."""
    store = folder / "store"
    _deed("make", store, queues, gib)
    with LocalCluster(folder / "cluster", Shape(slaves=0, master_settings={"store.segment_bytes": _GIB}, usual_ports=False)) as cluster:
        cluster.stop_node(_MASTER)
        place = cluster.data_dir(_MASTER)
        shutil.rmtree(place)
        store.rename(place)
        cluster.start_node(_MASTER)
        cluster.wait_in_sync(_START_S)
        if waits:
            _await_checkpoint(place)
        pid = cluster.pid(_MASTER)
        memory, files = resident_bytes(pid), len(list(Path(f"/proc/{pid}/fd").iterdir()))
        cluster.stop_node(_MASTER)
        rest = Rest(memory, files, *_disk_use(place))
        place.rename(store)
    return rest


def _deed(deed: str, store: Path, queues: int, gib: float) -> str:
    command = [sys.executable, "-m", "bench.store.at_rest", deed, str(store), str(queues), str(gib)]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def _await_checkpoint(store: Path) -> None:
    deadline, before = time.monotonic() + _CHECKPOINT_S, (store / "dittomq/checkpoint").stat().st_mtime_ns
    while (store / "dittomq/checkpoint").stat().st_mtime_ns == before and time.monotonic() < deadline:
        time.sleep(_LOOK_EVERY_S)


def _disk_use(folder: Path) -> tuple[int, int]:
    """Bytes in blocks, and the sizes of files and folders."""
    found = [Path(parent, name).stat() for parent, folders, names in os.walk(folder) for name in (*folders, *names)]
    return sum(each.st_blocks for each in found) * 512, sum(each.st_size for each in found)


class _HoleyFile:
    """A file that leaves zeros out where the file had none written."""

    def __init__(self, file: File) -> None:
        self._file = file
        self.pread, self.fdatasync, self.truncate = file.pread, file.fdatasync, file.truncate
        self.size, self.disk_bytes, self.data_from = file.size, file.disk_bytes, file.data_from
        self.is_named, self.close = file.is_named, file.close

    def pwrite(self, data: bytes | bytearray | memoryview, offset: int) -> None:
        view, step = memoryview(data), len(_HOLE)
        for at in range(0, len(data), step):
            if view[at : at + step] != _HOLE[: len(data) - at]:
                self._file.pwrite(view[at : at + step], offset + at)


class _HoleyStorage(OsStorage):
    """A data directory with holes in the segments of its log."""

    def open(self, path: str, *, create: bool = False, readonly: bool = False) -> File:
        file = super().open(path, create=create, readonly=readonly)
        return _HoleyFile(file) if path.startswith("commitlog/") else file


def _make(folder: Path, queues: int, size: int) -> None:
    """Two or more messages for each queue, `size` bytes of log, everything flushed, confirmed and checkpointed."""
    storage = _HoleyStorage(folder)
    store = Store.open(storage, StoreOptions(), chance=random.Random(1), wall_ms=BORN_MS)
    lead(store)
    rows = [TopicConfig(_topic(queue), _QUEUES_A_TOPIC, _QUEUES_A_TOPIC) for queue in range(0, queues, _QUEUES_A_TOPIC)]
    topics: Table[TopicConfig] = Table()
    for _ in ConfigFiles(storage, _MASTER).save(TOPICS, topics.changed(rows, 1, BORN_MS)):
        pass
    _one_to_each(store, queues)
    body, number = bytes(MAX_BODY_BYTES), 0
    while store.end < size:
        store.append([AppendBatch([_draft(number % queues, body)])], BORN_MS)
        number += 1
        if number % _DISPATCHED == 0:
            store.dispatch(store.end)
    _one_to_each(store, queues)
    store.sync()
    store.persist_recovery_point(store.end, store.end)
    store.dispatch(store.end)
    store.close(clean=True)


def _one_to_each(store: Store, queues: int) -> None:
    for first in range(0, queues, _FRAME):
        store.append([AppendBatch([_draft(queue, b"small") for queue in range(first, min(queues, first + _FRAME))])], BORN_MS)


def _topic(queue: int) -> str:
    return f"topic-{queue // _QUEUES_A_TOPIC:05d}"


def _draft(queue: int, body: bytes) -> Draft:
    return Draft(_topic(queue), queue % _QUEUES_A_TOPIC, 0, BORN_MS, body, b"", 0)


def _use(folder: Path, queues: int) -> dict[str, float]:
    """What takes how long."""
    took = {}

    def timed(what: str, work: Callable[[], object]) -> None:
        began = time.perf_counter()
        work()
        took[what] = time.perf_counter() - began

    began = time.perf_counter()
    store = open_store(folder)
    took["start after a clean stop"] = time.perf_counter() - began
    lead(store)
    _one_to_each(store, queues)
    timed("a message more in each, into the queues", lambda: store.dispatch(store.end))
    timed("the checkpoint behind that", store.checkpoint)
    _one_to_each(store, 1)
    store.dispatch(store.end)
    timed("a checkpoint behind one message", store.checkpoint)
    index = store._derived.index  # noqa: SLF001
    timed("where each queue begins when half of the log is dropped", lambda: log_start_state.first_offsets_at(index, store.end // 2))
    store.close(clean=False)
    (folder / "dittomq/boot").unlink()
    began = time.perf_counter()
    store = open_store(folder)
    took["start after a power loss"] = time.perf_counter() - began
    store.close(clean=True)
    return took


if __name__ == "__main__":
    settle_memory()
    deed, place, queues, gib = sys.argv[1:]
    if deed == "make":
        _make(Path(place), int(queues), int(float(gib) * _GIB))
    else:
        print(json.dumps(_use(Path(place), int(queues))))
