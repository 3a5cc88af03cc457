"""Tables of moves: in which state a decider takes what, and where that may lead.

A decider obeys its table: what the other side says in a state that has no row for it is out of turn, and anything else that the
table does not have is a mistake of ours. docs/replication.md draws these tables.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Generic, TypeVar


class Label(Enum):
    """A state, or a kind of what is taken. Hashed by identity: tables are looked up for every message, and Enum's own hash is slow."""

    __hash__ = object.__hash__


State = TypeVar("State", bound=Enum)
Kind = type[object] | Enum
"""What a decider takes: a class of events, or one member where the member decides."""
_NO_ROWS: Final[Mapping[Kind, Collection[Any]]] = {}


@dataclass(eq=False)
class IllegalTransition(AssertionError):
    """A decider, or its driver, did what the table does not have: a mistake in this program, never of the other side."""

    title: str
    words: str

    def __str__(self) -> str:
        return f"{self.title}: {self.words}"


@dataclass(frozen=True, slots=True)
class Transitions(Generic[State]):
    """`rows`: state → what it takes → where that may lead, the state itself when it may stay.

    `said` is what the other side may say at any time: where there is no row for it, it is out of turn. A state without rows is final.
    """

    title: str
    first: State
    rows: Mapping[State, Mapping[Kind, Collection[State]]]
    said: Collection[Kind] = ()

    def is_final(self, state: State) -> bool:
        """Whether nothing leads on from `state`."""
        return not self.rows.get(state)

    def out_of_turn(self, state: State, kind: Kind) -> str:
        """Why the other side should not have said this; empty when there is a row for it. Raises IllegalTransition when our driver said
        it.
        """
        if kind in self.rows.get(state, _NO_ROWS):
            return ""
        if kind not in self.said:
            raise IllegalTransition(self.title, f"{state.name} takes no {name_of(kind)}")
        return f"{name_of(kind)} is out of turn while {state.name.lower()}"

    def check(self, before: State, kind: Kind, after: State) -> None:
        """Raise IllegalTransition unless the table has this move."""
        if after not in self.rows.get(before, _NO_ROWS).get(kind, ()):
            raise IllegalTransition(self.title, f"{name_of(kind)} does not lead from {before.name} to {after.name}")


def name_of(kind: Kind) -> str:
    """A kind as it is read: "SlaveAck" a class, "deadline missed" a member."""
    return kind.name.lower().replace("_", " ") if isinstance(kind, Enum) else kind.__name__
