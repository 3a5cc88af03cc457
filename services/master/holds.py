"""Slaves that a master knows, and from where on each wants the log; kept over restarts in `dittomq/holds`.

A slave that is away is waited for, up to a bound of bytes. While as many slaves as the group has are connected, no other one is of the
group any more: who was taken out of it, or replaced under another name, holds nothing.
"""

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Final

import structlog

from dittomq.commitlog.disk import side_file
from dittomq.commitlog.disk.storage import Storage
from dittomq.commitlog.retention import Hold
from dittomq.commitlog.store import Store
from dittomq.doors.workers import Lane
from dittomq.offsets import PhysicalOffset
from services.master.slaves import SlaveRecord

_NAME: Final = "holds"
_KIND: Final = b"HOLD"

log = structlog.get_logger()


class SlaveHolds:
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

    async def run(self, period_s: float) -> None:
        """Write down who wants what, until cancelled."""
        while True:
            await self.keep()
            await asyncio.sleep(period_s)

    async def load(self) -> None:
        """Take up what was written down."""
        self._kept = await self._lane.call(self._load)

    async def keep(self) -> None:
        """Write down what has changed; on a full disk a later call does."""
        wanted = {node: int(self._store.segment_of(offset)[0]) for node, offset in self._wanted().items()}
        if wanted != self._kept:
            payload = json.dumps(wanted, sort_keys=True).encode()
            if await self._lane.call(lambda: side_file.save_if_room(self._storage, _NAME, _KIND, payload)):
                for node in self._kept.keys() - wanted.keys():
                    log.info("hold_forgotten", slave=node, start=self._kept[node])
                self._kept = wanted

    def _wanted(self) -> dict[str, PhysicalOffset]:
        records = self._records()
        live = {node: record.flushed for node, record in records.items() if record.flushed is not None}
        connected = {node: offset for node, offset in live.items() if records[node].connected}
        if 0 < self._slaves <= len(connected):
            return connected
        return {node: PhysicalOffset(offset) for node, offset in self._kept.items()} | live

    def _load(self) -> dict[str, int]:
        try:
            found = side_file.load_json(self._storage, _NAME, _KIND, dict[str, side_file.Number])
        except side_file.DamagedSideFile as damage:
            log.warning("holds_forgotten", problem=str(damage))
            return {}
        return found or {}
