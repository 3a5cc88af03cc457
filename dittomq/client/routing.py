"""Routes as a client uses them: the last one known serves while no nameserver answers, and addresses pass through the client's map."""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter

from dittomq.client.partitioner import master_of
from dittomq.doors.clock import Clock
from dittomq.doors.traces import Traces
from dittomq.errors import DittoError, NotReady, TopicNotFound, Unavailable
from dittomq.metadata.topics import check_topic_name
from dittomq.naming.route_cache import MAX_AGE_S, RouteCache
from dittomq.routes import Node, Route
from dittomq.rpc.channel import Channels

_SILENCE_S = 10.0
"""For so long after a question that no nameserver answered, a caller who can do with an old answer waits for no new one."""


@dataclass(frozen=True, slots=True)
class ClientContext:
    """What every part of one client shares. `traces` None: no spans."""

    channels: Channels
    routing: "Routing"
    clock: Clock
    chance: random.Random
    traces: Traces | None = None


class Routing:
    """Finds nodes. A route once known is never forgotten for lack of an answer: brokers say themselves what they do not hold."""

    def __init__(self, cache: RouteCache, clock: Clock, address_map: Mapping[str, str]) -> None:
        self._cache = cache
        self._clock = clock
        self._address_map = address_map
        self._known: dict[str, Route] = {}
        self._outdated: set[str] = set()
        self._silent_until = float("-inf")

    async def route(self, topic: str, *, fresh: bool = False, of_all: bool = False, max_age_s: float = MAX_AGE_S) -> Route:
        """The topic's route; asked for again when `fresh`, of each nameserver if `of_all`, or older than `max_age_s`.

        For a topic never seen raises TopicNotFound, Unavailable, or NotReady where nameservers were just started and cannot know yet;
        InvalidField for what cannot be one.
        """
        known = self._known.get(topic)
        if known is None:
            check_topic_name(topic)
        if known is not None and not fresh and self._clock.monotonic() < self._silent_until:
            return known
        try:
            route = await (
                self._cache.refresh(topic, of_all=of_all) if fresh or topic in self._outdated else self._cache.route(topic, max_age_s)
            )
        except (Unavailable, TopicNotFound, NotReady) as error:
            if isinstance(error, Unavailable):
                self._silent_until = self._clock.monotonic() + _SILENCE_S
            if known is None:
                raise
            return known
        self._known[topic] = route
        self._outdated.discard(topic)
        return route

    def at_hand(self, topic: str) -> Route | None:
        """The last route known, where it is young enough to be used as it is; None where `route` looks closer."""
        route = self._cache.at_hand(topic)
        return route if route is self._known.get(topic) and topic not in self._outdated else None

    def outdated(self, topic: str) -> None:
        """A broker of the topic has other settings than its route says: it is asked for again at its next use."""
        self._outdated.add(topic)

    def last_route(self, topic: str) -> Route | None:
        """The last route known, without asking."""
        return self._known.get(topic)

    async def brokers(self) -> list[Node]:
        """All nodes that a nameserver lists now, in the order of broker name and id."""
        return await self._cache.brokers()

    async def nodes_named(self, name: str) -> list[Node]:
        """That node as each nameserver lists it that knows it: a topic's route is one nameserver's, and another one may know more."""
        return [node for node in await self._cache.nodes_of(name.partition("/")[0]) if node.name == name]

    async def set_writable(self, broker: str, *, writable: bool) -> dict[str, int | DittoError]:
        """Let the routes of every nameserver name the group for writing, or not: by nameserver how many topics it knows of the group."""
        return await self._cache.set_writable(broker, writable=writable)

    async def master_of_group(self, broker: str) -> Node | None:
        """The group's master of the highest epoch that a nameserver lists."""
        leading = [node for node in await self._cache.nodes_of(broker) if node.leads]
        return max(leading, key=attrgetter("epoch"), default=None)

    async def master_of_topic(self, topic: str, broker: str) -> Node | None:
        """The group's master as nameservers name it now. A deleted topic has no route to it: the last one may name an older one."""
        route = await self.route(topic, fresh=True, of_all=True)
        named = master_of(route, broker)
        if named is not None and (self._cache.at_hand(topic) is route or self._clock.monotonic() < self._silent_until):
            return named
        listed = await self.master_of_group(broker)
        return max(filter(None, (listed, named)), key=attrgetter("epoch"), default=None)

    def address(self, node: Node) -> str:
        """Where this client reaches the node."""
        return self._address_map.get(node.address, node.address)


def backoff_s(failures: int, chance: random.Random, *, first_s: float = 0.05, most_s: float = 1.0) -> float:
    """How long to wait after so many failures in a row: doubling, with jitter, so that a herd spreads out."""
    return min(most_s, first_s * 2.0 ** min(failures, 16)) * chance.uniform(0.5, 1.0)
