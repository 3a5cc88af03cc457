"""Every play in this folder, acted by the sessions of today."""

import os
from pathlib import Path

import pytest

from tests.transcripts.stage import perform

_PLAYS = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("play", _PLAYS, ids=lambda path: path.stem)
def test_the_sessions_act_the_play_as_written(play: Path) -> None:
    written = play.read_text(encoding="utf-8")

    acted = perform(written)

    if os.environ.get("TRANSCRIPTS") == "rewrite":
        play.write_text(acted, encoding="utf-8")
    assert written == acted


def test_there_are_plays() -> None:
    assert len(_PLAYS) > 10
