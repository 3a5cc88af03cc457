"""Bugs in what members of a group commit and are given."""

from typing import Any

from dittomq.client.handled_offsets import HandledOffsets
from tests.simulation.bugs.patches import Patches


def what_is_handed_out_counts_as_handled(patches: Patches) -> None:
    """A member commits all that it was given."""
    patches.put(HandledOffsets, "committable", lambda _: property(lambda handled: handled.position))


def an_offset_is_committed_one_too_far(patches: Patches) -> None:
    """A member skips a message that it has not handled."""
    patches.put(HandledOffsets, "committable", lambda _: property(lambda handled: min(handled.position, _lowest(handled) + 1)))


def _lowest(handled: Any) -> int:
    waiting = handled._waiting  # the bug is in there
    return int(waiting[0]) if waiting else int(handled.position)
