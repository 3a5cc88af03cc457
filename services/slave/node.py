"""A slave: what it knows of itself and its group."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from dittomq.broker.dispatching import Dispatcher
from dittomq.broker.keeping import Known
from dittomq.broker.metadata import Metadata
from dittomq.broker.metadata_sync import MetadataPuller
from dittomq.broker.pinning import Pins
from dittomq.broker.registration import Identity, registration
from dittomq.broker.role import Grant, Knowledge
from dittomq.broker.watching import StatusWatches
from dittomq.commitlog.store import Store
from dittomq.copies import CopyDescription
from dittomq.doors.clock import Clock
from dittomq.ha_status import MASTER_WAITS, HaStatus, NodeView
from dittomq.lineage import newest_epoch, newest_opener
from dittomq.metadata.formats import TOPICS
from dittomq.metadata.tables import Table
from dittomq.metadata.topics import TopicConfig, find_topic, with_held
from dittomq.naming.registrar import NameserverNews
from dittomq.offsets import Epoch, PhysicalOffset
from dittomq.replication.degraded import total_bytes
from dittomq.replication.standings import KnownBefore, Stance, Standing
from dittomq.routes import NO_OPENING, NodeState, Opening, Registration, Role
from dittomq.settings import Loaded, settings_of
from dittomq.version import VERSION
from dittomq.wire.admin import BrokerDescription, Setting
from services.slave.config import SlaveConfig
from services.slave.follower import Follower

_SPARE_IDS: Final = 1_000_001  # above every configured id
_OLD_TOPICS_S: Final = 3.0  # longer than a pull for unknown topics is waited for: the master did not answer it


@dataclass(frozen=True, slots=True)
class NodeParts:
    """What a slave is made of."""

    loaded: Loaded[SlaveConfig]
    store: Store
    metadata: Metadata
    puller: MetadataPuller
    dispatcher: Dispatcher
    pins: Pins
    clock: Clock
    grant: Grant | None


class MasterAddresses:
    """Where the master is, as the configuration or the nameservers say; empty while unknown."""

    def __init__(self, fixed_replication: str) -> None:
        self._fixed = fixed_replication
        self._heard_replication = self._named = ""
        self.clients = ""
        self.newest = NO_OPENING  # the newest epoch of the group that nameservers told of
        self._refusal = ""

    @property
    def why_unknown(self) -> str:
        """Why nameservers, who all refuse this node, name it no master; empty where one is known, or they do not say."""
        return "" if self.replication else self._refusal

    @property
    def replication(self) -> str:
        """ "host:port" of its replication port."""
        return self._fixed or self._heard_replication

    def heard(self, news: NameserverNews) -> bool:
        """The nameservers answered; without a master among their answers the last known address stays.

        Whether that is a reason to dial at once: a master is named that was not named before.
        """
        self.newest, self._refusal = news.newest, "" if news.answers else news.refusal
        before, self._named = self._named, news.master.master_replication if news.master is not None else ""
        if news.master is not None:
            self.clients, self._heard_replication = news.master.master, news.master.master_replication
        return bool(self._named) and self._named != before


class SlaveNode:
    """One slave."""

    def __init__(self, parts: NodeParts, follower: Follower, addresses: MasterAddresses) -> None:
        self._parts = parts
        self._config = parts.loaded.value
        self._follower = follower
        self.in_sync: tuple[str, ...] = ()  # slaves that were in sync when this node was promoted
        self.seeks_place = False  # it is told to lead, and that is not decided yet
        self.takes_epoch = Epoch(0)  # of the promotion that is under way, from its decision on
        self.granted: Opening | None = None  # the epoch that this node will open as its group's master
        self._addresses = addresses
        self._id_is_taken = False
        self._registered_as = self.wire_id
        self.watches = StatusWatches(self._config.name, self.status, parts.clock)

    @property
    def epoch(self) -> Epoch:
        """Newest epoch of the log."""
        return newest_epoch(self._parts.store.lineage)

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

    def known(self) -> Known:
        """What is worth surviving a crash."""
        return Known(self._follower.copy.flushed, self._follower.known_confirmed(), self.in_sync)

    def registration(self, identity: Identity) -> Registration:
        """What nameservers are told."""
        version = self._parts.metadata.table(TOPICS).version
        self._registered_as = identity.broker_id
        opening = self.granted or Opening(self.epoch, newest_opener(self._parts.store.lineage))
        return registration(identity, opening, NodeState.SERVING, Table(version, self._all_topics()))

    @property
    def wire_id(self) -> int:
        """Its broker id in routes: as configured, or what a role change gave it.

        That is the id of the node it made room for, and free once that one has opened an epoch. Until then, and where somebody else has
        it after all, be it at one nameserver only, it is one that no other node can have; also where a role change that only an earlier
        disk knew of gave its own away.
        """
        grant, own = self._parts.grant, self._config.node.broker_id
        if grant is None:
            return _SPARE_IDS + own if self._id_is_taken else own
        other, newest = int(grant.other.rpartition("/")[2]), self._addresses.newest
        told = newest.opener_id == other and newest.epoch >= grant.epoch
        is_free = told or any(entry.opener_id == other and entry.epoch >= grant.epoch for entry in self._parts.store.lineage)
        return grant.wire_id if is_free and not self._id_is_taken else _SPARE_IDS + own

    def heard(self, news: NameserverNews) -> bool:
        """The nameservers answered; whether this node must register anew, under another id."""
        self._id_is_taken = self._id_is_taken or (news.displaced if self._parts.grant is None else news.taken or news.shared)
        return self.wire_id != self._registered_as

    @property
    def knowledge(self) -> Knowledge:
        """Of which epochs of others it knew all when it led last; none when it never did."""
        return Knowledge() if self._parts.grant is None else self._parts.grant.knowledge

    def standing(self) -> Standing:
        """Where this replica stands, for whoever is to be promoted. Raises NotReady while that is not known.

        With a grant it is the master that it comes back as: an old one that starts meanwhile must hear whose the epoch is.
        """
        self._follower.check_taken_up()
        return self._standing(self._follower.newest_heard)

    def _standing(self, heard: Opening) -> Standing:
        parts, grant, newest = self._parts, self._parts.grant, self._follower.newest
        granted = max(heard.epoch, self.takes_epoch, Epoch(0) if grant is None else grant.epoch)
        taken_by = self._config.node.broker_id if granted == self.takes_epoch else None
        return Standing(
            node=self._config.name,
            node_id=self._config.node.broker_id,
            wire_id=self._config.node.broker_id if grant is None else grant.wire_id,  # to be given up: never a spare one
            replica_uuid=parts.store.replica_uuid,
            stance=Stance.FOLLOWING if self.granted is None else Stance.RECOVERING,
            lineage=newest.store.lineage,
            end=newest.copy.received,
            confirmed=newest.known_confirmed,
            granted=granted,
            granted_to=heard.opener_id if granted == heard.epoch else taken_by,
            stepped_down_at=None if grant is None else grant.end,
            rules=self._config.replication.group_rules,
            topics=parts.metadata.table(TOPICS).version,
            degraded=self._follower.degraded.ranges,
            unread_bytes=newest.store.unread.total_bytes,
            successor="" if grant is None else grant.other,
            is_filling=self._follower.filling.goes_on,
            filled_in=self._follower.filling.filled_in,
            seeks_place=self.seeks_place or self.takes_epoch > 0,
            witnessed=self.knowledge.witnessed,
            known=self.knowledge.openings,
            holds=self._follower.held.told,
        )

    async def announced(self, opening: Opening) -> KnownBefore:
        """A node of the group is about to open this epoch: what was known before. Durable when this returns; raises NotReady, DiskFull.

        It notes none that it takes itself, or an older one: that other node gives way to its answer.
        """
        self._follower.check_taken_up()
        takes_it = opening.epoch <= self.takes_epoch
        before = self.standing() if takes_it else self._standing(await self._follower.announced(opening))
        return KnownBefore(before.stance, before.claim)

    def status(self) -> HaStatus:
        """This slave's view of its group."""
        store, follower = self._parts.store, self._follower
        readable, confirmed, ranges = follower.readable(), follower.known_confirmed(), follower.degraded.ranges
        going_on = next((each for each in ranges if each.end is None), None) if follower.state == "following" else None
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
            end=follower.copy.received,
            flushed=follower.copy.flushed,
            confirmed=confirmed,
            readable=readable.end,
            writable=False,
            degraded=going_on is not None,
            degraded_since_ms=None if going_on is None else going_on.since_ms,
            degraded_bytes=total_bytes(ranges, confirmed),
            degraded_messages=None,
            waiting_for="" if follower.state == "following" else self._waiting_for(),
            nodes=(self._own_view(),),
        )

    def _waiting_for(self) -> str:
        waits = self._follower.master_waits_for
        return f"{MASTER_WAITS}{waits}" if waits else f"the master: {self._problem()}"

    def _problem(self) -> str:
        """Why it follows nobody, or did not when it last followed nobody."""
        refusal = self._addresses.why_unknown
        return (
            f"{self._follower.problem}: nameservers refuse this node, until they forget another one: {refusal}"
            if refusal
            else self._follower.problem
        )

    def _own_view(self) -> NodeView:
        """How far this copy, or the one that is made anew, is; behind its master only while that one says where its log ends."""
        follower, newest, now = self._follower, self._follower.newest, self._parts.clock.monotonic()
        received, flushed, end = newest.copy.received, newest.copy.flushed, follower.master.told_end
        is_own = follower.resync.replica is None
        readable = follower.readable().end if is_own else PhysicalOffset(min(flushed, newest.confirmed))
        return NodeView(
            self._config.name,
            "slave",
            follower.resync.progress or follower.state,
            received=received,
            flushed=flushed,
            applied=newest.applied,
            received_lag_bytes=None if end is None else max(0, end - received),
            flushed_lag_bytes=None if end is None else max(0, end - flushed),
            applied_lag_bytes=None if end is None else max(0, readable - newest.applied),
            received_lag_s=None if end is None else follower.master.ends.lag_s(received, end, now),
            flushed_lag_s=None if end is None else follower.master.ends.lag_s(flushed, end, now),
            applied_lag_s=follower.readable_ends.lag_s(newest.applied, readable, now) if is_own and end is not None else None,
            proven_equal=newest.verified or None,
            since_ms=follower.resync.since_ms or follower.since_ms,
            last_drop_reason=self._problem(),
            last_drop_ms=follower.problem_ms,
            pins=self._parts.pins.views(),
            damaged_bytes=self._parts.store.damage.total_bytes,
        )

    def description(self) -> BrokerDescription:
        """What this node is and how it is configured."""
        return BrokerDescription(
            version=VERSION,
            cluster=self._config.node.cluster,
            node=self._config.name,
            role=Role.SLAVE,
            state=self._follower.state,
            replica_uuid=self._parts.store.replica_uuid,
            settings=tuple(Setting(*setting) for setting in settings_of(self._parts.loaded)),
        )

    def copy(self) -> CopyDescription:
        """What this copy holds, for the audit."""
        store = self._parts.store
        return CopyDescription(
            node=self._config.name,
            cluster=self._config.node.cluster,
            replica_uuid=store.replica_uuid,
            role=Role.SLAVE,
            lineage=store.lineage,
            generation=store.generation,
            min_offset=store.min_offset,
            end=self._follower.copy.received,
            flushed=self._follower.copy.flushed,
            confirmed=self._follower.known_confirmed(),
            segment_bytes=self._config.store.segment_bytes,
            topic_version=self._parts.metadata.table(TOPICS).version,
            version=VERSION,
        )
