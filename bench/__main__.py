"""`python -m bench`: how much of the bare machine is left when a broker keeps its promises. Ratios, measured in one run."""

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import uvloop
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench.floor import floor_at, least_pair
from bench.machine import machine
from bench.measures import QUICK, Bench, Sizes, catch_up, one_caller, throughput
from bench.product import cluster_in, product_of
from bench.ratios import HEADINGS, Figure
from dittomq.cli.output import table
from dittomq.errors import DittoError
from dittomq.rpc.buffers import keep_buffers

MEASURES = {"throughput": throughput, "one-caller": one_caller, "catch-up": catch_up}


def main() -> int:
    """Measure, print, and leave nothing behind: no process, no file."""
    options = _options()
    keep_buffers()  # the process of both clients, the product's and the floor's
    sizes = QUICK if options.quick else replace(Sizes(), catch_up_bytes=options.catch_up_mib << 20)
    chosen: list[str] = options.only or list(MEASURES)
    try:
        with tempfile.TemporaryDirectory(prefix="dittomq-bench-", dir=options.dir) as folder:
            where = machine(Path(folder))
            figures = _measured(Path(folder), sizes, chosen)
    except DittoError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    if options.json:
        print(
            json.dumps({"schema": 1, "machine": where, "figures": [figure.document() for figure in figures]}, indent=2, ensure_ascii=False)
        )
    else:
        print("\n".join([*table([HEADINGS, *(figure.row() for figure in figures)]), ""]))
        print("\n".join(f"{name}: {value}" for name, value in where.items()))
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="sizes so small that the figures mean nothing: does it run?")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--only", action="append", choices=list(MEASURES), help="this measure only; may be given again")
    parser.add_argument("--catch-up-mib", type=int, default=1024, metavar="MIB", help="how much a new slave copies (default 1024)")
    parser.add_argument(
        "--dir", type=Path, metavar="FOLDER", help="where stores are made and removed again (default: the folder for temporary files)"
    )
    return parser.parse_args()


def _measured(folder: Path, sizes: Sizes, chosen: Sequence[str]) -> list[Figure]:
    with _progress(sizes, chosen) as step, cluster_in(folder / "cluster") as cluster, least_pair(folder) as address:

        async def run() -> list[Figure]:
            figures: list[Figure] = []
            async with product_of(cluster) as product, floor_at(address) as floor:
                bench = Bench(product, floor, folder, sizes, step)
                for name in chosen:
                    figures += await MEASURES[name](bench)
            return figures

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(run())


@contextmanager
def _progress(sizes: Sizes, chosen: Sequence[str]) -> Iterator[Callable[[str], None]]:
    """A bar on a terminal. It is drawn between runs only: a thread that draws would be measured too."""
    total = sum(sizes.catch_up_pairs + 1 if name == "catch-up" else sizes.pairs for name in chosen)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), auto_refresh=False, transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task("starting", total=total)

        def step(done: str) -> None:
            progress.update(task, advance=1, description=done, refresh=True)

        yield step


if __name__ == "__main__":
    sys.exit(main())
