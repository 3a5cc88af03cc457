"""The three measures. Each alternates product and floor, so that both meet the same neighbours and the same disk."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.floor import Floor, write_raw
from bench.product import BATCH, Product
from bench.ratios import Figure, percentile

TASKS = 8
REST_S = 0.5  # the product prepares its log in idle moments: not while the floor is measured
_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Sizes:
    """`pairs` of runs of each measure. `batches` of 256 by each task and run; `catch_up_bytes`; `calls` one after the other in a run.

    A run of `batches` is longer than what a node prepares in idle moments: most of it must find its blocks itself, as the floor must.
    """

    pairs: int = 7
    batches: int = 60
    catch_up_bytes: int = 1024 * _MIB
    catch_up_pairs: int = 5
    calls: int = 400


QUICK = Sizes(pairs=1, batches=2, catch_up_bytes=2 * _MIB, catch_up_pairs=1, calls=10)


@dataclass(frozen=True, slots=True)
class Bench:
    """What measures work with; `step` is called after each run with what was done."""

    product: Product
    floor: Floor
    folder: Path
    sizes: Sizes
    step: Callable[[str], None]


async def throughput(bench: Bench) -> list[Figure]:
    """Flushed on both, 1 KiB bodies, 8 tasks × 256: thousands of messages a second."""
    sizes = bench.sizes
    frame = bytes(BATCH * await bench.product.record_bytes())
    thousands = TASKS * BATCH * sizes.batches / 1000
    await bench.product.publish(tasks=TASKS, rounds=sizes.batches)
    await bench.floor.publish(frame, tasks=TASKS, rounds=sizes.batches)
    ours, floor = [], []
    for _ in range(sizes.pairs):
        ours.append(thousands / await bench.product.publish(tasks=TASKS, rounds=sizes.batches))
        await asyncio.sleep(REST_S)
        floor.append(thousands / await bench.floor.publish(frame, tasks=TASKS, rounds=sizes.batches))
        bench.step("8 × 256, flushed on both")
    return [Figure("8 × 256, flushed on both", "k msg/s", ours, floor, at_least=0.4)]


async def one_caller(bench: Bench) -> list[Figure]:
    """One message at a time, flushed on both: milliseconds."""
    frame = bytes(await bench.product.record_bytes())
    name = "one caller, flushed on both"

    await bench.product.call_times(bench.sizes.calls)
    await bench.floor.call_times(frame, bench.sizes.calls)
    ours, floor = [], []
    for _ in range(bench.sizes.pairs):
        ours.append(await bench.product.call_times(bench.sizes.calls))
        await asyncio.sleep(REST_S)
        floor.append(await bench.floor.call_times(frame, bench.sizes.calls))
        bench.step(name)
    await bench.product.settle()

    def figure(percent: int, at_most: float | None) -> Figure:
        pairs = [[percentile(times, percent) for times in side] for side in (ours, floor)]
        return Figure(f"{name}, p{percent}", "ms", pairs[0], pairs[1], at_most=at_most)

    return [figure(50, 2.0), figure(99, None)]


async def catch_up(bench: Bench) -> list[Figure]:
    """A new slave copies the log: MiB a second, against the slower of a bare stream and a raw file."""
    wanted = bench.sizes.catch_up_bytes
    rounds = max(1, wanted // (TASKS * BATCH * await bench.product.record_bytes()))
    await bench.product.publish(tasks=TASKS, rounds=rounds)
    bench.step(f"{wanted / _MIB:,.0f} MiB are stored")
    ours, floor, streams, disks = [], [], [], []
    for _ in range(bench.sizes.catch_up_pairs):
        done = await bench.product.catch_up()
        stream_s = await bench.floor.stream(done.size)
        disk_s = write_raw(bench.folder / "raw", done.size)
        size = done.size / _MIB
        ours.append(size / done.seconds)
        floor.append(size / max(stream_s, disk_s))
        streams.append(size / stream_s)
        disks.append(size / disk_s)
        bench.step("catch-up")
    return [
        Figure("catch-up of a new slave", "MiB/s", ours, floor, at_least=0.5),
        Figure("  of that, to the bare stream", "MiB/s", ours, streams),
        Figure("  of that, to the raw disk", "MiB/s", ours, disks),
    ]
