"""④ Slaves at the door: each sends its handshake, and has one stream while this master leads."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Final

import structlog

from dittomq.broker.replication_throttle import ReplicationThrottle
from dittomq.commitlog.store import Store
from dittomq.doors.clock import Clock
from dittomq.doors.workers import Executor
from dittomq.errors import DittoError, InvalidField, NeedsOperator, NotReady, SessionExpired, WrongCluster, first_of
from dittomq.group_record import ReplicaId
from dittomq.ha_status import NodeState, StreamEndReason, ended_by
from dittomq.offsets import Epoch
from dittomq.replication.events import Goodbye, Handshake, ReplicationSlots
from dittomq.replication.master_log import MasterLog
from dittomq.replication.master_session import MasterSession, SessionLimits
from dittomq.replication.session_registry import SessionRegistry, SessionSlot
from dittomq.routes import DataVersion
from services.master.config import MasterConfig
from services.master.mailbox import SlaveMessage
from services.master.replica_registry import SlaveRecord, to_remove
from services.master.replica_sender import ReplicaSender, ReplicaSenderParts
from services.master.stream_writer import MasterMessage
from services.master.term import Term

log = structlog.get_logger()

_HANDSHAKE_DEADLINE_S: Final = 10.0
_OPENING_S: Final = 1.0  # a slave that dials a moment too early need not dial again


@dataclass(frozen=True, slots=True)
class Leading:
    """What streams need of a master that leads. `topics` tells the version of the topics; it may be asked often.

    `is_member` asks whether the group record names that node with that replica; `remove` has a node removed from it. `promised_above`
    hears that a slave has promised a higher epoch. `disk_answers`: see `services.master.upkeep`. `silent_s`: see Heartbeat. `counts`:
    slaves may become members.
    """

    term: Term
    topics: Callable[[], DataVersion]
    is_member: Callable[[str, ReplicaId], bool]
    remove: Callable[[str], None]
    promised_above: Callable[[Epoch, str], Awaitable[None]]
    disk_answers: Callable[[], bool]
    silent_s: Callable[[], float | None]
    counts: bool


class Replicas:
    """All slaves of one master. `records` keeps those that left, for status."""

    def __init__(self, config: MasterConfig, store: Store, lane: Executor, clock: Clock) -> None:
        self._config = config
        self._store = store
        self._lane = lane
        self._clock = clock
        self._leading: Leading | None = None
        self._leads = asyncio.Event()
        self._seats = SessionRegistry(config.name, store.replica_uuid)
        self._streams: dict[SessionSlot, _SlaveStream] = {}
        self.outflow = ReplicationThrottle(config.replication, clock)
        self.records: dict[str, SlaveRecord] = {}
        self.held: frozenset[str] = frozenset()  # slaves for which the log was kept before this start
        self.slots: Callable[[], ReplicationSlots | None] = _not_known  # for which it is kept, and from where on

    def lead(self, leading: Leading) -> None:
        """The epoch is open: slaves that wait are answered."""
        self._leading = leading
        self._leads.set()

    async def wait_for_term(self) -> Term:
        """Return when this master leads."""
        await self._leads.wait()
        assert self._leading is not None
        return self._leading.term

    def addresses(self) -> list[tuple[str, str]]:
        """Names and replication addresses of the slaves that are connected."""
        return [(record.node, record.replication_address) for record in self.records.values() if record.connected]

    async def serve(self, messages: AsyncIterator[SlaveMessage | Goodbye], send: Callable[[MasterMessage], Awaitable[None]]) -> None:
        """One slave, from its handshake until it leaves; raises what ends the stream."""
        handshake = await self._receive_handshake(messages)
        leading = await self._wait_to_lead()
        stream = self._take_seat(handshake, leading)
        dropped: DittoError | None = None
        try:
            async with asyncio.TaskGroup() as tasks:
                serving = tasks.create_task(self._serve(handshake, messages, send, stream, leading=leading))
                await _either(serving, stream.ends)
                serving.cancel()
        except* DittoError as problems:
            dropped = first_of(problems)
            stream.why = str(dropped), ended_by(dropped)
            log.info("slave_dropped", slave=handshake.node, reason=str(dropped))
        finally:
            self._leave_seat(stream, leading.term)
        if dropped is not None:
            raise dropped

    async def _receive_handshake(self, messages: AsyncIterator[SlaveMessage | Goodbye]) -> Handshake:
        try:
            async with asyncio.timeout(_HANDSHAKE_DEADLINE_S):
                first = await anext(messages, None)
        except TimeoutError:
            raise SessionExpired(f"a stream on which no handshake came for {_HANDSHAKE_DEADLINE_S:g} s") from None
        if not isinstance(first, Handshake):
            raise InvalidField("handshake", "the first frame of a stream is a handshake")
        if first.cluster != self._config.node.cluster:
            raise WrongCluster("cluster", first.cluster, self._config.node.cluster)
        if first.broker != self._config.node.broker:
            raise WrongCluster("broker", first.broker, self._config.node.broker)
        return first

    async def _wait_to_lead(self) -> Leading:
        try:
            async with asyncio.timeout(_OPENING_S):
                await self._leads.wait()
        except TimeoutError:
            raise NotReady(self._config.name, "it has not opened its epoch yet") from None
        assert self._leading is not None
        leading = self._leading
        if leading.term.is_over:
            raise NotReady(self._config.name, f"its term is over: {leading.term.why_over}")
        if not leading.disk_answers():
            raise NotReady(self._config.name, "its disk does not answer")
        return leading

    def _take_seat(self, handshake: Handshake, leading: Leading) -> "_SlaveStream":
        if why := self._seats.why_not(handshake.node, handshake.replica_uuid) or self._why_copied(handshake, leading):
            raise NeedsOperator(self._config.name, why)
        seat, losers = self._seats.take(handshake.node, handshake.replica_uuid)
        for loser in losers:
            self._streams[loser].why = "a newer stream took its place", StreamEndReason.SESSION_EXPIRED
            self._streams[loser].ends.set()
        for record in self.records.values():
            if (record.node == handshake.node) != (record.replica == handshake.replica):
                record.disk_gone()  # one disk is one copy, of the node that spoke for it last
        if handshake.node not in self.records:
            self._make_room(leading.term.confirm.members, leading.term)
        if (known := self.records.get(handshake.node)) is None or known.replica != handshake.replica:
            self.records[handshake.node] = SlaveRecord(handshake.node, handshake.replica)
            if not leading.counts:
                log.warning("slave_not_counted", node=self._config.name, slave=handshake.node, reason="replicas_expected is 0")
        record = self.records[handshake.node]
        record.connected, record.replication_address = True, handshake.replication_address
        record.become(NodeState.WAITING, self._clock)
        stream = self._streams[seat] = _SlaveStream(seat, record)
        return stream

    def _why_copied(self, handshake: Handshake, leading: Leading) -> str:
        """Why the replica is not the one that its id names; "" where it may be."""
        remedy = f"give that of {handshake.node} another identity: dittomq log new-identity STORE"
        member = leading.term.confirm.record.member(handshake.replica)
        if member is not None and member.node != handshake.node:
            return f"its replica id is that of {member.node}, a member of the in-sync set, so one of both disks is a copy; {remedy}"
        for record in self.records.values():
            if record.connected and record.node != handshake.node and record.replica == handshake.replica:
                return f"its replica id is that of {record.node}, which is connected, so one of both disks is a copy; {remedy}"
        return ""

    def _make_room(self, members: Collection[str], term: Term) -> None:
        """For one more slave to remember; one that is forgotten is a new one when it comes again."""
        if node := to_remove(self.records, members):
            log.info("slave_removed", slave=node, why="more of them came")
            del self.records[node]
            term.forget(node)

    def _leave_seat(self, stream: "_SlaveStream", term: Term) -> None:
        reason, kind = stream.why
        stream.record.dropped(reason, kind, self._clock)
        del self._streams[stream.seat]
        if self._seats.leave(stream.seat):
            stream.record.connected = False
            stream.record.become(NodeState.GONE, self._clock)
            term.stream_ended(stream.seat.node, sent_goodbye=stream.sent_goodbye)

    async def _serve(
        self,
        handshake: Handshake,
        messages: AsyncIterator[SlaveMessage | Goodbye],
        send: Callable[[MasterMessage], Awaitable[None]],
        stream: "_SlaveStream",
        *,
        leading: Leading,
    ) -> None:
        record, seat = stream.record, stream.seat
        record.verified_offset = min(record.verified_offset, handshake.end, handshake.verified_offset)
        parts = ReplicaSenderParts(
            term=leading.term,
            store=self._store,
            lane=self._lane,
            clock=self._clock,
            node=self._config.name,
            topics=leading.topics,
            slots=self._slots_now,
            speaks=lambda: self._seats.speaks(seat),
            remove=leading.remove,
            promised_above=leading.promised_above,
            disk_answers=leading.disk_answers,
            silent_s=leading.silent_s,
            turns=self.outflow.to(handshake.node),
        )
        session = MasterSession(self._log(handshake, leading), self._limits(), self._clock.monotonic())
        driver = ReplicaSender(parts, session, record, send)
        await driver.run(handshake, messages)
        stream.sent_goodbye = driver.sent_goodbye
        stream.ends.set()

    def _slots_now(self) -> ReplicationSlots | None:
        return self.slots()

    def _log(self, handshake: Handshake, leading: Leading) -> MasterLog:
        term = leading.term
        return MasterLog(
            cluster=self._config.node.cluster,
            broker=self._config.node.broker,
            segment_bytes=self._config.store.segment_bytes,
            min_offset=self._store.min_offset,
            end=term.written,
            confirmed=term.confirm.confirmed,
            epoch_history=term.opened.epoch_history,
            node=self._config.name,
            replica_uuid=self._store.replica_uuid,
            birth=term.opened.birth,
            is_member=leading.is_member(handshake.node, handshake.replica),
            counts=leading.counts,
            acknowledged=term.confirm.acknowledged(handshake.node, handshake.replica),
        )

    def _limits(self) -> SessionLimits:
        table = self._config.replication
        silence_s = self._config.failover.peer_timeout_ms / 1000
        return SessionLimits(
            max_inflight_bytes=table.max_inflight_bytes,
            heartbeat_s=table.heartbeat_ms / 1000,
            silence_s=silence_s,
            verify_step_bytes=table.verify_bytes_per_s,
        )


class _SlaveStream:
    """One stream in its seat; it `ends` when it has lost the seat or has nothing more to say. `why`: in words, and of what kind."""

    def __init__(self, seat: SessionSlot, record: SlaveRecord) -> None:
        self.seat = seat
        self.record = record
        self.why = "it left, or its connection broke", StreamEndReason.CONNECTION_ENDED
        self.sent_goodbye = False
        self.ends = asyncio.Event()


async def _either(task: "asyncio.Task[None]", event: asyncio.Event) -> None:
    """Return when the task has ended or the event is set, whichever is first."""
    task.add_done_callback(lambda _: event.set())
    await event.wait()


def _not_known() -> None:
    return None
