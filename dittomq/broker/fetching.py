"""Ranges of one node's log for another: verified where they are read, and again where they arrive."""

from collections.abc import AsyncIterator
from typing import Protocol

from zlib_ng.zlib_ng import crc32

from dittomq.commitlog.store import Store
from dittomq.doors.workers import Lane
from dittomq.errors import OffsetOutOfRange, WrongCluster
from dittomq.offsets import PhysicalOffset

PIECE_BYTES = 1024 * 1024


class RangeSource(Protocol):
    """A node whose log can be read from afar."""

    def fetch(self, start: PhysicalOffset, end: PhysicalOffset) -> AsyncIterator[tuple[PhysicalOffset, int, bytes]]:
        """Whole records of [start, end) in order, each piece with its position and its CRC-32."""
        ...


class RangeServing:
    """Serves this node's log in pieces of whole records, every checksum verified before a piece leaves."""

    def __init__(self, store: Store, lane: Lane, cluster: str, broker: str) -> None:
        self._store = store
        self._lane = lane
        self._cluster = cluster
        self._broker = broker

    def check_caller(self, cluster: str, broker: str) -> None:
        """Refuse a replica of another group."""
        if cluster != self._cluster:
            raise WrongCluster("cluster", cluster, self._cluster)
        if broker != self._broker:
            raise WrongCluster("broker", broker, self._broker)

    async def fetch(self, start: PhysicalOffset, end: PhysicalOffset) -> AsyncIterator[tuple[PhysicalOffset, int, bytes]]:
        """Whole records of [start, end); OffsetOutOfRange when this log does not hold all of it."""
        if not self._store.min_offset <= start <= end <= self._store.end:
            raise OffsetOutOfRange("byte", start, self._store.min_offset, self._store.end)
        at = start
        while at < end:
            data = await self._lane.call(lambda at=at: self._store.read_records(at, end, PIECE_BYTES))  # type: ignore[misc]
            if not data:
                raise OffsetOutOfRange("byte", at, self._store.min_offset, self._store.end)
            yield at, crc32(data), data
            at = PhysicalOffset(at + len(data))
