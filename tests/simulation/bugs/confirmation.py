"""Bugs in what counts as confirmed, and in what producers are told of it."""

from dataclasses import replace
from typing import Any

from dittomq.broker.ack_waiters import AckWaiters
from dittomq.message import PutStatus
from dittomq.offsets import Epoch, PhysicalOffset
from dittomq.reads import ReadableRange
from dittomq.replication import confirmed_offset
from dittomq.replication.confirmed_offset import ConfirmedOffset
from services.master import node
from services.master.produce import ProduceHandler
from services.master.term import Term
from services.slave.replica_fetcher import ReplicaFetcher
from tests.simulation.bugs.patches import Patches, always
from tests.simulation.cluster import Cluster


def count_a_connection_twice(patches: Patches, _: Cluster) -> None:
    def held(replicas: Any, ends: Any, copies: int) -> PhysicalOffset:
        twice = sorted([ends.get(each, PhysicalOffset(0)) for each in replicas] * 2, reverse=True)
        return twice[copies - 1] if copies <= len(twice) else PhysicalOffset(0)

    patches.put(confirmed_offset, "held_end", lambda _: held)


def what_the_master_holds_taken_for_a_copy(patches: Patches, _: Cluster) -> None:
    """Acknowledged before any slave has it: each member is taken to hold what its master does."""
    patches.put(confirmed_offset, "held_end", lambda _: lambda *found: max(found[1].values(), default=PhysicalOffset(0)))


def dispatch_past_confirmed(patches: Patches, _: Cluster) -> None:
    def make(honest: Any) -> Any:
        def moved(term: Term) -> None:
            honest(term)
            term._dispatcher.readable_to(term.written)

        return moved

    patches.put(Term, "moved", make)
    patches.put(node.MasterNode, "readable", lambda honest: lambda self: _readable_to_the_end(honest, self))


def _readable_to_the_end(honest: Any, master: node.MasterNode) -> Any:
    return honest(master) if master.term is None else ReadableRange(master.term.written, master.term.written)


def slave_serves_past_confirmed(patches: Patches, _: Cluster) -> None:
    patches.put(ReplicaFetcher, "readable", lambda _: lambda follower: ReadableRange(follower.copy.received, follower.copy.received))


def receipt_claims_flushed(patches: Patches, _: Cluster) -> None:
    patches.put(ConfirmedOffset, "copies", lambda honest: lambda confirm, *span: tuple((name, True) for name, _ in honest(confirm, *span)))


def timeout_reported_as_ok(patches: Patches, _: Cluster) -> None:
    patches.put(AckWaiters, "_give_up", always(PutStatus.PUT_OK))


def epoch_not_raised(patches: Patches, _: Cluster) -> None:
    """Who leads after another acknowledges in that one's epoch. In the log it is newer: an epoch history that does not grow is refused."""

    def make(honest: Any) -> Any:
        def stored(answers: ProduceHandler, *what: Any) -> Any:
            frame = honest(answers, *what)
            return replace(frame, entries=[replace(entry, epoch=Epoch(max(1, entry.epoch - 1))) for entry in frame.entries])

        return stored

    patches.put(ProduceHandler, "_stored", make)
