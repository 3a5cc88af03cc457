"""Chances of tests that differ from run to run, and can be had again."""

import os
import random

_VARIABLE = "SEED"


def replayable() -> random.Random:
    """Its seed is printed; SEED=... in the environment takes that one again."""
    seed = int(os.environ.get(_VARIABLE, os.getpid()))
    print(f"seed {seed}; the same again: {_VARIABLE}={seed}")
    return random.Random(seed)
