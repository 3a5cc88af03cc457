"""Bugs in leases and in other tries: a message is left out, or an acknowledgement is."""

from typing import Any

from dittomq.consumer.leases import LeasedQueue
from dittomq.consumer.retries import DeadLetter
from services.master import send_back
from services.master.leasing import Leasing
from tests.simulation.bugs.patches import Patches


def ended_leases_drop_their_message(patches: Patches) -> None:
    """A message whose lease ends gets no other try."""

    async def drop(_: Leasing, name: str, leases: LeasedQueue, token: Any) -> None:
        leases.settled(token)

    patches.put(Leasing, "_try_again", lambda _: drop)


def offsets_pass_leased_messages(patches: Patches) -> None:
    """An offset is committed past messages that are leased."""
    patches.put(LeasedQueue, "committed", lambda _: property(lambda leases: leases.next_offset))


def acknowledgements_are_not_kept(patches: Patches) -> None:
    """What is acknowledged comes again."""

    def forget(leases: LeasedQueue, token: Any) -> None:
        leases.not_settled(token)

    patches.put(LeasedQueue, "settled", lambda _: forget)


def the_first_failure_is_the_last(patches: Patches) -> None:
    """What is to be tried again lies with the dead letters at once."""
    patches.put(send_back, "decide_retry", lambda _: lambda times, *_, **__: DeadLetter(times))


def every_other_message_counts_as_done(patches: Patches) -> None:
    """A lessee is given every other message."""
    patches.put(LeasedQueue, "is_done", lambda _: lambda __, offset: offset % 2 == 1)


BUGS = (
    ended_leases_drop_their_message,
    offsets_pass_leased_messages,
    acknowledgements_are_not_kept,
    the_first_failure_is_the_last,
    every_other_message_counts_as_done,
)
