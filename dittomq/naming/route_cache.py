"""What nameservers tell, as a client keeps it: routes by topic, each asked for once at a time."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from dittomq._pb.ditto.naming.v1 import naming_pb2 as pb
from dittomq._pb.ditto.naming.v1.naming_pb2_grpc import NameServerServiceStub
from dittomq.doors.clock import Clock
from dittomq.errors import DittoError, OutOfReach, TopicNotFound, VersionChanged
from dittomq.routes import DEFAULT_NETWORK, Node, Route
from dittomq.rpc.channel import Channels, call
from dittomq.wire import naming as wire

T = TypeVar("T")

_CALL_DEADLINE_S: Final = 3.0
_MAX_TOPICS: Final = 10_000  # the oldest is forgotten
_LIST_PAGE: Final = 1_000
_LIST_TRIES: Final = 5


@dataclass(slots=True)
class _Entry:
    """A topic's last answer. `lock` lets one caller ask while others wait for its answer."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    asked_s: float = float("-inf")  # when the question behind `outcome` was put
    outcome: Route | DittoError | None = None  # None: never asked


class RouteCache:
    """Routes of one cluster. Nameservers are tried in turn, beginning with the one that answered last."""

    def __init__(self, nameservers: Sequence[str], channels: Channels, clock: Clock, network: str = DEFAULT_NETWORK) -> None:
        self._nameservers = list(nameservers)
        self._channels = channels
        self._clock = clock
        self._network = network
        self._entries: dict[str, _Entry] = {}

    async def route(self, topic: str, max_age_s: float = 30.0) -> Route:
        """The topic's route, at most `max_age_s` old; raises TopicNotFound or OutOfReach."""
        entry = self._entries.get(topic)
        if entry is not None and isinstance(entry.outcome, Route) and self._clock.monotonic() - entry.asked_s <= max_age_s:
            return entry.outcome
        return await self.refresh(topic)

    async def refresh(self, topic: str) -> Route:
        """The topic's route as it is now: asked after this call, or shared with a question that was put after it."""
        called_s = self._clock.monotonic()
        entry = self._entry(topic)
        async with entry.lock:
            if entry.outcome is None or entry.asked_s < called_s:
                entry.asked_s = self._clock.monotonic()
                entry.outcome = await self._ask_for(topic)
            if isinstance(entry.outcome, DittoError):
                raise entry.outcome
            return entry.outcome

    def forget(self, topic: str) -> None:
        """Ask anew at the next use."""
        self._entries.pop(topic, None)

    async def brokers(self) -> list[Node]:
        """All nodes that a nameserver knows, in the order of broker name and id, from one version of its table."""
        for _ in range(_LIST_TRIES - 1):
            try:
                return await self._ask(self._all_pages)
            except VersionChanged:
                continue
        return await self._ask(self._all_pages)

    def _entry(self, topic: str) -> _Entry:
        entry = self._entries.get(topic)
        if entry is None:
            if len(self._entries) >= _MAX_TOPICS:
                del self._entries[next(iter(self._entries))]
            entry = self._entries[topic] = _Entry()
        return entry

    async def _ask_for(self, topic: str) -> Route | DittoError:
        async def ask(nameserver: str) -> Route:
            request = pb.GetRouteRequest(topic=topic, network=self._network)
            stub = self._stub(nameserver)
            response: pb.GetRouteResponse = await call(stub.GetRoute, request, who=_who(nameserver), deadline_s=_CALL_DEADLINE_S)
            return wire.route(topic, response)

        try:
            return await self._ask(ask)
        except DittoError as error:
            return error

    async def _all_pages(self, nameserver: str) -> list[Node]:
        """A nameserver that was away is waited for: unlike a route, the list has no older answer to live with meanwhile."""
        nodes: list[Node] = []
        token = ""
        while True:
            request = pb.ListBrokersRequest(page_size=_LIST_PAGE, page_token=token, network=self._network)
            response: pb.ListBrokersResponse = await call(
                self._stub(nameserver).ListBrokers,
                request,
                who=_who(nameserver),
                deadline_s=_CALL_DEADLINE_S,
                patient=self._channels.backs_off(nameserver),
            )
            page = wire.node_page(response)
            nodes += page.nodes
            token = page.next_page_token
            if not token:
                return nodes

    def _stub(self, nameserver: str) -> Any:
        return self._channels.stub(NameServerServiceStub, nameserver)

    async def _ask(self, question: Callable[[str], Awaitable[T]]) -> T:
        """The first answer. A nameserver that knows no such topic may not have heard of it yet: the others are asked too.

        Those that cannot be reached now come last.
        """
        unknown: TopicNotFound | None = None
        silence: OutOfReach | None = None
        for nameserver in sorted(self._nameservers, key=self._channels.backs_off):
            try:
                answer = await question(nameserver)
            except TopicNotFound as error:
                unknown = error
            except OutOfReach as error:
                silence = error
            else:
                self._prefer(nameserver)
                return answer
        raise unknown or silence or OutOfReach("any nameserver", "none is configured")

    def _prefer(self, nameserver: str) -> None:
        if self._nameservers[0] != nameserver:
            self._nameservers.remove(nameserver)
            self._nameservers.insert(0, nameserver)


def _who(nameserver: str) -> str:
    return f"nameserver {nameserver}"
