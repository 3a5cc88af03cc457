"""How a replica comes to acknowledge in a master's epoch, and how the master's write of the group record ends."""

from collections.abc import Collection, Mapping
from typing import Final

from dittomq.replication.state_machine import Kind, Label, Transitions


class Following(Label):
    """What a replica is to its master; the value says it in words."""

    AWAY = "has no stream: it has not come to this master yet, or its stream ended"
    DEPARTED = "said goodbye: it stops in order"
    JOINING = "streams, and has not adopted this epoch: its acks count for nothing"
    ADOPTED = "streams, and has adopted this epoch: if it is a member, its acks count"


class StreamStep(Label):
    """What a replica's stream is judged by."""

    BEGAN = "its stream began"
    ACKED = "it acknowledged"
    ENDED = "its stream ended"
    SENT_GOODBYE = "it said goodbye, and its stream ended"


_STOPS: Final[Mapping[Kind, Collection[Following]]] = {
    StreamStep.ENDED: (Following.AWAY,),
    StreamStep.SENT_GOODBYE: (Following.DEPARTED,),
}
_ACKS: Final = (Following.JOINING, Following.ADOPTED)

FOLLOWING_TRANSITIONS = Transitions(
    title="Confirmed offset: one replica",
    first=Following.AWAY,
    rows={
        Following.AWAY: {StreamStep.BEGAN: (Following.JOINING, Following.ADOPTED)},
        Following.DEPARTED: {StreamStep.BEGAN: (Following.JOINING, Following.ADOPTED)},
        Following.JOINING: {StreamStep.BEGAN: (Following.JOINING,), StreamStep.ACKED: _ACKS, **_STOPS},
        Following.ADOPTED: {StreamStep.BEGAN: (Following.ADOPTED,), StreamStep.ACKED: _ACKS, **_STOPS},
    },
)


class RecordWrite(Label):
    """How far a master's change of the group record is; the value says it in words."""

    SETTLED = "the record is known, and nothing is to be written"
    PROPOSED = "old and new members must both hold what is confirmed; nothing was sent: holders of the new set still catch up"
    SENT = "sent once; old and new members must both hold what is confirmed"
    IN_DOUBT = "sent, and the outcome is unknown: the write may still arrive"
    RESENT = "in doubt, and sent again, unchanged"
    FENCED = "the record names another birth, epoch or master: this master leads no longer"


class WriteStep(Label):
    """What a change of the record is judged by."""

    WANTED = "other members or other copies are wanted"
    GIVEN_UP = "the holders did not catch up in time"
    SENT = "the write leaves"
    WRITTEN = "the store has written it"
    NOT_SENT = "the store could not be reached, and nothing was sent"
    CONFLICTED = "the record has another version"
    UNKNOWN = "the outcome is unknown"
    RECORD_MOVED = "a later revision was read, of this epoch and this master"
    OTHER_LEADS = "the record that was read names another birth, epoch or master"


_OTHER_LEADS: Final[Mapping[Kind, Collection[RecordWrite]]] = {WriteStep.OTHER_LEADS: (RecordWrite.FENCED,)}

RECORD_WRITE_MOVES = Transitions(
    title="Membership: a write of the group record",
    first=RecordWrite.SETTLED,
    rows={
        RecordWrite.SETTLED: {
            WriteStep.WANTED: (RecordWrite.PROPOSED,),
            WriteStep.RECORD_MOVED: (RecordWrite.SETTLED,),
            **_OTHER_LEADS,
        },
        RecordWrite.PROPOSED: {
            WriteStep.SENT: (RecordWrite.SENT,),
            WriteStep.GIVEN_UP: (RecordWrite.SETTLED,),
            WriteStep.RECORD_MOVED: (RecordWrite.SETTLED,),
            **_OTHER_LEADS,
        },
        RecordWrite.SENT: {
            WriteStep.WRITTEN: (RecordWrite.SETTLED,),
            WriteStep.NOT_SENT: (RecordWrite.SETTLED,),
            WriteStep.CONFLICTED: (RecordWrite.IN_DOUBT,),
            WriteStep.UNKNOWN: (RecordWrite.IN_DOUBT,),
            **_OTHER_LEADS,
        },
        RecordWrite.IN_DOUBT: {
            WriteStep.SENT: (RecordWrite.RESENT,),
            WriteStep.RECORD_MOVED: (RecordWrite.SETTLED,),
            **_OTHER_LEADS,
        },
        RecordWrite.RESENT: {
            WriteStep.WRITTEN: (RecordWrite.SETTLED,),
            WriteStep.NOT_SENT: (RecordWrite.IN_DOUBT,),
            WriteStep.CONFLICTED: (RecordWrite.IN_DOUBT,),
            WriteStep.UNKNOWN: (RecordWrite.IN_DOUBT,),
            **_OTHER_LEADS,
        },
    },
)
