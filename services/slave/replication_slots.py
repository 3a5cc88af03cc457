"""⑤ From where on a slave keeps its log for others: as far back as its master does. Should it lead one day, they need that from it."""

from dittomq.broker import replication_slots_file
from dittomq.commitlog.disk.storage import Storage
from dittomq.commitlog.retention import RetentionFloor
from dittomq.doors.workers import Executor
from dittomq.offsets import PhysicalOffset
from dittomq.replication.events import MAX_REPLICATION_SLOTS, ReplicationSlots


class SlotsOfOthers:
    """What the master told last, of every slave but this one."""

    def __init__(self, node: str, storage: Storage, lane: Executor) -> None:
        self._node = node
        self._storage = storage
        self._lane = lane
        self._reported: dict[str, int] = {}
        self._kept: dict[str, int] = {}

    def floors(self, max_bytes: int) -> list[RetentionFloor]:
        """One for each, as a master has them."""
        return [RetentionFloor(node, PhysicalOffset(offset), max_bytes) for node, offset in self._reported.items()]

    @property
    def reported(self) -> ReplicationSlots:
        """The same, for a master that lost its disk."""
        return tuple((node, PhysicalOffset(self._reported[node])) for node in sorted(self._reported)[:MAX_REPLICATION_SLOTS])

    async def load(self) -> None:
        """Take up what was written down, perhaps by this node as the master that it was."""
        self._kept = await self._lane.call(lambda: replication_slots_file.load(self._storage))
        self._reported = {node: offset for node, offset in self._kept.items() if node != self._node}

    async def update(self, slots: ReplicationSlots) -> None:
        """The master tells for whom it keeps its log; durable when this returns, or on a full disk when it tells it again."""
        self._reported = {node: offset for node, offset in slots if node != self._node}
        if self._reported != self._kept:
            told = dict(self._reported)
            if await self._lane.call(lambda: replication_slots_file.save_if_room(self._storage, told)):
                self._kept = told
