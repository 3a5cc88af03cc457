"""Runs seeds from the command line: `python -m tests.simulation.run --seed 7`, or `--seeds 1000 --from 0` for many."""

import argparse
import sys
from collections.abc import Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tests.simulation.simulate import Run, simulate

_LAST_LINES = 60
_MOST_PROBLEMS = 10


def report(run: Run) -> Iterator[str]:
    """What failed in a run, the story of its end, and how to see it again."""
    yield f"seed {run.seed}: {len(run.problems)} problems"
    yield from (f"  {problem}" for problem in run.problems[:_MOST_PROBLEMS])
    yield "faults:"
    yield from (f"  {fault}" for fault in run.plan)
    yield str(run.shape)
    yield f"replay: make sim SEED={run.seed}"


def main() -> int:
    """Run one seed and tell its story, or many with a progress bar. 1 when a run failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.run", description="Simulate whole clusters under faults.")
    parser.add_argument("--seed", type=int, help="run this one and print its transcript")
    parser.add_argument("--seeds", type=int, default=100, help="how many to run (default %(default)s)")
    parser.add_argument("--from", type=int, default=0, dest="first", help="the first of them (default %(default)s)")
    arguments = parser.parse_args()
    if arguments.seed is not None:
        return _one(arguments.seed)
    return _many(range(arguments.first, arguments.first + arguments.seeds))


def _one(seed: int) -> int:
    run = simulate(seed)
    print(*run.transcript, sep="\n")
    if run.problems:
        print(*report(run), sep="\n")
    print(f"seed {seed}: {'failed' if run.problems else 'ok'}, {run.publishes} messages, {run.reads} reads, transcript {run.hash}")
    return 1 if run.problems else 0


def _many(seeds: range) -> int:
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    failed: list[int] = []
    messages = 0
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("simulating", total=len(seeds))
        for seed in seeds:
            run = simulate(seed)
            messages += run.publishes
            if run.problems:
                failed.append(seed)
                console.print(*report(run), sep="\n", markup=False, highlight=False)
            progress.update(bar, advance=1, description=f"simulating, {len(failed)} failed")
    print(f"{len(seeds)} seeds from {seeds.start}: {len(failed)} failed{f' ({failed})' if failed else ''}, {messages} messages")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
