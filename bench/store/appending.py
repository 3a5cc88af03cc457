"""Appends through the writer, each group flushed, against `pwrite` and `fdatasync` of the same bytes in the same sizes.

Both write into a file of the full size of a segment that is made before the clock starts, and sparse: every block is found while
it is written, by both. Both are warmed up alike, so the pages that they fill were touched lately.
"""

import asyncio
import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import uvloop

from bench.least import open_preallocated
from bench.ratios import Figure
from bench.store.stores import frames, lead, leader_of, open_store
from dittomq.commitlog.options import StoreOptions
from dittomq.commitlog.store import AppendBatch

_MIB = 1024 * 1024


def measure(folder: Path, quick: bool) -> list[Figure]:
    """One batch under way, and as many as a busy master has."""
    pairs, batches = (1, 8) if quick else (7, 448)
    made = frames(batches + 1)
    return [
        _figure(folder, made, (tasks, pairs), name)
        for tasks, name in ((8, "append, 8 × 256 under way, flushed"), (1, "append, 256 under way, flushed"))
    ]


def _figure(folder: Path, made: Sequence[AppendBatch], runs: tuple[int, int], name: str) -> Figure:
    tasks, pairs = runs
    ours, floor = [], []
    for pair in range(pairs + 1):
        seconds, sizes = _append(folder / "store", made, tasks)
        raw = _write_raw(folder / "raw", sizes)
        if pair > 0 or pairs == 1:  # the first one warms up
            ours.append(sum(sizes) / _MIB / seconds)
            floor.append(sum(sizes) / _MIB / raw)
    return Figure(name, "MiB/s", ours, floor, at_least=0.8)


def _append(folder: Path, made: Sequence[AppendBatch], tasks: int) -> tuple[float, list[int]]:
    """The seconds for all batches but the first, which makes the segment and the queues' files; the groups' sizes."""
    store = open_store(folder)
    lead(store)

    async def run() -> tuple[float, list[int]]:
        async with leader_of(store, syncs=True) as leader:
            await leader.publish(made[:1], 1)
            leader.group_bytes.clear()
            seconds = await leader.publish(made[1:], tasks)
            return seconds, leader.group_bytes

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        result = runner.run(run())
    store.close(clean=True)
    shutil.rmtree(folder)
    return result


def _write_raw(file: Path, sizes: Sequence[int]) -> float:
    data = memoryview(os.urandom(sum(sizes)))  # other bytes in each write, as the product has
    descriptor = open_preallocated(str(file), StoreOptions().segment_bytes)
    os.fdatasync(descriptor)
    try:
        at, began = 0, time.perf_counter()
        for size in sizes:
            os.pwrite(descriptor, data[at : at + size], at)
            os.fdatasync(descriptor)
            at += size
        return time.perf_counter() - began
    finally:
        os.close(descriptor)
        file.unlink()
