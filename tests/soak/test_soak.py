"""A short soak; `make soak` runs as long as one likes."""

import random
from pathlib import Path

import pytest

from tests.soak.cluster_soak import soak
from tests.soak.group_soak import soak_group

pytestmark = pytest.mark.tier("nightly")

_SECONDS = 40.0


def test_a_group_of_processes_under_random_faults_keeps_all_that_it_told(tmp_path: Path) -> None:
    seed = random.SystemRandom().getrandbits(32)
    print(f"seed {seed}: make soak SEED={seed}")
    assert soak(tmp_path, seed, _SECONDS, print) > 0


def test_members_of_a_group_of_processes_handle_all_under_random_kills(tmp_path: Path) -> None:
    seed = random.SystemRandom().getrandbits(32)
    print(f"seed {seed}: make soak GROUPS=1 SEED={seed}")
    tally = soak_group(tmp_path, seed, _SECONDS, print)
    assert 0 < tally.acknowledged <= tally.handled
