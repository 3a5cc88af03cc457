"""Locks on queues, for members that read in order: one holder of a group at a time, until it unlocks or its time ends."""

from collections.abc import Iterable

from dittomq.consumer.assignment import TopicQueue
from dittomq.errors import LimitReached

LOCK_S = 60.0  # RocketMQ's rebalanceLockMaxLiveTime; its clients lock again every 20 s and trust a lock for 30 s
MAX_LOCKS = 100_000

_Key = tuple[str, TopicQueue]


class OrderLocks:
    """The locks of one master. Times are seconds of its monotonic clock."""

    def __init__(self, free_at: float) -> None:
        """Before `free_at` nothing is locked: locks that the master before gave may hold until then."""
        self._free_at = free_at
        self._held: dict[_Key, tuple[str, float]] = {}

    def lock(self, group: str, member: str, queues: Iterable[TopicQueue], now: float) -> frozenset[TopicQueue]:
        """Those of the queues that the member holds now, for LOCK_S more; LimitReached when there are too many locks."""
        wanted = frozenset(queues)
        if now < self._free_at:
            return frozenset()
        free = {queue for queue in wanted if self._holder(group, queue, now) in {None, member}}
        added = sum((group, queue) not in self._held for queue in free)
        if len(self._held) + added > MAX_LOCKS:
            self._drop_old(now)
        if len(self._held) + added > MAX_LOCKS:
            raise LimitReached("the number of locked queues", MAX_LOCKS)
        for queue in free:
            self._held[group, queue] = member, now + LOCK_S
        return frozenset(free)

    def unlock(self, group: str, member: str, queues: Iterable[TopicQueue]) -> None:
        """Free those of the queues that the member holds."""
        for queue in queues:
            holder, _ = self._held.get((group, queue), ("", 0.0))
            if holder == member:
                del self._held[group, queue]

    def _holder(self, group: str, queue: TopicQueue, now: float) -> str | None:
        holder, until = self._held.get((group, queue), ("", 0.0))
        return holder if until > now else None

    def _drop_old(self, now: float) -> None:
        self._held = {key: held for key, held in self._held.items() if held[1] > now}
