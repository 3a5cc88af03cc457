"""Soaks a real group from the command line: `python -m tests.soak.run --minutes 30 --seed 7`."""

import argparse
import random
import sys
import tempfile
from pathlib import Path

from tests.soak.cluster_soak import soak


def main() -> int:
    """Run and tell the story. 1 when a promise is broken or the group does not recover; then its files are left."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.run", description="Real processes under random faults, and a checker.")
    parser.add_argument("--minutes", type=float, default=5.0, help="for how long (default %(default)g)")
    parser.add_argument("--seed", type=int, help="which faults are chosen (default: by chance)")
    options = parser.parse_args()
    seed = random.SystemRandom().getrandbits(32) if options.seed is None else options.seed
    folder = Path(tempfile.mkdtemp(prefix="dittomq-soak-"))
    print(f"seed {seed}, files in {folder}", flush=True)
    try:
        acknowledged = soak(folder, seed, options.minutes * 60, lambda line: print(line, flush=True))
    except AssertionError as broken:
        print(f"FAILED: {broken}\nseed {seed}, files in {folder}")
        return 1
    print(f"ok, {acknowledged:,} messages acknowledged, seed {seed}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
