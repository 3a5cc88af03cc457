"""How long producers wait during a planned switchover."""

import asyncio

from bench.product import MASTER, SLAVE, product_of
from bench.ratios import Figure
from bench.replication.pairs import REST_S, PairBench, up
from dittomq.testing import LocalCluster, Shape
from dittomq.testing.state import Settings

_CALLERS = 8
_BATCH = 32
_WARM_UP = 2  # changes, so that each node was the other one once
_GOAL_S = 1.0
_SEGMENT: Settings = {"store.segment_bytes": 8 << 30}


async def switchover(bench: PairBench) -> list[Figure]:
    """Planned switchovers, back and forth, under the load of eight callers that wait for both disks; then with much in the segment."""
    name = "planned switchover under load, longest pause of a producer"
    pauses = await _pauses(bench, 0)
    full = await _pauses(bench, bench.sizes.newest)
    mib = f"{bench.sizes.newest >> 20:,} MiB in the newest segment before"
    return [
        Figure(f"{name}, usually", "s", pauses),
        Figure(f"{name}, of {len(pauses)}", "s", [max(pauses)], at_most=_GOAL_S),
        Figure(f"  the same with {mib}, usually", "s", full),
        Figure(f"  the same with {mib}, of {len(full)}", "s", [max(full)], at_most=_GOAL_S),
    ]


async def _pauses(bench: PairBench, newest: int) -> list[float]:
    """The longest pause of each change, in a group whose one segment holds `newest` bytes before."""
    pauses = []
    shape = Shape(slaves=1, master_settings=_SEGMENT, slave_settings=_SEGMENT, usual_ports=False)
    async with up(LocalCluster(bench.folder / f"switchover-{newest}", shape)) as cluster, product_of(cluster) as product:
        await product.fill(newest)
        for number in range(_WARM_UP + bench.sizes.pairs + 1):

            async def change(leads: str = MASTER if number % 2 else SLAVE) -> None:
                await asyncio.sleep(REST_S)
                await product.lead(leads)
                await asyncio.sleep(REST_S)

            pause = await product.longest_pause(_CALLERS, _BATCH, change())
            if number >= _WARM_UP:
                pauses.append(pause)
                bench.step("switchover")
    return pauses
