"""Slaves that a master knows, and from where on each wants the log; kept over restarts in `dittomq/holds`.

A slave that is away is waited for, up to a bound of bytes. While as many slaves as the group has are connected, no other one is of the
group any more: who was taken out of it, or replaced under another name, holds nothing.
"""

import asyncio
from collections.abc import Callable, Mapping

import structlog

from dittomq.broker import holds_file
from dittomq.broker.role import Grant
from dittomq.commitlog.disk.storage import Storage
from dittomq.commitlog.retention import Hold
from dittomq.commitlog.store import Store
from dittomq.doors.workers import Lane
from dittomq.offsets import PhysicalOffset
from dittomq.replication.events import SlaveHolds
from services.master.slaves import MOST_REMEMBERED, SlaveRecord

log = structlog.get_logger()


class HoldsOfSlaves:
    """The log is kept for a slave from the segment on in which its flushed end lies."""

    def __init__(self, storage: Storage, store: Store, lane: Lane, slaves: int, records: Callable[[], Mapping[str, SlaveRecord]]) -> None:
        """Of a group of so many slaves; 0: nobody has said how many there are."""
        self._slaves = slaves
        self._storage = storage
        self._store = store
        self._lane = lane
        self._records = records
        self._kept: dict[str, int] = {}

    def holds(self, max_bytes: int) -> list[Hold]:
        """One for each slave of the group that was ever heard: what it says now, or what was last written down."""
        return [Hold(node, offset, max_bytes) for node, offset in self._wanted().items()]

    @property
    def slaves(self) -> frozenset[str]:
        """Those that were written down."""
        return frozenset(self._kept)

    @property
    def written(self) -> SlaveHolds:
        """What was written down, for slaves to know: should one of them lead one day, the others need it there."""
        return tuple((node, PhysicalOffset(self._kept[node])) for node in sorted(self._kept))

    async def run(self, period_s: float) -> None:
        """Write down who wants what, until cancelled."""
        while True:
            await self.keep()
            await asyncio.sleep(period_s)

    async def load(self, own: str, grant: Grant | None) -> None:
        """Take up what was written down, perhaps by this node as the slave that it was.

        The one whose place it took by `grant`, and that was nobody's slave, holds no more of its log than this one did then.
        """
        found = await self._lane.call(lambda: holds_file.load(self._storage))
        before = {grant.other: int(self._store.segment_of(grant.end)[0])} if grant is not None and grant.other else {}
        others = {node: offset for node, offset in (before | found).items() if node != own}
        self._kept = dict(sorted(others.items(), key=lambda each: -each[1])[:MOST_REMEMBERED])

    async def keep(self) -> None:
        """Write down what has changed; on a full disk a later call does."""
        wanted = {node: int(self._store.segment_of(offset)[0]) for node, offset in self._wanted().items()}
        if wanted != self._kept and await self._lane.call(lambda: holds_file.save_if_room(self._storage, wanted)):
            for node in self._kept.keys() - wanted.keys():
                log.info("hold_forgotten", slave=node, start=self._kept[node])
            self._kept = wanted

    def _wanted(self) -> dict[str, PhysicalOffset]:
        records = self._records()
        live = {node: record.flushed for node, record in records.items() if record.flushed is not None}
        connected = {node: offset for node, offset in live.items() if records[node].connected}
        if 0 < self._slaves <= len(connected):
            return connected
        room = MOST_REMEMBERED - len(live)  # for those that were not heard since this start, or left before as many others came
        absent = sorted(self._kept.keys() - live.keys(), key=lambda node: (-self._kept[node], node))[:room]
        return {node: PhysicalOffset(self._kept[node]) for node in absent} | live
