"""Whole clusters under faults: nothing that was acknowledged is lost, in any of the seeds. More: `make sim SEEDS=1000 FROM=100`."""

import os
import subprocess
import sys

import pytest

from tests.simulation.run import report
from tests.simulation.simulate import simulate

_SEEDS = int(os.environ.get("SIM_SEEDS", "100"))
_AT_ONCE = 10


@pytest.mark.parametrize("first", range(0, _SEEDS, _AT_ONCE))
def test_no_seed_breaks_a_promise(first: int) -> None:
    failed = []

    for seed in range(first, min(first + _AT_ONCE, _SEEDS)):
        run = simulate(seed)
        if run.problems:
            failed.append("\n".join(report(run)))

    assert not failed, "\n\n".join(failed)


def test_a_whole_run_has_one_transcript_under_any_hash_seed() -> None:
    def in_a_process(hash_seed: str) -> str:
        command = [sys.executable, "-m", "tests.simulation.run", "--seed", "1"]
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        return subprocess.run(command, env=environment, check=False, capture_output=True, text=True).stdout

    story = in_a_process("1")

    assert "transcript" in story.splitlines()[-1]
    assert story == in_a_process("2")
