"""How long producers wait while master and slave change places."""

import asyncio

from bench.product import MASTER, SLAVE, product_of
from bench.ratios import Figure
from bench.replication.pairs import REST_S, Bench, up
from dittomq.testing import LocalCluster, Shape

_CALLERS = 8
_BATCH = 32
_WARM_UP = 2  # changes, so that each node was the other one once
_GOAL_S = 1.0


async def switchover(bench: Bench) -> list[Figure]:
    """Planned changes of place, back and forth, under the load of eight callers that wait for both disks."""
    pauses = []
    shape = Shape(slaves=1, usual_ports=False)
    async with up(LocalCluster(bench.folder / "switchover", shape)) as cluster, product_of(cluster) as product:
        for number in range(_WARM_UP + bench.sizes.pairs + 1):

            async def change(leads: str = MASTER if number % 2 else SLAVE) -> None:
                await asyncio.sleep(REST_S)
                await product.lead(leads)
                await asyncio.sleep(REST_S)

            pause = await product.longest_pause(_CALLERS, _BATCH, change())
            if number >= _WARM_UP:
                pauses.append(pause)
                bench.step("switchover")
    name = "planned switchover under load, longest pause of a producer"
    return [Figure(f"{name}, usually", "s", pauses), Figure(f"{name}, of {len(pauses)}", "s", [max(pauses)], at_most=_GOAL_S)]
