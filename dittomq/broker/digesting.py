"""Digests of ranges that are long, a slice at a time: reads, chunks from the disk and the loop go on between the slices."""

from typing import Final

from dittomq.commitlog.records.digest import root_digest
from dittomq.commitlog.store import Store
from dittomq.copies import LEAF_BYTES
from dittomq.doors.workers import Executor
from dittomq.offsets import PhysicalOffset
from dittomq.replication.events import RangeDigest

_SLICE_BYTES: Final = 8 * LEAF_BYTES


async def digest_of(store: Store, lane: Executor, start: int, end: int) -> RangeDigest | None:
    """Chain digest of a range in one segment; None when it is empty, not all of it is here, or some of it is damaged, which is noted."""
    leaves: list[bytes] = []
    for at in range(start, end, _SLICE_BYTES):
        found = await lane.call(lambda at=at: store.whole_leaves(at, min(at + _SLICE_BYTES, end)))  # type: ignore[misc]
        if found is None:
            return None
        leaves += found
    return RangeDigest(PhysicalOffset(start), PhysicalOffset(end), root_digest(leaves)) if leaves else None
