"""Every interleaving of a small world, breadth first: each state once, and the shortest trace to the first that breaks a promise."""

import time
from dataclasses import dataclass
from itertools import pairwise

from tests.explore.recovery import Recovery
from tests.explore.values import State
from tests.explore.world import SmallWorld


@dataclass(frozen=True, slots=True)
class Explored:
    """What came of it. `problem` "": none was found. `is_exhausted`: there is no state that was not visited."""

    states: int
    steps: int
    seconds: float
    is_exhausted: bool
    problem: str = ""
    trace: tuple[str, ...] = ()

    def __str__(self) -> str:
        found = f"VIOLATION: {self.problem}" if self.problem else "no violation"
        extent = "exhausted" if self.is_exhausted else "stopped"
        lines = [f"{extent}: {self.states:,} states, {self.steps:,} steps, {self.seconds:,.0f} s: {found}", *self.trace]
        return "\n    ".join(lines)


def explore(world: SmallWorld, *, until: float, recover_each: int = 2_000) -> Explored:
    """Visit every state, or as many as can be before that monotonic second. From one in `recover_each` states the group recovers."""
    recovery = Recovery(world)
    began = time.process_time()
    first = world.first()
    states, parents = [first], [0]
    visited = {world.canonical(first)}
    steps = at = 0
    while at < len(states):
        for _, reached, wrong in world.steps(states[at]):
            steps += 1
            name = world.canonical(reached)
            if not wrong and name in visited:
                continue
            problem = wrong or world.broken(reached)
            if name % recover_each == 0 and not problem:
                problem = recovery.problem(reached)
            if problem:
                trace = _trace(world, [*_path(states, parents, at), reached])
                return Explored(len(states), steps, time.process_time() - began, is_exhausted=False, problem=problem, trace=trace)
            visited.add(name)
            states.append(reached)
            parents.append(at)
        at += 1
        if at % 100 == 0 and time.monotonic() >= until:
            return Explored(len(states), steps, time.process_time() - began, is_exhausted=False)
    return Explored(len(states), steps, time.process_time() - began, is_exhausted=True)


def _path(states: list[State], parents: list[int], at: int) -> list[State]:
    path = [states[at]]
    while at:
        at = parents[at]
        path.append(states[at])
    return path[::-1]


def _trace(world: SmallWorld, path: list[State]) -> tuple[str, ...]:
    """The words of the steps along it."""
    return tuple([next(said for said, reached, _ in world.steps(before) if reached == after) for before, after in pairwise(path)])
