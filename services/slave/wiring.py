"""A slave, put together in the order in which it starts."""

import asyncio
from collections import defaultdict
from dataclasses import dataclass

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
from dittomq.broker.outflow import Outflow
from dittomq.broker.pinning import PinParts, Pins
from dittomq.broker.preparing import prepare_segments
from dittomq.broker.reading import Reading, ReadRules
from dittomq.broker.registration import Identity, advertised
from dittomq.broker.retaining import Retaining, RetainingParts
from dittomq.broker.role import BrokerService, Grant
from dittomq.broker.servicers import names
from dittomq.broker.servicers.audit import AuditServicer
from dittomq.broker.servicers.brokers import BrokerServicer
from dittomq.broker.servicers.metadata import MetadataServicer
from dittomq.broker.servicers.topics import TopicServicer
from dittomq.broker.topics import SlaveTopics, TopicReads
from dittomq.commitlog.disk.storage import Storage
from dittomq.commitlog.store import Store
from dittomq.metadata.tables import QueueMinimums
from dittomq.naming.registrar import NameserverNews, Registrar
from dittomq.naming.route_cache import RouteCache
from dittomq.routes import DEFAULT_NETWORK, Role
from dittomq.rpc.call_room import CallRoom
from dittomq.rpc.channel import Channels
from dittomq.rpc.headers import Answerer, Group
from dittomq.rpc.interceptors import CallInterceptor
from dittomq.rpc.metadata_source import RemoteMetadata
from dittomq.rpc.replicas import RemoteReplicas
from dittomq.rpc.server import Listen, RpcServer, Service, bind
from dittomq.rpc.vitals import Phase, Vitals
from dittomq.settings import Loaded
from services.brokerage import Changes, Duty, Lanes, NextLife, Place, open_node, work
from services.ha_metrics import HaCollector
from services.lives import import_life
from services.mending import make_mender
from services.metrics import CallMetrics
from services.retention_metrics import RetentionCollector
from services.slave.beginnings import beginning_of_master
from services.slave.config import SlaveConfig
from services.slave.filling import note_part
from services.slave.follower import Callers, Follower, FollowerParts
from services.slave.heir import Heir, HeirParts
from services.slave.node import MasterAddresses, NodeParts, SlaveNode
from services.slave.replica import Replica, ReplicaParts
from services.slave.resync import ResyncParts
from services.slave.servicers import Answers, MessagingServicer, ReplicationServicer

log = structlog.get_logger()


class Slave:
    """One slave on the doors it is given."""

    def __init__(self, loaded: Loaded[SlaveConfig], doors: BrokerDoors, *, is_first: bool, next_life: NextLife = import_life) -> None:
        """`is_first`: it is the first life of its process. `next_life` makes ready for another one, or raises ConfigError."""
        self.vitals = Vitals()
        self.registry = CollectorRegistry()
        self._loaded = loaded
        self._config = loaded.value
        self._doors = doors
        self._is_first = is_first
        self._next_life = next_life
        self._calls = CallMetrics(self.registry)

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set, then drain.

        Raises StartError when it cannot start, StoreFailed when the disk fails, and after it has drained Superseded or ComeBack.
        """
        place = Place(self._config, stop, self._next_life)
        lanes = Lanes.of(self._doors.workers)
        async with (
            open_node(self._doors, self._config, BrokerService.SLAVE, lanes.store) as (store, grant),
            Channels(self._doors.transport) as channels,
        ):
            await self._serve(_Opened(store, grant, place), lanes, channels, stop)
        place.check()

    async def _serve(self, opened: "_Opened", lanes: Lanes, channels: Channels, stop: asyncio.Event) -> None:
        store, place, doors, config, changes = opened.store, opened.place, self._doors, self._config, Changes()
        metadata = await self._metadata(lanes, changes)
        await _stamp(store, doors.storage, lanes)
        addresses = MasterAddresses(config.replication.master_address)
        pins = await self._pins(store, lanes)
        parts = self._parts(opened, lanes, _Tables(metadata, self._of_master(channels, addresses), pins))
        callers = Callers(lambda: addresses.replication, parts.puller.topics_at, lambda why: place.come_back(BrokerService.SLAVE, why))
        follower = await self._follower(parts, lanes, channels, callers)
        node = SlaveNode(parts, follower, addresses)
        self.registry.register(HaCollector(node.status, asyncio.get_running_loop()))
        mender = make_mender(config, doors, store, lanes, channels)(lambda: [("the master", addresses.replication)])
        heir = self._heir(node, bound := _Bound(parts, lanes, follower, addresses, mender), channels, place)
        clients, ranges = await self._bind(node, bound, heir)

        def heard(news: NameserverNews) -> None:
            follower.told_of(news.newest)
            if addresses.heard(news):
                follower.master_is_named()
            if node.heard(news):
                changes.changed()
            place.heard(news)

        registrar = Registrar(
            config.node.nameservers,
            lambda: node.registration(self._identity(opened, node.wire_id, clients, ranges)),
            *(heard, channels, doors.clock, doors.chance),
            patient=opened.grant is not None,
            is_start=self._is_first,
        )
        follower.alone, heir.tell = registrar.ask, registrar.tell
        keeper = Keeper(store, lanes.files, node.known)
        duties: list[Duty] = [
            registrar.run,
            lambda: changes.forward(registrar),
            metadata.watch,
            parts.dispatcher.run,
            keeper.run,
            lambda: prepare_segments(store.ahead, lanes.ahead),
            self._retaining(bound, channels).run,
            mender.run,
            parts.puller.run,
            follower.run,
            heir.errand.run,
        ]
        await self.vitals.become(Phase.READY)
        await work(duties, [clients, ranges], stop, lambda: self._drain(node, place, registrar, [clients, ranges]))
        await follower.copy.flush()
        await keeper.keep()
        await lanes.store.call(store.checkpoint_if_room)

    async def _pins(self, store: Store, lanes: Lanes) -> Pins:
        pins = Pins(PinParts(self._config.name, self._doors.storage, store, lanes.files, self._doors.clock, self._doors.chance))
        await pins.load()
        return pins

    async def _metadata(self, lanes: Lanes, changes: Changes) -> Metadata:
        metadata = Metadata(ConfigFiles(self._doors.storage, self._config.name), lanes.files, self._doors.clock, changes.table_changed)
        for restored in await metadata.load():
            log.warning("config_file_restored", what=restored)
        return metadata

    def _of_master(self, channels: Channels, addresses: MasterAddresses) -> RemoteMetadata:
        return RemoteMetadata(channels, Group(self._config.node.cluster, self._config.node.broker), lambda: addresses.clients)

    def _parts(self, opened: "_Opened", lanes: Lanes, tables: "_Tables") -> NodeParts:
        store, clock = opened.store, self._doors.clock

        async def hide(minimums: QueueMinimums) -> None:
            await lanes.store.call(lambda: store.hide(minimums))

        async def show_again(minimums: QueueMinimums) -> None:
            if await lanes.files.call(lambda: store.show_again(minimums)):
                opened.place.come_back(BrokerService.SLAVE, "its master knows of no deletion of what it hides")

        puller = MetadataPuller(tables.of_master, tables.own, clock, hide, show_again)
        dispatcher = Dispatcher(store, lanes.dispatch)
        return NodeParts(self._loaded, store, tables.own, puller, dispatcher, tables.pins, clock, opened.grant)

    def _retaining(self, bound: "_Bound", channels: Channels) -> Retaining:
        table, hold_bytes = self._config.retention, self._config.replication.hold_max_bytes
        parts, lane, follower = bound.parts, bound.lanes.retention, bound.follower
        told = beginning_of_master(follower, channels, self._config)
        work = RetainingParts(self._config.name, parts.store, lane, self._doors.clock, parts.pins, told)
        retaining = Retaining(work, table.rules, table.check_period_ms / 1000, lambda: follower.held.holds(hold_bytes))
        self.registry.register(RetentionCollector(retaining))
        return retaining

    async def _follower(self, parts: NodeParts, lanes: Lanes, channels: Channels, callers: Callers) -> Follower:
        doors, config, store = self._doors, self._config, parts.store
        own = Replica(ReplicaParts(config, doors.storage, store, lanes.store, lanes.sync, lanes.reads, lanes.files, parts.dispatcher))
        of_it = FollowerParts(config, own, ResyncParts(config, doors, lanes, store), channels, doors.clock, doors.chance)
        follower = Follower(of_it, callers)
        await follower.held.load()
        return follower

    def _heir(self, node: SlaveNode, bound: "_Bound", channels: Channels, place: Place) -> Heir:
        config, doors = self._config, self._doors
        parts = HeirParts(
            config=config,
            storage=doors.storage,
            files=bound.lanes.files,
            node=node,
            follower=bound.follower,
            addresses=bound.addresses,
            routes=RouteCache(config.node.nameservers, channels, doors.clock, cluster=config.node.cluster),
            replicas=RemoteReplicas(channels, config.node.cluster, config.node.broker),
            place=place,
            tables=bound.parts.puller,
        )
        return Heir(parts)

    async def _drain(self, node: SlaveNode, place: Place, registrar: Registrar, servers: list[RpcServer]) -> None:
        log.info("draining", node=self._config.name)
        node.watches.stop()
        await self.vitals.become(Phase.DRAINING, "shutting down")
        await place.leave(registrar)
        await place.close(servers)

    async def _bind(self, node: SlaveNode, bound: "_Bound", heir: Heir) -> tuple[RpcServer, RpcServer]:
        config, clock, parts, lanes = self._config, self._doors.clock, bound.parts, bound.lanes
        store, metadata = parts.store, parts.metadata

        def master() -> str:
            return bound.addresses.clients

        room, for_nodes = CallRoom(self._doors.memory_bytes), CallRoom(self._doors.memory_bytes)
        rules = ReadRules(
            config.node.broker,
            bound.follower.readable,
            node.topic,
            refuses_beyond_end=False,
            room=room,
            in_memory_bytes=config.reading.in_memory_bytes(self._doors.memory_bytes, slave=True),
            newer_topics=parts.puller.newer_topics,
            damaged=bound.mender.suspect,
        )
        reading = Reading(store, lanes.reads, parts.dispatcher, clock, rules)
        answers = Answers(config.name, master, node.standing, node.announced)
        ranges = RangeServing(bound.follower.stores, lanes.reads, config.node.cluster, config.node.broker, bound.mender.suspect)
        clients = [
            names.messaging(MessagingServicer(config.name, master, reading)),
            names.metadata(MetadataServicer(metadata, room)),
            names.topics(TopicServicer(TopicReads(config.name, metadata, store, lanes.reads), SlaveTopics(config.name, master), room)),
            names.broker(BrokerServicer(node.description, node.status, node.watches, heir.errand.ask, bound.mender)),
            names.audit(AuditServicer(Auditing(store, lanes.audit, node.copy), parts.pins)),
        ]
        replicas = [
            names.replication(ReplicationServicer(ranges, Outflow(config.replication, clock), answers)),
            names.metadata(MetadataServicer(metadata, for_nodes)),  # a recovering master takes the tables with the tail
        ]
        for_clients = await self._server(node, Listen("listen.clients", config.listen.clients), clients)
        for_replicas = await self._server(node, Listen("listen.replication", config.listen.replication), replicas)
        heir.serves_at(self._client_address(for_clients))
        bound.follower.serves_at(self._replication_address(for_replicas))
        return for_clients, for_replicas

    async def _server(self, node: SlaveNode, listen: Listen, services: list[Service]) -> RpcServer:
        interceptor = CallInterceptor(
            lambda: Answerer(self._config.name, self._config.node.cluster, node.epoch), self._doors.clock, self._doors.chance, self._calls
        )
        return await bind(self._doors.transport, listen, services, [interceptor], self.vitals)

    def _replication_address(self, server: RpcServer) -> str:
        return advertised(self._config.advertise_replication, self._config.listen.replication, server.port)[DEFAULT_NETWORK]

    def _client_address(self, server: RpcServer) -> str:
        return advertised(self._config.advertise, self._config.listen.clients, server.port)[DEFAULT_NETWORK]

    def _identity(self, opened: "_Opened", wire_id: int, clients: RpcServer, replicas: RpcServer) -> Identity:
        config = self._config
        return Identity(
            cluster=config.node.cluster,
            broker=config.node.broker,
            broker_id=wire_id,
            configured_id=config.node.broker_id,
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


@dataclass(frozen=True, slots=True)
class _Tables:
    """This node's tables, its master's, and the audits' pins."""

    own: Metadata
    of_master: RemoteMetadata
    pins: Pins


async def _stamp(store: Store, storage: Storage, lanes: Lanes) -> None:
    """What the store holds is synced, and from here on in use under this boot.

    Without a stamp, where a disk is too full to note that it is a part of a log, the next start finds it as this one did.
    """
    await lanes.store.call(store.sync)
    if await lanes.files.call(lambda: note_part(storage)):
        await lanes.store.call(store.stamp_boot)


async def serve(config: SlaveConfig, doors: BrokerDoors, stop: asyncio.Event, *, is_first: bool = True) -> None:
    """Run a slave until `stop` is set."""
    await Slave(Loaded(config, defaultdict(lambda: "default")), doors, is_first=is_first).run(stop)
