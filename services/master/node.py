"""A master from its start to its end: what it knows of itself, and how its term begins and ends."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final, NoReturn

from dittomq.broker.checkpointer import CheckpointEnds
from dittomq.broker.metadata import Metadata
from dittomq.broker.registration import NodeIdentity, Registrations
from dittomq.broker.role import FIRST_START, BrokerService, RoleStart
from dittomq.broker.status_watch import StatusWatches
from dittomq.broker.version_watch import VersionWatches
from dittomq.copies import ReplicaDescription
from dittomq.doors.coordination import Versioned
from dittomq.epoch_history import newest_epoch
from dittomq.errors import NotEnoughReplicas, NotMaster, NotReady, Refused
from dittomq.group_record import GroupRecord, ReplicaId
from dittomq.ha_status import HaStatus, NodeState, Wait, WaitKind
from dittomq.metadata.formats import TOPICS
from dittomq.offsets import Epoch
from dittomq.reads import ReadableRange
from dittomq.replication.election_events import Position
from dittomq.replication.membership import Membership, WriteRefusal, WriteRefusalKind
from dittomq.routes import BrokerState, Registration
from dittomq.rpc.headers import Answerer
from dittomq.settings import settings_of
from dittomq.version import VERSION
from dittomq.wire.admin import BrokerDescription, EffectiveSetting
from services.master.config import confirm_rules
from services.master.history import HaHistory
from services.master.in_sync_set import InSyncSet, InSyncSetParts
from services.master.opening import Opening
from services.master.parts import MasterParts
from services.master.replica_registry import with_absent
from services.master.replicas import Leading
from services.master.status import HaStatusBoard, Leaving
from services.master.term import Term
from services.master.upkeep import DiskCheck

_MARK_S: Final = 0.5


class MasterNode:
    """One master."""

    def __init__(self, parts: MasterParts, opening: Opening, history: HaHistory, on_change: Callable[[], None]) -> None:
        """`on_change` is called when what is registered with the nameservers changes."""
        self._parts = parts
        self._config = parts.loaded.value
        self._opening = opening
        self._history = history
        self._on_change = on_change
        self._board = HaStatusBoard(self._config, parts.store, parts.pins, parts.clock, watch=parts.watch)
        self.watches = StatusWatches(self._config.name, self.status, parts.clock)
        self._registrations = Registrations()
        self.version_watches = VersionWatches(self._config.name, parts.metadata, parts.clock)
        self.disk = DiskCheck((parts.lanes.store, parts.lanes.sync), parts.clock, self._config.failover.isolation_ms / 1000)
        self.term: Term | None = None
        self.in_sync_set: InSyncSet | None = None
        self.draining = False
        self.switchover_target = ""  # the slave that is to lead, while writes wait for that reason
        self._switchover_since_ms: int | None = None
        if parts.watch is not None:
            parts.watch.on_change(self._step_down_if_replaced)

    @property
    def epoch(self) -> Epoch:
        """The epoch that this master opened, or the newest of its log before that."""
        return self.term.opened.epoch if self.term is not None else newest_epoch(self._parts.store.epoch_history)

    @property
    def name(self) -> str:
        """ "broker/id" as configured."""
        return self._config.name

    @property
    def record(self) -> GroupRecord | None:
        """The group record as this master last knew it; None without one, and before its term."""
        return None if self.in_sync_set is None else self.in_sync_set.record

    def answerer(self) -> Answerer:
        """Who answers a call that comes now; with the log's end unless `term_to_write_in` refuses."""
        log_end = None
        with contextlib.suppress(NotMaster, NotReady):
            log_end = self.term_to_write_in().written
        return Answerer(self.name, self._config.node.cluster, self.epoch, log_end)

    def position(self, address: str) -> Position:
        """Where this replica stands, for candidates; `address` is where it serves replication.

        A master that waits for room to open its epoch does not lead: it would keep others from it for as long as its disk is full.
        """
        store = self._parts.store
        leads = self._opening.wait.kind is not WaitKind.DISK_ROOM if self.term is None else not self.term.is_over
        return Position(
            node=self.name,
            replica=store.replica,
            birth=store.birth,
            adopted=store.adopted_epoch,
            log_end=store.end,
            log_start=store.min_offset,
            promised=store.promised_epoch,
            confirmed=self.readable().confirmed,
            revision=store.record_revision,
            damaged_bytes=store.damage.total_bytes,
            priority=self._config.failover.priority,
            sees_master=leads,
            leads=leads,
            address=address,
            tables=self.metadata.versions,
            slots=self._parts.replication.slots() or (),
            epoch_history=store.epoch_history,
            master=self.name if leads else "",
        )

    @property
    def metadata(self) -> Metadata:
        """The group's tables, as this node holds them."""
        return self._parts.metadata

    def leading_epoch(self) -> Epoch:
        """The epoch in which tables may be changed; NotReady while this master does not lead."""
        return self.leading_term().opened.epoch

    def why_not_leading(self) -> Wait | None:
        """Why this master takes no changes; None while it leads."""
        if self.switchover_target:
            return Wait(WaitKind.SWITCHOVER, f"it switches over to {self.switchover_target}")
        if self.draining:
            return Wait(WaitKind.SHUTDOWN, "it is shutting down")
        if self.term is not None and self.term.is_over:
            return Wait(WaitKind.TERM_OVER, f"its term is over: {self.term.why_over}")
        return None if self.term is not None else Wait(self._opening.wait.kind, f"it waits for {self._opening.wait.why}")

    def check_complete(self) -> None:
        """Raise NotReady where another log may have more than this one: before the term, and when it is over."""
        if self.term is None or self.term.is_over:
            raise NotReady(self.name, str(self.why_not_leading()))

    def set_switchover_target(self, target: str) -> None:
        """That slave is to lead, and writes wait; "": this master leads on."""
        self.switchover_target = target
        self._switchover_since_ms = self._parts.clock.wall_ms() if target else None

    def leading_term(self) -> Term:
        """The term; NotReady before it and after it, and while the node is shutting down or switches over."""
        if self.term is None or self.why_not_leading():
            raise NotReady(self.name, str(self.why_not_leading()))
        return self.term

    def term_to_write_in(self) -> Term:
        """The term whose writer takes frames, or lets them wait while it is not decided whether this master switches over.

        Raises NotMaster when the term is over, and NotReady before it and while the node shuts down.
        """
        if self.term is not None and self.term.is_over:
            raise NotMaster(self.name, "")
        if self.draining or self.term is None:
            raise NotReady(self.name, str(self.why_not_leading()))
        return self.term

    def writes_refused(self) -> Refused | None:
        """Why the term takes no writes now; None while it does."""
        refusal = self._write_refusal()
        if refusal is None:
            return None
        if refusal.kind is WriteRefusalKind.TOO_FEW_MEMBERS:
            return NotEnoughReplicas(self.name, refusal.in_sync, refusal.needed)
        return NotReady(self.name, str(refusal))

    async def open_term(self) -> Term | None:
        """Open the epoch, durably, and lead in it; None when this node goes on as a slave instead. Raises StorageFailure."""
        term = await self._opening.run()
        if term is None:
            self.step_down("it is not what was elected", RoleStart(stands=True))
            return None
        self.term = term
        if (elected := self._parts.elected) is not None:
            await self._keep_record(term, Versioned(elected.record, elected.version), elected.silent)
        self._parts.replication.lead(self._leading(term))
        if self.in_sync_set is not None and elected is not None:
            lossy = f"; data loss is possible: {term.opened.data_loss}" if term.opened.data_loss else ""
            await self.in_sync_set.persist_election(f"{self.name} was elected{lossy}", elected.took_s)
        self._on_change()
        return term

    def end_term(self, why: str) -> None:
        """Acknowledge nothing more, and take nothing; the frames that wait are refused."""
        if self.term is not None and not self.term.is_over:
            self.term.end(why)
            self.term.writer.resume(NotMaster(self.name, ""))
            self._on_change()

    def step_down(self, why: str, start: RoleStart = FIRST_START) -> None:
        """End the term, and go on as a slave."""
        self.end_term(why)
        self._parts.place.change_role(BrokerService.SLAVE, why, start)

    def _step_down_if_replaced(self) -> None:
        """Before its term, too: another node may be elected while this one waits for room to open its epoch."""
        parts = self._parts
        record, elected = None if parts.watch is None else parts.watch.record, parts.elected
        if self.term is None and record is not None and elected is not None and record.epoch > elected.record.epoch:
            self.step_down(f"{record.master_node} leads in epoch {record.epoch}")

    def _write_refusal(self) -> WriteRefusal | None:
        return None if self.in_sync_set is None else self.in_sync_set.writes_refused()

    async def _keep_record(self, term: Term, found: Versioned, silent: tuple[str, ...]) -> None:
        """The record is this master's to change from now on."""
        parts, watch, now = self._parts, self._parts.watch, self._parts.clock.monotonic()
        assert watch is not None, "what was elected has a record"
        if watch.found is None:
            await watch.update(found)
        membership = Membership(confirm_rules(self._config), term.confirm, found, silent=silent, now=now)
        expected = self._config.replication.replicas_expected
        around = InSyncSetParts(self.name, expected, term, watch, self._history, self.step_down, parts.clock, parts.chance)
        self.in_sync_set = InSyncSet(around, membership)
        self.in_sync_set.record_seen()

    def _leading(self, term: Term) -> Leading:
        return Leading(
            term=term,
            topics=lambda: self.metadata.table(TOPICS).version,
            is_member=self._is_member,
            remove=self._remove,
            promised_above=self._promised_above,
            disk_answers=lambda: self.disk.answers,
            silent_s=self.silent_s,
            counts=self.in_sync_set is not None,
        )

    def _is_member(self, node: str, replica: ReplicaId) -> bool:
        return self.in_sync_set is not None and self.in_sync_set.is_member(node, replica)

    def _remove(self, node: str) -> None:
        if self.in_sync_set is not None:
            self.in_sync_set.must_leave(node)

    async def _promised_above(self, epoch: Epoch, node: str) -> None:
        """This master needs a higher epoch: as the record's master it stands at once; without a record it opens the next one."""
        why, store = f"{node} has promised epoch {epoch}", self._parts.store
        if self.in_sync_set is not None:
            self.step_down(why, RoleStart(stands=True))
            return
        self.end_term(why)
        await self._parts.lanes.files.call(lambda: store.promise(epoch))
        self._parts.place.change_role(BrokerService.MASTER, why)

    def readable(self) -> ReadableRange:
        """Consumers never see more than what is confirmed."""
        confirmed = self.term.confirm.confirmed if self.term is not None else self._parts.store.confirmed_at_start
        return ReadableRange(confirmed, confirmed)

    def silent_s(self) -> float | None:
        """What this master shows is no older than so many seconds; None while it does not lead. 0 where no group record is kept."""
        if self.term is None or self.term.is_over:
            return None
        return 0.0 if self.in_sync_set is None else self.in_sync_set.silent_s()

    def known(self) -> CheckpointEnds:
        """What is worth surviving a crash."""
        if self.term is None:
            return CheckpointEnds(self._parts.store.flushed, self._parts.store.confirmed_at_start)
        return CheckpointEnds(self.term.flushed, self.term.confirm.confirmed)

    async def mark_ends(self, term: Term) -> NoReturn:
        """Remember where the ends are, twice a second, so that lags can be told as times; until cancelled."""
        while True:
            self._board.mark(term)
            await asyncio.sleep(_MARK_S)

    def status(self) -> HaStatus:
        """Replication of the group."""
        records = with_absent(self._parts.replication.records, self._known_slaves(), self._config.replication.replicas_expected)
        applied = self._parts.dispatcher.applied
        if self.term is None:
            return self._board.opening(self._opening.wait, applied, records)
        refusal = self._write_refusal()
        why = self.why_not_leading() or (None if refusal is None else Wait(WaitKind[refusal.kind.name], str(refusal)))
        leaving = Leaving(why, self.switchover_target, self._switchover_since_ms)
        return self._board.leading(self.term, applied, records, leaving, in_sync_set=self.in_sync_set)

    def _known_slaves(self) -> set[str]:
        """Nodes of the group that were its slaves before this start, or are members."""
        members = () if self.record is None else (member.node for member in self.record.members)
        return {*self._parts.replication.held, *members} - {self.name}

    def description(self) -> BrokerDescription:
        """What this node is and how it is configured."""
        return BrokerDescription(
            version=VERSION,
            cluster=self._config.node.cluster,
            node=self._config.name,
            role=self._config.role,
            state=NodeState.LEADING if self.term is not None else NodeState.RECOVERING,
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
            role=self._config.role,
            epoch_history=store.epoch_history,
            generation=store.generation,
            min_offset=store.min_offset,
            end=store.end,
            flushed=store.flushed,
            confirmed=self.readable().confirmed,
            segment_bytes=self._config.store.segment_bytes,
            topic_version=self._parts.metadata.table(TOPICS).version,
            version=VERSION,
        )

    def registration(self, identity: NodeIdentity) -> Registration:
        """What nameservers are told."""
        state = BrokerState.RECOVERING if self.why_not_leading() else BrokerState.SERVING
        return self._registrations.of(identity, self.epoch, state, self._parts.metadata.table(TOPICS))
