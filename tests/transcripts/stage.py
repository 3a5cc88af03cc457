"""Plays: a decider's story as text. A scene is one event; what follows it is what the decider answers.

    # what the play promises
    master end=900 confirmed=800 epoch_history=1@0,2@800      who acts, and what it starts with
    ----
    > Handshake end=1000 …                                  an event, by name; facts that are not told are as each cast says
    < SendHandshakeResult action=truncate …                     each answer
    +5 seconds                                          time passes, with a Tick for each full second where the actor ticks
    =30 seconds                                         the process stands still for that long
    slave end=800 epoch_history=1@0                           another one acts from here on; time goes on

`make transcripts` writes down what the deciders answer now, for review as a diff.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from tests.transcripts import seats, sessions
from tests.transcripts.order import ORDER
from tests.transcripts.script import facts


class Actor(Protocol):
    """One decider on the stage. `ticks`: its driver tells it that time passes."""

    ticks: bool

    def act(self, event: str, given: dict[str, Any], now: float) -> list[str]:
        """Its answers to one event, each in one line."""
        ...


PLAYS = [Path(__file__).with_name(f"{name}.txt") for name in ORDER]
CASTS: Mapping[str, Callable[[dict[str, Any], float], Actor]] = {
    "master": sessions.Master,
    "seats": seats.Door,
    "slave": sessions.Slave,
}


def perform(text: str) -> str:
    """The play as its deciders act it now; equal to `text` when nothing has changed."""
    actor: Actor | None = None
    now = 0.0
    played = []
    for line in text.splitlines():
        if line.startswith("< "):
            continue
        played.append(line)
        word, _, rest = line.partition(" ")
        if word in CASTS:
            actor = CASTS[word](facts(rest), now)
        elif line.startswith("="):
            now += float(word[1:])
        elif line.startswith("+"):
            played += _ticks(actor, now, float(word[1:]))
            now += float(word[1:])
        elif word == ">":
            assert actor is not None, "nobody is on the stage yet"
            event, _, told = rest.partition(" ")
            played += [f"< {answer}" for answer in actor.act(event, facts(told), now)]
        else:
            assert line in ("", "----") or line.startswith("#"), f"nobody understands: {line}"
    return "\n".join(played) + "\n"


def _ticks(actor: Actor | None, now: float, seconds: float) -> list[str]:
    assert actor is not None, "nobody is on the stage yet"
    if not actor.ticks:
        return []
    return [f"< {answer}" for second in range(1, int(seconds) + 1) for answer in actor.act("Tick", {}, now + second)]
