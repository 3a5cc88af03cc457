"""Tells who watches topics what their routes are: at once, and whenever they change.

A change sets the event of each watch. A watch looks when what it found before is taken: whoever reads slowly skips what is old.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import replace
from typing import Final

from dittomq.errors import InvalidField, LimitReached, Refused
from dittomq.metadata.topics import check_topic_name
from dittomq.naming.validation import check_network
from dittomq.routes import DEFAULT_NETWORK, DataVersion, Route, RouteWatchOrder, WatchedRoute

MAX_ROUTE_WATCHES: Final = 256
MAX_WATCHED_TOPICS: Final = 32
SHORTEST_GAP_S: Final = 0.5

_Found = Route | str  # the route, or the reason why there is none


class RouteWatches:
    """The watches of one nameserver. `route` finds that of a topic on a network, or refuses."""

    def __init__(self, route: Callable[[str, str], Route]) -> None:
        self._route = route
        self._watches: set[asyncio.Event] = set()  # MAX_ROUTE_WATCHES at most
        self._is_over = asyncio.Event()

    async def watch(self, order: RouteWatchOrder) -> AsyncGenerator[WatchedRoute, None]:
        """What is found of each topic, then of each that has changed, until all answers are given or `end`.

        Raises InvalidField, LimitReached.
        """
        _check(order)
        if len(self._watches) >= MAX_ROUTE_WATCHES:
            raise LimitReached("the list of watches of routes", MAX_ROUTE_WATCHES)
        changed = asyncio.Event()
        self._watches.add(changed)
        answers = self._answers(order, changed)
        try:
            async for answer in answers:
                yield answer
        finally:
            self._watches.discard(changed)
            await answers.aclose()

    async def _answers(self, order: RouteWatchOrder, changed: asyncio.Event) -> AsyncGenerator[WatchedRoute, None]:
        sent: dict[str, _Found] = {}
        count = 0
        while not self._is_over.is_set():
            changed.clear()
            for news in self._news(order, sent):
                yield news
                count += 1
                if count == order.max_responses:
                    return
            await self._rest()
            await changed.wait()

    def look_again(self) -> None:
        """Something has changed that routes are made of."""
        for changed in self._watches:
            changed.set()

    def end(self) -> None:
        """The nameserver stops: no watch keeps it from that."""
        self._is_over.set()
        self.look_again()

    def _news(self, order: RouteWatchOrder, sent: dict[str, _Found]) -> Iterator[WatchedRoute]:
        """What differs from what was told; each is looked at when the one before it is taken."""
        for topic in order.topics:
            found = self._look(topic, order.network)
            if sent.get(topic) != (known := _essence(found)):
                sent[topic] = known
                yield WatchedRoute(topic, None, found) if isinstance(found, str) else WatchedRoute(topic, found, "")

    def _look(self, topic: str, network: str) -> _Found:
        try:
            return self._route(topic, network)
        except Refused as refused:
            return refused.reason

    async def _rest(self) -> None:
        """What changes within half a second is told together."""
        try:
            async with asyncio.timeout(SHORTEST_GAP_S):
                await self._is_over.wait()
        except TimeoutError:
            return


def _check(order: RouteWatchOrder) -> None:
    if not 1 <= len(order.topics) <= MAX_WATCHED_TOPICS:
        raise InvalidField("topics", f"are {len(order.topics):,}; watch 1 to {MAX_WATCHED_TOPICS} topics in one call")
    if len(set(order.topics)) != len(order.topics):
        raise InvalidField("topics", "name one twice; name each once")
    for topic in order.topics:
        check_topic_name(topic, "topics")
    check_network(order.network or DEFAULT_NETWORK)


def _essence(found: _Found) -> _Found:
    """What a reader of the route acts on: not when a node was heard last, nor which version its table of all topics has."""
    if isinstance(found, str):
        return found
    return replace(found, nodes=tuple(replace(node, seen_ms=0, data_version=DataVersion()) for node in found.nodes))
