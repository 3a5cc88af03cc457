"""A master, put together in the order in which it starts."""

import asyncio
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import Final

import structlog
from prometheus_client import CollectorRegistry

from dittomq.broker.auditing import Auditing
from dittomq.broker.config_files import ConfigFiles
from dittomq.broker.dispatching import Dispatcher
from dittomq.broker.doors import BrokerDoors
from dittomq.broker.fetching import RangeServing
from dittomq.broker.heard import Heard
from dittomq.broker.keeping import Keeper
from dittomq.broker.mending import Mender
from dittomq.broker.metadata import Metadata
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
from dittomq.broker.topics import MasterTopics, TopicReads
from dittomq.broker.verified import forget_verified
from dittomq.commitlog.store import StopKind, Store
from dittomq.metadata.formats import TOPICS
from dittomq.metadata.topics import find_topic
from dittomq.naming.registrar import Registrar
from dittomq.naming.route_cache import RouteCache
from dittomq.offsets import Epoch
from dittomq.replication.leadership import Leadership
from dittomq.replication.own_log import OwnLog, Stopped
from dittomq.routes import NO_OPENING, Opening
from dittomq.rpc.call_room import CallRoom
from dittomq.rpc.channel import Channels
from dittomq.rpc.interceptors import CallInterceptor
from dittomq.rpc.replicas import RemoteReplicas
from dittomq.rpc.server import Listen, RpcServer, Service, bind
from dittomq.rpc.vitals import Phase, Vitals
from dittomq.settings import Loaded
from dittomq.wire.drafts import Topics
from services.brokerage import Changes, Duty, Lanes, NextLife, Place, open_node, work
from services.ha_metrics import HaCollector
from services.lives import import_life
from services.master.appends import Appends
from services.master.config import MasterConfig, leadership_rules
from services.master.handover import Handover, HandoverParts
from services.master.holds import HoldsOfSlaves
from services.master.leading import Reached, come_to_lead
from services.master.node import MasterNode
from services.master.outcomes import Outcomes
from services.master.parts import NodeParts
from services.master.recovery import Recovery, RecoveryParts
from services.master.replication import Replication
from services.master.servicers import MessagingServicer, ReplicationServicer
from services.master.turns import Turns
from services.mending import make_mender
from services.metrics import CallMetrics
from services.retention_metrics import RetentionCollector

_ROOM_FOR_A_MESSAGE_S: Final = 30.0
_STOPPED: Final = {
    StopKind.CLEAN: Stopped.WHOLE,
    StopKind.KILLED: Stopped.WHOLE,
    StopKind.POWER_LOSS: Stopped.POWER_LOSS,
    StopKind.FAILED_SYNC: Stopped.FAILED_SYNC,
    StopKind.EMPTY: Stopped.EMPTY,
    StopKind.INCOMPLETE: Stopped.INCOMPLETE,
}

log = structlog.get_logger()


class Master:
    """One master on the doors it is given."""

    def __init__(self, loaded: Loaded[MasterConfig], doors: BrokerDoors, *, is_first: bool, next_life: NextLife = import_life) -> None:
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
            open_node(self._doors, self._config, BrokerService.MASTER, lanes.store) as (store, grant),
            Channels(self._doors.transport) as channels,
        ):
            await self._serve(_Opened(store, grant, place), lanes, channels, stop)
        place.check()

    async def _serve(self, opened: "_Opened", lanes: Lanes, channels: Channels, stop: asyncio.Event) -> None:
        store, place = opened.store, opened.place
        doors, clock = self._doors, self._doors.clock
        changes = Changes()
        metadata = Metadata(ConfigFiles(doors.storage, self._config.name), lanes.files, clock, changes.table_changed)
        restored = await metadata.load()
        for what in restored:
            log.warning("config_file_restored", what=what)
        pins = Pins(PinParts(self._config.name, doors.storage, store, lanes.files, clock, doors.chance))
        await pins.load()
        await lanes.files.call(lambda: forget_verified(doors.storage))
        heard = Heard(self._config.name, doors.storage, lanes.files)
        await heard.load()
        parts = self._parts(replace(opened, tables_restored=bool(restored), told=heard.newest), lanes, metadata, pins)
        node = MasterNode(parts, changes.changed)
        self.registry.register(HaCollector(node.status, asyncio.get_running_loop()))
        mender = make_mender(self._config, doors, store, lanes, channels)(parts.replication.addresses)
        handover = self._handover(node, parts, lanes, _Reach(channels, place, heard, changes))
        clients, replicas = await self._bind(node, parts, _Bound(lanes, mender, handover))
        registrar = Registrar(
            self._config.node.nameservers,
            lambda: node.registration(self._identity(opened, clients, replicas)),
            *(handover.heard, channels, clock, doors.chance),
            patient=opened.grant is not None,
            is_start=self._is_first,
        )
        keeper = Keeper(store, lanes.files, node.known)
        parts.dispatcher.readable_to(store.confirmed_at_start)
        duties: list[Duty] = [
            registrar.run,
            lambda: changes.forward(registrar),
            metadata.watch,
            heard.watch,
            parts.dispatcher.run,
            keeper.run,
            mender.run,
            lambda: self._retain(parts, lanes),
            lambda: prepare_segments(store.ahead, lanes.ahead),
            lambda: parts.recovery.ask(handover.others),
            lambda: parts.replication.promises.settle(handover.others, parts.replication.knows_all_of),
            lambda: come_to_lead(node, parts, Reached(channels, mender, handover), self.vitals),
            handover.step_down.run,
            handover.change_role.run,
        ]
        await work(duties, [clients, replicas], stop, lambda: self._drain(node, place, registrar, [clients, replicas]))
        await keeper.keep()
        await lanes.store.call(store.checkpoint_if_room)

    def _parts(self, opened: "_Opened", lanes: Lanes, metadata: Metadata, pins: Pins) -> NodeParts:
        config, doors, store = self._config, self._doors, opened.store
        own = OwnLog(
            *(config.name, _STOPPED[store.stopped], store.end, store.lineage, config.node.broker_id, opened.granted),
            accepted_loss=opened.accepted_loss,
            tables_restored=opened.tables_restored,
            told=opened.told,
            confirmed=store.confirmed_at_start,
            is_noted=opened.grant is not None and opened.grant.is_noted,
            tables_epoch=metadata.newest_epoch,
        )
        leadership = Leadership(leadership_rules(config.replication), own, 0.0)  # by the time that its recovery runs
        dispatcher = Dispatcher(store, lanes.dispatch)
        recovery = Recovery(leadership, own, RecoveryParts(store, lanes.store, dispatcher, doors.clock))
        return NodeParts(
            self._loaded,
            doors.storage,
            store,
            lanes.store,
            lanes.sync,
            metadata,
            dispatcher,
            recovery,
            Replication(config, store, lanes.reads, doors.clock, recovery),
            pins,
            doors.clock,
            doors.chance,
            opened.grant,
        )

    def _handover(self, node: MasterNode, parts: NodeParts, lanes: Lanes, reach: "_Reach") -> Handover:
        replicas = RemoteReplicas(reach.channels, self._config.node.cluster, self._config.node.broker)
        routes = RouteCache(self._config.node.nameservers, reach.channels, self._doors.clock, cluster=self._config.node.cluster)
        around = reach.place, reach.heard, reach.changes.changed, lambda: lanes.store.call(parts.store.mark_incomplete)
        return Handover(HandoverParts(node, self._doors.storage, lanes.files, parts.replication, replicas, routes, *around))

    async def _retain(self, node: NodeParts, lanes: Lanes) -> None:
        """Drop old segments while this master leads; what it wrote down of its slaves is known before."""
        doors, table, store, replication = self._doors, self._config.retention, node.store, node.replication
        period_s = table.check_period_ms / 1000
        slaves = self._config.replication.replicas_expected
        holds = HoldsOfSlaves(doors.storage, store, lanes.files, slaves, lambda: replication.records)
        parts = RetainingParts(self._config.name, store, lanes.retention, doors.clock, node.pins)
        retaining = Retaining(parts, table.rules, period_s, lambda: holds.holds(self._config.replication.hold_max_bytes))
        self.registry.register(RetentionCollector(retaining))
        await holds.load(self._config.name, node.grant)
        replication.held = holds.slaves
        await replication.wait_for_term()
        await holds.load(self._config.name, node.grant)  # a slave whose log was taken over may have known more
        replication.held, replication.holds = holds.slaves, lambda: holds.written
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(holds.run(period_s), name="holds")
            tasks.create_task(retaining.run(), name="retention")

    async def _drain(self, node: MasterNode, place: Place, registrar: Registrar, servers: list[RpcServer]) -> None:
        """Unready, known to be gone, no new writes, all writes answered, then closed."""
        log.info("draining", node=self._config.name)
        node.draining = True
        node.watches.stop()
        await self.vitals.become(Phase.DRAINING, "shutting down")
        await place.leave(registrar)
        if node.term is not None:
            await node.term.writer.drained()
        clients, replicas = servers
        await place.close([clients])
        await replicas.stop(0)  # slaves never hang up by themselves, and their acks were needed until here

    async def _bind(self, node: MasterNode, parts: NodeParts, bound: "_Bound") -> tuple[RpcServer, RpcServer]:
        lanes, mender, handover = bound.lanes, bound.mender, bound.handover
        config, clock, store, metadata = self._config, self._doors.clock, parts.store, parts.metadata
        appends = Appends(config, node.leading_term, node.term_to_write_in)
        outcomes = Outcomes(config.name, store, lanes.store, appends, node.leading_term)
        room, for_nodes = CallRoom(self._doors.memory_bytes), CallRoom(self._doors.memory_bytes)
        requests = CallRoom(self._doors.memory_bytes, "messages that are to be written", _ROOM_FOR_A_MESSAGE_S)
        rules = ReadRules(
            config.node.broker,
            node.readable,
            lambda name: find_topic(metadata.table(TOPICS).rows, name, config.name),
            refuses_beyond_end=True,
            room=room,
            in_memory_bytes=config.reading.in_memory_bytes(self._doors.memory_bytes, slave=False),
            damaged=mender.suspect,
            check_complete=node.check_complete,
        )
        reading = Reading(store, lanes.reads, parts.dispatcher, clock, rules)
        turns = Turns()

        def topics() -> Topics:
            return Topics(topic_changes.writable(), config.name, turns.take, clock.wall_ms())

        topic_reads = TopicReads(config.name, metadata, store, lanes.reads, node.check_complete)
        topic_changes = MasterTopics(config.name, metadata, store, lanes.store, clock, node.leading_epoch, appends.caught_up)
        ranges = RangeServing(lambda: (store,), lanes.reads, config.node.cluster, config.node.broker, mender.suspect)
        clients = [
            names.messaging(MessagingServicer(appends, outcomes, reading, topics, requests)),
            names.metadata(MetadataServicer(metadata, room)),
            names.topics(TopicServicer(topic_reads, topic_changes, room)),
            names.broker(BrokerServicer(node.description, node.status, node.watches, handover.change_role.ask, mender)),
            names.audit(AuditServicer(Auditing(store, lanes.audit, node.copy), parts.pins)),
        ]
        replicas = [
            names.replication(ReplicationServicer(parts.replication, ranges, handover, clock.wall_ms)),
            names.metadata(MetadataServicer(metadata, for_nodes)),
        ]
        return (
            await self._server(node, Listen("listen.clients", config.listen.clients), clients),
            await self._server(node, Listen("listen.replication", config.listen.replication), replicas),
        )

    async def _server(self, node: MasterNode, listen: Listen, services: list[Service]) -> RpcServer:
        interceptor = CallInterceptor(node.answerer, self._doors.clock, self._doors.chance, self._calls)
        return await bind(self._doors.transport, listen, services, [interceptor], self.vitals)

    def _identity(self, opened: "_Opened", clients: RpcServer, replicas: RpcServer) -> Identity:
        config = self._config
        return Identity(
            cluster=config.node.cluster,
            broker=config.node.broker,
            broker_id=0,
            configured_id=config.node.broker_id,
            replica_uuid=opened.store.replica_uuid,
            role=config.role,
            addresses=advertised(config.advertise, config.listen.clients, clients.port),
            replication_addresses=advertised(config.advertise_replication, config.listen.replication, replicas.port),
            permission=config.node.permission,
            registration_period_ms=config.node.registration_period_ms,
            granted_epoch=opened.granted,
        )


@dataclass(frozen=True, slots=True)
class _Opened:
    """What a start found: the store, what the last role change decided, and the node's place among its peers."""

    store: Store
    grant: Grant | None
    place: Place
    tables_restored: bool = False
    told: Opening = NO_OPENING

    @property
    def granted(self) -> Epoch | None:
        """The epoch of the last promotion; None when there was none."""
        return None if self.grant is None else self.grant.epoch

    @property
    def accepted_loss(self) -> str:
        """What the operator gave up with it."""
        return "" if self.grant is None else self.grant.accepted_loss


@dataclass(frozen=True, slots=True)
class _Reach:
    """How a handover reaches others, what they told before, and how it ends this process."""

    channels: Channels
    place: Place
    heard: Heard
    changes: Changes


@dataclass(frozen=True, slots=True)
class _Bound:
    """What the servers answer from, besides the node."""

    lanes: Lanes
    mender: Mender
    handover: Handover


async def serve(config: MasterConfig, doors: BrokerDoors, stop: asyncio.Event, *, is_first: bool = True) -> None:
    """Run a master until `stop` is set."""
    await Master(Loaded(config, defaultdict(lambda: "default")), doors, is_first=is_first).run(stop)
