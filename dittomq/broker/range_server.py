"""Ranges of one node's log for another: verified where they are read, and again where they arrive."""

import contextlib
import functools
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Protocol

from zlib_ng.zlib_ng import crc32

from dittomq.commitlog.store import Store
from dittomq.copies import LogStart
from dittomq.doors.workers import Executor
from dittomq.epoch_history import entry_at, epoch_end_offset
from dittomq.errors import CorruptRecord, LimitReached, OffsetOutOfRange, WrongCluster
from dittomq.offsets import Epoch, PhysicalOffset
from dittomq.replication.events import RangePiece

PIECE_BYTES = 1024 * 1024
MAX_FETCHES = 32
Stores = Callable[[], Sequence[Store]]


class ServedLog(Protocol):
    """A node whose log can be read from afar."""

    def fetch(self, start: PhysicalOffset, end: PhysicalOffset, *, skip_damaged: bool = False) -> AsyncGenerator[RangePiece, None]:
        """Whole records of [start, end) in order; `skip_damaged`: where that copy is damaged a piece that says so instead of an error."""
        ...


class LogSource(ServedLog, Protocol):
    """One whose log can be copied from where it begins."""

    async def log_start(self) -> LogStart:
        """Where its log and its queues begin."""
        ...


class RangeServer:
    """Serves this node's log in pieces of whole records, every checksum verified before a piece leaves."""

    def __init__(self, stores: Stores, lane: Executor, cluster: str, broker: str, *, damaged: Callable[[int], None]) -> None:
        """Of `stores`, the first that holds a range serves it: the one that the node's handshake describes. The store in use comes last.

        `damaged` is told where a record of that one is not whole.
        """
        self._stores = stores
        self._lane = lane
        self._cluster = cluster
        self._broker = broker
        self._damaged = damaged
        self._fetches = 0

    def check_caller(self, cluster: str, broker: str) -> None:
        """Refuse a replica of another group."""
        if cluster != self._cluster:
            raise WrongCluster("cluster", cluster, self._cluster)
        if broker != self._broker:
            raise WrongCluster("broker", broker, self._broker)

    async def fetch(self, start: PhysicalOffset, end: PhysicalOffset, *, skip_damaged: bool = False) -> AsyncGenerator[RangePiece, None]:
        """Whole records of [start, end); OffsetOutOfRange when this log does not hold all of it, CorruptRecord where it is damaged.

        `skip_damaged`: there comes a piece that names the damage instead, once it is durably noted here, and what is behind it follows.
        Each that is under way keeps a piece in memory: with 32 of them, of whomever, the next one gets LimitReached.
        """
        if self._fetches >= MAX_FETCHES:
            raise LimitReached("the number of ranges that are fetched", MAX_FETCHES)
        self._fetches += 1
        try:
            async with contextlib.aclosing(self._pieces(start, end, skip_damaged)) as pieces:
                async for piece in pieces:
                    yield piece
        finally:
            self._fetches -= 1

    async def _pieces(self, start: PhysicalOffset, end: PhysicalOffset, skip_damaged: bool) -> AsyncGenerator[RangePiece, None]:
        stores = self._stores()
        store = next((each for each in stores if each.min_offset <= start <= end <= each.end), None)
        if store is None:
            raise OffsetOutOfRange("byte", start, stores[0].min_offset, stores[0].end)
        damaged = self._damaged if store is stores[-1] else _nobody
        at = start
        while at < end:
            epoch_history = store.epoch_history
            entry = entry_at(epoch_history, at)
            border = epoch_end_offset(epoch_history, at, end)
            epoch, incarnation = (entry.epoch, entry.incarnation) if entry is not None else (Epoch(0), 0)
            read = whole_records if skip_damaged else Store.read_records
            try:
                data = await self._lane.call(functools.partial(read, store, at, border, PIECE_BYTES))
            except CorruptRecord as problem:
                damaged(problem.position)
                raise
            behind = await self._behind_damage(store, at, border) if skip_damaged and not data else None
            if (entry, border) != (
                entry_at(store.epoch_history, at),
                epoch_end_offset(store.epoch_history, at, end),
            ):  # cut while the read had to wait
                raise OffsetOutOfRange("byte", at, store.min_offset, store.end)
            if not data and behind is None:
                damaged(at)  # unless `end` is no record's
                raise OffsetOutOfRange("byte", at, store.min_offset, store.end)
            yield RangePiece(at, crc32(data), data, epoch, incarnation, behind)
            at = behind or PhysicalOffset(at + len(data))

    async def _behind_damage(self, store: Store, at: PhysicalOffset, border: PhysicalOffset) -> PhysicalOffset | None:
        """Up to where the damage that begins there goes, durably noted, within its segment and up to `border`; None when there is none."""
        end = await self._lane.call(lambda: damaged_end(store, at))
        return None if end is None else min(end, border, store.segment_of(at)[1])

    async def log_start(self) -> LogStart:
        """Where the log and the queues of the store begin that the node's handshake describes."""
        return await self._lane.call(self._stores()[0].log_start)


def whole_records(store: Store, start: PhysicalOffset, limit: PhysicalOffset, max_bytes: int) -> bytes:
    """Whole records from `start` on, up to the first that is not whole; b"" when that is the first. Blocks."""
    try:
        return store.read_records(start, limit, max_bytes)
    except CorruptRecord as problem:
        return store.read_records(start, problem.position, max_bytes) if problem.position > start else b""


def damaged_end(store: Store, at: PhysicalOffset) -> PhysicalOffset | None:
    """Where the damage ends that is found there, durably noted; None when it is whole, or not flushed. Blocks."""
    return next((PhysicalOffset(high) for low, high in store.verify(at, at + 1).damaged if low <= at < high), None)


def _nobody(_: int) -> None:
    return
