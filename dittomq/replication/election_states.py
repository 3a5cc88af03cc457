"""How one attempt of one candidate goes, and what leads where."""

from typing import Final

from dittomq.replication.election_events import (
    Answered,
    ElectionTick,
    PromiseAnswered,
    PromiseUnanswered,
    RecordRead,
    SelfPromised,
    StoreSilent,
    TailFailed,
    TailTaken,
    Unanswered,
    WriteEnded,
)
from dittomq.replication.state_machine import Label, Transitions


class Attempt(Label):
    """How far an election is; the value says it in words."""

    READING = "the group record is read"
    ASKING = "the members are asked where they stand, and whether they would promise"
    STANDING_BACK = "a better candidate gets its time, once"
    WAITING = "too few answer: they are asked again, until it may lead without them"
    PROMISING_SELF = "its own promise becomes durable"
    PROMISING = "the others are asked to promise"
    TAKING_TAIL = "the log that won is another replica's: its tail is fetched"
    WRITING = "the record that names this replica was sent"
    IN_DOUBT = "the outcome is unknown: the write may still arrive"
    RESENT = "in doubt, and sent again, unchanged"
    CHECKING = "the record has moved: it is read, to see who moved it"
    ELECTED = "the record names this replica, and its promise holds"
    ENDED = "it came to nothing"


_ASKED: Final = (Attempt.ASKING, Attempt.STANDING_BACK, Attempt.WAITING, Attempt.PROMISING_SELF, Attempt.ENDED)
_PROMISED: Final = (Attempt.PROMISING, Attempt.TAKING_TAIL, Attempt.WRITING, Attempt.ENDED)

ELECTION_MOVES: Final = Transitions(
    title="Election",
    first=Attempt.READING,
    rows={
        Attempt.READING: {
            RecordRead: (Attempt.ASKING, Attempt.WAITING, Attempt.PROMISING_SELF, Attempt.ENDED),
            StoreSilent: (Attempt.ENDED,),
        },
        Attempt.ASKING: {Answered: _ASKED, Unanswered: _ASKED, ElectionTick: _ASKED},
        Attempt.STANDING_BACK: {ElectionTick: (Attempt.STANDING_BACK, Attempt.READING)},
        Attempt.WAITING: {ElectionTick: (Attempt.WAITING, Attempt.READING)},
        Attempt.PROMISING_SELF: {SelfPromised: (Attempt.PROMISING, Attempt.WRITING, Attempt.ENDED)},
        Attempt.PROMISING: {PromiseAnswered: _PROMISED, PromiseUnanswered: _PROMISED, ElectionTick: _PROMISED},
        Attempt.TAKING_TAIL: {
            TailTaken: (Attempt.WRITING, Attempt.ENDED),
            TailFailed: (Attempt.ENDED,),
        },
        Attempt.WRITING: {
            WriteEnded: (Attempt.ELECTED, Attempt.CHECKING, Attempt.IN_DOUBT),
            StoreSilent: (Attempt.ENDED,),
        },
        Attempt.IN_DOUBT: {ElectionTick: (Attempt.IN_DOUBT, Attempt.RESENT, Attempt.ENDED)},
        Attempt.RESENT: {
            WriteEnded: (Attempt.ELECTED, Attempt.CHECKING, Attempt.IN_DOUBT),
            StoreSilent: (Attempt.IN_DOUBT,),
        },
        Attempt.CHECKING: {
            RecordRead: (Attempt.ELECTED, Attempt.IN_DOUBT, Attempt.ENDED),
            StoreSilent: (Attempt.IN_DOUBT,),
        },
    },
    said=(Answered, Unanswered, PromiseAnswered, PromiseUnanswered, ElectionTick),
)
"""Answers come late, and a tick comes at any time: where there is no row for them, they are ignored."""
