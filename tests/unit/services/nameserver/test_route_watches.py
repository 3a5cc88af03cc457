"""Watches of routes: told at once and at changes of what readers act on, coalesced, bounded, and ended with the nameserver."""

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

import pytest

from dittomq.errors import InvalidField, LimitReached
from dittomq.routes import ORDER_TOPIC_CONFIG, BrokerState, ChangedTopics, DataVersion, KeyValue, RouteWatchOrder, WatchedRoute
from services.nameserver import route_watches
from services.nameserver.config import NameserverConfig
from services.nameserver.service import NameServer
from tests.support.manual_clock import HandClock
from tests.support.naming import beat, kept_values, master, orders, slave

Watch = AsyncGenerator[WatchedRoute, None]
ORDERS = RouteWatchOrder(("orders",))


class Watched:
    """A nameserver, and a watch of it."""

    def __init__(self, order: RouteWatchOrder = ORDERS) -> None:
        self.clock, self.values = HandClock(), kept_values()
        self.names = NameServer(NameserverConfig(), self.clock, random.Random(1), self.values)
        self.watch: Watch = self.names.watches.watch(order)
        self._late: asyncio.Future[WatchedRoute] | None = None

    async def is_silent(self) -> bool:
        """Whether nothing comes; the watch goes on."""
        self._late = self._late or asyncio.ensure_future(anext(self.watch))
        for _ in range(20):
            await asyncio.sleep(0)
        return not self._late.done()

    async def close(self) -> None:
        if self._late is not None:
            self._late.cancel()
            await asyncio.wait([self._late])
        await self.watch.aclose()


def told(story: Callable[[Watched], Awaitable[None]], order: RouteWatchOrder = ORDERS) -> None:
    async def run() -> None:
        watched = Watched(order)
        try:
            await story(watched)
        finally:
            await watched.close()

    asyncio.run(run())


@pytest.fixture(autouse=True)
def without_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(route_watches, "SHORTEST_GAP_S", 0.0)


def test_route_is_told_at_once_and_whole_again_when_a_node_comes() -> None:
    async def story(watched: Watched) -> None:
        watched.names.register(master())
        first = await anext(watched.watch)
        watched.names.register(slave())
        second = await anext(watched.watch)

        assert first.route is not None
        assert second.route is not None
        assert [node.name for node in first.route.nodes] == ["a/0"]
        assert [node.name for node in second.route.nodes] == ["a/0", "a/1"]

    told(story)


def test_topic_that_nobody_holds_is_told_with_the_reason_until_somebody_does() -> None:
    async def story(watched: Watched) -> None:
        first = await anext(watched.watch)
        watched.names.register(master())

        assert (first.route, first.reason) == (None, "NOT_READY")
        assert (await anext(watched.watch)).reason == ""

    told(story)


def test_node_that_is_heard_again_is_no_change() -> None:
    async def story(watched: Watched) -> None:
        session = watched.names.register(master()).session_id
        await anext(watched.watch)
        watched.clock.now_s += 1
        watched.names.heartbeat(beat(session))
        watched.names.register(master())

        assert await watched.is_silent()

    told(story)


def test_what_changes_while_nothing_is_read_is_told_once_and_as_it_is_then() -> None:
    async def story(watched: Watched) -> None:
        session = watched.names.register(master()).session_id
        await anext(watched.watch)
        watched.names.heartbeat(beat(session, state=BrokerState.RECOVERING))
        watched.names.register(slave())
        watched.names.unregister(session)

        news = await anext(watched.watch)

        assert news.route is not None
        assert [node.name for node in news.route.nodes] == ["a/1"]
        assert await watched.is_silent()

    told(story)


@pytest.mark.parametrize("change", ["queues", "state", "writes", "order", "expiry", "settled"])
def test_every_change_of_a_route_is_told(change: str) -> None:
    async def story(watched: Watched) -> None:
        names = watched.names
        session = names.register(master()).session_id
        before = await anext(watched.watch)
        match change:
            case "queues":
                version = DataVersion(1, 2, 4)
                changes = ChangedTopics(DataVersion(1, 2, 3), (orders(16),), ())
                names.heartbeat(type(beat(session))(session, version, beat(session).epoch, BrokerState.SERVING, changes))
            case "state":
                names.heartbeat(beat(session, state=BrokerState.RECOVERING))
            case "writes":
                await names.set_writable("a", writable=False)
            case "order":
                await watched.values.put(KeyValue(ORDER_TOPIC_CONFIG, "orders", "a:4"))
                names.wake_watches()
            case "expiry":
                watched.clock.now_s += 31
                names.register(slave())
            case "settled":
                for _ in range(31):
                    watched.clock.now_s += 1
                    names.heartbeat(beat(session))
                    names.expire()

        after = await anext(watched.watch)

        assert after.route is not None
        assert after.route != before.route

    told(story)


def test_only_the_topic_that_changed_is_told_again() -> None:
    async def story(watched: Watched) -> None:
        watched.names.register(master())
        first = [(await anext(watched.watch)).topic for _ in range(2)]
        watched.names.register(slave())

        assert first == ["orders", "other"]
        assert (await anext(watched.watch)).topic == "orders"
        assert await watched.is_silent()

    told(story, RouteWatchOrder(("orders", "other")))


def test_watch_ends_behind_the_answers_that_were_asked_for() -> None:
    async def story(watched: Watched) -> None:
        assert [news.topic async for news in watched.watch] == ["orders"]

    told(story, RouteWatchOrder(("orders",), "", 1))


@pytest.mark.parametrize(
    "order",
    [
        RouteWatchOrder(()),
        RouteWatchOrder(tuple(f"t{number}" for number in range(33))),
        RouteWatchOrder(("orders", "orders")),
        RouteWatchOrder(("no topic",)),
        RouteWatchOrder(("orders",), "no network!"),
    ],
)
def test_malformed_watch_is_refused(order: RouteWatchOrder) -> None:
    async def story(watched: Watched) -> None:
        with pytest.raises(InvalidField):
            await anext(watched.watch)

    told(story, order)


def test_watches_end_when_the_nameserver_stops() -> None:
    async def story(watched: Watched) -> None:
        watched.names.register(master())
        await anext(watched.watch)
        assert await watched.is_silent()

        watched.names.watches.end()

        assert not await watched.is_silent()
        assert [news async for news in watched.watch] == []

    told(story)


def test_watches_are_bounded_and_one_that_is_left_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(route_watches, "MAX_ROUTE_WATCHES", 1)

    async def story(watched: Watched) -> None:
        watched.names.register(master())
        await anext(watched.watch)
        with pytest.raises(LimitReached):
            await anext(watched.names.watches.watch(ORDERS))
        await watched.watch.aclose()
        async with aclosing(watched.names.watches.watch(ORDERS)) as next_watch:
            assert (await anext(next_watch)).topic == "orders"

    told(story)
