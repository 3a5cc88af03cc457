"""Sweeps from the command line: `python -m tests.crash.run` strikes every call of every script; `--point NAME` repeats one run."""

import argparse
import sys

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tests.crash.scripts import SCRIPTS
from tests.crash.sweep import Point, Verdict, points, strike
from tests.support.cores import on_all_cores

_AT_ONCE = 50


def report(point: Point, verdict: Verdict) -> str:
    """What was lost, where, and how to see it again."""
    return f"{point}, at {verdict.struck or 'the end'}: {verdict.problem}\nreplay: make crash POINT={point}"


def main() -> int:
    """Sweep with a progress bar, or run one point and tell all of it. 1 when something was lost."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.run", description="Stop or fail the disk at every call.")
    parser.add_argument("--point", help="repeat this run and print how it failed")
    parser.add_argument("--script", choices=sorted(SCRIPTS), help="sweep this script only")
    parser.add_argument("--seeds", type=int, default=1, help="sweeps with other chances for what a power loss takes (default %(default)s)")
    parser.add_argument("--from", type=int, default=0, dest="first", help="the first of them (default %(default)s)")
    arguments = parser.parse_args()
    if arguments.point is not None:
        return _one(Point.parse(arguments.point))
    scripts = [arguments.script] if arguments.script else list(SCRIPTS)
    return _many(scripts, range(arguments.first, arguments.first + arguments.seeds))


def _one(point: Point) -> int:
    verdict = strike(point)
    print(verdict.transcript or f"{point}, at {verdict.struck or 'the end'}: nothing is lost")
    return 1 if verdict.problem else 0


def _many(scripts: list[str], seeds: range) -> int:
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    runs = [point for seed in seeds for script in scripts for point in points(script, seed)]
    failed = 0
    with (
        on_all_cores() as pool,
        Progress(*columns, console=console) as progress,
    ):
        bar = progress.add_task("striking", total=len(runs))
        for point, verdict in zip(runs, pool.map(strike, runs, chunksize=_AT_ONCE), strict=True):
            if verdict.problem:
                failed += 1
                console.print(report(point, verdict), markup=False, highlight=False)
            progress.update(bar, advance=1, description=f"{point.script}, {failed} failed")
    print(f"{len(runs)} stops in {len(scripts)} scripts, seeds {seeds.start} to {seeds.stop - 1}: {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
