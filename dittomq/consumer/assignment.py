"""Which member of a group reads which queue: pure functions, one for each of RocketMQ's strategies."""

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

_POINTS = 32  # of each member on the ring of the consistent hash


class Strategy(Enum):
    """How queues are shared out among the members that read their topic. Each queue has exactly one of them."""

    AVERAGE = "average"
    """Neighbouring queues to each member; RocketMQ's default."""
    CIRCLE = "circle"
    """Queues in turn, like cards."""
    CONSISTENT_HASH = "consistent-hash"
    """By place on a ring: a member that comes or goes moves only its own queues. Not balanced."""
    STICKY = "sticky"
    """Balanced, and as many queues as possible stay where they are. Ours."""


class TopicQueue(NamedTuple):
    """A queue of a topic, in one broker group."""

    topic: str
    queue: int


Assignments = Mapping[str, frozenset[TopicQueue]]
"""Member → its queues."""


def assign(
    strategy: Strategy, subscribed: Mapping[str, frozenset[str]], queues: Iterable[TopicQueue], *, before: Mapping[TopicQueue, str]
) -> Assignments:
    """Each queue to one of the members that have subscribed to its topic; to none if there is none.

    `subscribed`: member → topics. `before`: who has read which queue; only STICKY looks at it.
    """
    share = _STRATEGIES[strategy]
    found: dict[str, set[TopicQueue]] = {member: set() for member in subscribed}
    for topic, group in groupby(sorted(set(queues)), key=attrgetter("topic")):
        members = sorted(member for member, topics in subscribed.items() if topic in topics)
        if members:
            for queue, member in share(members, list(group), before):
                found[member].add(queue)
    return {member: frozenset(held) for member, held in found.items()}


Shares = Iterable[tuple[TopicQueue, str]]
Before = Mapping[TopicQueue, str]


def _average(members: Sequence[str], queues: Sequence[TopicQueue], _: Before) -> Shares:
    least, more = divmod(len(queues), len(members))
    start = 0
    for place, member in enumerate(members):
        end = start + least + (place < more)
        yield from ((queue, member) for queue in queues[start:end])
        start = end


def _circle(members: Sequence[str], queues: Sequence[TopicQueue], _: Before) -> Shares:
    return ((queue, members[place % len(members)]) for place, queue in enumerate(queues))


def _consistent_hash(members: Sequence[str], queues: Sequence[TopicQueue], _: Before) -> Shares:
    ring = sorted((_point(f"{member}-{number}"), member) for member in members for number in range(_POINTS))
    places = [place for place, _ in ring]
    for queue in queues:
        yield queue, ring[bisect_left(places, _point(f"{queue.topic} {queue.queue}")) % len(ring)][1]


def _sticky(members: Sequence[str], queues: Sequence[TopicQueue], before: Before) -> Shares:
    """Those that have most keep the larger shares: any other balanced assignment moves at least as many queues."""
    held: dict[str, list[TopicQueue]] = {member: [] for member in members}
    for queue in queues:
        if before.get(queue) in held:
            held[before[queue]].append(queue)
    least, more = divmod(len(queues), len(members))
    free = [queue for queue in queues if before.get(queue) not in held]
    sizes: dict[str, int] = {}
    for place, member in enumerate(sorted(members, key=lambda each: (-len(held[each]), each))):
        sizes[member] = least + (place < more)
        free += held[member][sizes[member] :]
        del held[member][sizes[member] :]
    rest = iter(sorted(free))
    for member in members:
        yield from ((queue, member) for queue in held[member])
        yield from ((next(rest), member) for _ in range(sizes[member] - len(held[member])))


def _point(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


_STRATEGIES: Mapping[Strategy, Callable[[Sequence[str], Sequence[TopicQueue], Before], Shares]] = {
    Strategy.AVERAGE: _average,
    Strategy.CIRCLE: _circle,
    Strategy.CONSISTENT_HASH: _consistent_hash,
    Strategy.STICKY: _sticky,
}
