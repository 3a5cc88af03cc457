"""Locks on queues, for members that read in order: one holder of a group at a time, until it unlocks or its time ends."""

from collections.abc import Iterable

from dittomq.consumer.assignment import TopicQueue
from dittomq.errors import LimitReached

LOCK_S = 60.0  # RocketMQ's rebalanceLockMaxLiveTime; its clients lock again every 20 s and trust a lock for 30 s
MAX_LOCKS = 100_000
MAX_LOCKS_OF_GROUP = 20_000


class OrderLocks:
    """The locks of one master. Times are seconds of its monotonic clock."""

    def __init__(self, free_at: float) -> None:
        """Before `free_at` nothing is locked: locks that the master before gave may hold until then."""
        self._free_at = free_at
        self._held: dict[str, dict[TopicQueue, tuple[str, float]]] = {}

    def lock(self, group: str, member: str, queues: Iterable[TopicQueue], now: float) -> frozenset[TopicQueue]:
        """Those of the queues that the member holds now, for LOCK_S more; LimitReached when there are too many locks."""
        if now < self._free_at:
            return frozenset()
        held = self._held.get(group, {})
        free = frozenset(queue for queue in queues if held.get(queue, (member, 0.0))[0] == member or held[queue][1] <= now)
        if added := len(free - held.keys()):
            self._make_room(group, added, now)
        if free:
            self._held.setdefault(group, {}).update(dict.fromkeys(free, (member, now + LOCK_S)))
        return free

    def unlock(self, group: str, member: str, queues: Iterable[TopicQueue]) -> None:
        """Free those of the queues that the member holds."""
        held = self._held.get(group, {})
        for queue in queues:
            if held.get(queue, ("", 0.0))[0] == member:
                del held[queue]
        self._forget_if_empty(group)

    @property
    def _count(self) -> int:
        return sum(map(len, self._held.values()))

    def _make_room(self, group: str, added: int, now: float) -> None:
        """For so many more locks of a group: where there are too many, those go whose time is over."""
        if len(self._held.get(group, {})) + added > MAX_LOCKS_OF_GROUP:
            self._drop_old(group, now)
        if len(self._held.get(group, {})) + added > MAX_LOCKS_OF_GROUP:
            raise LimitReached(f"the number of locked queues of group {group}", MAX_LOCKS_OF_GROUP)
        if self._count + added > MAX_LOCKS:
            for each in list(self._held):
                self._drop_old(each, now)
        if self._count + added > MAX_LOCKS:
            raise LimitReached("the number of locked queues", MAX_LOCKS)

    def _drop_old(self, group: str, now: float) -> None:
        self._held[group] = {queue: held for queue, held in self._held.get(group, {}).items() if held[1] > now}
        self._forget_if_empty(group)

    def _forget_if_empty(self, group: str) -> None:
        if not self._held.get(group):
            self._held.pop(group, None)
