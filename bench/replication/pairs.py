"""Runs that alternate, so that both sides meet the same neighbours and the same disk."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, TypeVar

from bench.peers.running import NotInstalled, standing_still
from bench.product import Product
from bench.ratios import Figure, percentile

REST_S = 0.5

T = TypeVar("T")
U = TypeVar("U")


@dataclass(frozen=True, slots=True)
class PairSizes:
    """`pairs` of runs of each measure; `calls` of one caller, `messages` of eight callers in a run; the others are bytes."""

    pairs: int = 5
    calls: int = 400
    messages: int = 8 * 256 * 40
    copied: int = 1 << 30
    gap: int = 44 << 20
    diverged: int = 2 << 20
    newest: int = 800 << 20


QUICK = PairSizes(pairs=1, calls=20, messages=8 * 256, copied=2 << 20, gap=1 << 20, diverged=1 << 18, newest=2 << 20)


@dataclass(frozen=True, slots=True)
class PairBench:
    """What measures work with: a running group that flushes on both, a folder, and `step`, called after each run with what was done."""

    product: Product
    folder: Path
    sizes: PairSizes
    step: Callable[[str], None]


@asynccontextmanager
async def up(peer: AbstractContextManager[T]) -> AsyncIterator[T]:
    """A peer that starts, works and ends beside the loop."""
    entered = await asyncio.to_thread(peer.__enter__)
    try:
        yield entered
    finally:
        await asyncio.to_thread(peer.__exit__, None, None, None)


async def rest() -> None:
    """What one side has left to do is not to be done in the other's time: neither work nor pages that wait to be written.

    A database puts its tables, and a broker that answers from its page cache its messages, on the disk some seconds later.
    """
    await asyncio.to_thread(os.sync)
    await asyncio.sleep(REST_S)


class ComparedSystem(Protocol):
    """Who runs beside the product."""

    @property
    def pids(self) -> Sequence[int]:
        """Its processes; those that they have started need not be among them."""
        ...


async def alternate(
    bench: PairBench, name: str, ours: Callable[[], Awaitable[T]], theirs: Callable[[], U], *, peer: ComparedSystem | None
) -> list[tuple[T, U]]:
    """What each of the pairs of runs gave, after one that warms up. Whoever is not measured stands still; None: it runs in `theirs` only.

    A broker without work still wakes for its timers, and on two cores that is felt.
    """
    found = []
    for _ in range(bench.sizes.pairs + 1):
        with standing_still(() if peer is None else peer.pids):
            mine = await ours()
            await bench.product.settle()
        await rest()
        with standing_still(bench.product.pids):
            other = await asyncio.to_thread(theirs)
        await rest()
        found.append((mine, other))
        bench.step(name)
    return found[1:]


def latency(name: str, pairs: list[tuple[list[float], list[float]]], percent: int, at_most: float | None) -> Figure:
    """A percentile of ours against theirs, in milliseconds."""
    sides = [[percentile(times, percent) for times in side] for side in zip(*pairs, strict=True)]
    return Figure(f"{name}, p{percent}", "ms", sides[0], sides[1], at_most=at_most)


def rate(name: str, pairs: list[tuple[float, float]], at_least: float | None) -> Figure:
    """Messages a second of ours against theirs."""
    ours, theirs = ([each / 1000 for each in side] for side in zip(*pairs, strict=True))
    return Figure(name, "k msg/s", ours, theirs, at_least=at_least)


async def figures_of(name: str, measure: Callable[[PairBench], Awaitable[list[Figure]]], bench: PairBench) -> list[Figure]:
    """Of one measure, in a folder of its own: several have the same peer. None where the peer is not installed, which is said."""
    folder = bench.folder / name
    folder.mkdir()
    try:
        return await measure(replace(bench, folder=folder))
    except NotInstalled as missing:
        print(f"{name} is left out: {missing}", file=sys.stderr)
        return []
