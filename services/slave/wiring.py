"""A slave, put together in the order in which it starts."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Final, NoReturn

import structlog
from prometheus_client import CollectorRegistry

from dittomq.broker.audit_reads import AuditReads
from dittomq.broker.candidate import Candidate, CandidateParts
from dittomq.broker.checkpointer import Checkpointer
from dittomq.broker.config import FailoverMode
from dittomq.broker.config_files import ConfigFiles
from dittomq.broker.consumer_offsets import ConsumerOffsets, OffsetRules
from dittomq.broker.dead_letters import DeadLetterReads, SlaveReplays
from dittomq.broker.dispatcher import Dispatcher
from dittomq.broker.doors import BrokerDoors
from dittomq.broker.group_progress import NoMembers, ProgressReads, SlaveResets
from dittomq.broker.group_watch import GroupWatch
from dittomq.broker.groups import GroupReads, SlaveGroups
from dittomq.broker.lookups import LookupService
from dittomq.broker.metadata import Metadata
from dittomq.broker.metadata_sync import MetadataPuller, take_tables
from dittomq.broker.pull_service import PullRules, PullService
from dittomq.broker.range_client import RangeClient
from dittomq.broker.range_server import RangeServer
from dittomq.broker.registration import NodeIdentity, advertised
from dittomq.broker.repair import Repairer
from dittomq.broker.replication_throttle import ReplicationThrottle
from dittomq.broker.retention import RetentionLoop, RetentionLoopParts
from dittomq.broker.retention_pins import PinParts, Pins
from dittomq.broker.role import FIRST_START, BrokerService, RoleStart, check_room
from dittomq.broker.segment_preallocation import prepare_segments
from dittomq.broker.servicers import names
from dittomq.broker.servicers.audit import AuditServicer
from dittomq.broker.servicers.brokers import BrokerServicer
from dittomq.broker.servicers.consumer_groups import ConsumerGroupServicer
from dittomq.broker.servicers.consumer_sessions import MembersElsewhere
from dittomq.broker.servicers.elections import ElectionServicer
from dittomq.broker.servicers.groups import GroupServicer
from dittomq.broker.servicers.metadata import MetadataServicer
from dittomq.broker.servicers.topics import TopicServicer
from dittomq.broker.servicers.transactions import SlaveTransactions, TransactionServicer
from dittomq.broker.tail_transfer import TailTransferParts
from dittomq.broker.topics import SlaveTopics, TopicReads
from dittomq.commitlog.store import Store
from dittomq.doors.coordination import CoordinationStore, GroupKey
from dittomq.errors import NotMaster
from dittomq.metadata.rows import ConsumerOffset
from dittomq.metadata.tables import QueueMinimums
from dittomq.naming.registrar import Registrar
from dittomq.naming.route_cache import RouteCache
from dittomq.replication.election_events import ElectionRules, Target
from dittomq.routes import DEFAULT_NETWORK, Role
from dittomq.rpc.admission import AdmissionControl
from dittomq.rpc.channel import Channels
from dittomq.rpc.headers import Answerer, GroupTarget
from dittomq.rpc.health import Health, Phase
from dittomq.rpc.interceptors import CallInterceptor
from dittomq.rpc.metadata_client import MetadataClient
from dittomq.rpc.replica_client import ReplicaClient
from dittomq.rpc.server import Listen, RpcServer, Service, bind
from dittomq.settings import Loaded
from services.broker_lifecycle import Duty, Lanes, NodeContext, RegistrationChanges, open_node, show_role, work
from services.ha_metrics import HaCollector
from services.metrics import CallMetrics
from services.repair import make_repairer
from services.retention_metrics import RetentionCollector
from services.slave.config import SlaveConfig
from services.slave.full_resync import ResyncParts
from services.slave.log_start_client import master_log_start
from services.slave.node import MasterAddresses, SlaveNode, SlaveParts
from services.slave.operating import SlaveOperator
from services.slave.replica import Replica, ReplicaParts
from services.slave.replica_fetcher import FetcherCallbacks, ReplicaFetcher, ReplicaFetcherParts
from services.slave.servicers import SlaveMessagingServicer, SlaveReplicationServicer

_REVIEW_S: Final = 0.25

log = structlog.get_logger()


class Slave:
    """One slave on the doors it is given: a replica that follows, answers elections, and stands for them."""

    def __init__(
        self, loaded: Loaded[SlaveConfig], doors: BrokerDoors, *, start: RoleStart, coordination: CoordinationStore | None
    ) -> None:
        """`start`: what the service before in this process has left. `coordination` None: there is no group record."""
        self.vitals = Health()
        self.registry = CollectorRegistry()
        self._loaded = loaded
        self._config = loaded.value
        self._doors = doors
        self._start = start
        self._coordination = coordination
        self._calls = CallMetrics(self.registry)

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set, then drain.

        Raises StartError when it cannot start, StorageFailure when the disk fails, and after it has drained RoleChanged.
        """
        place = NodeContext(self._config, stop)
        lanes = Lanes.of(self._doors.workers)
        try:
            async with (
                open_node(self._doors, self._config, BrokerService.SLAVE, lanes.store) as store,
                Channels(self._doors.transport) as channels,
            ):
                await self._serve(store, place, lanes, channels, stop=stop)
        finally:
            if self._coordination is not None:
                await self._coordination.close()
        place.check()

    async def _serve(self, store: Store, place: NodeContext, lanes: Lanes, channels: Channels, *, stop: asyncio.Event) -> None:
        doors, config, changes = self._doors, self._config, RegistrationChanges()
        files = ConfigFiles(doors.storage, config.name)
        metadata = await self._metadata(lanes, changes, files)
        offsets = ConsumerOffsets(metadata, store, lanes.reads, doors.clock, files=files, file_lane=lanes.files)
        await offsets.unreturned.load()
        await lanes.store.call(store.sync)
        watch = self._watch(store, lanes)
        addresses = MasterAddresses(store, config.replication.master_address, watch)
        tables = _Tables(metadata, self._of_master(channels, addresses), await self._pins(store, lanes))
        parts = self._parts(store, lanes, place, tables, watch=watch)
        callers = FetcherCallbacks(
            lambda: addresses.replication,
            parts.puller.topics_at,
            lambda why: place.change_role(BrokerService.SLAVE, why),
        )
        fetcher = await self._fetcher(parts, lanes, channels, callers)
        candidate = None if watch is None else self._candidate(watch, _Candidacy(parts, fetcher, lanes, channels, place))
        node = SlaveNode(parts, fetcher, candidate)
        self.registry.register(HaCollector(node.status, asyncio.get_running_loop()))
        mender = make_repairer(config, doors, store, lanes, channels=channels)(lambda: [("the master", addresses.replication)])
        bound = _Bound(parts, lanes, fetcher, addresses, mender, candidate, offsets)
        clients, ranges = await self._bind(node, bound)
        registrar = Registrar(
            config.node.nameservers,
            lambda: node.registration(self._identity(store, node.wire_id, clients, ranges)),
            *(addresses.on_route_update, channels, doors.clock, doors.chance),
            is_start=not self._start.served,
        )
        keeper = Checkpointer(store, lanes.files, node.known)
        duties: list[Duty] = [
            registrar.run,
            lambda: changes.forward(registrar),
            metadata.watch,
            offsets.run,
            parts.dispatcher.run,
            keeper.run,
            lambda: prepare_segments(store.ahead, lanes.ahead),
            self._retaining(bound, channels).run,
            mender.run,
            parts.puller.run,
            lambda: offsets.unreturned.return_them(lambda: fetcher.master.is_gone, tables.of_master.return_offsets),
            fetcher.run,
            lambda: show_role(self._coordination, BrokerService.SLAVE),
            lambda: self._review_readiness(node),
        ]
        if watch is not None and candidate is not None:
            watch.on_change(changes.changed)
            watch.on_change(fetcher.master_is_named)
            watch.on_change(candidate.look)
            duties += [watch.run, candidate.run]
        await self.vitals.become(Phase.WAITING, "it follows no master yet")
        await work(duties, [clients, ranges], stop, lambda: self._drain(node, place, registrar, [clients, ranges]))
        await fetcher.copy.flush()
        await offsets.save()
        await keeper.keep()
        await lanes.store.call(store.checkpoint_if_room)

    async def _review_readiness(self, node: SlaveNode) -> NoReturn:
        while True:
            why = node.why_unready
            if (state := (Phase.WAITING if why else Phase.READY, why)) != self.vitals.state:
                await self.vitals.become(*state)
            await asyncio.sleep(_REVIEW_S)

    def _watch(self, store: Store, lanes: Lanes) -> GroupWatch | None:
        """None where there is no group record: a slave of a master that counts itself alone."""
        if self._coordination is None or not (self._config.replication.replicas_expected or store.birth):
            return None
        return GroupWatch(self._coordination, self._key, store, lanes.files, clock=self._doors.clock)

    @property
    def _key(self) -> GroupKey:
        return GroupKey(self._config.node.cluster, self._config.node.broker)

    def _candidate(self, watch: GroupWatch, around: "_Candidacy") -> Candidate:
        config, doors, parts, channels = self._config, self._doors, around.parts, around.channels
        assert self._coordination is not None, "there is a record to watch"
        group = GroupTarget(config.node.cluster, config.node.broker)
        routes = RouteCache(config.node.nameservers, channels, doors.clock, cluster=config.node.cluster)
        failover, replication, store = config.failover, config.replication, parts.store

        async def nodes() -> list[Target]:
            listed = await routes.nodes_of(config.node.broker)
            others = {Target(node.name, node.replication_address) for node in listed if node.name != config.name}
            return sorted(others, key=attrgetter("node"))

        tail = TailTransferParts(
            node=config.name,
            store=store,
            lane=around.lanes.store,
            dispatcher=parts.dispatcher,
            ranges=lambda address: RangeClient(channels, address, config),
            take_tables=lambda address: take_tables(MetadataClient(channels, group, lambda: address), parts.metadata, doors.clock),
            truncate=around.fetcher.truncate,
        )
        rules = ElectionRules(
            node=config.name,
            replicas_expected=replication.replicas_expected,
            copies=replication.asked_copies,
            automatic=failover.mode is FailoverMode.AUTOMATIC,
            allow_data_loss=failover.allow_data_loss,
            silence_s=failover.peer_timeout_ms / 1000,
            isolation_s=failover.isolation_ms / 1000,
        )
        return Candidate(
            CandidateParts(
                rules=rules,
                priority=failover.priority,
                key=self._key,
                store=store,
                files=around.lanes.files,
                fetcher=around.fetcher,
                watch=watch,
                coordination=self._coordination,
                replicas=ReplicaClient(channels, config.node.cluster, config.node.broker),
                tail=tail,
                nodes=nodes,
                tables=lambda: parts.metadata.versions,
                slots=lambda: around.fetcher.slots.reported,
                place=around.place,
                clock=doors.clock,
                chance=doors.chance,
            ),
            self._start,
        )

    async def _pins(self, store: Store, lanes: Lanes) -> Pins:
        pins = Pins(PinParts(self._config.name, self._doors.storage, store, lanes.files, self._doors.clock, self._doors.chance))
        await pins.load()
        return pins

    async def _metadata(self, lanes: Lanes, changes: RegistrationChanges, files: ConfigFiles) -> Metadata:
        metadata = Metadata(files, lanes.files, self._doors.clock, changes.table_changed)
        for restored in await metadata.load():
            log.warning("config_file_restored", what=restored)
        return metadata

    def _of_master(self, channels: Channels, addresses: MasterAddresses) -> MetadataClient:
        """Its tables come from its replication port: where that is the group record says, and not only the nameservers."""
        return MetadataClient(channels, GroupTarget(self._config.node.cluster, self._config.node.broker), lambda: addresses.replication)

    def _parts(self, store: Store, lanes: Lanes, place: NodeContext, tables: "_Tables", *, watch: GroupWatch | None) -> SlaveParts:
        clock = self._doors.clock

        async def hide(minimums: QueueMinimums) -> None:
            await lanes.store.call(lambda: store.hide(minimums))

        async def show_again(minimums: QueueMinimums) -> None:
            if await lanes.files.call(lambda: store.show_again(minimums)):
                place.change_role(BrokerService.SLAVE, "its master knows of no deletion of what it hides")

        puller = MetadataPuller(tables.of_master, tables.own, clock, hide, show_again=show_again)
        dispatcher = Dispatcher(store, lanes.dispatch)
        return SlaveParts(self._loaded, store, tables.own, puller, dispatcher, tables.pins, clock, watch)

    def _retaining(self, bound: "_Bound", channels: Channels) -> RetentionLoop:
        table, slot_bytes = self._config.retention, self._config.replication.max_slot_bytes
        parts, lane, fetcher = bound.parts, bound.lanes.retention, bound.fetcher
        told = master_log_start(fetcher, channels, self._config)
        work = RetentionLoopParts(self._config.name, parts.store, lane, self._doors.clock, parts.pins, told)
        retaining = RetentionLoop(work, table.rules, table.check_period_ms / 1000, lambda: fetcher.slots.floors(slot_bytes))
        self.registry.register(RetentionCollector(retaining))
        return retaining

    async def _fetcher(self, parts: SlaveParts, lanes: Lanes, channels: Channels, callers: FetcherCallbacks) -> ReplicaFetcher:
        doors, config, store = self._doors, self._config, parts.store
        work = lanes.store, lanes.sync, lanes.reads, lanes.files
        own = Replica(ReplicaParts(config, doors.storage, store, *work, parts.dispatcher, doors.traces))
        of_it = ReplicaFetcherParts(config, own, ResyncParts(config, doors, lanes, store), channels, doors.clock, doors.chance)
        fetcher = ReplicaFetcher(of_it, callers)
        await fetcher.slots.load()
        return fetcher

    async def _drain(self, node: SlaveNode, place: NodeContext, registrar: Registrar, servers: list[RpcServer]) -> None:
        log.info("drain_started", node=self._config.name)
        node.end_waits()
        await self.vitals.become(Phase.DRAINING, "shutting down")
        await node.leave(sends_goodbye=not place.is_left)
        await place.leave(registrar)
        await place.close(servers)

    async def _bind(self, node: SlaveNode, bound: "_Bound") -> tuple[RpcServer, RpcServer]:
        config, clock, parts, lanes = self._config, self._doors.clock, bound.parts, bound.lanes
        store, metadata = parts.store, parts.metadata

        def master() -> str:
            return bound.addresses.clients

        room, for_nodes = AdmissionControl(self._doors.memory_bytes), AdmissionControl(self._doors.memory_bytes)
        rules = PullRules(
            config.node.broker,
            bound.fetcher.readable,
            node.topic,
            refuses_beyond_end=False,
            room=room,
            in_memory_bytes=config.reading.in_memory_bytes(self._doors.memory_bytes, slave=True),
            newer_topics=parts.puller.newer_topics,
            damaged=bound.mender.suspect,
            node=config.name,
            group=metadata.group,
            staleness_s=bound.fetcher.master.staleness_s,
        )
        reading = PullService(store, lanes.reads, parts.dispatcher, clock, rules=rules)
        operator = SlaveOperator(config.name, master, parts.watch, bound.candidate, lambda: self._check_room(bound.lanes))
        ranges = RangeServer(bound.fetcher.stores, lanes.reads, config.node.cluster, config.node.broker, damaged=bound.mender.suspect)
        offset_rules = self._offset_rules(node, bound)
        return_to_master = partial(_refuse_offsets, config.name, master)
        clients = [
            names.messaging(SlaveMessagingServicer(config.name, master, reading, LookupService(config.name, store, lanes.reads, rules))),
            names.metadata(MetadataServicer(metadata, room, node.version_watches, return_to_master)),
            names.topics(TopicServicer(TopicReads(config.name, metadata, store, lanes.reads), SlaveTopics(config.name, master), room)),
            names.transactions(TransactionServicer(SlaveTransactions(config.name, master))),
            names.groups(self._groups(bound, offset_rules, master, room)),
            names.consumer_groups(ConsumerGroupServicer(bound.offsets, offset_rules, MembersElsewhere(config.name, master))),
            names.broker(BrokerServicer(node.description, node.status, node.watches, operator, mender=bound.mender)),
            names.audit(AuditServicer(AuditReads(store, lanes.audit, node.copy), parts.pins)),
        ]
        replicas = [
            names.replication(SlaveReplicationServicer(ranges, ReplicationThrottle(config.replication, clock), config.name, master)),
            names.metadata(
                MetadataServicer(metadata, for_nodes, node.version_watches, return_to_master)
            ),  # a candidate takes the tables with the tail
        ]
        if bound.candidate is not None:
            replicas.append(names.elections(ElectionServicer(bound.candidate, config.node.cluster, config.node.broker)))
        for_clients = await self._server(
            node, Listen("listen.clients", config.listen.clients, config.tls.clients_show_certificate), clients
        )
        for_replicas = await self._server(node, Listen("listen.replication", config.listen.replication), replicas)
        bound.fetcher.serves_at(self._replication_address(for_replicas))
        if bound.candidate is not None:
            bound.candidate.address = self._replication_address(for_replicas)
        return for_clients, for_replicas

    def _groups(self, bound: "_Bound", rules: OffsetRules, master: Callable[[], str], room: AdmissionControl) -> GroupServicer:
        name, store, lane = self._config.name, bound.parts.store, bound.lanes.reads
        return GroupServicer(
            GroupReads(name, bound.parts.metadata),
            SlaveGroups(name, master),
            room,
            progress=ProgressReads(bound.offsets, store, lane, self._doors.clock, rules=rules, activity=NoMembers()),
            resets=SlaveResets(name, master),
            letters=DeadLetterReads(bound.offsets, store, lane, rules, bound.mender.suspect),
            replays=SlaveReplays(name, master),
        )

    def _offset_rules(self, node: SlaveNode, bound: "_Bound") -> OffsetRules:
        def epoch_without_master() -> int:
            if not bound.fetcher.master.is_gone:
                raise NotMaster(self._config.name, bound.addresses.clients)
            return node.epoch

        return OffsetRules(
            self._config.name, epoch_without_master, lambda: bound.fetcher.readable().confirmed, node.topic, keeps_apart=True
        )

    async def _server(self, node: SlaveNode, listen: Listen, services: list[Service]) -> RpcServer:
        interceptor = CallInterceptor(
            lambda: Answerer(self._config.name, self._config.node.cluster, node.epoch),
            *(self._doors.clock, self._doors.chance, self._calls),
            gate=self._doors.gate,
        )
        return await bind(self._doors.transport, listen, services, [interceptor], vitals=self.vitals)

    def _replication_address(self, server: RpcServer) -> str:
        return advertised(self._config.advertise_replication, self._config.listen.replication, server.port)[DEFAULT_NETWORK]

    async def _check_room(self, lanes: Lanes) -> None:
        """Raise DiskFull where a master would take no writes."""
        await lanes.files.call(lambda: check_room(self._doors.storage, self._config.name, self._config.store.min_free_bytes))

    def _identity(self, store: Store, wire_id: int, clients: RpcServer, replicas: RpcServer) -> NodeIdentity:
        config = self._config
        return NodeIdentity(
            cluster=config.node.cluster,
            broker=config.node.broker,
            broker_id=wire_id,
            configured_id=config.node.broker_id,
            replica_uuid=store.replica_uuid,
            role=Role.SLAVE,
            addresses=advertised(config.advertise, config.listen.clients, clients.port),
            replication_addresses=advertised(config.advertise_replication, config.listen.replication, replicas.port),
            permission=config.node.permission,
            registration_period_ms=config.node.registration_period_ms,
        )


async def _refuse_offsets(node: str, master: Callable[[], str], _: Sequence[ConsumerOffset]) -> NoReturn:
    """They are for the master."""
    raise NotMaster(node, master())


@dataclass(frozen=True, slots=True)
class _Bound:
    """What the servers answer from."""

    parts: SlaveParts
    lanes: Lanes
    fetcher: ReplicaFetcher
    addresses: MasterAddresses
    mender: Repairer
    candidate: Candidate | None
    offsets: ConsumerOffsets


@dataclass(frozen=True, slots=True)
class _Candidacy:
    """What a candidate is made of besides the record."""

    parts: SlaveParts
    fetcher: ReplicaFetcher
    lanes: Lanes
    channels: Channels
    place: NodeContext


@dataclass(frozen=True, slots=True)
class _Tables:
    """This node's tables, its master's, and the audits' pins."""

    own: Metadata
    of_master: MetadataClient
    pins: Pins


async def serve(
    config: SlaveConfig,
    doors: BrokerDoors,
    stop: asyncio.Event,
    *,
    start: RoleStart = FIRST_START,
    coordination: CoordinationStore | None = None,
) -> None:
    """Run a slave until `stop` is set."""
    await Slave(Loaded(config, defaultdict(lambda: "default")), doors, start=start, coordination=coordination).run(stop)
