"""Slaves that a master knows, and from where on each wants the log; kept over restarts in `dittomq/holds`.

A slave that is away is waited for, up to a bound of bytes. Nothing is removed that a member has not acknowledged: beyond the bound it is
removed from the group record first. While as many slaves as the group has are connected, no other one is of the group: who was taken out
of it, or replaced under another name, holds nothing.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import structlog

from dittomq.broker import replication_slots_file
from dittomq.commitlog.disk.storage import Storage
from dittomq.commitlog.retention import RetentionFloor
from dittomq.commitlog.store import Store
from dittomq.doors.workers import Executor
from dittomq.offsets import PhysicalOffset
from dittomq.replication.events import ReplicationSlots
from services.master.replica_registry import MOST_REMEMBERED, SlaveRecord

log = structlog.get_logger()


def _no_members() -> tuple[str, ...]:
    return ()


def _none_leaves(_: str) -> None:
    raise AssertionError


@dataclass(frozen=True, slots=True)
class Members:
    """Nodes of the group record other than the master, and how one of them is removed from it."""

    nodes: Callable[[], Collection[str]] = _no_members
    must_leave: Callable[[str], None] = _none_leaves


class SlotsOfSlaves:
    """The log is kept for a slave from the segment on in which its flushed end lies."""

    def __init__(
        self,
        storage: Storage,
        store: Store,
        lane: Executor,
        slaves: int,
        *,
        records: Callable[[], Mapping[str, SlaveRecord]],
        members: Members | None = None,
    ) -> None:
        """Of a group of so many slaves; 0: no configuration says how many there are."""
        self._slaves = slaves
        self._storage = storage
        self._store = store
        self._lane = lane
        self._records = records
        self._members = members or Members()
        self._kept: dict[str, int] = {}

    def floors(self, max_bytes: int) -> list[RetentionFloor]:
        """One for each slave of the group that was ever heard: what it says now, or what was last written down.

        A member that is further behind than `max_bytes` is to be removed, and its hold lasts until it is.
        """
        wanted, members = self._wanted(), self._members.nodes()
        held = [RetentionFloor(node, offset, None if node in members else max_bytes) for node, offset in wanted.items()]
        for node in members:
            if node not in wanted:  # this master has not heard it yet
                held.append(RetentionFloor(node, self._store.min_offset))
            elif self._store.end - wanted[node] > max_bytes:
                self._members.must_leave(node)
        return held

    @property
    def slaves(self) -> frozenset[str]:
        """Those that were written down."""
        return frozenset(self._kept)

    @property
    def written(self) -> ReplicationSlots:
        """What was written down, for slaves to know: should one of them lead one day, the others need it there."""
        return tuple((node, PhysicalOffset(self._kept[node])) for node in sorted(self._kept))

    async def run(self, period_s: float) -> None:
        """Write down who wants what, until cancelled."""
        while True:
            await self.keep()
            await asyncio.sleep(period_s)

    async def load(self, own: str) -> None:
        """Take up what was written down, perhaps by this node as the slave that it was."""
        found = await self._lane.call(lambda: replication_slots_file.load(self._storage))
        others = {node: offset for node, offset in found.items() if node != own}
        self._kept = dict(sorted(others.items(), key=lambda each: -each[1])[:MOST_REMEMBERED])

    async def keep(self) -> None:
        """Write down what has changed; on a full disk a later call does."""
        wanted = {node: int(self._store.segment_of(offset)[0]) for node, offset in self._wanted().items()}
        if wanted != self._kept and await self._lane.call(lambda: replication_slots_file.save_if_room(self._storage, wanted)):
            for node in self._kept.keys() - wanted.keys():
                log.info("replication_slot_dropped", slave=node, start=self._kept[node])
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
