"""Many seeds, side by side on all cores, each told in a few lines."""

import gc
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from tests.simulation.coverage import Happened
from tests.simulation.faults import FaultKind, any_kinds
from tests.simulation.group_runs import simulate_groups
from tests.simulation.simulate import Run, simulate
from tests.support.cores import on_all_cores

_MOST_PROBLEMS = 10
_AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class Told:
    """What is kept of a run. `report` is empty when everything held; `calls` of its loop, and `cpu_s` here and now, are what it cost."""

    seed: int
    report: tuple[str, ...]
    happened: tuple[Happened, ...]
    publishes: int
    calls: int
    cpu_s: float


def report(run: Run) -> Iterator[str]:
    """What failed in a run, what it was about, and how to see it again."""
    yield f"seed {run.seed}: {len(run.problems)} problems"
    yield from (f"  {problem}" for problem in run.problems[:_MOST_PROBLEMS])
    yield "faults:"
    yield from (f"  {fault}" for fault in run.plan)
    yield str(run.shape)
    stress = f" STRESS={','.join(kind.word for kind in run.stress)}" if run.stress else ""
    groups = " GROUPS=1" if run.is_of_groups else ""
    yield f"replay: make sim SEED={run.seed}{stress}{groups}"


def stress_of(seed: int) -> tuple[FaultKind, ...]:
    """The kinds of fault for a seed that is to be run with many faults of some kinds, whichever."""
    return any_kinds(random.Random(f"stress of {seed}"))


def run_group_seeds(seeds: Iterable[int]) -> Iterator[Told]:
    """The same of runs about consumer groups."""
    with on_all_cores(_keep_imports) as pool:
        yield from pool.map(_tell_of_groups, seeds)


def run_seeds(seeds: Iterable[int], stress: Callable[[int], Sequence[FaultKind]] = lambda _: ()) -> Iterator[Told]:
    """Run all of them, in their order, as many at a time as there are cores; with many faults of the kinds that `stress` says of a seed."""
    with on_all_cores(_keep_imports) as pool:
        yield from pool.map(_tell, *zip(*((seed, tuple(stress(seed))) for seed in seeds), strict=True), chunksize=_AT_ONCE)


def _keep_imports() -> None:
    """What imports made is never garbage: no run looks for any in it."""
    gc.freeze()


def _tell(seed: int, stress: tuple[FaultKind, ...]) -> Told:
    began = time.process_time()
    return _told(simulate(seed, stress=stress), began)


def _tell_of_groups(seed: int) -> Told:
    began = time.process_time()
    return _told(simulate_groups(seed), began)


def _told(run: Run, began: float) -> Told:
    return Told(run.seed, tuple(report(run)) if run.problems else (), run.happened, run.publishes, run.calls, time.process_time() - began)
