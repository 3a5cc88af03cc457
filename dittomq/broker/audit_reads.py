"""⑨ A broker's side of the audit: what this copy holds, digests of its ranges, its raw bytes. Changes nothing.

Bytes are read in small slices on a lane of their own, so that a pull or an append never waits behind an audit for longer
than one slice. What cannot be read is said to be unreadable; it never becomes a digest.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple, Protocol

from dittomq.commitlog.records.digest import root_digest
from dittomq.copies import LEAF_BYTES, MAX_READ_RANGE_BYTES, RangeDigests, ReplicaDescription
from dittomq.doors.workers import Executor
from dittomq.errors import InvalidField, LimitReached, OffsetOutOfRange
from dittomq.offsets import PhysicalOffset

SLICE_BYTES = 8 * LEAF_BYTES
PIECE_BYTES = LEAF_BYTES
MAX_RUNNING = 2
MAX_WAITING = 64


class AuditedStore(Protocol):
    """The part of a store that an audit reads. Every call blocks and runs on a lane."""

    @property
    def min_offset(self) -> PhysicalOffset: ...

    @property
    def end(self) -> PhysicalOffset: ...

    def segment_of(self, offset: PhysicalOffset) -> tuple[PhysicalOffset, PhysicalOffset]: ...

    def leaf_digests(self, start: PhysicalOffset, end: PhysicalOffset, salt: int = 0) -> list[bytes]: ...

    def read(self, start: PhysicalOffset, length: int) -> bytes: ...


class LogPiece(NamedTuple):
    """Raw bytes of the log and where they begin."""

    start: PhysicalOffset
    data: bytes


class AuditReads:
    """Answers an auditor from one store. Two ranges are read at a time; up to 64 more callers wait, others get LimitReached."""

    def __init__(self, store: AuditedStore, lane: Executor, describe: Callable[[], ReplicaDescription]) -> None:
        self._store = store
        self._lane = lane
        self._describe = describe
        self._running = asyncio.Semaphore(MAX_RUNNING)
        self._waiting = 0

    async def describe(self) -> ReplicaDescription:
        """What this copy holds now."""
        return self._describe()

    async def digests(self, start: PhysicalOffset, end: PhysicalOffset, salt: int, leaves: bool) -> AsyncIterator[RangeDigests]:
        """Digest [start, end): one answer for each segment that it touches, in order."""
        self._check(start, end)
        async with self._turn():
            for part_start, part_end in self._by_segment(start, end):
                yield await self._digest(part_start, part_end, salt, leaves)

    async def read(self, start: PhysicalOffset, end: PhysicalOffset) -> AsyncIterator[LogPiece]:
        """The raw bytes of [start, end) in pieces of at most 1 MiB; ends early where the bytes end. Raises OSError when unreadable."""
        self._check(start, end)
        if end - start > MAX_READ_RANGE_BYTES:
            raise InvalidField("end_offset", f"the range has {end - start:,} bytes, the limit is {MAX_READ_RANGE_BYTES:,}; ask for less")
        async with self._turn():
            at = start
            while at < end:
                data = await self._lane.call(lambda at=at: self._store.read(at, min(PIECE_BYTES, end - at)))  # type: ignore[misc]
                if not data:
                    return
                yield LogPiece(at, data)
                at = PhysicalOffset(at + len(data))

    def _check(self, start: PhysicalOffset, end: PhysicalOffset) -> None:
        low, high = self._store.min_offset, self._store.end
        if start >= end:
            raise InvalidField("end_offset", f"{end:,} is not after start_offset {start:,}")
        if not low <= start < high:
            raise OffsetOutOfRange("byte", start, low, high)
        if end > high:
            raise OffsetOutOfRange("byte", end, low, high)

    @contextlib.asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        if self._waiting >= MAX_WAITING:
            raise LimitReached("the queue of audit reads", MAX_WAITING)
        self._waiting += 1
        try:
            await self._running.acquire()
        finally:
            self._waiting -= 1
        try:
            yield
        finally:
            self._running.release()

    def _by_segment(self, start: PhysicalOffset, end: PhysicalOffset) -> list[tuple[PhysicalOffset, PhysicalOffset]]:
        parts = []
        at = start
        while at < end:
            stop = min(self._store.segment_of(at)[1], end)
            parts.append((at, stop))
            at = stop
        return parts

    async def _digest(self, start: PhysicalOffset, end: PhysicalOffset, salt: int, leaves: bool) -> RangeDigests:
        found: list[bytes] = []
        for at in range(start, end, SLICE_BYTES):
            stop = min(at + SLICE_BYTES, end)
            try:
                found += await self._lane.call(lambda at=at, stop=stop: self._store.leaf_digests(at, stop, salt))  # type: ignore[misc]
            except OSError as error:
                return RangeDigests(start, end, b"", unreadable=f"bytes {at:,} to {stop:,}: {error}")
        return RangeDigests(start, end, root_digest(found, salt), tuple(found) if leaves else ())
