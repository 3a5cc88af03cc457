"""⑥ The master's writes of the group record. Drives `dittomq.replication.membership`, which decides who is a member."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NoReturn

import structlog

from dittomq.broker.group_watch import GroupWatch
from dittomq.broker.role import FIRST_START, RoleStart
from dittomq.doors.chance import hex_id
from dittomq.doors.clock import Clock
from dittomq.doors.coordination import WriteOutcome, WriteUnknown
from dittomq.errors import DittoError, StorageFailure, Unavailable
from dittomq.group_record import GroupRecord, ReplicaId
from dittomq.replication.membership import MemberChange, MemberReason, MemberReasonKind, Membership, WriteRefusal
from dittomq.replication.membership_states import RecordWrite
from dittomq.wire.admin import HaChange
from services.master.history import HaHistory
from services.master.term import Term

_LOOK_S: Final = 0.1

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class InSyncSetParts:
    """`replicas_expected` as configured. `deposed` ends the term: the words say why, the start how the slave begins."""

    node: str
    replicas_expected: int
    term: Term
    watch: GroupWatch
    history: HaHistory
    deposed: Callable[[str, RoleStart], None]
    clock: Clock
    chance: random.Random


class InSyncSet:
    """The members of one term. One write is under way at a time; its outcome is known before the next one begins."""

    def __init__(self, parts: InSyncSetParts, membership: Membership) -> None:
        self._parts = parts
        self._membership = membership
        self._persisted = membership.known.record
        self._change: MemberChange | None = None  # the last one that was sent, and when first
        self._began = 0.0
        self._received_at = float("-inf")
        self._must_read = False
        self._is_lost = False  # there was no record when it was read last
        self._bell = asyncio.Event()
        parts.watch.on_change(self.record_seen)

    @property
    def record(self) -> GroupRecord:
        """The record as this master last knew it to be in the store."""
        return self._membership.known.record

    def writes_refused(self) -> WriteRefusal | None:
        """Why this master takes no writes now; None while it does."""
        return self._membership.writes_refused(self._parts.clock.monotonic())

    def silent_s(self) -> float | None:
        """For so many seconds this master has heard from nobody who keeps others from leading; None once another one leads."""
        return self._membership.silent_s(self._parts.clock.monotonic())

    def is_member(self, node: str, replica: ReplicaId) -> bool:
        """Whether a record that is in the store, or may come to be, names that replica under that node."""
        return self._membership.is_member(node, replica)

    def why_left(self, node: str) -> tuple[MemberReason, float] | None:
        """Why that node was last removed, and at which monotonic second; None if it was not, or is a member again."""
        return self._membership.why_left(node)

    def must_leave(self, node: str, why: MemberReasonKind = MemberReasonKind.MUST_RESYNC) -> None:
        """Remove that member as soon as a write may."""
        member = self.record.member_of_node(node)
        if member is not None:
            self._membership.must_leave(member.replica, why)
            self._bell.set()

    def record_seen(self) -> None:
        """The watch has read the record; None may stand for one that this node does not obey."""
        found = self._parts.watch.found
        if found is None:
            self._must_read = True
        else:
            self._membership.record_read(found, self._parts.clock.monotonic())
            self._apply_change()
        self._bell.set()

    async def run(self) -> NoReturn:
        """Keep the record as it should be, until cancelled. Raises StorageFailure."""
        unlisten = self._parts.term.listen(self._moved)
        try:
            while True:
                self._bell.clear()
                if not self._parts.term.is_over:
                    await self._step()
                await self._rest()
        finally:
            unlisten()

    async def persist_election(self, cause: str, took_s: float) -> None:
        """The record as the election wrote it is the first of this term. Raises StorageFailure."""
        await self._persist(self.record, cause, took_s)

    def _moved(self) -> None:
        if self._membership.waits_for_acks:
            self._bell.set()

    async def _step(self) -> None:
        parts, membership, now = self._parts, self._membership, self._parts.clock.monotonic()
        if parts.watch.received_at > self._received_at:
            self._received_at = parts.watch.received_at
            membership.store_answered(self._received_at)
        if (change := membership.decide(now, write=hex_id(parts.chance))) is not None:
            await self._write(change)
        elif self._must_read or membership.should_read(now) or (self._is_lost and self._all_stream):
            await self._read()
        if self._persisted != self.record:
            await self._persist_change()

    async def _write(self, change: MemberChange) -> None:
        parts = self._parts
        if self._change is None or self._change.record.write != change.record.write:
            self._began = parts.clock.monotonic()
        self._change = change
        outcome: WriteOutcome | None
        try:
            outcome = await parts.watch.write(change.record, change.expected)
        except StorageFailure:
            raise
        except Unavailable:
            outcome = None
        except DittoError as error:
            outcome = WriteUnknown(str(error))
        if isinstance(outcome, WriteUnknown):
            log.warning("group_record_write_unknown", node=parts.node, revision=change.record.revision, problem=outcome.problem)
        self._membership.write_ended(outcome, parts.clock.monotonic())
        self._apply_change()
        if self._membership.known.record == change.record:
            await parts.watch.update(self._membership.known)

    async def _read(self) -> None:
        """Also what the watch does not believe: a record of another birth deposes this master."""
        parts = self._parts
        try:
            found = await parts.watch.read_as_it_is()
        except StorageFailure:
            raise
        except DittoError:
            return  # the watch says so
        self._must_read, self._is_lost = False, found is None
        self._membership.record_read(found, parts.clock.monotonic())
        self._apply_change()
        if self._is_lost and self._all_stream:
            parts.deposed(f"{parts.watch.store_name} has no group record, and all replicas are there to make one", RoleStart(stands=True))

    @property
    def _all_stream(self) -> bool:
        """Whether as many slaves stream as a new record needs promises of."""
        return sum(each.streams for each in self._parts.term.confirm.progress) >= self._parts.replicas_expected

    def _apply_change(self) -> None:
        """What is confirmed may have moved with the members; or another one leads."""
        parts = self._parts
        if parts.term.is_over:
            return
        if self._membership.state is RecordWrite.FENCED:
            parts.deposed(self._why_fenced(), FIRST_START)
        else:
            parts.term.moved()

    def _why_fenced(self) -> str:
        record = self._parts.watch.record
        if record is None or record.epoch == self.record.epoch:
            return f"the group record in {self._parts.watch.store_name} names another birth, epoch or master"
        return f"{record.master_node} leads in epoch {record.epoch}"

    async def _persist_change(self) -> None:
        record, before, change = self.record, self._persisted, self._change
        if change is not None and change.record.write == record.write:
            cause, took_s = str(change), self._parts.clock.monotonic() - self._began
        else:
            pausing = "paused" if record.paused else "resumed"
            cause, took_s = (f"failover was {pausing}" if record.paused != before.paused else "the record was changed"), 0.0
        log.info("members_changed", node=self._parts.node, members=self._parts.term.confirm.members, revision=record.revision, reason=cause)
        await self._persist(record, cause, took_s)

    async def _persist(self, record: GroupRecord, cause: str, took_s: float) -> None:
        self._persisted = record
        members = tuple(member.node for member in record.members)
        now_ms = self._parts.clock.wall_ms()
        change = HaChange(now_ms, record.revision, record.epoch, record.master_node, members, cause, int(took_s * 1000))
        await self._parts.history.add(change)

    async def _rest(self) -> None:
        try:
            async with asyncio.timeout(_LOOK_S):
                await self._bell.wait()
        except TimeoutError:
            return
