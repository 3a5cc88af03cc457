"""Runs seeds from the command line: `python -m tests.simulation.run --seed 7`, or `--seeds 1000 --from 0 --stress any` for many."""

import argparse
import logging
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tests.simulation.coverage import Happened
from tests.simulation.faults import FaultKind
from tests.simulation.group_runs import simulate_groups
from tests.simulation.parallel_seeds import Told, report, run_group_seeds, run_seeds, stress_of
from tests.simulation.simulate import Run, simulate

_KINDS = {kind.word: kind for kind in FaultKind}

Stress = Callable[[int], Sequence[FaultKind]]
"""The kinds of fault that a seed is to have many of; none: its own plan."""


def main() -> int:
    """Run one seed and tell its story, or many with a progress bar. 1 when a run failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.run", description="Simulate whole clusters under faults.")
    parser.add_argument("--seed", type=int, help="run this one and print its transcript")
    parser.add_argument("--seeds", type=int, default=100, help="how many to run (default %(default)s)")
    parser.add_argument("--from", type=int, default=0, dest="first", help="the first of them (default %(default)s)")
    parser.add_argument(
        "--stress",
        type=_stress,
        default="",
        metavar="KINDS",
        help=f"many faults of a few kinds: `any`, which draws two or three for each seed, or some of {', '.join(_KINDS)}",
    )
    parser.add_argument("--groups", action="store_true", help="runs about consumer groups, delayed messages and transactions instead")
    arguments = parser.parse_args()
    if arguments.groups:
        logging.getLogger("dittomq").addHandler(logging.NullHandler())  # what consumers log is no part of the story
        if arguments.stress(0):
            parser.error("--groups draws its own kinds of fault; leave --stress out")
        seeds = range(arguments.first, arguments.first + arguments.seeds)
        return _many(seeds, run_group_seeds(seeds)) if arguments.seed is None else _one(simulate_groups(arguments.seed))
    stress = arguments.stress
    if arguments.seed is not None:
        return _one(simulate(arguments.seed, stress=stress(arguments.seed)))
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    return _many(seeds, run_seeds(seeds, stress))


def _stress(text: str) -> Stress:
    if text == "any":
        return stress_of
    words = text.split(",") if text else []
    if unknown := [word for word in words if word not in _KINDS]:
        raise argparse.ArgumentTypeError(f"{unknown[0]} is no kind of fault; take some of {', '.join(_KINDS)}, or any")
    kinds = tuple(_KINDS[word] for word in words)
    return lambda _: kinds


def _one(run: Run) -> int:
    print(*run.transcript, sep="\n")
    if run.problems:
        print(*report(run), sep="\n")
    print(f"{run.shape}; happened: {', '.join(each.value for each in run.happened) or 'nothing that is counted'}")
    print(f"seed {run.seed}: {'failed' if run.problems else 'ok'}, {run.publishes} messages, {run.reads} reads, transcript {run.hash}")
    return 1 if run.problems else 0


def _many(seeds: range, runs: Iterable[Told]) -> int:
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    failed: list[int] = []
    happened: Counter[Happened] = Counter()
    messages, costs = 0, []
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("simulating", total=len(seeds))
        for told in runs:
            messages += told.publishes
            costs.append(told.cpu_s)
            happened.update(told.happened)
            if told.report:
                failed.append(told.seed)
                console.print(*told.report, sep="\n", markup=False, highlight=False)
            progress.update(bar, advance=1, description=f"simulating, {len(failed)} failed")
    for each in Happened:
        print(f"{happened[each]:7,}  {each.value}")
    print(f"CPU of a seed: {sum(costs) / len(costs):.2f} s in the mean, {max(costs):.2f} s at most")
    print(f"{len(seeds)} seeds from {seeds.start}: {len(failed)} failed{f' ({failed})' if failed else ''}, {messages} messages")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
