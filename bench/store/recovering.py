"""The start after a SIGKILL, against reading the segments behind the last checkpoint, and against reading only what lies behind it.

4 GiB of log are written by a process of its own, which checkpoints as a broker under load does, and is killed when the next one was due.
Then the store is opened again and again, each time by a new process that is killed too, so that the checkpoint stays where it is. In
between another new process reads: what a process pays for its first pages, and for pages that a host took back meanwhile, both pay. Once
both find the log in the page cache, once on the disk alone: its pages are dropped by `posix_fadvise`, those of a virtual machine's host
may still be there.

`python -m bench.store.recovering write|open|read FOLDER SEGMENT_BYTES START END` is such a process; it says when it may be killed.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.ratios import Figure
from bench.store.stores import BORN_MS, lead, open_store, stream
from dittomq.broker.checkpointer import CHECKPOINT_BYTES
from dittomq.commitlog.store import StopKind, StoreOptions
from services.process import settle_memory

_SEGMENTS = 4
_MARGIN = 0.01
_READ_BYTES = 1024 * 1024
_DISPATCHED_BYTES = 16 * 1024 * 1024


def measure(folder: Path, quick: bool) -> list[Figure]:
    """Seconds to open, and to read."""
    pairs, segment_bytes = (1, 4 * 1024 * 1024) if quick else (5, StoreOptions().segment_bytes)
    store = folder / "store"
    with _process("write", store, segment_bytes, (0, 0)) as said:
        held, end = (int(word) for word in said.split())
    figures = []
    for place, cold in (("page cache", False), ("disk", True)):
        for floor, start, goal in (("the segments", held - held % segment_bytes, 2.0), ("only what is", held, None)):
            where = store, segment_bytes, start, end
            seconds = [[_seconds(deed, where, cold=cold) for deed in ("open", "read")] for _ in range(pairs)]
            ours, read = zip(*seconds, strict=True)
            name = f"start after a kill, floor reads {floor} behind the checkpoint, {place}"
            figures.append(Figure(name, "s", ours, read, at_most=goal))
    return figures


def _seconds(deed: str, where: tuple[Path, int, int, int], *, cold: bool) -> float:
    store, segment_bytes, start, end = where
    _settle(store, start, end, cold=cold)
    with _process(deed, store, segment_bytes, (start, end)) as said:
        return float(said)


@contextmanager
def _process(deed: str, store: Path, segment_bytes: int, behind: tuple[int, int]) -> Iterator[str]:
    """What a new process said when it had done the deed; killed on leaving."""
    command = [sys.executable, "-m", "bench.store.recovering", deed, *map(str, (store, segment_bytes, *behind))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        process.kill()
        if not said:
            raise RuntimeError("a process that should use the store ended; see what it wrote above")
        yield said


def _settle(store: Path, start: int, end: int, *, cold: bool) -> None:
    """Have these bytes in the page cache, or no byte of the log."""
    _read(store, start, end)
    for path in (store / "commitlog").iterdir() if cold else ():
        descriptor = os.open(path, os.O_RDONLY)
        os.fdatasync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def _read(store: Path, start: int, end: int) -> float:
    """The seconds it takes to read these bytes of the log."""
    began = time.perf_counter()
    for path in sorted((store / "commitlog").iterdir()):
        first = int(path.name)
        at, stop = max(0, start - first), min(path.stat().st_size, end - first)
        descriptor = os.open(path, os.O_RDONLY)
        while at < stop:
            at += len(os.pread(descriptor, min(_READ_BYTES, stop - at), at))
        os.close(descriptor)
    return time.perf_counter() - began


def _open(folder: Path, options: StoreOptions) -> str:
    began = time.perf_counter()
    store = open_store(folder, options)
    seconds = time.perf_counter() - began
    assert store.stopped is StopKind.KILLED, store.stopped
    assert not store.notes, store.notes
    return str(seconds)


def _write(folder: Path, options: StoreOptions) -> str:
    """Fill four segments, the last checkpoint as far back as a broker lets it be; all is flushed, confirmed and in the queues."""
    store, held = open_store(folder, options), 0
    apart = min(CHECKPOINT_BYTES, options.segment_bytes // 4)
    stop = int((_SEGMENTS - _MARGIN) * options.segment_bytes)
    due = stop % apart
    lead(store)
    for frame in stream():
        if store.end > stop:
            break
        store.append([frame], BORN_MS)
        if store.end - store.applied > _DISPATCHED_BYTES:
            store.dispatch(store.end)
        if due <= store.end < stop:
            store.sync()
            store.dispatch(store.end)
            store.checkpoint()
            held, due = store.applied, due + apart
    store.sync()
    store.persist_recovery_point(store.end, store.end)
    store.dispatch(store.end)
    return f"{held} {store.end}"


def main() -> str:
    """Do what the command line says."""
    deed, place, *numbers = sys.argv[1:]
    segment_bytes, start, end = map(int, numbers)
    if deed == "read":
        return str(_read(Path(place), start, end))
    return {"write": _write, "open": _open}[deed](Path(place), StoreOptions(segment_bytes=segment_bytes))


if __name__ == "__main__":
    settle_memory()
    print(main(), flush=True)
    signal.pause()
