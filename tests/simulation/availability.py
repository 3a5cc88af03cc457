"""Clients can write while enough of the group is whole and nothing lies between: looked at twice a second, while faults go on.

Whole is a machine that runs, has a disk that is neither slow nor full, and reaches all other whole ones; what became of the rest does not
matter. Enough are an election quorum of the members, and as many of them as the group needs to take writes. A replica that lost power, and
with it what it may have acknowledged, drew a new incarnation: it is no member until the master takes it in again.
"""

from collections.abc import Iterator, Sequence

from dittomq.group_record import GroupRecord
from tests.simulation.disk import BOUNDLESS
from tests.simulation.disk_snapshots import replica_on
from tests.simulation.history import Harm, History
from tests.simulation.shapes import Shape
from tests.simulation.workload import Publisher
from tests.simulation.world import World

_WITHIN_S = 20.0  # much longer than a silence, an election and the tries of a producer take together


class Availability:
    """Judges one run."""

    def __init__(self, world: World, shape: Shape, history: History, publishers: Sequence[Publisher]) -> None:
        self._world = world
        self._shape = shape
        self._history = history
        self._publishers = publishers
        self._whole: frozenset[str] = frozenset()
        self._since = 0.0
        self._counted = 0
        self._told_at = 0.0

    def look(self, record: GroupRecord | None) -> Iterator[str]:
        """Say that nobody could write for too long. `record` is what the coordination store has."""
        now = self._world.loop.time()
        whole = frozenset(name for name in self._shape.brokers if self._is_whole(name))
        if whole != self._whole or not self._may_be_written(whole, record):
            self._whole, self._since = whole, now
        since = max(self._since, self._last_told())
        if now - since > _WITHIN_S:
            self._since = now
            yield f"nobody could publish since {since:.1f} s though {', '.join(sorted(whole))} were whole and are enough"

    def _may_be_written(self, whole: frozenset[str], record: GroupRecord | None) -> bool:
        publishers = [each.name for each in self._publishers if each.wants_more and self._is_whole(each.name)]
        names = [*whole, *self._shape.name_machines, *publishers[:1]]
        harmed = self._history.has_seen(Harm.DISK_LOST, Harm.SYNC_FAILED, Harm.LOSS_ACCEPTED)
        if not publishers or harmed or self._shape.is_manual or not all(map(self._is_whole, self._shape.name_machines)):
            return False
        if not all(self._world.network.is_whole(one, other) for one in names for other in names if one != other):
            return False
        if record is None:
            return not self._shape.slaves and bool(whole)
        if record.paused:
            return False
        replicas = {replica_on(self._world.nodes[name].disk) for name in whole}
        members = {member.replica for member in record.members if member.replica in replicas}
        return record.is_quorum(members) and len(members) >= self._shape.replication.min_in_sync_replicas

    def _is_whole(self, name: str) -> bool:
        node = self._world.nodes[name]
        disk_answers = node.faults.slowness == 1.0 and node.disk.capacity_bytes >= BOUNDLESS
        return node.running and disk_answers and not self._world.network.machine(name).still

    def _last_told(self) -> float:
        """When a client got its last receipt."""
        publishes = self._history.publishes
        for publish in publishes[max(0, self._counted - 300) :]:
            self._told_at = max(self._told_at, publish.told_at or 0.0)
        self._counted = len(publishes)
        return self._told_at
