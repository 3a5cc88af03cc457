"""Whether a replica promises. Pure. The promise itself is durable before the answer leaves; the driver sees to that."""

from dataclasses import dataclass

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


def decide_ask(own: Position, candidate: str, sent_by: SentBy) -> bool:
    """Whether this replica would promise: not while it leads, nor while it hears a master that is not the candidate itself.

    A master or an operator may send the candidate all the same.
    """
    return sent_by is not SentBy.NOBODY or not (own.leads or (own.sees_master and candidate != own.master))


def decide_promise(own: Position, request: PromiseRequest) -> bool:
    """Whether this replica promises: an epoch above everything that it has promised, to a candidate of its own group.

    Before it answers, it ends the older stream, writes and syncs what that brought, and makes the promise durable.
    """
    is_of_its_group = not own.birth or not request.birth or request.birth == own.birth
    is_higher = request.epoch > max(own.promised, own.adopted)
    return decide_ask(own, request.candidate, request.sent_by) and is_of_its_group and is_higher
