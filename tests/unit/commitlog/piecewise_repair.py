"""Repair with a source that gives one record at a time."""

import asyncio
import random
from collections.abc import AsyncGenerator, Sequence

from dittomq.broker.range_server import RangeServer
from dittomq.broker.repair import Repairer, RepairerParts, RepairSource
from dittomq.commitlog.store import Store
from dittomq.copies import RangeOutcome
from dittomq.errors import CorruptRecord
from dittomq.offsets import PhysicalOffset
from dittomq.replication.events import RangePiece
from tests.support.inline_lane import InlineLane
from tests.support.record_damage import entries


class RecordByRecord:
    """A peer whose pieces are of one record each; it breaks off before `until`."""

    def __init__(self, peer: RangeServer, log: bytes, until: int) -> None:
        self._peer = peer
        self._ends = [end for _, end in entries(log)]
        self._until = until

    async def fetch(self, start: PhysicalOffset, end: PhysicalOffset, *, skip_damaged: bool = False) -> AsyncGenerator[RangePiece, None]:
        while start < end:
            if start >= self._until:
                raise CorruptRecord("a/2", start, "it is damaged there too")
            to = PhysicalOffset(min(end, *(each for each in self._ends if each > start)))
            async for piece in self._peer.fetch(start, to):
                yield piece
            start = to


def mended_by(store: Store, *sources: RecordByRecord) -> list[RangeOutcome]:
    peers = [RepairSource(f"a/{number}", source) for number, source in enumerate(sources, 2)]

    async def found() -> Sequence[RepairSource]:
        return list(peers)

    lane = InlineLane()
    return asyncio.run(Repairer(RepairerParts("a/1", store, lane, lane, lane, random.Random(1)), found).repair_ranges(store.damaged))
