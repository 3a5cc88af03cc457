"""A master, put together in the order in which it starts."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import structlog
from prometheus_client import CollectorRegistry

from dittomq.broker.audit_reads import AuditReads
from dittomq.broker.checkpointer import Checkpointer
from dittomq.broker.config import FailoverMode
from dittomq.broker.config_files import ConfigFiles
from dittomq.broker.consumer_offsets import ConsumerOffsets, OffsetRules
from dittomq.broker.dead_letters import DeadLetterReads
from dittomq.broker.dispatcher import Dispatcher
from dittomq.broker.doors import BrokerDoors
from dittomq.broker.group_progress import MasterResets, ProgressReads
from dittomq.broker.group_watch import GroupWatch
from dittomq.broker.groups import GroupReads, MasterGroups
from dittomq.broker.lookups import LookupService
from dittomq.broker.metadata import Metadata
from dittomq.broker.pull_service import PullRules, PullService
from dittomq.broker.range_server import RangeServer
from dittomq.broker.registration import NodeIdentity, advertised
from dittomq.broker.repair import Repairer
from dittomq.broker.retention import RetentionLoop, RetentionLoopParts
from dittomq.broker.retention_pins import PinParts, Pins
from dittomq.broker.role import FIRST_START, BrokerService, RoleChanged, RoleStart
from dittomq.broker.segment_preallocation import prepare_segments
from dittomq.broker.servicers import names
from dittomq.broker.servicers.audit import AuditServicer
from dittomq.broker.servicers.brokers import BrokerServicer
from dittomq.broker.servicers.consumer_groups import ConsumerGroupServicer
from dittomq.broker.servicers.elections import ElectionServicer
from dittomq.broker.servicers.groups import GroupServicer
from dittomq.broker.servicers.metadata import MetadataServicer
from dittomq.broker.servicers.topics import TopicServicer
from dittomq.broker.servicers.transactions import TransactionServicer
from dittomq.broker.topics import MasterTopics, TopicReads
from dittomq.broker.verified import clear_verified
from dittomq.broker.writer import WriterEvents
from dittomq.commitlog import store_swap
from dittomq.commitlog.store import Store
from dittomq.doors.coordination import CoordinationStore, GroupKey
from dittomq.metadata.formats import TOPICS
from dittomq.metadata.rows import ConsumerOffset
from dittomq.metadata.topics import find_topic
from dittomq.naming.registrar import Registrar
from dittomq.replication.membership import MemberReasonKind
from dittomq.routes import DEFAULT_NETWORK
from dittomq.rpc.admission import AdmissionControl
from dittomq.rpc.channel import Channels
from dittomq.rpc.health import Health, Phase
from dittomq.rpc.interceptors import CallInterceptor
from dittomq.rpc.replica_client import ReplicaClient
from dittomq.rpc.server import Listen, RpcServer, Service, bind
from dittomq.settings import Loaded
from dittomq.wire.drafts import Topics
from services.broker_lifecycle import Duty, Lanes, NodeContext, RegistrationChanges, open_node, show_role, work
from services.ha_metrics import HaCollector
from services.master.answers import MasterAnswers
from services.master.cancellation import Cancellation
from services.master.config import FlushMode, MasterConfig
from services.master.dead_letters import MasterReplays
from services.master.delayed_delivery import DelayedDelivery, DeliveryParts
from services.master.group_coordinator import GroupCoordinator
from services.master.history import HaHistory
from services.master.idempotency import Idempotency
from services.master.leasing import Leasing, LeasingParts
from services.master.members import MasterMembers
from services.master.node import MasterNode
from services.master.opening import Opening, add_topics_of_the_log
from services.master.operating import MasterOperator
from services.master.order_topics import OrderTopics
from services.master.parts import MasterParts
from services.master.produce import ProduceHandler
from services.master.replicas import Replicas
from services.master.replication_slots import Members, SlotsOfSlaves
from services.master.send_back import SendBack, SendBackParts
from services.master.servicers import MasterMessagingServicer, MasterReplicationServicer, Reads
from services.master.switchover import Switchover, SwitchoverParts
from services.master.transactions import Transactions
from services.master.turns import RoundRobin
from services.master.upkeep import flush_now_and_then, prepare_log
from services.metrics import CallMetrics
from services.repair import make_repairer
from services.retention_metrics import RetentionCollector

_ROOM_FOR_A_MESSAGE_S: Final = 30.0
_FOLLOWS: Final = "the group record decides who leads"

log = structlog.get_logger()


class Master:
    """One master on the doors it is given: the winner of an election, or a node of a group that keeps no record."""

    def __init__(
        self, loaded: Loaded[MasterConfig], doors: BrokerDoors, *, start: RoleStart, coordination: CoordinationStore | None
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

        Raises StartError when it cannot start, StorageFailure when the disk fails, and RoleChanged after it has drained, or at once where
        an election must come first.
        """
        try:
            await self._run(stop)
        finally:
            if self._coordination is not None:
                await self._coordination.close()

    async def _run(self, stop: asyncio.Event) -> None:
        is_elected = self._start.elected is not None
        if not is_elected and self._config.replication.replicas_expected:
            raise RoleChanged(BrokerService.SLAVE, _FOLLOWS, self._start)
        place = NodeContext(self._config, stop)
        lanes = Lanes.of(self._doors.workers)
        async with (
            open_node(self._doors, self._config, BrokerService.MASTER, lanes.store) as store,
            Channels(self._doors.transport) as channels,
        ):
            if is_elected or not store.birth:
                await self._serve(store, place, lanes, channels, stop=stop)
        if not is_elected and store.birth:
            raise RoleChanged(BrokerService.SLAVE, _FOLLOWS, self._start)
        place.check()

    async def _serve(self, store: Store, place: NodeContext, lanes: Lanes, channels: Channels, *, stop: asyncio.Event) -> None:
        doors, config, changes = self._doors, self._config, RegistrationChanges()
        clock = doors.clock
        files = ConfigFiles(doors.storage, config.name)
        metadata = Metadata(files, lanes.files, clock, changes.table_changed)
        for restored in await metadata.load():
            log.warning("config_file_restored", what=restored)
        await lanes.files.call(lambda: clear_verified(doors.storage))
        await lanes.files.call(lambda: store_swap.discard(doors.storage))  # a copy that was to take the place of what leads now
        history = HaHistory(doors.storage, lanes.files)
        await history.load()
        offsets = ConsumerOffsets(metadata, store, lanes.reads, clock, files=files, file_lane=lanes.files)
        parts = await self._parts(store, place, lanes, offsets=offsets, metadata=metadata)
        opening = Opening(parts)
        node = MasterNode(parts, opening, history, changes.changed)
        self.registry.register(HaCollector(node.status, asyncio.get_running_loop()))
        mender = make_repairer(config, doors, store, lanes, channels=channels)(parts.replication.addresses)
        replicas = ReplicaClient(channels, config.node.cluster, config.node.broker)
        is_automatic = config.failover.mode is FailoverMode.AUTOMATIC
        switchover = Switchover(SwitchoverParts(node, replicas, lanes.files, is_automatic, changes.changed))
        operator = MasterOperator(config.name, parts.watch, history, switchover.errand.ask)
        answers = MasterAnswers(node, parts, opening.promising)
        groups = MasterGroups(config.name, metadata, clock, node.leading_epoch, parts.offsets.forget_group)
        appends, topics, delivery, members = self._writers(node, parts, mender, groups)
        transactions = Transactions(config.node.broker, delivery)
        writers = (appends, topics, groups, delivery, members, transactions)
        around = _MasterContext(parts, opening, mender, switchover, operator, answers, *writers)
        servers = await self._bind(node, around)
        identity = self._identity(store, *servers)
        order = OrderTopics(metadata, clock, node.leading_epoch)
        registrar = Registrar(
            config.node.nameservers,
            lambda: node.registration(identity),
            *(order.on_route_update, channels, clock, doors.chance),
            is_start=not self._start.served,
        )
        keeper = Checkpointer(store, lanes.files, node.known)
        parts.dispatcher.readable_to(store.confirmed_at_start)
        duties: list[Duty] = [
            registrar.run,
            lambda: changes.forward(registrar),
            metadata.watch,
            offsets.run,
            parts.dispatcher.run,
            keeper.run,
            mender.run,
            node.disk.run,
            switchover.errand.run,
            answers.run,
            order.run,
            lambda: prepare_segments(store.ahead, lanes.ahead),
            lambda: self._retain(node, parts),
            lambda: self._lead(node, around),
        ]
        if parts.watch is not None:
            duties.append(parts.watch.run)
        await work(duties, servers, stop, lambda: self._drain(node, around, registrar, servers))
        await offsets.save()
        await keeper.keep()
        await lanes.store.call(store.checkpoint_if_room)

    async def _parts(self, store: Store, place: NodeContext, lanes: Lanes, *, offsets: ConsumerOffsets, metadata: Metadata) -> MasterParts:
        config, doors = self._config, self._doors
        pins = Pins(PinParts(config.name, doors.storage, store, lanes.files, doors.clock, doors.chance))
        await pins.load()
        watch = None
        if self._start.elected is not None:
            assert self._coordination is not None, "an election needs a coordination store"
            key = GroupKey(config.node.cluster, config.node.broker)
            watch = GroupWatch(self._coordination, key, store, lanes.files, clock=doors.clock)
        return MasterParts(
            loaded=self._loaded,
            store=store,
            lanes=lanes,
            metadata=metadata,
            offsets=offsets,
            dispatcher=Dispatcher(store, lanes.dispatch),
            replication=Replicas(config, store, lanes.reads, doors.clock),
            pins=pins,
            place=place,
            elected=self._start.elected,
            watch=watch,
            clock=doors.clock,
            chance=doors.chance,
        )

    async def _lead(self, node: MasterNode, around: "_MasterContext") -> None:
        """Open the epoch, and do what a leading master does all the time, until cancelled."""
        parts = around.parts
        await self.vitals.become(Phase.WAITING, "opening its epoch")
        term = await node.open_term()
        if term is None:
            return
        await self.vitals.become(Phase.READY)
        events = WriterEvents(written=term.on_written, flushed=term.on_flushed)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(term.writer.run(events), name="writer")
            tasks.create_task(term.tick(), name="ticks")
            tasks.create_task(show_role(self._coordination, BrokerService.MASTER), name="role")
            tasks.create_task(node.mark_ends(term), name="ends")
            tasks.create_task(add_topics_of_the_log(parts, around.opening, term), name="topics of the log")
            tasks.create_task(parts.offsets.take_own(self._offset_rules(node)), name="offsets of its own")
            tasks.create_task(prepare_log(parts.store, parts.lanes.store, term), name="prepare")
            tasks.create_task(around.delivery.run(term), name="delayed delivery")
            tasks.create_task(around.members.coordinator.run(), name="members of consumer groups")
            tasks.create_task(around.members.leasing.run(), name="leases")
            tasks.create_task(around.transactions.run(term), name="transactions")
            if node.in_sync_set is not None:
                tasks.create_task(node.in_sync_set.run(), name="in-sync set")
            if self._config.replication.flush_mode is FlushMode.ASYNC_FLUSH:
                tasks.create_task(flush_now_and_then(term, events), name="flush")

    def _writers(
        self, node: MasterNode, parts: MasterParts, mender: Repairer, groups: MasterGroups
    ) -> "tuple[ProduceHandler, MasterTopics, DelayedDelivery, MasterMembers]":
        """What writes the log for others, and for the master itself."""
        config, lanes, clock = self._config, parts.lanes, self._doors.clock
        appends = ProduceHandler(config, node.leading_term, node.term_to_write_in, node.writes_refused, traces=self._doors.traces)
        offsets = parts.offsets
        topics = MasterTopics(
            config.name,
            parts.metadata,
            parts.store,
            lanes.store,
            clock,
            node.leading_epoch,
            appends.caught_up,
            deleted=offsets.forget_topic,
            grows=offsets.begin_queues,
        )
        members = self._members(node, parts, topics, appends, groups=groups, damaged=mender.suspect)
        return appends, topics, self._delivery(parts, topics, appends, mender), members

    def _delivery(self, parts: MasterParts, topics: MasterTopics, appends: ProduceHandler, mender: Repairer) -> DelayedDelivery:
        return DelayedDelivery(
            DeliveryParts(
                node=self._config.name,
                store=parts.store,
                lane=parts.lanes.reads,
                dispatcher=parts.dispatcher,
                clock=self._doors.clock,
                topics=topics,
                appends=appends,
                damaged=mender.suspect,
            )
        )

    def _members(
        self,
        node: MasterNode,
        parts: MasterParts,
        topics: MasterTopics,
        appends: ProduceHandler,
        *,
        groups: MasterGroups,
        damaged: Callable[[int], None],
    ) -> MasterMembers:
        coordinator = GroupCoordinator(
            node.name,
            parts.metadata,
            parts.clock,
            node.leading_term,
            check_complete=node.check_complete,
            groups=groups,
        )
        returns = SendBackParts(
            node=node.name,
            store=parts.store,
            lane=parts.lanes.reads,
            topics=topics,
            offsets=parts.offsets,
            rules=self._offset_rules(node),
            appends=appends,
            leading_term=node.leading_term,
            find=coordinator.find,
            damaged=damaged,
        )
        sends_back = SendBack(returns)
        leasing = LeasingParts(
            store=parts.store,
            lane=parts.lanes.reads,
            dispatcher=parts.dispatcher,
            clock=parts.clock,
            offsets=parts.offsets,
            rules=self._offset_rules(node),
            coordinator=coordinator,
            returns=sends_back,
            room=AdmissionControl(self._doors.memory_bytes),
            damaged=damaged,
            leading_term=node.leading_term,
        )
        return MasterMembers(coordinator, sends_back, Leasing(leasing))

    async def _retain(self, node: MasterNode, parts: MasterParts) -> None:
        """Remove old segments while this master leads; what it wrote down of its slaves is known before."""
        doors, table, store, replication = self._doors, self._config.retention, parts.store, parts.replication
        period_s = table.check_period_ms / 1000

        def others() -> list[str]:
            return [] if node.record is None else [each.node for each in node.record.members if each.node != node.name]

        def must_leave(slave: str) -> None:
            if node.in_sync_set is not None:
                node.in_sync_set.must_leave(slave, MemberReasonKind.LOG_NOT_KEPT)

        slaves = self._config.replication.replicas_expected
        holds = SlotsOfSlaves(
            doors.storage, store, parts.lanes.files, slaves, records=lambda: replication.records, members=Members(others, must_leave)
        )
        retaining_parts = RetentionLoopParts(self._config.name, store, parts.lanes.retention, doors.clock, parts.pins)
        retaining = RetentionLoop(retaining_parts, table.rules, period_s, lambda: holds.floors(self._config.replication.max_slot_bytes))
        self.registry.register(RetentionCollector(retaining))
        await holds.load(self._config.name)
        replication.held, replication.slots = holds.slaves, lambda: holds.written
        await replication.wait_for_term()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(holds.run(period_s), name="holds")
            tasks.create_task(retaining.run(), name="retention")

    async def _drain(self, node: MasterNode, around: "_MasterContext", registrar: Registrar, servers: list[RpcServer]) -> None:
        """Unready, no new writes, its place given away where that is wanted, known to be gone, all writes answered, then closed."""
        log.info("drain_started", node=self._config.name)
        node.draining = True
        node.watches.stop()
        around.parts.dispatcher.end_waits()
        around.transactions.stop()
        node.version_watches.stop()
        around.members.coordinator.stop()
        await self.vitals.become(Phase.DRAINING, "shutting down")
        place = around.parts.place
        if not place.is_left:
            await around.switchover.before_stop()
        await place.leave(registrar)
        if node.term is not None:
            await node.term.writer.drained()
        clients, replicas = servers
        await place.close([clients])
        node.end_term("it is shutting down")  # the streams' acks were needed until here
        await place.close([replicas])

    async def _bind(self, node: MasterNode, around: "_MasterContext") -> list[RpcServer]:
        config, clock, parts = self._config, self._doors.clock, around.parts
        store, metadata, lanes, mender = parts.store, parts.metadata, parts.lanes, around.mender
        appends, topic_changes = around.appends, around.topics
        outcomes = Idempotency(config.name, store, lanes.store, appends, leading_term=node.leading_term)
        room, for_nodes = AdmissionControl(self._doors.memory_bytes), AdmissionControl(self._doors.memory_bytes)
        requests = AdmissionControl(self._doors.memory_bytes, "messages that are to be written", _ROOM_FOR_A_MESSAGE_S)
        rules = PullRules(
            config.node.broker,
            node.readable,
            lambda name: find_topic(metadata.table(TOPICS).rows, name, config.name),
            refuses_beyond_end=True,
            room=room,
            in_memory_bytes=config.reading.in_memory_bytes(self._doors.memory_bytes, slave=False),
            damaged=mender.suspect,
            check_complete=node.check_complete,
            node=config.name,
            group=metadata.group,
            staleness_s=lambda _: node.silent_s(),
        )
        reading = PullService(store, lanes.reads, parts.dispatcher, clock, rules=rules)
        lookups = LookupService(config.name, store, lanes.reads, rules)
        reads = Reads(reading, lookups, Cancellation(around.delivery, lookups))
        turns = RoundRobin()

        def topics() -> Topics:
            return Topics(topic_changes.writable(), config.name, turns.take, clock.wall_ms())

        offset_rules = self._offset_rules(node)

        async def take_returned(rows: Sequence[ConsumerOffset]) -> tuple[int, int]:
            return await parts.offsets.take_returned(rows, offset_rules)

        topic_reads = TopicReads(config.name, metadata, store, lanes.reads, check_complete=node.check_complete)
        ranges = RangeServer(lambda: (store,), lanes.reads, config.node.cluster, config.node.broker, damaged=mender.suspect)
        clients = await self._server(
            node,
            Listen("listen.clients", config.listen.clients, config.tls.clients_show_certificate),
            [
                names.messaging(MasterMessagingServicer(appends, outcomes, reads, topics, room=requests)),
                names.metadata(MetadataServicer(metadata, room, node.version_watches, take_returned)),
                names.topics(TopicServicer(topic_reads, topic_changes, room)),
                names.groups(self._groups(node, around, room)),
                names.transactions(TransactionServicer(around.transactions)),
                names.consumer_groups(ConsumerGroupServicer(parts.offsets, offset_rules, around.members)),
                names.broker(BrokerServicer(node.description, node.status, node.watches, around.operator, mender=mender)),
                names.audit(AuditServicer(AuditReads(store, lanes.audit, node.copy), parts.pins)),
            ],
        )
        replicas = await self._server(
            node,
            Listen("listen.replication", config.listen.replication),
            [
                names.replication(MasterReplicationServicer(parts.replication, ranges, clock.wall_ms)),
                names.elections(ElectionServicer(around.answers, config.node.cluster, config.node.broker)),
                names.metadata(MetadataServicer(metadata, for_nodes, node.version_watches, take_returned)),
            ],
        )
        around.answers.address = self._replication_addresses(replicas)[DEFAULT_NETWORK]
        return [clients, replicas]

    def _groups(self, node: MasterNode, around: "_MasterContext", room: AdmissionControl) -> GroupServicer:
        parts, rules, activity = around.parts, self._offset_rules(node), around.members.coordinator
        offsets, reads_lane = parts.offsets, parts.lanes.reads
        letters = DeadLetterReads(offsets, parts.store, reads_lane, rules, around.mender.suspect)
        return GroupServicer(
            GroupReads(node.name, parts.metadata, check_complete=node.check_complete),
            around.groups,
            room,
            progress=ProgressReads(offsets, parts.store, reads_lane, parts.clock, rules=rules, activity=activity),
            resets=MasterResets(offsets, parts.store, reads_lane, rules, activity),
            letters=letters,
            replays=MasterReplays(letters, around.topics, around.appends, node.leading_term),
        )

    def _offset_rules(self, node: MasterNode) -> OffsetRules:
        return OffsetRules(
            node.name,
            node.leading_epoch,
            lambda: node.readable().confirmed,
            lambda name: find_topic(node.metadata.table(TOPICS).rows, name, node.name),
            node.check_complete,
        )

    async def _server(self, node: MasterNode, listen: Listen, services: list[Service]) -> RpcServer:
        interceptor = CallInterceptor(node.answerer, self._doors.clock, self._doors.chance, self._calls, gate=self._doors.gate)
        return await bind(self._doors.transport, listen, services, [interceptor], vitals=self.vitals)

    def _replication_addresses(self, replicas: RpcServer) -> Mapping[str, str]:
        return advertised(self._config.advertise_replication, self._config.listen.replication, replicas.port)

    def _identity(self, store: Store, clients: RpcServer, replicas: RpcServer) -> NodeIdentity:
        config = self._config
        return NodeIdentity(
            cluster=config.node.cluster,
            broker=config.node.broker,
            broker_id=0,
            configured_id=config.node.broker_id,
            replica_uuid=store.replica_uuid,
            role=config.role,
            addresses=advertised(config.advertise, config.listen.clients, clients.port),
            replication_addresses=self._replication_addresses(replicas),
            permission=config.node.permission,
            registration_period_ms=config.node.registration_period_ms,
        )


@dataclass(frozen=True, slots=True)
class _MasterContext:
    """What a master is made of besides its node."""

    parts: MasterParts
    opening: Opening
    mender: Repairer
    switchover: Switchover
    operator: MasterOperator
    answers: MasterAnswers
    appends: ProduceHandler
    topics: MasterTopics
    groups: MasterGroups
    delivery: DelayedDelivery
    members: MasterMembers
    transactions: Transactions


async def serve(
    config: MasterConfig,
    doors: BrokerDoors,
    stop: asyncio.Event,
    *,
    start: RoleStart = FIRST_START,
    coordination: CoordinationStore | None = None,
) -> None:
    """Run a master until `stop` is set."""
    await Master(Loaded(config, defaultdict(lambda: "default")), doors, start=start, coordination=coordination).run(stop)
