"""A slave, put together in the order in which it starts."""

import asyncio
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import structlog
from prometheus_client import CollectorRegistry

from dittomq.broker.auditing import Auditing
from dittomq.broker.config_files import ConfigFiles
from dittomq.broker.dispatching import Dispatcher
from dittomq.broker.doors import BrokerDoors
from dittomq.broker.fetching import RangeServing
from dittomq.broker.keeping import Keeper
from dittomq.broker.mending import Mender
from dittomq.broker.metadata import Metadata
from dittomq.broker.metadata_sync import MetadataPuller
from dittomq.broker.pinning import PinParts, Pins
from dittomq.broker.preparing import prepare_segments
from dittomq.broker.reading import Reading, ReadRules
from dittomq.broker.registration import Identity, advertised
from dittomq.broker.retaining import Retaining, RetainingParts
from dittomq.broker.role import BrokerService, Grant
from dittomq.broker.servicers import names
from dittomq.broker.servicers.audit import AuditServicer
from dittomq.broker.servicers.metadata import MetadataServicer
from dittomq.broker.servicers.topics import TopicServicer
from dittomq.broker.topics import SlaveTopics, TopicReads
from dittomq.commitlog.store import Store
from dittomq.metadata.tables import QueueMinimums
from dittomq.naming.registrar import NameserverNews, Registrar
from dittomq.routes import DEFAULT_NETWORK, Role
from dittomq.rpc.channel import Channels
from dittomq.rpc.interceptors import CallInterceptor
from dittomq.rpc.metadata_source import RemoteMetadata
from dittomq.rpc.server import Listen, RpcServer, Service, bind
from dittomq.rpc.vitals import Phase, Vitals
from dittomq.settings import Loaded
from services.brokerage import Changes, Duty, Lanes, Place, open_node, work
from services.ha_metrics import HaCollector
from services.mending import make_mender
from services.metrics import CallMetrics
from services.retention_metrics import RetentionCollector
from services.slave.config import SlaveConfig
from services.slave.follower import Callers, Follower, FollowerParts
from services.slave.node import MasterAddresses, NodeParts, SlaveNode
from services.slave.replica import Replica, ReplicaParts
from services.slave.resync import ResyncParts
from services.slave.servicers import BrokerServicer, MessagingServicer, ReplicationServicer

_GRACE_S: Final = 2.0

log = structlog.get_logger()


class Slave:
    """One slave on the doors it is given."""

    def __init__(self, loaded: Loaded[SlaveConfig], doors: BrokerDoors) -> None:
        self.vitals = Vitals()
        self.registry = CollectorRegistry()
        self._loaded = loaded
        self._config = loaded.value
        self._doors = doors
        self._calls = CallMetrics(self.registry)

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set, then drain.

        Raises StartError when it cannot start, StoreFailed when the disk fails, and after it has drained Superseded or ComeBack.
        """
        place = Place(self._config.name, stop)
        lanes = Lanes.of(self._doors.workers)
        async with (
            open_node(self._doors, self._config, BrokerService.SLAVE, lanes.store) as (store, grant),
            Channels(self._doors.transport) as channels,
        ):
            await self._serve(_Opened(store, grant, place), lanes, channels, stop)
        place.check()

    async def _serve(self, opened: "_Opened", lanes: Lanes, channels: Channels, stop: asyncio.Event) -> None:
        store, place = opened.store, opened.place
        doors, clock, config = self._doors, self._doors.clock, self._config
        changes = Changes()
        metadata = Metadata(ConfigFiles(doors.storage, self._config.name), lanes.files, clock, changes.table_changed)
        for restored in await metadata.load():
            log.warning("config_file_restored", what=restored)
        await lanes.store.call(store.sync)
        await lanes.store.call(store.stamp_boot)
        addresses = MasterAddresses(config.replication.master_address)

        async def hide(minimums: QueueMinimums) -> None:
            await lanes.store.call(lambda: store.hide(minimums))

        puller = MetadataPuller(RemoteMetadata(channels, lambda: addresses.clients), metadata, clock, hide)
        pins = Pins(PinParts(config.name, doors.storage, store, lanes.files, clock, doors.chance))
        await pins.load()
        parts = NodeParts(self._loaded, store, metadata, puller, Dispatcher(store, lanes.dispatch), pins, clock)
        follower = self._follower(parts, lanes, channels, Callers(lambda: addresses.replication, puller.topics_at, _anew(place)))
        node = SlaveNode(parts, follower, addresses)
        self.registry.register(HaCollector(node.status, asyncio.get_running_loop()))
        mender = make_mender(config, doors, store, lanes, channels)(lambda: [("the master", addresses.replication)])
        clients, ranges = await self._bind(node, _Bound(parts, lanes, follower, addresses, mender))
        follower.serves_at(self._replication_address(ranges))

        def heard(news: NameserverNews) -> None:
            addresses.heard(news)
            follower.nameservers_answered()
            place.heard(news)

        identity = self._identity(opened, clients, ranges)
        registrar = Registrar(config.node.nameservers, lambda: node.registration(identity), heard, channels, clock, doors.chance)
        keeper = Keeper(store, lanes.files, node.known)
        duties: list[Duty] = [
            registrar.run,
            lambda: changes.forward(registrar),
            metadata.watch,
            parts.dispatcher.run,
            keeper.run,
            lambda: prepare_segments(store.ahead, lanes.ahead),
            self._retaining(store, lanes, pins).run,
            mender.run,
            puller.run,
            follower.run,
        ]
        await self.vitals.become(Phase.READY)
        await work(duties, [clients, ranges], stop, lambda: self._drain(node, registrar, [clients, ranges]))
        await follower.copy.flush()
        await keeper.keep()
        await lanes.store.call(store.checkpoint)

    def _retaining(self, store: Store, lanes: Lanes, pins: Pins) -> Retaining:
        table = self._config.retention
        parts = RetainingParts(self._config.name, store, lanes.retention, self._doors.clock, pins)
        retaining = Retaining(parts, table.rules, table.check_period_ms / 1000, tuple)
        self.registry.register(RetentionCollector(retaining))
        return retaining

    def _follower(self, parts: NodeParts, lanes: Lanes, channels: Channels, callers: Callers) -> Follower:
        doors, config, store = self._doors, self._config, parts.store
        own = Replica(ReplicaParts(config, doors.storage, store, lanes.store, lanes.reads, lanes.files, parts.dispatcher))
        return Follower(FollowerParts(config, own, ResyncParts(config, doors, lanes, store), channels, doors.clock, doors.chance), callers)

    async def _drain(self, node: SlaveNode, registrar: Registrar, servers: list[RpcServer]) -> None:
        log.info("draining", node=self._config.name)
        node.watches.stop()
        await self.vitals.become(Phase.DRAINING, "shutting down")
        await registrar.goodbye()
        for server in servers:
            await server.stop(_GRACE_S)

    async def _bind(self, node: SlaveNode, bound: "_Bound") -> tuple[RpcServer, RpcServer]:
        config, clock, parts, lanes = self._config, self._doors.clock, bound.parts, bound.lanes
        store, metadata = parts.store, parts.metadata

        def master() -> str:
            return bound.addresses.clients

        rules = ReadRules(
            config.node.broker,
            bound.follower.readable,
            node.topic,
            refuses_beyond_end=False,
            newer_topics=parts.puller.newer_topics,
            damaged=bound.mender.suspect,
        )
        reading = Reading(store, lanes.reads, parts.dispatcher, clock, rules)
        ranges = RangeServing(bound.follower.stores, lanes.reads, config.node.cluster, config.node.broker, bound.mender.suspect)
        clients = [
            names.messaging(MessagingServicer(config.name, master, reading)),
            names.metadata(MetadataServicer(metadata)),
            names.topics(TopicServicer(TopicReads(config.name, metadata, store, lanes.reads), SlaveTopics(config.name, master))),
            names.broker(BrokerServicer(node)),
            names.audit(AuditServicer(Auditing(store, lanes.audit, node.copy), parts.pins)),
        ]
        replicas = [
            names.replication(ReplicationServicer(config.name, master, ranges)),
            names.metadata(MetadataServicer(metadata)),  # a recovering master takes the tables with the tail
        ]
        return (
            await self._server(node, Listen("listen.clients", config.listen.clients), clients),
            await self._server(node, Listen("listen.replication", config.listen.replication), replicas),
        )

    async def _server(self, node: SlaveNode, listen: Listen, services: list[Service]) -> RpcServer:
        interceptor = CallInterceptor(lambda: (self._config.name, node.epoch), self._doors.clock, self._doors.chance, self._calls)
        return await bind(self._doors.transport, listen, services, [interceptor], self.vitals)

    def _replication_address(self, server: RpcServer) -> str:
        return advertised(self._config.advertise_replication, self._config.listen.replication, server.port)[DEFAULT_NETWORK]

    def _identity(self, opened: "_Opened", clients: RpcServer, replicas: RpcServer) -> Identity:
        config = self._config
        return Identity(
            cluster=config.node.cluster,
            broker=config.node.broker,
            broker_id=config.node.broker_id if opened.grant is None else opened.grant.broker_id,
            replica_uuid=opened.store.replica_uuid,
            role=Role.SLAVE,
            addresses=advertised(config.advertise, config.listen.clients, clients.port),
            replication_addresses=advertised(config.advertise_replication, config.listen.replication, replicas.port),
            permission=config.node.permission,
            registration_period_ms=config.node.registration_period_ms,
        )


@dataclass(frozen=True, slots=True)
class _Bound:
    """What the servers answer from."""

    parts: NodeParts
    lanes: Lanes
    follower: Follower
    addresses: MasterAddresses
    mender: Mender


@dataclass(frozen=True, slots=True)
class _Opened:
    """What a start found: the store, what the last role change decided, and the node's place among its peers."""

    store: Store
    grant: Grant | None
    place: Place


def _anew(place: Place) -> Callable[[str], None]:
    return lambda why: place.come_back(BrokerService.SLAVE, why)


async def serve(config: SlaveConfig, doors: BrokerDoors, stop: asyncio.Event) -> None:
    """Run a slave until `stop` is set."""
    await Slave(Loaded(config, defaultdict(lambda: "default")), doors).run(stop)
