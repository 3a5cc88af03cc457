"""Hunts deliberate bugs from the command line and prints the table: `python -m tests.simulation.mutate --seeds 100`."""

import argparse
import sys
from collections.abc import Iterator

from tests.simulation.mutants import MUTANTS, Killed, hunt
from tests.support.cores import on_all_cores

_BY_NAME = {mutant.name: mutant for mutant in MUTANTS}


def main() -> int:
    """Print one row for each bug. 1 when one survives."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.mutate", description="Let the checkers hunt deliberate bugs.")
    parser.add_argument(
        "--seeds",
        type=int,
        default=100,
        help="how many seeds to try for each bug, then the one that is known to find it, shown as #SEED (default %(default)s)",
    )
    parser.add_argument("--only", help="this bug alone")
    arguments = parser.parse_args()
    names = [arguments.only] if arguments.only else list(_BY_NAME)
    print(f"{'BUG':<20} {'SEEDS':>5}  {'FOUND BY':<22} WHAT IT DOES")
    escaped = 0
    for name, killed in _hunt_all(names, arguments.seeds):
        mutant = _BY_NAME[name]
        tries = f">{arguments.seeds:,}"
        if killed is not None:
            tries = f"{killed.tries:,}" if killed.tries <= arguments.seeds else f"#{killed.seed:,}"
        by = ", ".join(sorted({each.invariant.name for each in killed.broken}, key=_number)) if killed else "survives"
        print(f"{name:<20} {tries:>5}  {by:<22} {mutant.what}", flush=True)
        escaped += killed is None
    return 1 if escaped else 0


def _hunt_all(names: list[str], seeds: int) -> Iterator[tuple[str, Killed | None]]:
    with on_all_cores() as pool:
        found = [pool.submit(_hunt, name, seeds) for name in names]
        for name, future in zip(names, found, strict=True):
            yield name, future.result()


def _hunt(name: str, seeds: int) -> Killed | None:
    return hunt(_BY_NAME[name], (*range(seeds), _BY_NAME[name].seed))


def _number(invariant: str) -> int:
    return int(invariant[1:])


if __name__ == "__main__":
    sys.exit(main())
