"""`python -m bench.clients`: what clients get, beside others on this machine in the same window. Ratios, alternating runs.

A peer that is not installed is named and left out.
"""

import argparse
import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import uvloop

from bench.clients import groups, publishing, reading
from bench.product import cluster_in, product_of
from bench.ratios import Figure
from bench.replication.pairs import QUICK, PairBench, PairSizes, figures_of
from bench.reporting import answer, bar, parser_of
from dittomq.rpc.buffers import keep_buffers

MEASURES: Mapping[str, Callable[[PairBench], Awaitable[list[Figure]]]] = {
    "callers": publishing.postgres_pair,
    "reader": reading.reader_beside_bare,
    "held": reading.held_pulls,
    "member": groups.member_beside_readers,
    "ack": groups.publish_to_ack,
}
_RUNS = {"held": 1}


def main() -> int:
    """Measure, print, and leave nothing behind: no process, no file."""
    parser = parser_of("python -m bench.clients", __doc__, MEASURES)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # leaves by the way that ends what was started
    keep_buffers()
    return answer(options, lambda folder: _measured(folder, options))


def _measured(folder: Path, options: argparse.Namespace) -> list[Figure]:
    sizes = QUICK if options.quick else PairSizes()
    chosen: list[str] = list(dict.fromkeys(options.only or MEASURES))
    with bar(sum(_RUNS.get(name, sizes.pairs + 1) for name in chosen)) as step, cluster_in(folder / "cluster") as cluster:

        async def run() -> list[Figure]:
            async with product_of(cluster) as product:
                bench = PairBench(product, folder, sizes, step)
                return [figure for name in chosen for figure in await figures_of(name, MEASURES[name], bench)]

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(run())


if __name__ == "__main__":
    sys.exit(main())
