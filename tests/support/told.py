"""What a producer was told of each message, and what must therefore be read back. Pure, and blind to how either came about."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple


class Place(NamedTuple):
    """Where a message lies, or was said to lie."""

    queue: int
    queue_offset: int


class Fate(Enum):
    """What a producer was told of a message without a receipt."""

    UNKNOWN = auto()
    NOT_STORED = auto()


@dataclass(slots=True)
class Told:
    """What was told, by body; every body is sent once under one identity. `holders`: the nodes that a receipt named."""

    outcomes: dict[bytes, Place | Fate] = field(default_factory=dict)
    holders: dict[bytes, tuple[str, ...]] = field(default_factory=dict)

    def bodies(self, fate: Fate) -> list[bytes]:
        """Bodies of which that was told, in the order of sending."""
        return [body for body, outcome in self.outcomes.items() if outcome is fate]

    def lost_with(self, node: str) -> None:
        """The disk of that node is gone: nothing of before need be on it, and what was told to be on it alone may be there once or not."""
        for body, nodes in list(self.holders.items()):
            self.holders[body] = tuple(other for other in nodes if other != node)
            if nodes == (node,):
                self.outcomes[body] = Fate.UNKNOWN
                del self.holders[body]


def wrong_reads(told: Told, read: Mapping[int, Sequence[tuple[int, bytes]]], begins: Mapping[int, int] | None = None) -> Iterator[str]:
    """What is wrong with everything that one copy served, by queue: (queue offset, body) in the order of reading.

    `begins`: the first offset of each queue where retention has dropped older ones, which nobody demands any more.

    Right is: each acknowledged message once, at the place its receipt names; an unknown one once or not at all; nothing that was
    refused or never sent; queue offsets from 0 on without gap or repetition.
    """
    counted: Counter[bytes] = Counter()
    first = begins or {}
    for queue, messages in read.items():
        for expected, (offset, body) in enumerate(messages, first.get(queue, 0)):
            counted[body] += 1
            if offset != expected:
                yield f"queue {queue} goes on at offset {offset} where {expected} is next"
            yield from _wrong_message(told, Place(queue, offset), body)
    for body, outcome in told.outcomes.items():
        if counted[body] > 1:
            yield f"{body!r} is there {counted[body]} times"
        if isinstance(outcome, Place) and not counted[body] and outcome.queue_offset >= first.get(outcome.queue, 0):
            yield f"{body!r} was acknowledged and is not there"


def wrong_holders(told: Told, held: Mapping[str, AbstractSet[bytes]]) -> Iterator[str]:
    """What is wrong with what lies in the files of each node: an acknowledged message must be on every one that its receipt names."""
    for body, nodes in list(told.holders.items()):
        for node in nodes:
            if node in held and body not in held[node]:
                yield f"{body!r} is not on {node}, which its receipt names"


def undone_reads(shown: Mapping[tuple[int, int], bytes], read: Mapping[int, Sequence[tuple[int, bytes]]]) -> Iterator[str]:
    """What of that which readers were shown, by queue and queue offset, one copy does not serve there any more."""
    there = {(queue, offset): body for queue, messages in read.items() for offset, body in messages}
    for place, body in shown.items():
        if there.get(place) != body:
            yield f"{body!r} was shown at {Place(*place)}, where {there.get(place)!r} is now"


def lost_from(told: Told, read: Mapping[int, Sequence[tuple[int, bytes]]]) -> list[bytes]:
    """Which acknowledged messages one copy does not serve, in the order of sending."""
    there = {body for messages in read.values() for _, body in messages}
    return [body for body, outcome in told.outcomes.items() if isinstance(outcome, Place) and body not in there]


def wrong_losses(told: Told, lost: Sequence[bytes]) -> Iterator[str]:
    """What is wrong with losing these at one moment: they must have been the last ones of their queues then.

    What has one of their places now, or lies behind it, was sent after all of them.
    """
    places = [place for place in map(told.outcomes.__getitem__, lost) if isinstance(place, Place)]
    first = {place.queue: place.queue_offset for place in sorted(places, reverse=True)}
    older, gone = bool(lost), set(lost)
    for body, outcome in told.outcomes.items():
        if older and body not in gone and isinstance(outcome, Place) and outcome.queue_offset >= first.get(outcome.queue, 1 << 63):
            yield f"{body!r} is at {outcome}, and what lay there or before it in its queue is lost"
        older = older and body != lost[-1]


def wrong_copies(logs: Mapping[str, bytes], confirmed: int) -> Iterator[str]:
    """What is wrong with the copies of one log: each must hold the confirmed bytes, and they must be the same bytes everywhere."""
    (first, reference), *others = logs.items()
    for node, log in logs.items():
        if len(log) < confirmed:
            yield f"{node} ends at {len(log)}, before the confirmed end {confirmed}"
    for node, log in others:
        if log[:confirmed] != reference[:confirmed]:
            pairs = zip(log, reference, strict=False)
            yield f"{node} and {first} differ at byte {next((at for at, (one, other) in enumerate(pairs) if one != other), len(log))}"


def _wrong_message(told: Told, place: Place, body: bytes) -> Iterator[str]:
    outcome = told.outcomes.get(body)
    if outcome is None:
        yield f"{place} holds {body!r}, which nobody sent"
    elif outcome is Fate.NOT_STORED:
        yield f"{body!r} was refused and is at {place}"
    elif isinstance(outcome, Place) and outcome != place:
        yield f"{body!r} is at {place}, its receipt says {outcome}"
