"""Whole clusters under faults: nothing that was acknowledged is lost, in any of the seeds. `make test` runs those of `test_mutants.py`.

More of them: `make sim SEEDS=1000 FROM=300`, and with STRESS=any.
"""

import os
import subprocess
import sys

import pytest

from tests.simulation.coverage import Happened
from tests.simulation.parallel_seeds import run_group_seeds, run_seeds, stress_of

_SEEDS, _UNDER_STRESS, _OF_GROUPS = 200, 100, 60
_CALLS = 80_000  # of the loop for a seed, in the mean: what new timers cost, on every machine the same


@pytest.mark.tier("nightly")
@pytest.mark.timeout(1_200)
def test_no_seed_of_groups_breaks_a_promise() -> None:
    failed = ["\n".join(told.report) for told in run_group_seeds(range(_OF_GROUPS)) if told.report]

    assert not failed, "\n\n".join(failed)


@pytest.mark.tier("nightly")
@pytest.mark.timeout(2_400)
def test_no_seed_breaks_a_promise_and_everything_that_must_happen_did() -> None:
    failed, missing, calls = [], dict.fromkeys(Happened), 0

    for told in run_seeds(range(_SEEDS)):
        failed += ["\n".join(told.report)] if told.report else []
        calls += told.calls
        for happened in told.happened:
            missing.pop(happened, None)

    assert not failed, "\n\n".join(failed)
    assert calls <= _CALLS * _SEEDS, f"a seed has made {calls // _SEEDS:,} calls in the mean"
    assert not missing, f"never in {_SEEDS} seeds: {', '.join(each.value for each in missing)}"


@pytest.mark.tier("nightly")
@pytest.mark.timeout(1_200)
def test_no_seed_with_many_faults_of_few_kinds_breaks_a_promise() -> None:
    failed = ["\n".join(told.report) for told in run_seeds(range(_UNDER_STRESS), stress_of) if told.report]

    assert not failed, "\n\n".join(failed)


@pytest.mark.tier("nightly")  # test_world.py shows as much of a shorter run
@pytest.mark.parametrize("seed", ["1", "144"], ids=["no operator", "an operator who promotes"])
def test_a_whole_run_has_one_transcript_under_any_hash_seed(seed: str) -> None:
    def in_a_process(hash_seed: str) -> str:
        command = [sys.executable, "-m", "tests.simulation.run", "--seed", seed]
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        return subprocess.run(command, env=environment, check=False, capture_output=True, text=True).stdout

    story = in_a_process("1")

    assert "transcript" in story.splitlines()[-1]
    assert story == in_a_process("2")
