"""The registry with a clock, session names, a log, and a disk for what brokers cannot tell anew."""

import asyncio
import random
from dataclasses import replace

import structlog

from dittomq.doors.chance import hex_id
from dittomq.doors.clock import Clock
from dittomq.errors import NodeIdTaken, NotPermitted, NotReady, WrongCluster
from dittomq.metadata.topics import check_topic_name
from dittomq.naming.limits import check_network
from dittomq.routes import (
    DEFAULT_NETWORK,
    Beat,
    BeatAnswer,
    ForgetOrder,
    Forgotten,
    Membership,
    NodePage,
    Opening,
    Registration,
    Route,
)
from services.nameserver.config import NameserverConfig
from services.nameserver.keeping import Keeper
from services.nameserver.openings import Openings
from services.nameserver.registry import Registry
from services.nameserver.whereabouts import Now

log = structlog.get_logger()


class Names:
    """What the servicer calls; everything happens on the loop, at once. Only answers wait for the disk."""

    def __init__(self, config: NameserverConfig, clock: Clock, chance: random.Random, openings: Openings, keeper: Keeper) -> None:
        self._clock = clock
        self._chance = chance
        self._scan_period_s = config.registry.scan_period_ms / 1_000
        self._longest_pause_ms = config.registry.scan_period_ms + config.registry.broker_expiry_ms // 3
        started = self._now()
        self._looked_ms = started.monotonic_ms
        self._registry = Registry(config.node.cluster, config.registry.broker_expiry_ms, started, openings)
        self._keeper = keeper
        self._cluster = config.node.cluster
        self._openings = openings

    @property
    def nodes(self) -> int:
        """How many nodes are registered."""
        return self._registry.nodes

    async def register(self, registration: Registration) -> Membership:
        """Enter a node. The group's newest epoch is on the disk, as far as the answer says so."""
        self.expire()
        try:
            membership = self._enter(registration)
        except NodeIdTaken:
            await self._keeper.keep(registration.broker)  # one that is refused brings news too, and hears some
            raise
        return replace(membership, epoch_kept=await self._keeper.keep(registration.broker))

    async def heartbeat(self, beat: Beat) -> BeatAnswer:
        """Keep a session alive. The group's newest epoch is on the disk, as far as the answer says so."""
        group = self._registry.group_of(beat.session_id)
        answer = self._registry.heartbeat(beat, self._now())
        assert group is not None, "only a session that is there has a heartbeat"
        if answer.register_again:  # which comes at once, and waits then
            return answer
        return replace(answer, epoch_kept=await self._keeper.keep(group))

    def unregister(self, session_id: str) -> bool:
        """Remove a session's node."""
        removed = self._registry.unregister(session_id)
        if removed is not None:
            log.info("broker_left", node=removed)
        return removed is not None

    def route(self, topic: str, network: str) -> Route:
        """A topic's route."""
        check_topic_name(topic)
        check_network(network or DEFAULT_NETWORK)
        return self._registry.route(topic, network or DEFAULT_NETWORK, self._now())

    def page(self, size: int, token: str, network: str) -> NodePage:
        """A page of nodes, and of groups without one."""
        check_network(network or DEFAULT_NETWORK)
        return self._registry.page(size, token, network or DEFAULT_NETWORK, self._now())

    async def forget(self, order: ForgetOrder) -> Forgotten:
        """Remember nothing of a group of which no node is registered; its disk neither, as far as the answer says so.

        Raises NotPermitted, NotReady, WrongCluster.
        """
        self.expire()
        newest = self._to_forget(order)
        if order.validate_only or not newest.epoch:
            return Forgotten(newest, kept=not newest.epoch and await self._keeper.keep(order.broker))
        self._openings.forget(order.broker)
        log.warning("group_forgotten", broker=order.broker, epoch=newest.epoch, opener=newest.opener_id)
        return Forgotten(newest, kept=await self._keeper.keep(order.broker))

    def _to_forget(self, order: ForgetOrder) -> Opening:
        if order.cluster != self._cluster:
            raise WrongCluster("cluster", order.cluster, self._cluster)
        newest = self._openings.newest(order.broker)
        group = next((each for each in self._registry.silent(self._now()) if each.broker == order.broker), None)
        if group is None and newest.epoch:
            raise NotPermitted(f"refused: a node of {order.broker} is registered; only a group that is gone can be forgotten")
        if group is not None and group.unsettled:
            why = f"it was just started, and a node of {order.broker} may register yet; ask again when it was up for its broker_expiry_ms"
            raise NotReady("the nameserver", why)
        if newest.epoch > order.epoch:
            raise NotPermitted(
                f"refused: it remembers epoch {newest.epoch} of {order.broker}, newer than {order.epoch}; look at that first"
            )
        return newest

    def expire(self) -> None:
        """Forget silent nodes. Time in which this process stood still, with the others' words unread, is no silence of theirs."""
        now = self._now()
        since_ms, self._looked_ms = now.monotonic_ms - self._looked_ms, now.monotonic_ms
        if since_ms > self._longest_pause_ms:
            log.warning("stood_still", ms=since_ms)
            self._registry.stood_still(since_ms, now)
        for node in self._registry.expire(now):
            log.warning("broker_expired", node=node)

    async def expire_forever(self) -> None:
        """Forget silent nodes; runs until cancelled."""
        while True:
            await asyncio.sleep(self._scan_period_s)
            self.expire()

    def _enter(self, registration: Registration) -> Membership:
        try:
            membership = self._registry.register(registration, hex_id(self._chance), self._now())
        except NodeIdTaken as refused:
            log.warning("broker_refused", node=registration.node, replica=registration.replica_uuid, reason=str(refused))
            raise
        log.info(
            "broker_registered",
            node=registration.node,
            role=registration.role,
            state=registration.state,
            epoch=registration.epoch,
            address=registration.addresses[DEFAULT_NETWORK],
            topics=len(registration.topics),
        )
        return membership

    def _now(self) -> Now:
        return Now(int(self._clock.monotonic() * 1_000), self._clock.wall_ms())
