"""The checkers bite: each deliberate bug is found in a seed that is known to find it, and the honest product passes that seed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.faults import FaultKind
from tests.simulation.group_runs import simulate_groups
from tests.simulation.mutants import MUTANTS, Mutant, hunt
from tests.simulation.simulate import simulate

_CHECKOUT = Path(__file__).parents[2]
_MORE = range(12)  # a change of the product moves everything a little, and a seed may find another bug than before


def test_there_are_twenty_bugs_and_more() -> None:
    assert len({mutant.name for mutant in MUTANTS}) >= 20


@pytest.mark.tier("nightly")
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_bug_is_found_by_a_checker(mutant: Mutant) -> None:
    assert hunt(mutant, [mutant.seed, *_MORE]) is not None


_FOUND_BY = {
    "retry-fsync": "unit/commitlog/state/test_incarnation.py::test_the_mark_of_a_failed_sync_makes_a_stranger",
    "cut-short": "unit/services/slave/test_truncation.py::test_slave_truncates_where_the_record_with_that_byte_begins",
    "recovery-point-high": "unit/commitlog/queues/test_stale_units.py",
    "serves-unverified": "unit/commitlog/test_append.py::test_a_damaged_record_is_never_handed_out",
    "gap": "transcripts/test_plays.py",
    "equal-length": "transcripts/test_plays.py",
    "count-twice": "unit/replication/test_confirmed_offset.py::test_the_faster_of_two_members_is_enough_for_two_copies",
    "epoch-again": "simulation/test_suspended_masters.py::test_a_producer_leaves_a_suspended_master_as_soon_as_another_one_leads",
    "quorum-of-one": "unit/replication/test_election.py::test_a_replica_of_another_birth_keeps_nobody_from_leading_with_data_loss",
    "quorum-short": "unit/replication/test_election.py::test_a_replica_of_another_birth_keeps_nobody_from_leading_with_data_loss",
    "any-replica": "unit/replication/test_confirmed_offset.py::test_the_faster_of_two_members_is_enough_for_two_copies",
    "deposed-goes-on": "unit/replication/test_membership.py::test_writes_are_refused_while_fewer_members_stream_than_the_minimum",
    "shortest-wins": "unit/replication/test_election.py::test_a_tail_that_was_not_taken_ends_an_election",
    "leads-alone": "unit/replication/test_election.py::test_too_few_answers_end_an_election",
    "members-by-streams": "unit/replication/test_confirmed_offset.py::test_the_faster_of_two_members_is_enough_for_two_copies",
    "unknown-is-written": "unit/replication/test_record_writes.py::test_an_unknown_write_is_sent_again_unchanged_and_both_sets_confirm",
    "nobody-joins": "unit/replication/test_membership.py::test_a_slave_joins_with_everything_confirmed",
    "slave-serves-all": "unit/services/slave/test_replica.py"
    "::test_the_time_for_which_a_slave_was_stopped_itself_is_no_silence_of_its_master",
    "without-master": "unit/replication/test_confirmed_offset.py::test_slaves_alone_confirm_nothing_that_their_master_has_not_flushed",
    "dedup-not-copied": "unit/commitlog/queues/test_producer_state_recovery.py::test_every_replica_remembers_the_same_of_producers",
    "forgotten-as-new": "unit/client/test_accumulator_model.py::test_stored_message_of_a_forgotten_producer_is_never_stored_again",
    "early-proof": "unit/client/test_in_doubt.py::test_a_master_of_a_newer_epoch_than_all_that_were_sent_to_is_proof",
    "unknown-not-stored": "simulation/test_unknown_outcomes.py::test_outcome_is_unknown_when_a_master_dies_and_resolve_finds_it",
    "resent-anew": "simulation/test_unknown_outcomes.py",
}
"""Other tests that find a bug as well, so no run of a seed in `make test` need do so."""


@pytest.mark.tier("nightly")
@pytest.mark.parametrize("name", sorted(_FOUND_BY))
def test_another_test_finds_the_bug_as_well(name: str) -> None:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n",
        "0",
        "-x",
        "-p",
        "tests.simulation.bugs.in_a_process",
        f"tests/{_FOUND_BY[name]}",
    ]

    ran = subprocess.run(command, cwd=_CHECKOUT, env={**os.environ, "BUG": name}, check=False, capture_output=True, text=True)

    assert (ran.returncode, " failed" in ran.stdout) == (pytest.ExitCode.TESTS_FAILED, True), ran.stdout


_RUNS = {(mutant.seed, mutant.stress, mutant.groups) for mutant in MUTANTS}
_ONLY_FINDING = {(mutant.seed, mutant.stress, mutant.groups) for mutant in MUTANTS if mutant.name not in _FOUND_BY}
_NIGHTLY = [pytest.param(*run, marks=pytest.mark.tier("nightly")) for run in sorted(_RUNS - _ONLY_FINDING, key=str)]


@pytest.mark.parametrize(("seed", "stress", "groups"), [*sorted(_ONLY_FINDING, key=str), *_NIGHTLY])
def test_the_honest_product_passes_that_seed(seed: int, stress: tuple[FaultKind, ...], groups: bool) -> None:
    run = simulate_groups(seed) if groups else simulate(seed, stress=stress)

    assert run.problems == ()


def test_the_page_names_every_bug() -> None:
    page = (_CHECKOUT / "docs" / "simulation.md").read_text()

    assert [mutant.name for mutant in MUTANTS if f"| {mutant.name} |" not in page] == []
