"""④ Slaves at the door: each says hello, waits while the master recovers, and then has one stream."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection

import structlog

from dittomq.broker.outflow import Outflow
from dittomq.commitlog.store import Store
from dittomq.doors.clock import Clock
from dittomq.doors.workers import Lane
from dittomq.errors import DittoError, InvalidField, NeedsOperator, SessionEnded, WrongCluster, first_of
from dittomq.lineage import common_end
from dittomq.offsets import Epoch, PhysicalOffset
from dittomq.replication.events import Hello, SlaveHolds, Verdict, VerdictAction
from dittomq.replication.master_log import MasterLog
from dittomq.replication.master_session import MasterSession, SessionLimits
from dittomq.replication.parted import Parted
from dittomq.replication.seats import Seat, Seats
from dittomq.replication.standings import Standing
from dittomq.routes import DataVersion, Opening
from services.master.config import MasterConfig
from services.master.inbox import SlaveSaid
from services.master.promises import Promises
from services.master.recovery import Recovery
from services.master.replicate import SlaveStream, StreamParts
from services.master.slaves import GONE, SlaveRecord, to_forget
from services.master.telling import MasterSays, Telling
from services.master.term import Term

log = structlog.get_logger()

_HELLO_DEADLINE_S = 10.0


class Replication:
    """All slaves of one master. `records` keeps those that left, for status."""

    def __init__(self, config: MasterConfig, store: Store, lane: Lane, clock: Clock, recovery: Recovery) -> None:
        self._config = config
        self._store = store
        self._lane = lane
        self._clock = clock
        self._recovery = recovery
        self._term: Term | None = None
        self._topics: Callable[[], DataVersion] = DataVersion
        self._leads = asyncio.Event()
        table = config.replication
        slaves = table.replicas_expected if table.asked_copies > 1 else None
        self._seats = Seats(config.name, store.replica_uuid, slaves)
        self._streams: dict[Seat, _Stream] = {}
        self.promises = Promises(config.name)
        self._parted = Parted(table.group_rules.witnesses_of_all)
        self.outflow = Outflow(table, clock)
        self.records: dict[str, SlaveRecord] = {}
        self.held: frozenset[str] = frozenset()  # slaves for which the log was kept before this start
        self.holds: Callable[[], SlaveHolds | None] = _not_known  # for which it is kept, and from where on

    def lead(self, term: Term, topics: Callable[[], DataVersion]) -> None:
        """The epoch is open: whoever waits is answered. `topics` tells the version of the topics; it may be asked often."""
        self._term, self._topics = term, topics
        self._leads.set()

    async def wait_for_term(self) -> None:
        """Return when this master leads."""
        await self._leads.wait()

    def addresses(self) -> list[tuple[str, str]]:
        """Names and replication addresses of the slaves that are connected."""
        return [(record.node, record.replication_address) for record in self.records.values() if record.connected]

    def behind(self, term: Term) -> list[str]:
        """Replication addresses of the slaves that have left, or have not acknowledged all that was written."""
        slaves = [each for each in self.records.values() if not each.connected or each.received != term.written]
        return [slave.replication_address for slave in slaves if slave.replication_address]

    async def serve(self, said: AsyncIterator[SlaveSaid], send: Callable[[MasterSays], Awaitable[None]]) -> None:
        """One slave, from its hello until it leaves; raises what ends the stream."""
        hello = await self._hear_hello(said)
        stream = self._take_seat(hello)
        dropped: DittoError | None = None
        try:
            async with asyncio.TaskGroup() as tasks:
                serving = tasks.create_task(self._serve(hello, said, send, stream))
                await _either(serving, stream.ends)
                serving.cancel()
        except* DittoError as problems:
            dropped = first_of(problems)
            stream.problem = str(dropped)
            log.info("slave_dropped", slave=hello.node, reason=stream.problem)
        finally:
            self._leave_seat(stream)
        if dropped is not None:
            raise dropped

    async def _hear_hello(self, said: AsyncIterator[SlaveSaid]) -> Hello:
        try:
            async with asyncio.timeout(_HELLO_DEADLINE_S):
                first = await anext(said, None)
        except TimeoutError:
            raise SessionEnded(f"a stream on which no hello came for {_HELLO_DEADLINE_S:g} s") from None
        if not isinstance(first, Hello):
            raise InvalidField("hello", "the first frame of a stream says hello")
        if first.cluster != self._config.node.cluster:
            raise WrongCluster("cluster", first.cluster, self._config.node.cluster)
        if first.broker != self._config.node.broker:
            raise WrongCluster("broker", first.broker, self._config.node.broker)
        return first

    def _take_seat(self, hello: Hello) -> "_Stream":
        counted = self._term.confirm.in_sync if self._term is not None else ()
        if why := self._seats.why_not(hello.node, hello.replica_uuid, counted):
            raise NeedsOperator(self._config.name, why)
        seat, losers = self._seats.take(hello.node, hello.replica_uuid)
        for loser in losers:
            self._streams[loser].problem = "a newer stream took its place"
            self._streams[loser].ends.set()
        self._let_disks_go(hello)
        if hello.node not in self.records:
            self._make_room(counted)
        record = self.records.get(hello.node)
        if record is None or record.replica_uuid != hello.replica_uuid:
            record = self.records[hello.node] = SlaveRecord(hello.node, hello.replica_uuid)
        record.connected, record.replication_address = True, hello.replication_address
        record.become("waiting", self._clock)
        stream = self._streams[seat] = _Stream(seat, record)
        return stream

    def _let_disks_go(self, hello: Hello) -> None:
        """One disk is one copy, of the node that spoke for it last, whether or not the one before is still connected."""
        for record in self.records.values():
            is_same_node, is_same_disk = record.node == hello.node, record.replica_uuid == hello.replica_uuid
            if is_same_node != is_same_disk:
                record.disk_gone()
                if self._term is not None:
                    self._term.disk_gone(record.node, "it has another disk" if is_same_node else f"its disk serves {hello.node}")

    def _make_room(self, counted: Collection[str]) -> None:
        """For one more slave to remember; whoever is forgotten is a new one when it comes again."""
        if node := to_forget(self.records, counted):
            log.info("slave_forgotten", slave=node, why="more of them came")
            del self.records[node]
            self._parted.forget(node)
            self._recovery.forget(node)
            if self._term is not None:
                self._term.forget(node)

    def _leave_seat(self, stream: "_Stream") -> None:
        stream.record.dropped(stream.problem or "it left, or its connection broke", self._clock)
        del self._streams[stream.seat]
        if self._seats.leave(stream.seat):
            stream.record.connected = False
            stream.record.become(GONE, self._clock)
            self._recovery.slave_gone(stream.seat.node)

    async def _serve(
        self, hello: Hello, said: AsyncIterator[SlaveSaid], send: Callable[[MasterSays], Awaitable[None]], stream: "_Stream"
    ) -> None:
        term = self._term or await self._wait_to_lead(hello, send)
        record, seat = stream.record, stream.seat
        record.proven_equal = min(record.proven_equal, hello.end, hello.verified_equal)
        parts = StreamParts(
            term=term,
            promises=self.promises,
            parted=self._parted,
            store=self._store,
            lane=self._lane,
            clock=self._clock,
            node=self._config.name,
            topics=self._topics,
            holds=self._holds_now,
            speaks=lambda: self._seats.speaks(seat),
            pace=self.outflow.to(hello.node),
        )
        session = MasterSession(self._log(term), self._limits(), self._clock.monotonic())
        await SlaveStream(parts, session, record, send).run(hello, said)
        stream.ends.set()

    def _holds_now(self) -> SlaveHolds | None:
        return self.holds()

    async def _wait_to_lead(self, hello: Hello, send: Callable[[MasterSays], Awaitable[None]]) -> Term:
        """Tell the slave to wait, as often as it must hear something; one that reads nothing is dropped, and counts as heard no more."""
        table = self._config.replication
        telling = Telling(self._config.name, self._clock, table.silence_ms / 1000, send)
        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(telling.watch())
            term = await self._tell_to_wait(hello, telling, table.heartbeat_ms)
            watching.cancel()
        return term

    async def _tell_to_wait(self, hello: Hello, telling: Telling, heartbeat_ms: int) -> Term:
        while self._term is None:
            self._recovery.slave_heard(hello)
            await telling.say(Verdict(VerdictAction.WAIT, PhysicalOffset(0), self._recovery.waiting_for, Epoch(0), (), heartbeat_ms))
            try:
                async with asyncio.timeout(heartbeat_ms / 1000):
                    await self._leads.wait()
            except TimeoutError:
                continue
        return self._term

    def knows_all_of(self, standing: Standing) -> bool:
        """Whether this log holds all that a node does that leads no more: then that one confirmed nothing that is not here."""
        term = self._term
        if term is None or not standing.only_follows:
            return False
        ours, theirs = term.opened.lineage, standing.lineage
        common = common_end(ours=ours, our_end=term.written, theirs=theirs, their_end=standing.end)
        return bool(theirs) and not standing.is_filling and standing.end <= common

    def handed_on(self, term: Term) -> tuple[Opening, ...]:
        """What this master knows of epochs of others, for whoever gets its place."""
        return term.opened.succession.handed_on(self.promises.settled)

    def _log(self, term: Term) -> MasterLog:
        return MasterLog(
            cluster=self._config.node.cluster,
            broker=self._config.node.broker,
            segment_bytes=self._config.store.segment_bytes,
            min_offset=self._store.min_offset,
            end=term.written,
            confirmed=term.confirm.confirmed,
            lineage=term.opened.lineage,
            node=self._config.name,
            replica_uuid=self._store.replica_uuid,
            loss_accepted=term.opened.loss_accepted,
            degraded=term.degraded.told,
            succession=term.opened.succession,
            settled=self.promises.settled,
        )

    def _limits(self) -> SessionLimits:
        table = self._config.replication
        return SessionLimits(table.window_bytes, table.heartbeat_ms / 1000, table.silence_ms / 1000, table.proof_bytes_per_s)


class _Stream:
    """One stream in its seat; it `ends` when it has lost the seat or has nothing more to say. `problem`: why, when that is known."""

    def __init__(self, seat: Seat, record: SlaveRecord) -> None:
        self.seat = seat
        self.record = record
        self.problem = ""
        self.ends = asyncio.Event()


async def _either(task: "asyncio.Task[None]", event: asyncio.Event) -> None:
    """Return when the task has ended or the event is set, whichever is first."""
    task.add_done_callback(lambda _: event.set())
    await event.wait()


def _not_known() -> None:
    return None
