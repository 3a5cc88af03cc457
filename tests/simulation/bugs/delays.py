"""Bugs in what waits: delayed messages, their cancellations, transactions."""

from typing import Any

from dittomq.commitlog.queues.producer_state import SystemEntry
from dittomq.commitlog.store import Store
from services.master import delayed_delivery
from services.master.cancellation import Cancellation
from services.master.delay_queues import DelayQueue, Moment
from services.master.delayed_delivery import DelayedDelivery
from services.master.half_messages import HalfMessages
from tests.simulation.bugs.patches import Patches, always


def deliveries_are_forgotten(patches: Patches) -> None:
    """No replica remembers what a system producer has delivered."""
    patches.put(SystemEntry, "record", lambda _: lambda *_: None)


def delivery_begins_anew_at_each_term(patches: Patches) -> None:
    """And the log takes what it has for new."""
    patches.put(Store, "last_delivered", always(None))
    patches.put(SystemEntry, "known", always([]))


def delivery_leaves_out_the_first_of_a_term(patches: Patches) -> None:
    """A new master takes one message more for delivered than its log says."""
    patches.put(Store, "last_delivered", lambda honest: lambda store, name: None if (last := honest(store, name)) is None else last + 1)


def messages_come_early(patches: Patches) -> None:
    def make(honest: Any) -> Any:
        def due_of(queue: DelayQueue, message: Any) -> Moment:
            due = honest(queue, message)
            return Moment(due.wall_ms - 1_000, due.running_ms - 1_000)

        return due_of

    patches.put(DelayQueue, "due_of", make)


def hops_are_taken_for_due(patches: Patches) -> None:
    """What has waited in its first queue is delivered, whatever is left of its delay."""
    patches.put(delayed_delivery, "due_in", always(0))


def cancellations_are_not_recalled(patches: Patches) -> None:
    patches.put(DelayedDelivery, "_recall_cancellations", always(None))


def cancelled_is_told_before_it_is_written(patches: Patches) -> None:
    async def write(_: Cancellation, origin: int, place: Any, order: Any) -> Any:
        from dittomq.wire.lookups import CancelOutcome

        return CancelOutcome.CANCELLED

    patches.put(Cancellation, "_write", lambda _: write)


def a_transaction_ends_twice(patches: Patches) -> None:
    """Nobody looks whether it has ended before."""
    patches.put(HalfMessages, "find", lambda honest: lambda halves, position: (honest(halves, position)[0], None))


BUGS = (
    deliveries_are_forgotten,
    delivery_begins_anew_at_each_term,
    delivery_leaves_out_the_first_of_a_term,
    messages_come_early,
    hops_are_taken_for_due,
    cancellations_are_not_recalled,
    cancelled_is_told_before_it_is_written,
    a_transaction_ends_twice,
)
