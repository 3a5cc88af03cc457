"""The plays act every move of both sessions' tables: no row permits what no session does, and none is unproven."""

from collections.abc import Iterator
from enum import Enum
from typing import Any

import pytest

from dittomq.replication import master_states, slave_states
from dittomq.replication.state_machine import Kind, Transitions, name_of
from tests.transcripts.stage import PLAYS, perform

SESSIONS: tuple[Transitions[Any], ...] = (master_states.TRANSITIONS, slave_states.TRANSITIONS)


def _rows(moves: Transitions[Any]) -> Iterator[tuple[str, str, str, str]]:
    for state, row in moves.rows.items():
        for kind, nexts in row.items():
            yield from ((moves.title, state.name, name_of(kind), after.name) for after in nexts)


def _untimely(moves: Transitions[Any]) -> Iterator[tuple[str, str, str]]:
    for state, row in moves.rows.items():
        yield from ((moves.title, state.name, name_of(kind)) for kind in moves.said if kind not in row)


@pytest.fixture
def acted(monkeypatch: pytest.MonkeyPatch) -> tuple[set[tuple[str, ...]], set[tuple[str, ...]]]:
    """The moves that all plays make, and what is said out of turn in them."""
    moved: set[tuple[str, ...]] = set()
    refused: set[tuple[str, ...]] = set()
    check, out_of_turn = Transitions.check, Transitions.out_of_turn

    def note_move(self: Transitions[Any], before: Enum, kind: Kind, after: Enum) -> None:
        check(self, before, kind, after)
        moved.add((self.title, before.name, name_of(kind), after.name))

    def note_refusal(self: Transitions[Any], state: Enum, kind: Kind) -> str:
        why = out_of_turn(self, state, kind)
        if why:
            refused.add((self.title, state.name, name_of(kind)))
        return why

    monkeypatch.setattr(Transitions, "check", note_move)
    monkeypatch.setattr(Transitions, "out_of_turn", note_refusal)
    for play in PLAYS:
        perform(play.read_text(encoding="utf-8"))
    return moved, refused


def test_every_move_of_a_session_is_acted_in_a_play(acted: tuple[set[tuple[str, ...]], set[tuple[str, ...]]]) -> None:
    moved, _ = acted

    assert {row for moves in SESSIONS for row in _rows(moves)} - moved == set()


def test_whatever_is_out_of_turn_is_said_in_a_play(acted: tuple[set[tuple[str, ...]], set[tuple[str, ...]]]) -> None:
    _, refused = acted

    assert {row for moves in SESSIONS for row in _untimely(moves)} - refused == set()
