"""Before a master leads: hears slaves, takes over the longest tail, waits for what Leadership demands."""

import asyncio
import functools
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeVar, assert_never

import structlog
from zlib_ng.zlib_ng import crc32

from dittomq.broker.dispatching import Dispatcher
from dittomq.broker.fetching import LogSource
from dittomq.commitlog.store import Store
from dittomq.doors.clock import Clock
from dittomq.doors.workers import Lane
from dittomq.errors import CorruptRecord, DiskFull, OutOfReach, Refused, StreamDropped
from dittomq.lineage import Lineage, LineageEntry, entry_at
from dittomq.naming.registrar import NameserverNews
from dittomq.offsets import Epoch, PhysicalOffset
from dittomq.replication.events import Hello, RangePiece
from dittomq.replication.foreseeing import if_loss_is_accepted
from dittomq.replication.group_of_start import Others
from dittomq.replication.leadership import Leadership
from dittomq.replication.leadership_decisions import Announce, Follow, GiveUp, Lead, Refuse, TakeOver, Wait
from dittomq.replication.own_log import OwnLog, Stopped
from dittomq.replication.running import RunningTime
from dittomq.replication.standings import KnownBefore, Stance, Standing
from dittomq.routes import Claim, Opening

R = TypeVar("R")

log = structlog.get_logger()

_TICK_S = 0.25
_ROOM_S = 1.0
_TABLES_S = 10.0
_ASK_S = 2.0
_COUNTDOWN = re.compile(r"[0-9.]+ s more")  # what it waits for stays the same while that runs


@dataclass(frozen=True, slots=True)
class RecoveryParts:
    """What a recovery works with."""

    store: Store
    store_lane: Lane
    dispatcher: Dispatcher
    clock: Clock


@dataclass(frozen=True, slots=True)
class Peers:
    """Slaves, by the address of their replication port.

    `take_tables` tells the newest epoch of a table by then, or raises OutOfReach unless all tables came, DiskFull. `take_degraded` adds
    what a slave knows of degraded ranges, and for whom the log is kept, or raises OutOfReach or DiskFull.
    `give_up` durably notes that this node opened an epoch, and that its log is a part only of theirs, or raises DiskFull.
    `mend` has whoever mends this log ask them all, at once. `announce` tells all that answer, at these addresses too, which epoch is
    opened, and returns what they knew before.
    """

    ranges: Callable[[str], LogSource]
    take_tables: Callable[[str], Awaitable[Epoch]]
    take_degraded: Callable[[str], Awaitable[None]]
    give_up: Callable[[Opening], Awaitable[None]]
    mend: Callable[[], None]
    announce: Callable[[Opening, list[str]], Awaitable[list[KnownBefore]]]


class Recovery:
    """One start of a master, until it may open an epoch. `waiting_for` says in words what is missing, empty when nothing is."""

    def __init__(self, leadership: Leadership, own: OwnLog, parts: RecoveryParts) -> None:
        self._leadership = leadership
        self._own = own
        self._store = parts.store
        self._lane = parts.store_lane
        self._dispatcher = parts.dispatcher
        self._clock = parts.clock
        self._time = RunningTime(parts.clock.monotonic())  # a start that stood still has not waited for anybody meanwhile
        self._bell = asyncio.Event()
        self._word: asyncio.Future[str] | None = None  # the operator's, until it is known whether it goes past all that is missing
        self._hello_of: dict[str, Hello] = {}
        self._outdated: dict[str, Hello] = {}  # what is asked for by those cannot be had, or could not for a moment
        self._begun: tuple[str, int, int] | None = None  # the source and the range that were said last
        self._is_over = False
        self.waiting_for = "its log to be read"
        self.confirmed = PhysicalOffset(0)  # of what was taken over

    @property
    def must_hear_slaves(self) -> bool:
        """Whether this master leads only with what slaves bring it: they decide whose slaves they are."""
        return self._leadership.must_hear_slaves

    def slave_heard(self, hello: Hello) -> None:
        """A slave said hello, or waits still since it did. Raises StreamDropped where it is to say it anew."""
        if self._outdated.get(hello.node) is hello:
            raise StreamDropped(self._own.node, "what it has according to its hello could not be fetched")
        self._hello_of[hello.node] = hello
        self._leadership.slave_heard(hello)
        self._bell.set()

    def slave_gone(self, node: str) -> None:
        """Its stream ended."""
        self._leadership.slave_gone(node)
        self._bell.set()

    def forget(self, node: str) -> None:
        """It has left, and others came."""
        self._hello_of.pop(node, None)
        self._outdated.pop(node, None)

    def nameservers_say(self, news: NameserverNews) -> None:
        """What they know, or why they refuse this node."""
        id_taken = news.refusal if news.taken else ""
        self._leadership.nameservers_say(news.newest, settled=news.settled, id_taken=id_taken, rivals=news.rivals)
        if self._own.gave_up_epoch:
            for rival in news.rivals:
                self._leadership.told_of(rival.opening)
        self._bell.set()

    async def ask(self, others: Callable[[], Awaitable[list[Standing]]]) -> None:
        """Ask the other replicas, `others`, which epochs they know of: at once, and from time to time until it is decided."""
        while not self._is_over:
            standings = await others()
            leading = [each for each in standings if each.stance is Stance.LEADING]
            recovering = [each for each in standings if each.stance is Stance.RECOVERING]
            following = [each for each in standings if each.only_follows]
            who = Others(
                leading=tuple(each.claim for each in leading),
                following=frozenset(each.node_id for each in following),
                known={each.node: each.claim for each in (*leading, *following)},
                recovering={each.node_id: Claim(each.newest, each.granted or None) for each in recovering},
            )
            self._learn([KnownBefore(each.stance, each.claim) for each in standings], who)
            self._bell.set()
            await asyncio.sleep(_ASK_S)

    def told_of(self, opening: Opening) -> bool:
        """Another node is about to open this epoch; whether this one is to follow another, also where it has decided to lead."""
        self._bell.set()
        return self._leadership.told_of(opening)

    async def accept_loss(self) -> str:
        """The operator lets this master lead; empty when it is about to. Else what no word goes past: then the word counts no more."""
        self._leadership.accept_loss()
        self._word = self._word or asyncio.get_running_loop().create_future()
        self._bell.set()
        return await asyncio.shield(self._word)

    def if_loss_is_accepted(self) -> Lead | str:
        """How this master would lead if the operator let it; in words what no word goes past, or what is under way."""
        match if_loss_is_accepted(self._leadership, self._own, self._time.at(self._clock.monotonic())):
            case Lead() as lead:
                return lead
            case Follow(epoch, opener_id):
                return _end(epoch, opener_id)
            case Wait(why) | Refuse(why):
                return why

    async def run(self, peers: Peers) -> Lead | Follow:
        """Return when this node may lead, or must be another's slave; raises StoreFailed when the disk fails."""
        while True:
            self._leadership.mended(self._store.unread.ranges)
            decision = self._leadership.decide(self._time.at(self._clock.monotonic()))
            match decision:
                case Lead():
                    if self._own.stopped.lacks_most or self._own.tables_restored:
                        await self._take_tables(peers)
                    self.waiting_for = ""
                    self._is_over = True
                    self._weigh_word("")
                    return decision
                case Follow():
                    self.waiting_for = _end(decision.epoch, decision.opener_id)
                    self._is_over = True
                    return decision
                case TakeOver():
                    await self._take_over(decision, peers)
                case Announce():
                    await self._announce(decision, peers)
                case GiveUp():
                    await self._give_up(decision, peers)
                case Wait() | Refuse():
                    self._say(decision)
                    self._weigh_word(self.waiting_for)
                    if await self._rang() and self._store.unread.ranges:
                        peers.mend()
                case _:
                    assert_never(decision)

    def _learn(self, known: list[KnownBefore], who: Others | None = None) -> None:
        waiting = [each.newest for each in known if each.stance is Stance.RECOVERING]
        self._leadership.others_say([each.newest for each in known if each.stance is not Stance.RECOVERING], waiting, who)

    async def _announce(self, decision: Announce, peers: Peers) -> None:
        self.waiting_for = f"the others to note epoch {decision.epoch}"
        opening = Opening(decision.epoch, self._own.node_id)
        self._learn(await peers.announce(opening, self._leadership.heard_addresses()))
        self._leadership.announced()

    async def _give_up(self, decision: GiveUp, peers: Peers) -> None:
        """From here on its log is a part of what slaves hold, also for its next start."""
        log.warning("copies_its_slaves", node=self._own.node, epoch=decision.opening.epoch, end=self._own.end, lacks=decision.why)
        await self.when_there_is_room(lambda: peers.give_up(decision.opening))
        self._own = replace(self._own, stopped=Stopped.INCOMPLETE, told=decision.opening)
        self._leadership.gave_up(self._own)

    async def when_there_is_room(self, write: Callable[[], Awaitable[R]]) -> R:
        """Write, as soon as the disk takes it: a full one keeps a master from leading, not from serving what it has."""
        while True:
            try:
                return await write()
            except DiskFull as full:
                await self._wait_for_room(full)

    async def _wait_for_room(self, full: DiskFull) -> None:
        self.waiting_for = f"room on its disk: {full}"
        await asyncio.sleep(_ROOM_S)

    def _weigh_word(self, missing: str) -> None:
        if self._word is not None:
            self._leadership.accept_loss(accepted=not missing)
            self._word.set_result(missing)
            self._word = None

    def _say(self, decision: Wait | Refuse) -> None:
        words = decision.why if isinstance(decision, Wait) else f"an operator: {decision.why}"
        if _COUNTDOWN.sub("", words) != _COUNTDOWN.sub("", self.waiting_for):
            log.info("recovery_waits", node=self._own.node, waiting_for=words)
        self.waiting_for = words

    async def _rang(self) -> bool:
        """Wait a moment, or until something is heard; whether it was."""
        try:
            async with asyncio.timeout(_TICK_S):
                await self._bell.wait()
        except TimeoutError:
            return False
        self._bell.clear()
        return True

    async def _take_tables(self, peers: Peers) -> None:
        """Take the tables of whoever was heard, where they are newer, all at once: slaves without messages may know topics.

        Each waits for room by itself: up to Python 3.11.2 a task whose group has failed is ended by its next time-out.
        """
        addresses = self._leadership.heard_addresses()
        words = f"the tables of {', '.join(addresses)}"

        async def take(address: str) -> None:
            self.waiting_for = words
            await self._take_tables_of(address, peers)

        async with asyncio.TaskGroup() as tasks:
            for address in addresses:
                tasks.create_task(self.when_there_is_room(functools.partial(take, address)))

    async def _take_tables_of(self, address: str, peers: Peers) -> None:
        """A slave that does not give them is named, and left out."""
        try:
            async with asyncio.timeout(None if self._own.stopped.lacks_most else _TABLES_S):
                await peers.take_tables(address)
            if self._own.stopped.lacks_most:
                await peers.take_degraded(address)
        except (OutOfReach, TimeoutError) as problem:
            log.warning("tables_not_taken", node=self._own.node, source=address, problem=str(problem) or f"silent for {_TABLES_S:g} s")

    async def _take_over(self, plan: TakeOver, peers: Peers) -> None:
        """Copy the slave's tables and tail, durably. A copy that breaks off leaves whole records and is asked for again."""
        hello = self._hello_of[plan.source]
        begun = plan.source, plan.start, plan.end
        if begun != self._begun:  # where room is waited for the same is tried again every second
            log.info("tail_taken_over", node=self._own.node, source=plan.source, start=plan.start, end=plan.end)
        self._begun = begun
        self.waiting_for = f"the tail of {plan.source}, {plan.end - plan.start:,} bytes"
        source = peers.ranges(plan.address)
        try:
            self._own = replace(self._own, tables_epoch=await peers.take_tables(plan.address))
            await peers.take_degraded(plan.address)
            await self._say_incomplete(plan)
            if plan.start != self._store.end:
                plan = await self._start(plan, source)
            for start, end in _by_epoch(plan):
                await self._lane.call(functools.partial(self._store.adopt_lineage, _lineage_upto(plan.lineage, start)))
                await self._copy(source.fetch(start, end, past_damage=True), entry_at(plan.lineage, start))
            await self._hold_what_came()
        except DiskFull as full:
            await self._hold_what_came()
            self._leadership.took_a_part(self._own)
            await self._wait_for_room(full)
            return
        except (OutOfReach, Refused) as problem:
            log.warning("take_over_broke_off", node=self._own.node, source=plan.source, problem=str(problem))
            self._begun = None
            await self._hold_what_came()
            self._leadership.took_a_part(self._own)
            self._outdated[plan.source] = hello
            self.slave_gone(plan.source)
            return
        self.confirmed = max(self.confirmed, hello.confirmed)
        self._leadership.took_over(self._own)

    async def _say_incomplete(self, plan: TakeOver) -> None:
        """Durably, where the disk is to hold less than it must, for a while: an empty log gets its first bytes, or one is cut."""
        if self._own.stopped is not Stopped.EMPTY and plan.start == self._store.end:
            return
        await self._lane.call(self._store.mark_incomplete)
        self._own = replace(self._own, stopped=Stopped.INCOMPLETE)
        self._leadership.took_a_part(self._own)

    async def _hold_what_came(self) -> None:
        """Make it durable: the own log reaches as far as that."""
        store = self._store
        await self._lane.call(store.sync)
        stopped = Stopped.EMPTY if store.end == store.min_offset else self._own.stopped
        self._own = replace(self._own, stopped=stopped, end=store.end, lineage=store.lineage)

    async def _start(self, plan: TakeOver, source: LogSource) -> TakeOver:
        """Cut the own log, durably; one that holds nothing begins where the slave's does now, with its queues."""
        store = self._store
        if store.end > store.min_offset:
            async with self._dispatcher.cutting(plan.start):
                await self._lane.call(lambda: store.cut(plan.start))
            self._own = replace(self._own, confirmed=min(self._own.confirmed, plan.start))  # who gave its epoch up may have known more
            return plan
        beginning = await source.beginning()
        async with self._dispatcher.cutting(beginning.offset):
            await self._lane.call(lambda: store.begin_at(beginning))
        return replace(plan, start=beginning.offset)

    async def _copy(self, pieces: AsyncIterator[RangePiece], planned: LineageEntry | None) -> None:
        """Write what comes; what that slave does not hold whole is a hole here too, durably noted: another replica may have it.

        Raises CorruptRecord for what is not of the epoch that was `planned`: a slave may have followed another master since its hello.
        """
        async for piece in pieces:
            if not piece.is_of(planned):
                raise CorruptRecord(self._own.node, piece.offset, "what the slave has there by now was written under another master")
            if piece.damaged_end is not None:
                log.warning("hole_taken_over", node=self._own.node, start=piece.offset, end=piece.damaged_end)
                await self._lane.call(functools.partial(self._store.leave_hole, piece.offset, piece.damaged_end))
                continue
            if crc32(piece.data) != piece.crc:
                raise CorruptRecord(self._own.node, piece.offset, "the bytes changed on their way")
            await self._lane.call(functools.partial(self._store.write_chunk, piece.offset, piece.data))


def _end(epoch: Epoch, opener_id: int) -> str:
    return f"its end: node {opener_id} of its group has opened epoch {epoch}"


def _by_epoch(plan: TakeOver) -> list[tuple[PhysicalOffset, PhysicalOffset]]:
    """[start, end) in pieces that each lie in one epoch."""
    borders = [plan.start, *(entry.start for entry in plan.lineage if plan.start < entry.start < plan.end), plan.end]
    return list(pairwise(borders))


def _lineage_upto(lineage: Lineage, position: PhysicalOffset) -> Lineage:
    return tuple(entry for entry in lineage if entry.start <= position)
