"""A slave: what it knows of itself and its group."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from dittomq.broker.candidate import Candidate
from dittomq.broker.checkpointer import CheckpointEnds
from dittomq.broker.dispatcher import Dispatcher
from dittomq.broker.group_watch import GroupWatch
from dittomq.broker.metadata import Metadata
from dittomq.broker.metadata_sync import MetadataPuller
from dittomq.broker.registration import NodeIdentity, Registrations
from dittomq.broker.retention_pins import Pins
from dittomq.broker.status_watch import StatusWatches
from dittomq.broker.version_watch import VersionWatches
from dittomq.commitlog.store import Store
from dittomq.copies import ReplicaDescription
from dittomq.doors.clock import Clock
from dittomq.epoch_history import newest_epoch
from dittomq.group_record import GroupRecord
from dittomq.ha_status import HaStatus, NodeState, NodeView, Wait, WaitKind
from dittomq.metadata.formats import TOPICS
from dittomq.metadata.tables import Table
from dittomq.metadata.topics import TopicConfig, find_topic, with_held
from dittomq.naming.registrar import RouteUpdate
from dittomq.offsets import Epoch, PhysicalOffset
from dittomq.routes import BrokerState, Registration, Role, wire_id
from dittomq.settings import Loaded, settings_of
from dittomq.version import VERSION
from dittomq.wire.admin import BrokerDescription, EffectiveSetting
from services.slave.config import SlaveConfig
from services.slave.replica_fetcher import ReplicaFetcher

_OLD_TOPICS_S: Final = 3.0  # longer than a pull for unknown topics is waited for: the master did not answer it


@dataclass(frozen=True, slots=True)
class SlaveParts:
    """What a slave is made of. `watch` is None where no group record is kept."""

    loaded: Loaded[SlaveConfig]
    store: Store
    metadata: Metadata
    puller: MetadataPuller
    dispatcher: Dispatcher
    pins: Pins
    clock: Clock
    watch: GroupWatch | None


class MasterAddresses:
    """Where the master is: as configured, or as the group record says, or, without one, as the nameservers do. Empty while unknown."""

    def __init__(self, own: Store, fixed_replication: str, watch: GroupWatch | None) -> None:
        self._own = own
        self._fixed = fixed_replication
        self._watch = watch
        self._reported_clients = self._reported_replication = ""

    @property
    def replication(self) -> str:
        """ "host:port" of its replication port."""
        return self._fixed or self.recorded or self._reported_replication

    @property
    def recorded(self) -> str:
        """The same as the group record says it; empty without one, and where this replica is the record's master."""
        record = None if self._watch is None else self._watch.record
        return "" if record is None or record.master == self._own.replica else record.master_address

    @property
    def clients(self) -> str:
        """Where clients reach it: nameservers know that, a moment after the record does."""
        if self.recorded and self.recorded != self._reported_replication:
            return ""
        return self._reported_clients

    def on_route_update(self, news: RouteUpdate) -> None:
        """The nameservers answered; without a master among their answers the last known address stays."""
        if news.master is not None:
            self._reported_clients, self._reported_replication = news.master.address, news.master.replication_address


class SlaveNode:
    """One slave."""

    def __init__(self, parts: SlaveParts, fetcher: ReplicaFetcher, candidate: Candidate | None) -> None:
        self._parts = parts
        self._config = parts.loaded.value
        self._fetcher = fetcher
        self._candidate = candidate
        self.watches = StatusWatches(self._config.name, self.status, parts.clock)
        self._registrations = Registrations()
        self._has_caught_up = False
        self.version_watches = VersionWatches(self._config.name, parts.metadata, parts.clock)

    def end_waits(self) -> None:
        """The node stops: nobody waits any longer for anything to change."""
        self.watches.stop()
        self.version_watches.stop()
        self._parts.dispatcher.end_waits()

    async def leave(self, *, sends_goodbye: bool) -> None:
        """Follow no master any longer. With a goodbye it need not wait for this member; one that goes on in a moment says none."""
        await self._fetcher.leave(sends_goodbye=sends_goodbye)

    @property
    def epoch(self) -> Epoch:
        """Newest epoch of the log."""
        return newest_epoch(self._parts.store.epoch_history)

    def topic(self, name: str) -> TopicConfig:
        """A topic of the table, or one that only the log knows yet; TopicNotFound, which says when the table is old."""
        rows = self._parts.metadata.table(TOPICS).rows
        return rows[name] if name in rows else find_topic(self._all_topics(), name, self._config.name + self._age_of_topics())

    def _age_of_topics(self) -> str:
        age_s = self._parts.puller.topics_age_s
        if age_s is None:
            return ", whose topics are from before its start"
        return f", whose topics are {age_s:.0f} s old" if age_s >= _OLD_TOPICS_S else ""

    def _all_topics(self) -> Mapping[str, TopicConfig]:
        """The table, and every topic and queue that the log holds something of."""
        return with_held(self._parts.metadata.table(TOPICS).rows, self._parts.store.queues_with_messages())

    def known(self) -> CheckpointEnds:
        """What is worth surviving a crash."""
        return CheckpointEnds(self._fetcher.copy.flushed, self._fetcher.known_confirmed())

    def registration(self, identity: NodeIdentity) -> Registration:
        """What nameservers are told."""
        version = self._parts.metadata.table(TOPICS).version
        state = BrokerState.SERVING if self.is_member else BrokerState.RECOVERING
        return self._registrations.of(identity, self.epoch, state, Table(version, self._all_topics()))

    @property
    def record(self) -> GroupRecord | None:
        """The group record as this node last read it."""
        return None if self._parts.watch is None else self._parts.watch.record

    @property
    def is_member(self) -> bool:
        """Whether this replica is in the in-sync set; a slave of a group without a record counts as one that serves."""
        record = self.record
        return self._parts.watch is None or (record is not None and record.member(self._parts.store.replica) is not None)

    @property
    def why_unready(self) -> str:
        """What keeps this slave from being one to rely on; "" when nothing does. To be asked all the time.

        It must have caught up in this life, and be a member of the in-sync set. While the master is away it still is: it serves reads.
        """
        fetcher = self._fetcher
        if not self.is_member:
            self._has_caught_up = False
            return "it is no member of the in-sync set"
        if fetcher.state is NodeState.FOLLOWING and fetcher.resync.progress is None:
            self._has_caught_up = True
        if self._has_caught_up:
            return ""
        return f"it follows no master: {fetcher.problem}" if fetcher.resync.progress is None else "it copies the log from its master"

    @property
    def wire_id(self) -> int:
        """Its broker id in routes: a node configured as 0 that follows has the id of the node that leads."""
        record = self.record
        own = self._config.node.broker_id
        leader = None if record is None else int(record.master_node.rpartition("/")[2])
        return wire_id(own, leader)

    def status(self) -> HaStatus:
        """This slave's view of its group."""
        store, fetcher = self._parts.store, self._fetcher
        readable, confirmed, record = fetcher.readable(), fetcher.known_confirmed(), self.record
        members = () if record is None else tuple(member.node for member in record.members)
        wait = self._wait()
        return HaStatus(
            node=self._config.name,
            cluster=self._config.node.cluster,
            broker=self._config.node.broker,
            epoch=self.epoch,
            role=Role.SLAVE,
            in_sync_replicas=0,
            in_sync_now=0,
            replicas_expected=self._config.replication.replicas_expected,
            min_offset=store.min_offset,
            end=fetcher.copy.received,
            flushed=fetcher.copy.flushed,
            confirmed=confirmed,
            readable=readable.end,
            writable=False,
            degraded=record is not None and len(record.members) < record.copies,
            degraded_since_ms=None,
            waiting_for="" if wait is None else wait.why,
            waiting_kind=None if wait is None else wait.kind,
            members=members,
            failover=self._failover(record),
            coordination_store="" if self._parts.watch is None else self._parts.watch.store_name,
            coordination_problem="" if self._parts.watch is None else self._parts.watch.problem,
            nodes=(self._own_view(),),
        )

    def _failover(self, record: GroupRecord | None) -> str:
        if self._parts.watch is None:
            return "none"
        return "paused" if record is not None and record.paused else str(self._config.failover.mode)

    def _wait(self) -> Wait | None:
        """Why it follows no master; None while it follows one."""
        waits, watch = self._fetcher.master_waits_for, self._parts.watch
        if self._fetcher.state is NodeState.FOLLOWING:
            return None
        if waits:
            return Wait(WaitKind.MASTER_WAITS, f"the master, which waits for {waits}")
        reason = None if self._candidate is None else self._candidate.reason
        parts = [f"the master: {self._fetcher.problem}", "" if watch is None else watch.problem, "" if reason is None else str(reason)]
        return Wait(WaitKind.MASTER if reason is None else WaitKind.ELECTION, "; ".join(filter(None, parts)))

    def _own_view(self) -> NodeView:
        """How far this copy, or the one that is made anew, is; behind its master only while that one says where its log ends."""
        fetcher, newest, now = self._fetcher, self._fetcher.newest, self._parts.clock.monotonic()
        received, flushed, end = newest.copy.received, newest.copy.flushed, fetcher.master.reported_end
        is_own, progress = fetcher.resync.replica is None, fetcher.resync.progress
        readable = fetcher.readable().end if is_own else PhysicalOffset(min(flushed, newest.confirmed))
        return NodeView(
            self._config.name,
            "slave",
            fetcher.state if progress is None else NodeState.FULL_RESYNC,
            received=received,
            flushed=flushed,
            applied=newest.applied,
            received_lag_bytes=None if end is None else max(0, end - received),
            flushed_lag_bytes=None if end is None else max(0, end - flushed),
            applied_lag_bytes=None if end is None else max(0, readable - newest.applied),
            received_lag_s=None if end is None else fetcher.master.ends.lag_s(received, end, now),
            flushed_lag_s=None if end is None else fetcher.master.ends.lag_s(flushed, end, now),
            applied_lag_s=fetcher.readable_ends.lag_s(newest.applied, readable, now) if is_own and end is not None else None,
            verified_offset=newest.verified or None,
            since_ms=fetcher.resync.since_ms or fetcher.since_ms,
            last_drop_reason=fetcher.problem,
            last_drop_kind=fetcher.problem_kind,
            last_drop_ms=fetcher.problem_ms,
            pins=self._parts.pins.views(),
            damaged_bytes=self._parts.store.damage.total_bytes,
            resync_done_bytes=None if progress is None else progress[0],
            resync_total_bytes=None if progress is None else progress[1],
        )

    def description(self) -> BrokerDescription:
        """What this node is and how it is configured."""
        return BrokerDescription(
            version=VERSION,
            cluster=self._config.node.cluster,
            node=self._config.name,
            role=Role.SLAVE,
            state=self._fetcher.state,
            replica_uuid=self._parts.store.replica_uuid,
            settings=tuple(EffectiveSetting(*setting) for setting in settings_of(self._parts.loaded)),
        )

    def copy(self) -> ReplicaDescription:
        """What this copy holds, for the audit."""
        store = self._parts.store
        return ReplicaDescription(
            node=self._config.name,
            cluster=self._config.node.cluster,
            replica_uuid=store.replica_uuid,
            role=Role.SLAVE,
            epoch_history=store.epoch_history,
            generation=store.generation,
            min_offset=store.min_offset,
            end=self._fetcher.copy.received,
            flushed=self._fetcher.copy.flushed,
            confirmed=self._fetcher.known_confirmed(),
            segment_bytes=self._config.store.segment_bytes,
            topic_version=self._parts.metadata.table(TOPICS).version,
            version=VERSION,
        )
