"""What nameservers answer, as a client keeps it: routes by topic, each asked for once at a time."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, TypeVar

from dittomq._pb.ditto.naming.v1 import naming_pb2 as pb
from dittomq._pb.ditto.naming.v1.naming_pb2_grpc import NameServerServiceStub
from dittomq.doors.clock import Clock
from dittomq.errors import DittoError, NotReady, TopicNotFound, Unavailable, VersionConflict
from dittomq.naming.fan_out import CALL_DEADLINE_S, Question, ask_in_turn
from dittomq.routes import DEFAULT_NETWORK, Node, QueueRange, Route
from dittomq.rpc.channel import Channels, breaking, call
from dittomq.rpc.headers import FOR_CLUSTER_HEADER
from dittomq.wire import naming as wire

T = TypeVar("T")

MAX_AGE_S: Final = 30.0
_MAX_TOPICS: Final = 10_000  # the oldest is forgotten
_LIST_PAGE: Final = 1_000
_LIST_TRIES: Final = 5
_REASONS: Final[tuple[type[DittoError], ...]] = (Unavailable, NotReady, TopicNotFound)
"""Why one nameserver may have no answer, from what says least to what says most; anything else the others would say too."""


@dataclass(slots=True)
class _CachedRoute:
    """A topic's last answer, `outcome`, and its last route. `lock` lets one caller ask while others wait for its answer."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    asked_s: float = float("-inf")  # when the question behind `outcome` was put
    of_all: bool = False  # and whether to each nameserver
    outcome: Route | DittoError | None = None  # None: never asked
    known: Route | None = None


class RouteCache:
    """Routes of one cluster. Nameservers are tried in turn, beginning with the one that answered last.

    `cluster` None: that of the first answer. What nameservers of another cluster say is no answer.
    """

    def __init__(
        self,
        nameservers: Sequence[str],
        channels: Channels,
        clock: Clock,
        network: str = DEFAULT_NETWORK,
        *,
        cluster: str | None = None,
    ) -> None:
        self._nameservers = list(nameservers)
        self._channels = channels
        self._clock = clock
        self._network = network
        self._cluster = cluster
        self._entries: dict[str, _CachedRoute] = {}

    async def route(self, topic: str, max_age_s: float = MAX_AGE_S) -> Route:
        """The topic's route, at most `max_age_s` old; raises TopicNotFound, Unavailable, or NotReady while no nameserver can know it."""
        return self.at_hand(topic, max_age_s) or await self.refresh(topic)

    def at_hand(self, topic: str, max_age_s: float = MAX_AGE_S) -> Route | None:
        """What `route` returns without asking; None where it asks."""
        entry = self._entries.get(topic)
        if entry is not None and isinstance(entry.outcome, Route) and self._clock.monotonic() - entry.asked_s <= max_age_s:
            return entry.outcome
        return None

    async def refresh(self, topic: str, *, of_all: bool = False) -> Route:
        """The topic's route as it is now: asked after this call, or shared with a question that was put after it.

        `of_all`: put to each nameserver, for the master that one of them names does not take anything.
        """
        called_s = self._clock.monotonic()
        entry = self._entry(topic)
        async with entry.lock:
            if entry.outcome is None or entry.asked_s < called_s or (of_all and not entry.of_all):
                asked_s = self._clock.monotonic()
                outcome = await self._ask_for(topic, entry.known, of_all=of_all)  # a caller who gives up leaves all as it was
                entry.asked_s, entry.of_all, entry.outcome = asked_s, of_all, outcome
            if isinstance(entry.outcome, DittoError):
                raise entry.outcome
            entry.known = entry.outcome
            return entry.outcome

    async def brokers(self) -> list[Node]:
        """All nodes that any nameserver lists, in the order of broker name and id; of two that lead one group the newer one first."""
        return _merged_lists(await self._lists())

    async def nodes_of(self, broker: str) -> list[Node]:
        """The nodes of one group as each nameserver lists them: where one knows half of it, another one may know the other half."""
        return [node for nodes in await self._lists() for node in nodes if node.broker == broker]

    async def set_writable(self, broker: str, *, writable: bool) -> dict[str, int | DittoError]:
        """Let the routes of every nameserver name the group for writing, or not: by nameserver how many topics it knows of the group.

        None that serves another cluster than the others obeys. Raises Unavailable when none answers.
        """
        await self._lists()
        headers = () if self._cluster is None else ((FOR_CLUSTER_HEADER, self._cluster),)
        outcomes: dict[str, int | DittoError] = {}

        async def put(nameserver: str, deadline_s: float) -> int:
            request = pb.SetWritePermissionRequest(broker=broker, writable=writable)
            with breaking(_who(nameserver)):
                response: pb.SetWritePermissionResponse = await self._stub(nameserver).SetWritePermission(
                    request, timeout=deadline_s, metadata=headers
                )
            return response.topics

        def collect(nameserver: str, outcome: int | DittoError) -> bool:
            outcomes[nameserver] = outcome
            return False

        async with asyncio.TaskGroup() as tasks:  # each is asked, whatever the others do
            for nameserver in self._nameservers:
                tasks.create_task(ask_in_turn([nameserver], put, collect))
        return dict(sorted(outcomes.items()))

    async def _lists(self) -> list[list[Node]]:
        """What each nameserver that answers lists."""
        tries = _LIST_TRIES
        while True:
            tries -= 1
            try:
                return await self._ask(self._all_pages, lambda _: False, lambda nodes: nodes[0].cluster if nodes else None)
            except VersionConflict:
                if not tries:
                    raise

    def _entry(self, topic: str) -> _CachedRoute:
        entry = self._entries.get(topic)
        if entry is None:
            if len(self._entries) >= _MAX_TOPICS:
                del self._entries[next(iter(self._entries))]
            entry = self._entries[topic] = _CachedRoute()
        return entry

    async def _ask_for(self, topic: str, known: Route | None, *, of_all: bool) -> Route | DittoError:
        """Groups of the `known` route stay in it until a nameserver leaves them out that has been up for long enough to know."""

        async def ask(nameserver: str, deadline_s: float) -> Route:
            request = pb.GetRouteRequest(topic=topic, network=self._network)
            stub = self._stub(nameserver)
            response: pb.GetRouteResponse = await call(stub.GetRoute, request, who=_who(nameserver), deadline_s=deadline_s)
            return wire.route(topic, response)

        try:
            routes = await self._ask(ask, lambda route: not of_all and _is_whole(route, known), attrgetter("cluster"))
        except DittoError as error:
            return error
        if known is not None and all(route.warming_up for route in routes):
            routes.append(known)
        return _merged(routes)

    async def _all_pages(self, nameserver: str, deadline_s: float) -> list[Node]:
        """A nameserver that was away is waited for: unlike a route, the list has no older answer to live with."""
        nodes: list[Node] = []
        token = ""
        while True:
            request = pb.ListBrokersRequest(page_size=_LIST_PAGE, page_token=token, network=self._network)
            response: pb.ListBrokersResponse = await call(
                self._stub(nameserver).ListBrokers,
                request,
                who=_who(nameserver),
                deadline_s=deadline_s,
                patient=deadline_s == CALL_DEADLINE_S and self._channels.backs_off(nameserver),
            )
            page = wire.node_page(response)
            nodes += page.nodes
            token = page.next_page_token
            if not token:
                return nodes

    def _stub(self, nameserver: str) -> Any:
        return self._channels.stub(NameServerServiceStub, nameserver)

    async def _ask(self, question: Question[T], is_enough: Callable[[T], bool], cluster_of: Callable[[T], str | None]) -> list[T]:
        """Answers up to one that is enough, at least one.

        A nameserver that knows no such topic, or not enough of it, may not have heard yet: the others are asked too, with less patience.
        One that says that it cannot know yet is not believed against one that can.
        Those that cannot be reached now come last.
        """
        answers: dict[str, T] = {}
        problems: list[DittoError] = []

        async def put(nameserver: str, deadline_s: float) -> T:
            answer = await question(nameserver, deadline_s)
            self._check_cluster(nameserver, cluster_of(answer))
            return answer

        def is_the_last(nameserver: str, outcome: T | DittoError) -> bool:
            if isinstance(outcome, DittoError):
                problems.append(outcome)
                return not answers and not isinstance(outcome, _REASONS)
            answers[nameserver] = outcome
            return is_enough(outcome)

        await ask_in_turn(sorted(self._nameservers, key=self._channels.backs_off), put, is_the_last)
        if not answers:
            none = Unavailable("any nameserver", "none is configured")
            silent = [problem for problem in problems if isinstance(problem, Unavailable)]
            if len(silent) == len(problems) > 1:
                each = "; ".join(f"{problem.who}: {problem.problem}" for problem in silent)
                raise Unavailable(f"each of the {len(silent)} nameservers", each)
            raise max(reversed(problems), key=_weight, default=none)
        self._prefer(max(answers, key=lambda nameserver: is_enough(answers[nameserver])))
        return list(answers.values())

    def _check_cluster(self, nameserver: str, cluster: str | None) -> None:
        self._cluster = self._cluster or cluster
        if cluster and cluster != self._cluster:
            raise Unavailable(_who(nameserver), f'it is of cluster "{cluster}", not "{self._cluster}"')

    def _prefer(self, nameserver: str) -> None:
        if self._nameservers[0] != nameserver:
            self._nameservers.remove(nameserver)
            self._nameservers.insert(0, nameserver)


def _who(nameserver: str) -> str:
    return f"nameserver {nameserver}"


def _weight(problem: DittoError) -> int:
    return next((weight for weight, reason in enumerate(_REASONS) if isinstance(problem, reason)), len(_REASONS))


def _is_whole(route: Route, known: Route | None) -> bool:
    """Whether no other nameserver needs to be asked: each group has a master, and what was `known` is not missing, nor newer."""
    groups = {group.broker for group in route.queues}
    expected = {group.broker for group in known.queues} if known is not None else set()
    led = _epochs_led(route)
    newest = _epochs_led(known) if known is not None else {}
    is_older = any(epoch < newest.get(broker, 0) for broker, epoch in led.items())
    return not route.warming_up and not is_older and expected <= groups <= led.keys()


def _epochs_led(route: Route) -> dict[str, int]:
    return {node.broker: node.epoch for node in route.nodes if node.leads}


def _merged(routes: Sequence[Route]) -> Route:
    """Each group as the route tells it that knows most of it."""
    best: dict[str, tuple[QueueRange, list[Node]]] = {}
    for route in routes:
        for group in route.queues:
            nodes = [node for node in route.nodes if node.broker == group.broker]
            if group.broker not in best or _rank(nodes) > _rank(best[group.broker][1]):
                best[group.broker] = (group, nodes)
    told = [best[broker] for broker in sorted(best)]
    queues, members = tuple(group for group, _ in told), tuple(node for _, nodes in told for node in nodes)
    order_config = next((route.order_config for route in routes if route.order_config), "")
    return replace(routes[0], queues=queues, nodes=members, order_config=order_config)


def _merged_lists(lists: Iterable[Iterable[Node]]) -> list[Node]:
    """Each node as the list tells it that knows most of its group. Of two that lead one group the newer one comes first."""
    groups = [list(group) for nodes in lists for _, group in groupby(nodes, key=attrgetter("broker"))]
    known: list[Node] = []
    names: set[str] = set()
    for group in sorted(groups, key=_rank, reverse=True):
        known += [node for node in group if node.name not in names]
        names.update(node.name for node in group)
    return sorted(known, key=lambda node: (node.broker, node.broker_id, -node.epoch))


def _rank(group: list[Node]) -> tuple[int, int]:
    """Of two answers about a group the higher one is believed: the newest master, then the more nodes."""
    return max((node.epoch for node in group if node.leads), default=-1), len(group)
