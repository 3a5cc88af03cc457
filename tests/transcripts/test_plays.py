"""Every play in this folder, acted by the deciders of today."""

from pathlib import Path

import pytest

from tests.transcripts.stage import PLAYS, perform


@pytest.mark.parametrize("play", PLAYS, ids=lambda path: path.stem)
def test_the_sessions_act_the_play_as_written(play: Path) -> None:
    written = play.read_text(encoding="utf-8")

    assert written == perform(written), "if that is meant: `make transcripts`, then read the diff"


def test_every_play_has_a_place_in_the_order() -> None:
    assert sorted(PLAYS) == sorted(Path(__file__).parent.glob("*.txt"))


def test_a_play_that_nobody_understands_is_refused() -> None:
    for line in (
        "> Tick",
        "master end=900 epoch_history=1@0\n> Tick colour=red",
        "master end=900 epoch_history=1@0\nTick",
        "seats\n> Nothing",
    ):
        with pytest.raises(AssertionError):
            perform(f"{line}\n")
