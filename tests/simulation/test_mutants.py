"""The checkers bite: each deliberate bug is found in a seed that is known to find it, and the honest product passes that seed."""

from pathlib import Path

import pytest

from tests.simulation.faults import FaultKind
from tests.simulation.mutants import MUTANTS, Mutant, hunt
from tests.simulation.parallel_seeds import SAMPLE
from tests.simulation.simulate import simulate

_MORE = range(12)  # a change of the product moves everything a little, and a seed may find another bug than before


def test_there_are_twenty_bugs_and_more() -> None:
    assert len({mutant.name for mutant in MUTANTS}) >= 20


@pytest.mark.tier("nightly")
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_bug_is_found_by_a_checker(mutant: Mutant) -> None:
    assert hunt(mutant, [mutant.seed, *_MORE]) is not None


_FINDING = {(mutant.seed, mutant.stress) for mutant in MUTANTS if not mutant.groups} - {(seed, ()) for seed in range(SAMPLE)}


@pytest.mark.parametrize(("seed", "stress"), sorted(_FINDING, key=str))
def test_the_honest_product_passes_that_seed(seed: int, stress: tuple[FaultKind, ...]) -> None:
    assert simulate(seed, stress=stress).problems == ()


def test_the_page_names_every_bug() -> None:
    page = (Path(__file__).parents[2] / "docs" / "simulation.md").read_text()

    assert [mutant.name for mutant in MUTANTS if f"| {mutant.name} |" not in page] == []
