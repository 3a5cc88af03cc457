"""A candidate takes over the tail of the replica whose log won its election: bytes, epoch history and newer tables, durably."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import structlog
from zlib_ng.zlib_ng import crc32

from dittomq.broker.dispatcher import Dispatcher
from dittomq.broker.range_server import LogSource
from dittomq.commitlog.store import Store
from dittomq.doors.workers import Executor
from dittomq.epoch_history import EpochEntry, common_end, entry_at
from dittomq.errors import CorruptRecord
from dittomq.offsets import PhysicalOffset
from dittomq.replication.election_events import Position
from dittomq.replication.events import RangePiece

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class TailTransferParts:
    """`lane` is the only lane that writes the log. `cut` truncates it and all that hangs on it.

    `ranges` reads another replica's log by its replication address, `take_tables` takes over its tables where they are newer.
    """

    node: str
    store: Store
    lane: Executor
    dispatcher: Dispatcher
    ranges: Callable[[str], LogSource]
    take_tables: Callable[[str], Awaitable[object]]
    truncate: Callable[[PhysicalOffset, str], Awaitable[None]]


async def take_tail(parts: TailTransferParts, source: Position, check_promise: Callable[[], None]) -> None:
    """Make this log what the source's is, durably. What is taken in part changes no adopted epoch: the next election asks for the rest.

    `check_promise` raises before a step that comes after another promise. Raises that, Unavailable, a Refused of the source, CorruptRecord,
    DiskFull, StorageFailure.
    """
    store = parts.store
    await parts.take_tables(source.address)
    check_promise()
    start = common_end(ours=store.epoch_history, our_end=store.end, theirs=source.epoch_history, their_end=source.log_end)
    begins_later = start < source.log_start
    log.info("log_tail_fetched", node=parts.node, source=source.node, start=start, end=source.log_end)
    if begins_later and store.end > store.min_offset:
        raise CorruptRecord(source.node, start, f"both logs agree up to there, and the log of {source.node} begins at {source.log_start:,}")
    if store.end == store.min_offset and source.log_start != store.end:
        start = await _begin(parts, source)
    elif store.end > start:
        await parts.truncate(start, f"{source.node} has the log that was elected")
    for low, high in _by_epoch(source, start):
        epoch_history = tuple(entry for entry in source.epoch_history if entry.start <= low)
        check_promise()
        await parts.lane.call(partial(store.replace_epoch_history, epoch_history))
        pieces = parts.ranges(source.address).fetch(low, high, skip_damaged=True)
        await _copy(parts, pieces, entry_at(source.epoch_history, low), check_promise)
    check_promise()
    if store.epoch_history != source.epoch_history:  # an epoch that holds no bytes yet
        await parts.lane.call(partial(store.replace_epoch_history, source.epoch_history))
    await parts.lane.call(store.sync)


async def _begin(parts: TailTransferParts, source: Position) -> PhysicalOffset:
    """A log that holds nothing begins where the source's does, and its queues too."""
    log_start = await parts.ranges(source.address).log_start()
    async with parts.dispatcher.truncating(log_start.offset):
        await parts.lane.call(lambda: parts.store.set_log_start(log_start))
    return log_start.offset


async def _copy(
    parts: TailTransferParts, pieces: AsyncIterator[RangePiece], planned: EpochEntry | None, check_promise: Callable[[], None]
) -> None:
    """Write what comes; what the source does not hold whole is missing here too, durably noted: another replica may have it."""
    store = parts.store
    async for piece in pieces:
        check_promise()
        if not piece.is_of(planned):
            raise CorruptRecord(parts.node, piece.offset, "what the source has there by now was written under another master")
        if piece.damaged_end is not None:
            await parts.lane.call(partial(store.skip_range, piece.offset, piece.damaged_end))
            continue
        if crc32(piece.data) != piece.crc:
            raise CorruptRecord(parts.node, piece.offset, "the bytes changed on their way")
        await parts.lane.call(partial(store.write_chunk, piece.offset, piece.data))


def _by_epoch(source: Position, start: PhysicalOffset) -> list[tuple[PhysicalOffset, PhysicalOffset]]:
    """[start, end) in pieces that each lie in one epoch."""
    if start >= source.log_end:
        return []
    borders = [start, *(entry.start for entry in source.epoch_history if start < entry.start < source.log_end), source.log_end]
    return list(pairwise(borders))
