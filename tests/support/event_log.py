"""What a producer was told of each message, and what must therefore be read back. Pure, and blind to how either came about."""

import itertools
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


class Acked(NamedTuple):
    """Where a receipt comes from. `sent` and `told` are moments of one Told: before the message was sent, and when its receipt was there.

    `stream`: whose messages were sent one after the other. `incarnation` is that of the epoch's opening. `acker`: who acknowledged in
    that epoch; empty when the receipt is one of an earlier try. `at_once`: nothing else was told of the message before.
    """

    stream: int
    sent: int
    told: int
    epoch: int
    incarnation: int | None
    acker: str
    physical_offset: int
    at_once: bool


@dataclass(slots=True)
class Told:
    """What was told, by body; every body is sent once under one identity. `holders`: the nodes that a receipt named.

    `acks`: of those with a receipt. `elects`: another replica may be elected, which need not hold what was not confirmed.
    """

    outcomes: dict[bytes, Place | Fate] = field(default_factory=dict)
    holders: dict[bytes, tuple[str, ...]] = field(default_factory=dict)
    acks: dict[bytes, Acked] = field(default_factory=dict)
    moments: Iterator[int] = field(default_factory=itertools.count)
    elects: bool = False

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


def wrong_epochs(told: Told) -> Iterator[str]:
    """Which of the receipts that hold cannot all be right: one node acknowledges in an epoch, after one opening of it.

    None acknowledges in an older epoch what was sent after somebody was told of a newer one, and epochs grow along the log.
    """
    acks = _acks_that_hold(told)
    first: dict[int, tuple[bytes, Acked]] = {}
    for body, ack in acks:
        before, other = first.setdefault(ack.epoch, (body, ack))
        if ack.incarnation != other.incarnation:
            yield f"{before!r} and {body!r} were acknowledged in two openings of epoch {ack.epoch}"
        if ack.acker and not other.acker:
            first[ack.epoch] = body, ack
        elif ack.acker and ack.acker != other.acker:
            yield f"{before!r} and {body!r} were acknowledged in epoch {ack.epoch} by {other.acker} and {ack.acker}"
    for (before, other), (body, ack) in itertools.pairwise(sorted(acks, key=lambda each: each[1].physical_offset)):
        if ack.epoch < other.epoch:
            yield f"{body!r} of epoch {ack.epoch} lies behind {before!r} of epoch {other.epoch}"
    yield from _late_epochs(acks)


def wrong_order(told: Told) -> Iterator[str]:
    """What was sent later in a stream, and acknowledged at once, lies behind what had been sent into that queue before."""
    last: dict[tuple[int, int], tuple[bytes, Place]] = {}
    for body, ack in sorted(_acks_that_hold(told), key=lambda each: each[1].sent):
        place = told.outcomes[body]
        if isinstance(place, Place) and ack.at_once:
            before, other = last.get((ack.stream, place.queue), (b"", None))
            if other is not None and place.queue_offset <= other.queue_offset:
                yield f"{body!r} was sent after {before!r}, and is at {place}, not behind {other}"
            last[ack.stream, place.queue] = body, place


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


def _acks_that_hold(told: Told) -> list[tuple[bytes, Acked]]:
    """What became of others, whose only disks are lost, says nothing."""
    return [(body, ack) for body, ack in list(told.acks.items()) if isinstance(told.outcomes.get(body), Place)]


def _late_epochs(acks: Sequence[tuple[bytes, Acked]]) -> Iterator[str]:
    as_told = iter(sorted(acks, key=lambda each: each[1].told))
    next_told, newest = next(as_told, None), None
    for body, ack in sorted(acks, key=lambda each: each[1].sent):
        while next_told is not None and next_told[1].told < ack.sent:
            newest = next_told if newest is None or newest[1].epoch < next_told[1].epoch else newest
            next_told = next(as_told, None)
        if newest is not None and ack.epoch < newest[1].epoch:
            yield f"{body!r} was acknowledged in epoch {ack.epoch}, and sent after {newest[0]!r} was in epoch {newest[1].epoch}"


def _wrong_message(told: Told, place: Place, body: bytes) -> Iterator[str]:
    outcome = told.outcomes.get(body)
    if outcome is None:
        yield f"{place} holds {body!r}, which nobody sent"
    elif outcome is Fate.NOT_STORED:
        yield f"{body!r} was refused and is at {place}"
    elif isinstance(outcome, Place) and outcome != place:
        yield f"{body!r} is at {place}, its receipt says {outcome}"
