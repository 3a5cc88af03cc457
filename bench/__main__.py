"""`python -m bench`: how much of the bare machine is left when a broker keeps its promises. Ratios, measured in one run."""

import argparse
import asyncio
import sys
from dataclasses import replace
from pathlib import Path

import uvloop

from bench.floor import floor_at, least_pair
from bench.measures import QUICK, Bench, Sizes, catch_up, one_caller, throughput
from bench.product import cluster_in, product_of
from bench.ratios import Figure
from bench.reporting import answer, bar, parser_of
from dittomq.rpc.buffers import keep_buffers

MEASURES = {"throughput": throughput, "one-caller": one_caller, "catch-up": catch_up}


def main() -> int:
    """Measure, print, and leave nothing behind: no process, no file."""
    parser = parser_of("python -m bench", __doc__, MEASURES)
    parser.add_argument("--catch-up-mib", type=int, default=1024, metavar="MIB", help="how much a new slave copies (default 1024)")
    options = parser.parse_args()
    keep_buffers()  # the process of both clients, the product's and the floor's
    return answer(options, lambda folder: _measured(folder, options))


def _measured(folder: Path, options: argparse.Namespace) -> list[Figure]:
    sizes = QUICK if options.quick else replace(Sizes(), catch_up_bytes=options.catch_up_mib << 20)
    chosen: list[str] = options.only or list(MEASURES)
    total = sum(sizes.catch_up_pairs + 1 if name == "catch-up" else sizes.pairs for name in chosen)
    with bar(total) as step, cluster_in(folder / "cluster") as cluster, least_pair(folder) as address:

        async def run() -> list[Figure]:
            figures: list[Figure] = []
            async with product_of(cluster) as product, floor_at(address) as floor:
                bench = Bench(product, floor, folder, sizes, step)
                for name in chosen:
                    figures += await MEASURES[name](bench)
            return figures

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(run())


if __name__ == "__main__":
    sys.exit(main())
