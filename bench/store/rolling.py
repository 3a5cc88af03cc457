"""Appends of 256 × 1 KiB, each synced, over the ends of segments: what an append costs in which the log rolls.

The same bytes go into two stores, run by run in turns: in one a lane of its own makes segments ahead of need, as a node does; in the other
the append that needs a segment makes it. Nothing zeroes ahead in either, so all blocks are found while they are written.
"""

import asyncio
import shutil
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from bench.ratios import Figure, percentile
from bench.store.stores import BORN_MS, lead, open_store, stream
from dittomq.broker.segment_preallocation import prepare_segments
from dittomq.commitlog.store import AppendBatch, Store, StoreOptions
from dittomq.doors.workers import ThreadWorkers

_MIB = 1024 * 1024
_KINDS = {"made ahead": True, "made by the append": False}


@dataclass(slots=True)
class Times:
    """Milliseconds of each append, without its sync and with it; of those that rolled apart from the others."""

    appended: list[float] = field(default_factory=list)
    synced: list[float] = field(default_factory=list)
    rolled_appended: list[float] = field(default_factory=list)
    rolled_synced: list[float] = field(default_factory=list)


def measure(folder: Path, quick: bool) -> list[Figure]:
    """Appends that roll, in appends that do not, at the same percentile."""
    runs, rolls, segment_bytes = (1, 2, _MIB) if quick else (5, 8, 64 * _MIB)
    found = measured(folder, runs=runs, rolls=rolls, segment_bytes=segment_bytes)
    return [figure for kind, times in found.items() for figure in _figures(kind, times)]


def _figures(kind: str, times: list[Times]) -> list[Figure]:
    def figure(name: str, percent: int, rolled: list[list[float]], others: list[list[float]]) -> Figure:
        ours, floor = ([percentile(each, percent) for each in side] for side in (rolled, others))
        return Figure(f"{name}, segment {kind}, p{percent}", "ms", ours, floor)

    synced = [each.rolled_synced for each in times], [each.synced for each in times]
    appended = [each.rolled_appended for each in times], [each.appended for each in times]
    return [figure("roll", 50, *synced), figure("roll", 99, *synced), figure("  of that the append", 99, *appended)]


def measured(folder: Path, *, runs: int, rolls: int, segment_bytes: int) -> dict[str, list[Times]]:
    """By kind, the times of each run; the first run of both warms up and does not count, unless it is the only one."""
    found: dict[str, list[Times]] = {kind: [] for kind in _KINDS}
    for _ in range(runs if runs == 1 else runs + 1):
        for kind, ahead in _KINDS.items():
            found[kind].append(asyncio.run(_run(folder / "store", rolls, segment_bytes, ahead=ahead)))
            shutil.rmtree(folder / "store")
    return {kind: each[1:] or each for kind, each in found.items()}


async def _run(folder: Path, rolls: int, segment_bytes: int, *, ahead: bool) -> Times:
    workers, times = ThreadWorkers(), Times()
    lane = workers.lane("store")
    made = stream()
    store = await lane.call(lambda: _open(folder, segment_bytes, next(made)))
    async with asyncio.TaskGroup() as tasks:
        preparing = tasks.create_task(prepare_segments(store.ahead, workers.lane("ahead"))) if ahead else None
        for frame in made:
            if store.end >= (rolls + 0.5) * segment_bytes:
                break
            await lane.call(partial(_append, store, frame, times))
        if preparing is not None:
            preparing.cancel()
    await lane.call(lambda: store.close(clean=False))
    workers.close()
    return times


def _open(folder: Path, segment_bytes: int, first: AppendBatch) -> Store:
    store = open_store(folder, StoreOptions(segment_bytes=segment_bytes))
    lead(store)
    store.append([first], BORN_MS)  # makes the first segment
    store.sync()
    return store


def _append(store: Store, frame: AppendBatch, times: Times) -> None:
    last = store.segment_of(store.end)
    began = time.perf_counter()
    store.append([frame], BORN_MS)
    appended = time.perf_counter()
    store.sync()
    synced = time.perf_counter()
    rolled = store.segment_of(store.end) != last
    (times.rolled_appended if rolled else times.appended).append((appended - began) * 1000)
    (times.rolled_synced if rolled else times.synced).append((synced - began) * 1000)
