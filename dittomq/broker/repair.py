"""Looks at what may be damaged, and fetches what is from any copy that holds it whole.

    a read, a stream, a fetch met a record that is not whole ▶ verify it again ▶ on the register ▶ whole on this disk after all?
        ▶ otherwise the peers, one after the other ▶ repair ▶ a checkpoint ▶ off the register

Bytes are taken only when the epoch entry that covers them is the same on both sides and every checksum holds: then they are the
bytes that were here.
"""

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

import structlog
from zlib_ng.zlib_ng import crc32

from dittomq.broker.range_server import ServedLog
from dittomq.commitlog.records.format import MAX_RECORD_BYTES
from dittomq.commitlog.repair import VerifiedRange
from dittomq.commitlog.state.damage_map import DamagedRange
from dittomq.commitlog.store import Store
from dittomq.copies import RangeOutcome, RepairReport, RepairRequest
from dittomq.doors.workers import Executor
from dittomq.epoch_history import entry_at, epoch_end_offset
from dittomq.errors import CorruptRecord, DiskFull, InvalidField, NotReady, OffsetOutOfRange, Refused, Unavailable
from dittomq.offsets import PhysicalOffset
from dittomq.replication.events import RangePiece

log = structlog.get_logger()

VERIFY_BYTES = 4 * 1024 * 1024
MAX_SUSPECTS = 1_024
REPAIR_BYTES = 256 * 1024 * 1024
_LOOK_S = 1.0
_FIRST_BACKOFF_S = 1.0
_LONGEST_BACKOFF_S = 60.0
_PIECE_S = 20.0
_FILED_BYTES = 64 * 1024 * 1024
# The record that ends what can be written, and what lies in a page with it, are less.
_KEPT_BYTES = 2 * MAX_RECORD_BYTES
_ONLY_VALIDATED = "only validated: nobody was asked for it"


@dataclass(frozen=True, slots=True)
class RepairSource:
    """Another copy of the log: its name, as far as it is known, and its log."""

    name: str
    ranges: ServedLog


@dataclass(frozen=True, slots=True)
class RepairerParts:
    """What repairing works with. `store_lane` is the only lane that writes the log, `files` writes side files, `reads` verifies."""

    node: str
    store: Store
    store_lane: Executor
    files: Executor
    reads: Executor
    chance: random.Random


class Repairer:
    """One node's. One range is repaired at a time."""

    def __init__(self, parts: RepairerParts, peers: Callable[[], Awaitable[Sequence[RepairSource]]]) -> None:
        """`peers` are asked in their order."""
        self._node = parts.node
        self._store = parts.store
        self._parts = parts
        self._peers = peers
        self._suspects: dict[int, None] = {}
        self._wake = asyncio.Event()
        self._turn = asyncio.Lock()
        self._logged: dict[int, str] = {}
        self._repairs: list[list[RangeOutcome]] = []  # for each that is under way: what was repaired since it began, by whomever
        self._is_filed = True
        self._hindrance: tuple[type, int | None] | None = None  # why what is suspected could not be verified the last time

    def suspect(self, position: int) -> None:
        """A record at or around `position` was met that is not whole. Of very many, those that come late are met again.

        What is on the register is asked for as it is: two copies that lack the same record would wake each other for ever by their asking.
        """
        if self._store.damage.within(position, position + 1):
            return
        if len(self._suspects) < MAX_SUSPECTS:
            self._suspects[position] = None
        self._wake.set()

    def hurry(self) -> None:
        """Somebody may be there who was not: ask for what is damaged now."""
        self._wake.set()

    async def run(self) -> None:
        """Look and repair until cancelled; raises StorageFailure when the disk fails."""
        pause_s = _FIRST_BACKOFF_S
        while True:
            await self._back_off(pause_s)
            await self._look()
            if self._store.damaged:
                outcomes = await self.repair_ranges(self._store.damaged)
                pause_s = _FIRST_BACKOFF_S if any(each.source for each in outcomes) else min(2 * pause_s, _LONGEST_BACKOFF_S)
            else:
                self._logged.clear()
                pause_s = _LOOK_S
                if not self._is_filed:
                    await self._file()

    async def _look(self) -> None:
        """Verify what is suspected; where that cannot be done now, it is tried again after the next pause."""
        while self._suspects:
            position = next(iter(self._suspects))
            del self._suspects[position]
            try:
                await self.verify(position, position + 1)
            except (NotReady, DiskFull) as problem:
                self._suspects[position] = None
                hindrance = type(problem), getattr(problem.__cause__, "errno", None)  # its sentence may name another file each time
                if hindrance != self._hindrance:
                    log.warning("verification_failed", node=self._node, position=position, problem=str(problem))
                self._hindrance = hindrance
                return
            if self._hindrance is not None:
                log.info("verification_resumed", node=self._node)
                self._hindrance = None

    async def verify(self, start: int, end: int) -> tuple[PhysicalOffset, PhysicalOffset]:
        """Verify this copy's records of a few megabytes from `start` on, and return what was looked at; what is not whole is noted.

        A file that was removed and is still open gives all that is asked of it, and nothing any more when the process ends: it gets its
        name back first.
        """
        found = await self._parts.reads.call(lambda: _verified(self._store, start, min(end, start + VERIFY_BYTES)))
        for damaged in found.damaged:
            if damaged.start not in self._logged:
                self._logged[damaged.start] = ""
                log.error("store_damaged", node=self._node, start=damaged.start, end=damaged.end)
        return found.start, found.end

    async def repair(self, order: RepairRequest) -> RepairReport:
        """Verify 256 MiB at most of what the log has of the asked range, and try to repair what is damaged there.

        What is repaired in the background meanwhile is reported too. Of an order that is only to be validated it is reported what would be
        verified, and what is known to be damaged of that. Raises InvalidField, and OffsetOutOfRange when it has nothing of it.
        """
        store = self._store
        if order.node != self._node:
            raise InvalidField("node", f'this is {self._node}, not "{order.node}"')
        low, high = store.min_offset, store.flushed
        start, end = (low if order.start is None else order.start), (high if order.end is None else order.end)
        if order.end is not None and end <= start:
            raise InvalidField("end_offset", f"{end:,} is not after start_offset {start:,}")
        if not 0 <= start <= high or (order.end is not None and end <= low):
            raise OffsetOutOfRange("byte", start, low, high)
        start = max(start, low)  # of a range that was asked for piece by piece retention may have dropped a part
        at, stop = start, min(end, high, start + REPAIR_BYTES)
        if order.validate_only:
            known = [
                RangeOutcome(PhysicalOffset(each.start), PhysicalOffset(each.end), "", _ONLY_VALIDATED)
                for each in store.damage.within(start, stop)
            ]
            known = await self._with_messages(known)
            return RepairReport(PhysicalOffset(start), PhysicalOffset(stop), tuple(known), stop >= min(end, high))
        with self._listening() as repaired:
            while at < stop:
                _, at = await self.verify(at, stop)
                at, stop = max(at, store.min_offset), min(stop, store.flushed)  # retention may have gone by, or the end been cut
            is_done = at >= min(end, high, store.flushed)
            until = max(at, start + 1)
            outcomes = await self.repair_ranges(store.damage.within(start, until))
        left = [each for each in outcomes if not each.source and store.damage.touches(each.start, each.end)]
        left = await self._with_messages(left)
        found = [each for each in repaired if each.start < until and start < each.end]
        return RepairReport(start, at, tuple(sorted([*found, *left], key=attrgetter("start"))), is_done)

    async def _with_messages(self, left: Sequence[RangeOutcome]) -> list[RangeOutcome]:
        """The same, naming the messages that lie in what is still damaged of each."""
        if not left:
            return []
        named = await self._parts.reads.call(lambda: self._store.messages_in([(each.start, each.end) for each in left]))
        return [replace(each, messages=found.messages, more_messages=found.more) for each, found in zip(left, named, strict=True)]

    @contextlib.contextmanager
    def _listening(self) -> Iterator[list[RangeOutcome]]:
        """What is repaired until the block ends."""
        repaired: list[RangeOutcome] = []
        self._repairs.append(repaired)
        try:
            yield repaired
        finally:
            self._repairs[:] = [each for each in self._repairs if each is not repaired]

    async def repair_ranges(self, ranges: Sequence[DamagedRange]) -> list[RangeOutcome]:
        """Try to repair what the register still has of these; what could be is durably off it when this returns, or when there is room."""
        outcomes: list[RangeOutcome] = []
        async with self._turn:
            peers = list(await self._peers())
            unfiled = 0
            for damaged in self._current(ranges):
                for outcome in await self._repair(damaged, peers):
                    outcomes.append(outcome)
                    self._log_outcome(outcome)
                unfiled += damaged.end - damaged.start
                if unfiled >= _FILED_BYTES:
                    await self._file()
                    unfiled = 0
            await self._file()
        return outcomes

    def _current(self, ranges: Sequence[DamagedRange]) -> Iterator[DamagedRange]:
        """What the register has of these, each when its turn comes: who had the turn before may have repaired it, or another one."""
        seen: set[DamagedRange] = set()
        for each in ranges:
            for damaged in self._store.damage.within(*each):
                if damaged not in seen:
                    seen.add(damaged)
                    yield damaged

    async def _file(self) -> None:
        """Take what is repaired off the register, unless the disk is full: then that is done later."""
        self._is_filed = await self._parts.files.call(self._store.file_repaired)

    async def _repair(self, damaged: DamagedRange, peers: list[RepairSource]) -> list[RangeOutcome]:
        """What became of each part of the range; nothing of what is not in the log any more."""
        start, end = PhysicalOffset(damaged.start), PhysicalOffset(damaged.end)
        try:
            await self._parts.reads.call(lambda: self._store.rescue(start))
            if await self._parts.store_lane.call(lambda: self._store.salvage(start)):
                return [RangeOutcome(start, end, self._node)]
        except Refused as refused:
            return list(self._parts_of(start, end, self._node, str(refused)))
        left = self._left(start, end)
        healed = [each for each in self._parts_of(start, end, self._node, "") if each.source and left]
        gave: Counter[str] = Counter()
        problems: list[str] = []
        for peer in tuple(peers):
            if not self._left(start, end):
                break
            try:
                problem = await self._fetch_all(peer, start, end, gave)
            except (TimeoutError, Unavailable) as silence:
                problem = str(silence) or f"silent for {_PIECE_S:.0f} s"
                peers.remove(peer)  # nor is it asked for the other ranges now
            if problem:
                problems.append(f"{peer.name}: {problem}")
        problem = "; ".join(problems) or "no other copy answers now"
        sources = ", ".join(name for name, size in gave.items() if size)
        tried = [each for part in left for each in self._parts_of(*part, sources, problem)]
        return sorted([*healed, *tried], key=attrgetter("start"))

    def _parts_of(self, start: PhysicalOffset, end: PhysicalOffset, sources: str, problem: str) -> Iterator[RangeOutcome]:
        """In order, what is still damaged of the range, and what the sources gave, if any did."""
        at, stop = max(start, self._store.min_offset), min(end, self._store.end)  # the rest was dropped or cut meanwhile
        for low, high in [*self._left(start, end), (stop, stop)]:
            if at < low and sources:
                yield RangeOutcome(at, low, sources)
            if low < high:
                yield RangeOutcome(low, high, "", problem)
            at = high

    def _left(self, start: PhysicalOffset, end: PhysicalOffset) -> list[tuple[PhysicalOffset, PhysicalOffset]]:
        """What is still damaged of the range."""
        left = self._store.damage.within(start, end)
        return [(PhysicalOffset(max(start, low)), PhysicalOffset(min(high, end))) for low, high in left]

    async def _fetch_all(self, peer: RepairSource, start: PhysicalOffset, end: PhysicalOffset, gave: Counter[str]) -> str:
        """Mend what is left of the range with the peer's bytes; the first reason why some of it was not, empty when all was.

        A record that is damaged there too hides none of those behind it: what the peer has whole of them is asked for once more.
        """
        problems: list[str] = []
        for low, high in self._left(start, end):
            problem, is_damaged_there = await self._fetch(peer.name, peer.ranges.fetch(low, high), low, gave)
            problems.append(problem)
            for first, stop in self._left(low, high) if is_damaged_there else ():
                problem, _ = await self._fetch(peer.name, peer.ranges.fetch(first, stop, skip_damaged=True), first, gave)
                problems.append(problem)
        return next(filter(None, problems), "")

    async def _fetch(
        self, name: str, fetched: AsyncGenerator[RangePiece, None], at: PhysicalOffset, gave: Counter[str]
    ) -> tuple[str, bool]:
        """Mend with pieces that begin at `at`, and count them; why that came to no end, and whether because that copy is damaged too.

        What of a piece cannot be written by itself is kept and written with the next one. Raises Unavailable, TimeoutError.
        """
        start, kept = at, b""
        try:
            async with contextlib.aclosing(fetched) as pieces:
                while len(kept) <= _KEPT_BYTES and (piece := await _next(pieces)) is not None:
                    start, kept = await self._take(name, piece, (start, kept), gave)
        except CorruptRecord as damaged:
            return str(damaged), damaged.node != self._node
        except Refused as refused:
            return str(refused), False
        bad_page = f"the disk neither gives nor takes a part of the page around byte {start:,}, and not all of it is there"
        return (bad_page if kept else ""), False

    async def _take(
        self, name: str, piece: RangePiece, before: tuple[PhysicalOffset, bytes], gave: Counter[str]
    ) -> tuple[PhysicalOffset, bytes]:
        """Mend with a piece, and what was kept `before` it; where the next one goes on, and what is kept for it."""
        start, kept = before
        self._check(piece, PhysicalOffset(start + len(kept)))
        if piece.damaged_end is not None:
            return piece.damaged_end, b""
        data = kept + piece.data
        repaired = await self._parts.store_lane.call(lambda: self._store.repair(start, data))
        gave[name] += repaired - start
        return repaired, data[repaired - start :]

    def _check(self, piece: RangePiece, expected: PhysicalOffset) -> None:
        """Raise CorruptRecord unless these are the bytes that were here, as far as their epoch history tells."""
        if piece.offset != expected or crc32(piece.data) != piece.crc:
            raise CorruptRecord(self._node, expected, "the bytes changed on their way")
        if piece.damaged_end is not None and piece.damaged_end <= piece.offset:
            raise CorruptRecord(self._node, expected, "the other copy names damage without an end")
        epoch_history, end = self._store.epoch_history, PhysicalOffset(piece.offset + len(piece.data))
        is_same = piece.is_of(entry_at(epoch_history, piece.offset))
        same_end = (
            epoch_end_offset(epoch_history, piece.offset, end) if is_same else piece.offset
        )  # there that epoch may have gone on for longer
        if same_end < end:
            raise CorruptRecord(self._node, same_end, "what the other copy has there was written under another master")

    def _log_outcome(self, outcome: RangeOutcome) -> None:
        """One line for each range that was repaired, and one for each reason why one was not."""
        if outcome.source:
            self._logged.pop(outcome.start, None)
            for repaired in self._repairs:
                repaired.append(outcome)
            log.info("range_repaired", node=self._node, start=outcome.start, end=outcome.end, source=outcome.source)
        elif self._logged.get(outcome.start) != outcome.problem:
            self._logged[outcome.start] = outcome.problem
            log.warning("range_not_repaired", node=self._node, start=outcome.start, end=outcome.end, problem=outcome.problem)

    async def _back_off(self, seconds: float) -> None:
        """Wait, up to a fifth longer than told; less when something new is suspected."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds * (1 + 0.2 * self._parts.chance.random())):
                await self._wake.wait()
        self._wake.clear()


def _verified(store: Store, start: int, end: int) -> VerifiedRange:
    """Give each segment of the range its file back, and verify the range. Blocks."""
    at = start
    while at < min(end, store.flushed):
        store.rescue(at)
        _, at = store.segment_of(at)
    return store.verify(start, end)


async def _next(pieces: AsyncGenerator[RangePiece, None]) -> RangePiece | None:
    async with asyncio.timeout(_PIECE_S):
        return await anext(pieces, None)
