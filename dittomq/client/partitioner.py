"""Which broker group and queue a message goes to. The same order key always goes to the same queue, whichever client sends it."""

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

from dittomq.errors import InvalidField, PermissionDenied, QueueNotFound
from dittomq.message import Message
from dittomq.routes import PERMISSION_WRITE, BrokerState, Node, Route, order_queues

_AVOID_S = 5.0
"""For so long a group whose master did not answer gets nothing that can go elsewhere: nameservers notice much later."""


class SendTarget(NamedTuple):
    """Where a message goes. `bound`: it may not go to another group."""

    broker: str
    queue: int
    bound: bool


def master_of(route: Route, broker: str) -> Node | None:
    """The group's master; of several that say to be it the one of the highest epoch. None while there is none."""
    return max((node for node in route.nodes if node.broker == broker and node.leads), key=attrgetter("epoch"), default=None)


@dataclass(frozen=True, slots=True)
class _Plan:
    """A route as a chooser reads it. Pairs are (group, queue), in order; `led` are those of groups with a master that serves.

    `ordered` are those that order keys are spread over.
    """

    route: Route
    pairs: tuple[tuple[str, int], ...]
    led: tuple[tuple[str, int], ...]
    ordered: tuple[tuple[str, int], ...]


class Partitioner:
    """Chooses queues for one producer; takes turns where the message leaves the choice."""

    def __init__(self, now: Callable[[], float]) -> None:
        """`now`: the monotonic clock."""
        self._now = now
        self._plans: dict[str, _Plan] = {}
        self._turns: dict[str, int] = {}
        self._avoided: dict[str, float] = {}  # group → until when

    def check(self, route: Route) -> None:
        """Raise PermissionDenied when no group takes writes."""
        self._plan(route)

    def target(self, route: Route, message: Message) -> SendTarget:
        """Where the message goes; raises QueueNotFound or PermissionDenied.

        A queue by number is that of the first group, by name, that has it. An order key is hashed over all queues that may be
        written, also those of a group whose master is away: it waits for that master, because another queue would break the order.
        Where nameservers have an order configuration of the topic, it is hashed over those queues, whatever else is there or not.
        """
        plan = self._plan(route)
        if message.queue is not None:
            return SendTarget(_group_with(plan, message.queue), message.queue, bound=True)
        if message.order_key:
            broker, queue = plan.ordered[zlib.crc32(message.order_key.encode()) % len(plan.ordered)]
            return SendTarget(broker, queue, bound=True)
        return self._in_turn(self._answering(plan.led) or plan.led or plan.pairs, route.topic)

    def elsewhere(self, route: Route, broker: str) -> SendTarget | None:
        """A queue of another group with a master that serves, for a message bound to none; None when there is no such group."""
        try:
            led = self._plan(route).led
        except PermissionDenied:  # no group takes writes now
            return None
        others = tuple(pair for pair in self._answering(led) if pair[0] != broker)
        return self._in_turn(others, route.topic) if others else None

    def avoid(self, broker: str) -> None:
        """The group's master did not answer."""
        self._avoided[broker] = self._now() + _AVOID_S

    def _answering(self, pairs: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
        """Those of groups that are not avoided."""
        if not self._avoided:
            return pairs
        now = self._now()
        self._avoided = {broker: until for broker, until in self._avoided.items() if until > now}
        return tuple(pair for pair in pairs if pair[0] not in self._avoided)

    def _in_turn(self, pairs: tuple[tuple[str, int], ...], topic: str) -> SendTarget:
        turn = self._turns.get(topic, 0)
        self._turns[topic] = turn + 1
        broker, queue = pairs[turn % len(pairs)]
        return SendTarget(broker, queue, bound=False)

    def _plan(self, route: Route) -> _Plan:
        plan = self._plans.get(route.topic)
        if plan is None or plan.route is not route:
            plan = self._plans[route.topic] = _plan_of(route)
        return plan


def _plan_of(route: Route) -> _Plan:
    # While no master serves a group, nameservers take the right to write out of its route: that says "not now", not "never".
    writable = sorted(
        (group.broker, group.write_queues)
        for group in route.queues
        if group.permission & PERMISSION_WRITE or not _is_led(route, group.broker)
    )
    pairs = tuple((broker, queue) for broker, count in writable for queue in range(count))
    if not pairs:
        raise PermissionDenied(f'topic "{route.topic}" takes no writes in any broker group; its permission needs bit 2')
    led = tuple(pair for pair in pairs if _is_led(route, pair[0]))
    return _Plan(route, pairs, led, _ordered(route.order_config) or pairs)


def _ordered(config: str) -> tuple[tuple[str, int], ...]:
    """None where a newer nameserver writes it in a way that this client cannot read."""
    try:
        return tuple((broker, queue) for broker, count in order_queues(config) for queue in range(count)) if config else ()
    except InvalidField:
        return ()


def _is_led(route: Route, broker: str) -> bool:
    master = master_of(route, broker)
    return master is not None and master.state is BrokerState.SERVING


def _group_with(plan: _Plan, queue: int) -> str:
    for broker, number in plan.pairs:
        if number == queue:
            return broker
    raise QueueNotFound(plan.route.topic, queue, 1 + max(number for _, number in plan.pairs))
