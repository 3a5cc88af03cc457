"""A sample of `make crash`: the disk stops or fails at a call, the process ends, and the next one must find all that was promised."""

import pytest

from tests.crash.mutants import MUTANTS
from tests.crash.run import report
from tests.crash.scripts import SCRIPTS
from tests.crash.sweep import Point, points, strike

SEED = 0


@pytest.mark.parametrize("every", [67, pytest.param(11, marks=pytest.mark.tier("nightly"))])
@pytest.mark.parametrize("script", SCRIPTS)
def test_no_stop_and_no_failing_call_loses_or_bends_what_was_promised(script: str, every: int) -> None:
    found = [(point, strike(point)) for point in points(script, SEED, step=every)]

    assert [report(point, verdict) for point, verdict in found if verdict.problem] == []
    assert sum(1 for _, verdict in found if verdict.struck) > len(found) // 2, "most runs are struck before the script ends"


@pytest.mark.parametrize("text", sorted({mutant.found_at for mutant in MUTANTS.values()}))
def test_a_store_passes_the_run_that_shows_a_bug(text: str) -> None:
    point = Point.parse(text)
    verdict = strike(point)

    assert not verdict.problem, report(point, verdict)


@pytest.mark.tier("nightly")
@pytest.mark.parametrize("name", MUTANTS)
def test_a_store_with_this_bug_is_found_out(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant = MUTANTS[name]
    mutant.plant(monkeypatch)

    runs = (point for script in mutant.scripts for point in points(script, SEED, step=mutant.step))
    assert any(strike(point).problem for point in (Point.parse(mutant.found_at), *runs)), f"nobody notices: {name}"


def test_a_run_is_named_by_its_text_and_repeats_itself() -> None:
    point = Point.parse("cut:crash:power:3:50")

    assert f"{point}" == "cut:crash:power:3:50"
    assert strike(point) == strike(point)
