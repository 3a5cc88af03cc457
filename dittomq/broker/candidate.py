"""Elections of a replica that does not lead: it answers candidates, and stands itself. Obeys `dittomq.replication.election`."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from typing import Any, Final, NoReturn, Protocol, assert_never

import structlog

from dittomq.broker.group_watch import GroupWatch
from dittomq.broker.role import BrokerService, RoleStart
from dittomq.broker.tail_transfer import TailTransferParts, take_tail
from dittomq.commitlog.store import Store
from dittomq.doors.chance import hex_id
from dittomq.doors.clock import Clock
from dittomq.doors.coordination import CoordinationStore, GroupKey
from dittomq.doors.workers import Executor
from dittomq.errors import DittoError, PreconditionFailed, StaleEpoch, StorageFailure, first_of
from dittomq.group_record import GroupRecord
from dittomq.offsets import NO_EPOCH, Epoch, PhysicalOffset
from dittomq.replication import election_events as election
from dittomq.replication.election import Election, may_stand
from dittomq.replication.election_events import Elected, ElectionReason, ElectionRules, Position, SentBy, StandOrder, Target
from dittomq.replication.promise import PromiseRequest, decide_ask, decide_promise
from dittomq.routes import DataVersion
from dittomq.rpc.replica_client import ReplicaClient

_LOOK_S: Final = 0.05
_TABLES_S: Final = 0.5  # a promise whose sender's tables take longer counts all the same
_MOST_EVENTS: Final = 256

log = structlog.get_logger()


class Follows(Protocol):
    """What a candidate asks of the part of a node that follows the master."""

    @property
    def sees_master(self) -> bool:
        """Whether the record's master was heard within the time of silence."""
        ...

    @property
    def silent_s(self) -> float:
        """Seconds since the master was heard, or since this node began; time in which the process was suspended does not count."""
        ...

    @property
    def connection_refused(self) -> bool:
        """Whether the last attempt to reach the record's master was refused at once."""
        ...

    def known_confirmed(self) -> PhysicalOffset:
        """What this replica knows to be confirmed of its own bytes."""
        ...

    def check_taken_up(self) -> None:
        """Raise NotReady while it is not known with which store this node stands."""
        ...

    async def end_stream(self) -> None:
        """End the stream that is under way; what it brought is written and synced when this returns."""
        ...

    def without_stream(self) -> AbstractAsyncContextManager[None]:
        """No stream in there, for the candidate writes the log itself."""
        ...

    def promised(self, epoch: Epoch) -> None:
        """From here on no master of a lower epoch is followed."""
        ...


class Changes(Protocol):
    """Where the node's life goes on."""

    def change_role(self, service: BrokerService, why: str, start: RoleStart) -> None: ...


@dataclass(frozen=True, slots=True)
class CandidateParts:
    """What a candidate works with. `address` tells this node's replication port, `nodes` the group as nameservers list it.

    `tables` and `slots` tell what its position says of its tables, and of slaves that its log is kept for. `order` is the priority.
    """

    rules: ElectionRules
    priority: int
    key: GroupKey
    store: Store
    files: Executor
    fetcher: Follows
    watch: GroupWatch
    coordination: CoordinationStore
    replicas: ReplicaClient
    tail: TailTransferParts
    nodes: Callable[[], Awaitable[Sequence[Target]]]
    tables: Callable[[], tuple[DataVersion, ...]]
    slots: Callable[[], tuple[tuple[str, PhysicalOffset], ...]]
    place: Changes
    clock: Clock
    chance: random.Random


class Candidate:
    """Stands when its master is silent, when it is the record's master, or when it is sent; one election at a time."""

    def __init__(self, parts: CandidateParts, start: RoleStart) -> None:
        self._parts = parts
        self._wake = asyncio.Event()
        self._order: StandOrder | None = StandOrder(SentBy.NOBODY) if start.stands else None
        self._promising = asyncio.Lock()
        self._waits_until = 0.0  # monotonic: a candidate that this node promised to has its time before this
        self._rests_until = 0.0  # monotonic: so long after an election that came to nothing
        if start.promised_to:
            self._give_time()
        self._is_elected = False
        self.address = ""  # where this node serves replication; told before `run`
        self.reason: ElectionReason | None = None  # why the last election came to nothing, or why it does not stand

    def order(self, order: StandOrder) -> None:
        """Stand now, whatever is heard. Of two orders that come together the later one counts."""
        self._order = order
        self._wake.set()

    def look(self) -> None:
        """Something changed: look now whether to stand."""
        self._wake.set()

    async def position(self) -> Position:
        """Where this replica stands. Raises NotReady while that is not known."""
        parts = self._parts
        parts.fetcher.check_taken_up()
        store = parts.store
        return Position(
            node=parts.rules.node,
            replica=store.replica,
            birth=store.birth,
            adopted=store.adopted_epoch,
            log_end=store.end,
            log_start=store.min_offset,
            promised=store.promised_epoch,
            confirmed=parts.fetcher.known_confirmed(),
            revision=store.record_revision,
            damaged_bytes=store.damage.total_bytes,
            priority=parts.priority,
            sees_master=parts.fetcher.sees_master,
            dropped_torn_tail=store.dropped_torn_tail,
            address=self.address,
            tables=parts.tables(),
            slots=parts.slots(),
            epoch_history=store.epoch_history,
            master="" if parts.watch.record is None else parts.watch.record.master_node,
        )

    async def ask(self, candidate: str, sent_by: SentBy) -> tuple[Position, bool]:
        """Where this replica stands, and whether it would promise. Raises NotReady."""
        own = await self.position()
        if sent_by is SentBy.NOBODY and self._parts.watch.record is None and own.node < candidate:
            self._rests_until = 0.0  # the candidate stands back for the first name: it is to create a new group's record
            self.look()
        return own, decide_ask(own, candidate, sent_by)

    async def promise(self, request: PromiseRequest) -> tuple[Position, bool]:
        """Promise, if nothing is in the way, durably. Raises NotReady, StorageFailure."""
        async with self._promising:
            if not decide_promise(await self.position(), request):
                return await self.position(), False
            await self._promise(request.epoch, leaves_birth=not request.birth)
            self._give_time()
            log.info("promised", node=self._parts.rules.node, epoch=request.epoch, candidate=request.candidate)
            return await self.position(), True

    async def promise_self(self, epoch: Epoch, *, leaves_birth: bool) -> Position:
        """The candidate's own promise, durable; where it stands behind what its stream brought. Raises StorageFailure."""
        async with self._promising:
            await self._promise(epoch, leaves_birth=leaves_birth)
            return await self.position()

    async def stand(self, order: StandOrder) -> None:
        """A master or an operator sends this node. Raises PreconditionFailed where it may not stand."""
        own = await self.position()
        await self._parts.watch.read()
        problem = may_stand(self._parts.rules, own, self._parts.watch.record, order, master_is_silent=True)
        if problem is not None:
            raise PreconditionFailed(f"refused: {problem}")
        record = self._parts.watch.record
        if order.sent_by is SentBy.MASTER and record is not None:
            await _take_tables(self._parts, record.master_node, record.master_address)  # it may be elected before the master promises
        self.order(order)

    async def look_around(self) -> dict[str, Position]:
        """The positions of the other nodes that answer, by node name: for an operator who wants to know what an election would do."""
        own = await self.position()
        targets = [each for each in await self._targets() if each.node != own.node]
        found: dict[str, Position] = {}

        async def ask(target: Target) -> None:
            try:
                position, _ = await self._parts.replicas.ask(target.address, "", SentBy.OPERATOR)
            except DittoError:
                return
            found[position.node] = position

        async with asyncio.TaskGroup() as tasks:
            for target in targets:
                tasks.create_task(ask(target))
        return found

    async def run(self) -> NoReturn:
        """Stand when it is time, until cancelled or elected; then wait for the end. Raises StorageFailure."""
        while not self._is_elected:
            self._wake.clear()
            if (order := await self._due()) is not None:
                await self._stand(order)
            elif not self._wake.is_set():
                await self._rest(_LOOK_S)
        await asyncio.Event().wait()
        raise AssertionError

    async def _rest(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            return

    async def _due(self) -> StandOrder | None:
        """As whom to stand now; None: not now."""
        parts, (order, self._order) = self._parts, (self._order, None)
        try:
            own = await self.position()
        except DittoError:
            self._order = order
            return None
        if order is None:
            if parts.clock.monotonic() < max(self._waits_until, self._rests_until) or not parts.watch.was_read:
                return None
            order = StandOrder(SentBy.NOBODY, allow_data_loss=False)
        record = parts.watch.record
        self.reason = may_stand(parts.rules, own, record, order, master_is_silent=self._master_is_silent(record))
        return order if self.reason is None else None

    def _master_is_silent(self, record: GroupRecord | None) -> bool:
        fetcher = self._parts.fetcher
        if record is None or record.master == self._parts.store.replica:
            return True
        return not fetcher.sees_master and (fetcher.connection_refused or fetcher.silent_s >= self._parts.rules.silence_s)

    def _give_time(self) -> None:
        self._waits_until = self._parts.clock.monotonic() + self._parts.rules.silence_s

    async def _targets(self) -> tuple[Target, ...]:
        """The members of the record; without one, the group as nameservers list it."""
        record = self._parts.watch.record
        if record is not None:
            return tuple(Target(member.node, member.address) for member in record.members)
        try:
            return tuple(await self._parts.nodes())
        except DittoError:
            return ()

    async def _promise(self, epoch: Epoch, *, leaves_birth: bool) -> None:
        """End the older stream, write and sync what it brought, and promise, durably."""
        parts, store = self._parts, self._parts.store
        parts.fetcher.promised(epoch)
        await parts.fetcher.end_stream()
        await parts.files.call(lambda: store.promise(epoch))
        await parts.tail.lane.call(store.sync)  # the piece of a tail that was being written; no other one follows
        if leaves_birth and store.birth:
            await parts.files.call(lambda: store.take_birth(""))

    async def _stand(self, order: StandOrder) -> None:
        """One election, from its first question to its end."""
        parts = self._parts
        own = await self.position()
        nodes = await self._targets() if parts.watch.record is None else ()
        now = parts.clock.monotonic()
        chance = parts.chance
        decider = Election(parts.rules, own, order, tuple(nodes), birth=hex_id(chance), write=hex_id(chance), now=now)
        attempt = _ElectionDriver(self, parts, decider)
        log.info("election_began", node=own.node, sent_by=order.sent_by.name, adopted=own.adopted, log_end=own.log_end)
        match await attempt.run():
            case election.BecomeMaster(elected):
                await self._become_master(elected)
            case election.EndElection() as end:
                self.reason = end.reason
                log.info("election_ended", node=own.node, reason=str(end.reason))
                pause_s = chance.uniform(end.retry_after_s, end.retry_after_s + end.retry_spread_s)
                self._rests_until = parts.clock.monotonic() + pause_s

    async def _become_master(self, elected: Elected) -> None:
        """The record names this replica: take its birth, and go on as a master, unless a higher epoch was promised meanwhile."""
        parts, store = self._parts, self._parts.store
        async with self._promising:
            if store.promised_epoch != elected.record.epoch:
                log.warning("election_overtaken", node=parts.rules.node, epoch=elected.record.epoch, promised=store.promised_epoch)
                return
            if store.birth != elected.record.birth:
                await parts.files.call(lambda: store.take_birth(elected.record.birth))
            self._is_elected = True
        others = [member.node for member in elected.record.members if member.replica != store.replica]
        log.warning(
            "elected",
            node=parts.rules.node,
            epoch=elected.record.epoch,
            log_end=elected.log_end,
            other_members=others,
            data_loss="" if elected.data_loss is None else str(elected.data_loss),
        )
        parts.place.change_role(BrokerService.MASTER, f"it was elected in epoch {elected.record.epoch}", RoleStart(elected=elected))


class _ElectionDriver:
    """One election's driver: carries commands out, each that waits in a task of its own, and reports what came of them."""

    def __init__(self, candidate: Candidate, parts: CandidateParts, decider: Election) -> None:
        self._candidate = candidate
        self._parts = parts
        self._decider = decider
        self._epoch = NO_EPOCH  # what it promised itself last
        self._events: asyncio.Queue[election.Event] = asyncio.Queue(_MOST_EVENTS)

    async def run(self) -> election.BecomeMaster | election.EndElection:
        """The command that ends it. Raises StorageFailure."""
        failed: DittoError | None = None
        ended: election.BecomeMaster | election.EndElection | None = None
        try:
            async with asyncio.TaskGroup() as tasks:
                ended = await self._run(tasks)
        except* StorageFailure as problems:
            failed = first_of(problems)
        if failed is not None:
            raise failed
        assert ended is not None, "without a failure it ends by a command"
        return ended

    async def _run(self, tasks: asyncio.TaskGroup) -> election.BecomeMaster | election.EndElection:
        background: list[asyncio.Task[None]] = [tasks.create_task(self._tick(), name="election ticks")]
        commands = self._decider.begin()
        while (end := next((each for each in commands if isinstance(each, election.BecomeMaster | election.EndElection)), None)) is None:
            background += [tasks.create_task(work) for command in commands for work in self._work(command)]
            commands = self._decider.handle(await self._events.get(), self._parts.clock.monotonic())
        for task in background:
            task.cancel()
        return end

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            await self._events.put(election.ElectionTick())

    def _work(self, command: election.Command) -> list[Coroutine[Any, Any, None]]:
        match command:
            case election.ReadRecord():
                return [self._read()]
            case election.AskMembers(targets, sent_by):
                return [self._ask(target, sent_by) for target in targets]
            case election.PromiseSelf(epoch, birth):
                self._epoch = epoch
                return [self._promise_self(epoch, leaves_birth=not birth)]
            case election.AskPromises():
                return [self._ask_promise(target, command) for target in command.targets]
            case election.TakeTail(source):
                return [self._take_tail(source)]
            case election.WriteRecord():
                return [self._write(command)]
            case election.BecomeMaster() | election.EndElection():
                raise AssertionError
            case _:
                assert_never(command)

    async def _read(self) -> None:
        parts = self._parts
        try:
            found = await parts.coordination.read(parts.key)
        except StorageFailure:
            raise
        except DittoError as error:
            await self._events.put(election.StoreSilent(str(error)))
            return
        await parts.watch.update(found)
        await self._events.put(election.RecordRead(found))

    async def _ask(self, target: Target, sent_by: SentBy) -> None:
        event: election.Event
        try:
            event = election.Answered(*await self._parts.replicas.ask(target.address, self._parts.rules.node, sent_by))
        except DittoError:
            event = election.Unanswered(target.node)
        await self._events.put(event)

    async def _promise_self(self, epoch: Epoch, *, leaves_birth: bool) -> None:
        own = await self._candidate.promise_self(epoch, leaves_birth=leaves_birth)
        await self._events.put(election.SelfPromised(own))

    async def _ask_promise(self, target: Target, asked: election.AskPromises) -> None:
        parts = self._parts
        request = PromiseRequest(parts.rules.node, parts.store.replica, asked.epoch, asked.birth, asked.sent_by)
        event: election.Event
        try:
            position, is_promised = await parts.replicas.promise(target.address, request)
            if is_promised and position.tables != parts.tables():
                await _take_tables(parts, position.node, position.address)
            event = election.PromiseAnswered(position, is_promised)
        except DittoError:
            event = election.PromiseUnanswered(target.node)
        await self._events.put(event)

    async def _take_tail(self, source: Position) -> None:
        parts = self._parts
        try:
            async with parts.fetcher.without_stream():
                await take_tail(parts.tail, source, self._check_promise)
                await parts.files.call(lambda: self._adopt(source.adopted))
            own = await self._candidate.position()
        except StorageFailure:
            raise
        except DittoError as error:
            log.warning("log_tail_not_fetched", node=parts.rules.node, source=source.node, problem=str(error))
            await self._events.put(election.TailFailed(str(error)))
            return
        await self._events.put(election.TailTaken(replace(own, sees_master=False)))

    def _check_promise(self) -> None:
        """Raise StaleEpoch once a higher epoch is promised: from there on the log stays as the answer to that told it."""
        if self._parts.store.promised_epoch != self._epoch:
            raise StaleEpoch(self._epoch, self._parts.store.promised_epoch)

    def _adopt(self, epoch: Epoch) -> None:
        self._check_promise()  # on the lane that promises
        self._parts.store.adopt_epoch(epoch)

    async def _write(self, command: election.WriteRecord) -> None:
        parts = self._parts
        try:
            outcome = await parts.coordination.write(parts.key, command.record, command.expected)
        except StorageFailure:
            raise
        except DittoError as error:
            await self._events.put(election.StoreSilent(str(error)))
            return
        await self._events.put(election.WriteEnded(outcome))


async def _take_tables(parts: CandidateParts, node: str, address: str) -> None:
    """Newer tables of who promised, or of the master that switches over: one of this node may be older, or may have rotted.

    At once, for a master that promised closes its doors in a moment. Raises StorageFailure.
    """
    problem = f"it took longer than {_TABLES_S:g} s"
    try:
        async with asyncio.timeout(_TABLES_S):
            await parts.tail.take_tables(address)
            return
    except StorageFailure:
        raise
    except DittoError as error:
        problem = str(error)
    except TimeoutError:
        pass
    log.warning("metadata_not_applied", node=parts.rules.node, source=node, problem=problem)
