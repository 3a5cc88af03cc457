"""Whether a replica promises. Pure. The promise itself is durable before the answer leaves; the driver sees to that."""

from dataclasses import dataclass
from enum import StrEnum

from dittomq.group_record import ReplicaId
from dittomq.offsets import Epoch
from dittomq.replication.election_events import Position, SentBy


@dataclass(frozen=True, slots=True)
class PromiseRequest:
    """A candidate's node and replica, and the epoch that it asks for.

    `birth` is that of the record which is to be written; "": there is none, and the replica leaves the birth that it knows.
    """

    candidate: str
    replica: ReplicaId
    epoch: Epoch
    birth: str
    sent_by: SentBy


class RefusalKind(StrEnum):
    """Why a replica does not promise."""

    HEARS_MASTER = "hears_master"
    PROMISED = "promised"
    OTHER_BIRTH = "other_birth"


@dataclass(frozen=True, slots=True)
class Grant:
    """Promise it: end the older stream, write and sync what it brought, make the promise durable, then answer."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """Answer so, and change nothing."""

    reason: RefusalKind


def decide_ask(own: Position, candidate: str, sent_by: SentBy) -> bool:
    """Whether this replica would promise: not while it leads, nor while it hears a master that is not the candidate itself.

    A master or an operator may send the candidate all the same.
    """
    return sent_by is not SentBy.NOBODY or not (own.leads or (own.hears_master and candidate != own.master))


def decide_promise(own: Position, request: PromiseRequest) -> Grant | Refuse:
    """Grant an epoch above everything that this replica has promised, to a candidate of its own group."""
    if not decide_ask(own, request.candidate, request.sent_by):
        return Refuse(RefusalKind.HEARS_MASTER)
    if own.birth and request.birth and request.birth != own.birth:
        return Refuse(RefusalKind.OTHER_BIRTH)
    if request.epoch <= max(own.promised, own.adopted):
        return Refuse(RefusalKind.PROMISED)
    return Grant()
