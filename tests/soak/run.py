"""Soaks a real group from the command line: `python -m tests.soak.run --minutes 30 --seed 7`."""

import argparse
import random
import sys
import tempfile
from pathlib import Path

from tests.soak.cluster_soak import soak
from tests.soak.group_soak import soak_group


def main() -> int:
    """Run and tell the story. 1 when a promise is broken or the group does not recover; then its files are left."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.run", description="Real processes under random faults, and a checker.")
    parser.add_argument("--minutes", type=float, default=5.0, help="for how long (default %(default)g)")
    parser.add_argument("--seed", type=int, help="which faults are chosen (default: by chance)")
    parser.add_argument("--groups", action="store_true", help="a consumer group whose members and masters are killed, and no other fault")
    options = parser.parse_args()
    seed = random.SystemRandom().getrandbits(32) if options.seed is None else options.seed
    folder = Path(tempfile.mkdtemp(prefix="dittomq-soak-"))
    print(f"seed {seed}, files in {folder}", flush=True)
    chosen = _of_groups if options.groups else _of_all
    try:
        ended = chosen(folder, seed, options.minutes * 60)
    except AssertionError as broken:
        print(f"FAILED: {broken}\nseed {seed}, files in {folder}")
        return 1
    print(f"ok, {ended}, seed {seed}")
    return 0


def _of_all(folder: Path, seed: int, seconds: float) -> str:
    return f"{soak(folder, seed, seconds, _say):,} messages acknowledged"


def _of_groups(folder: Path, seed: int, seconds: float) -> str:
    tally = soak_group(folder, seed, seconds, _say)
    return f"{tally.acknowledged:,} messages acknowledged, all handled, {tally.twice:,} of them twice, after {tally.kills:,} kills"


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
