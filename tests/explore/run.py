"""Explores small worlds, and hunts deliberate bugs in them, on all cores: `python -m tests.explore.run --minutes 15`."""

import argparse
import sys
import time
from concurrent.futures import Future, as_completed

from tests.explore.bugs import BUGS
from tests.explore.explorer import Explored, explore
from tests.explore.values import SmallBounds
from tests.explore.world import SmallWorld
from tests.explore.worlds import WORLDS
from tests.support.cores import on_all_cores

_BY_NAME = {bug.name: bug for bug in BUGS}
_LEAST_S = 5.0


def main() -> int:
    """Print what came of each. 1 when a promise is broken, or a bug survives."""
    parser = argparse.ArgumentParser(prog="python -m tests.explore.run", description="Explore every interleaving of small worlds.")
    parser.add_argument("--minutes", type=float, default=15.0, help="stop worlds that are not exhausted by then (default %(default)s)")
    parser.add_argument("--bug", choices=sorted(_BY_NAME), help="hunt this bug alone")
    arguments = parser.parse_args()
    names = [arguments.bug] if arguments.bug else list(_BY_NAME)
    until = time.monotonic() + 60 * arguments.minutes
    wrong = states = 0
    with on_all_cores() as pool:
        largest_first = () if arguments.bug else reversed(WORLDS)
        jobs: dict[Future[Explored], str] = {pool.submit(hunted, name, until): name for name in names}
        jobs |= {pool.submit(explored, bounds, until): str(bounds) for bounds in largest_first}
        for job in as_completed(jobs):
            name, found = jobs[job], job.result()
            wrong += bool(found.problem) != (name in _BY_NAME)
            states += found.states
            rule = f"\n    without: {_BY_NAME[name].rule}" if name in _BY_NAME else ""
            print(f"{name}{rule}\n    {found}", flush=True)
    print(f"{states:,} states, {wrong} that are not as they should be")
    return 1 if wrong else 0


def explored(bounds: SmallBounds, until: float) -> Explored:
    """One world, as far as that monotonic second."""
    return explore(SmallWorld(bounds), until=until)


def hunted(name: str, until: float) -> Explored:
    """One bug; each is found long before that."""
    bug = _BY_NAME[name]
    with bug.planted() as world:
        return explore(world, until=max(until, time.monotonic() + _LEAST_S), recover_each=bug.recover_each)


if __name__ == "__main__":
    sys.exit(main())
