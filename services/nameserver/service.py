"""The registry with a clock, session names, and a log."""

import asyncio
import random

import structlog

from dittomq.doors.chance import hex_id
from dittomq.doors.clock import Clock
from dittomq.errors import DuplicateBrokerId, InvalidField
from dittomq.metadata.topics import check_topic_name
from dittomq.naming.validation import check_network
from dittomq.routes import (
    DEFAULT_NETWORK,
    ORDER_TOPIC_CONFIG,
    HeartbeatRequest,
    HeartbeatResult,
    KeyValue,
    NodePage,
    Registration,
    RegistrationResult,
    Route,
)
from services.nameserver.config import NameserverConfig
from services.nameserver.key_values import KeyValues
from services.nameserver.registry import WRITES_OFF, Registry
from services.nameserver.route_watches import RouteWatches
from services.nameserver.seen import Now

_OF_ROUTES = (WRITES_OFF, ORDER_TOPIC_CONFIG)

log = structlog.get_logger()


class NameServer:
    """What the servicer calls; what is not in `values` happens on the loop, at once."""

    def __init__(self, config: NameserverConfig, clock: Clock, chance: random.Random, values: KeyValues) -> None:
        self._values = values
        self._clock = clock
        self._chance = chance
        self._scan_period_s = config.registry.scan_period_ms / 1_000
        self._longest_suspension_ms = config.registry.scan_period_ms + config.registry.broker_expiry_ms // 3
        started = self._now()
        self._looked_ms = started.monotonic_ms
        self._registry = Registry(config.node.cluster, config.registry.broker_expiry_ms, started, values.namespace)
        self.watches = RouteWatches(self.route)
        self._woken_for: tuple[object, ...] = ()

    @property
    def nodes(self) -> int:
        """How many nodes are registered."""
        return self._registry.nodes

    def register(self, registration: Registration) -> RegistrationResult:
        """Enter a node under a new session. Raises DuplicateBrokerId, InvalidField, WrongCluster, LimitReached."""
        self.expire()
        try:
            membership = self._registry.register(registration, hex_id(self._chance), self._now())
        except DuplicateBrokerId as refused:
            log.warning("broker_refused", node=registration.node, replica=registration.replica_uuid, reason=str(refused))
            raise
        log.info(
            "broker_registered",
            node=registration.node,
            broker_id=registration.broker_id,
            role=registration.role,
            state=registration.state,
            epoch=registration.epoch,
            address=registration.addresses[DEFAULT_NETWORK],
            topics=len(registration.topics),
        )
        self.wake_watches()
        return membership

    def heartbeat(self, beat: HeartbeatRequest) -> HeartbeatResult:
        """Keep a session alive. Raises SessionExpired, InvalidField."""
        answer = self._registry.heartbeat(beat, self._now())
        self.wake_watches()
        return answer

    def unregister(self, session_id: str) -> bool:
        """Remove a session's node; whether it was the node's newest session."""
        removed = self._registry.unregister(session_id)
        if removed is not None:
            log.info("broker_left", node=removed)
        self.wake_watches()
        return removed is not None

    def route(self, topic: str, network: str) -> Route:
        """A topic's route."""
        check_topic_name(topic)
        check_network(network or DEFAULT_NETWORK)
        return self._registry.route(topic, network or DEFAULT_NETWORK, self._now())

    def page(self, size: int, token: str, network: str) -> NodePage:
        """A page of nodes."""
        check_network(network or DEFAULT_NETWORK)
        return self._registry.page(size, token, network or DEFAULT_NETWORK)

    async def set_writable(self, broker: str, *, writable: bool) -> int:
        """Let routes name the group for writing, or not, durably before returning; how many topics the group holds now.

        Raises InvalidField where a group is to be closed that no node of is registered; else what `KeyValues.put` raises.
        """
        topics = self._registry.topics_of(broker)
        if topics is None and not writable:
            raise InvalidField("broker", f'no node of broker group "{broker[:127]}" is registered here; list them: dittomq cluster')
        if writable:
            changed = await self._values.delete(WRITES_OFF, broker)
        else:
            changed = await self._values.put(KeyValue(WRITES_OFF, broker, "off"))
        if changed:
            log.warning("write_permission_changed", broker=broker, writable=writable, topics=topics or 0)
            self.wake_watches()
        return topics or 0

    def expire(self) -> None:
        """Forget silent nodes. Time in which this process was suspended, with their heartbeats unread, is no silence of theirs."""
        now = self._now()
        since_ms, self._looked_ms = now.monotonic_ms - self._looked_ms, now.monotonic_ms
        if since_ms > self._longest_suspension_ms:
            log.warning("nameserver_resumed", suspended_ms=since_ms)
            self._registry.add_suspension(since_ms, now)
        for node in self._registry.expire(now):
            log.warning("broker_expired", node=node)
        self.wake_watches()

    def wake_watches(self) -> None:
        """Let watches of routes look, where something has changed that routes are made of since they were told last."""
        made_of = (self._registry.changes, self._registry.is_settled(self._now()), *map(self._values.namespace, _OF_ROUTES))
        if len(made_of) != len(self._woken_for) or any(
            now is not then and now != then for now, then in zip(made_of, self._woken_for, strict=True)
        ):
            self._woken_for = made_of
            self.watches.look_again()

    async def expire_forever(self) -> None:
        """Forget silent nodes; runs until cancelled."""
        while True:
            await asyncio.sleep(self._scan_period_s)
            self.expire()

    def _now(self) -> Now:
        return Now(int(self._clock.monotonic() * 1_000), self._clock.wall_ms())
