"""What a master knows of its slaves: for status, and so that each replica has one stream."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from dittomq.doors.clock import Clock
from dittomq.group_record import NO_REPLICA, ReplicaId
from dittomq.ha_status import NodeState, StreamEndReason
from dittomq.offsets import PhysicalOffset
from dittomq.replication.events import MAX_REPLICATION_SLOTS
from dittomq.replication.lag import Rate

MOST_REMEMBERED: Final = MAX_REPLICATION_SLOTS
"""Of so many slaves a master knows at a time: of more it could not tell the others from where on each wants the log."""


@dataclass(slots=True)
class SlaveRecord:
    """One slave. Offsets in bytes, `since_ms` and `last_drop_ms` in wall milliseconds, of which `began` and `dropped_at` are the moments in
    monotonic seconds: the wall clock does not tell which was first. None is unknown.

    It is FOLLOWING from its stream's first ack that counts on: before, what it holds is what it said on an earlier stream, if it did.
    """

    node: str
    replica: ReplicaId
    state: NodeState = NodeState.UNKNOWN  # until its first handshake
    since_ms: int | None = None
    connected: bool = False
    replication_address: str = ""
    received: PhysicalOffset | None = None
    flushed: PhysicalOffset | None = None
    applied: PhysicalOffset | None = None
    verified_offset: PhysicalOffset = PhysicalOffset(0)
    last_drop_reason: str = ""
    last_drop_kind: StreamEndReason | None = None
    last_drop_ms: int | None = None
    began: float = 0.0
    dropped_at: float = 0.0
    sent: Rate = field(default_factory=Rate)
    gained: Rate = field(default_factory=Rate)

    def become(self, state: NodeState, clock: Clock) -> None:
        """Enter a state, and note since when."""
        if state != self.state:
            self.state, self.since_ms, self.began = state, clock.wall_ms(), clock.monotonic()

    def acked(self, received: PhysicalOffset, flushed: PhysicalOffset, applied: PhysicalOffset | None, clock: Clock) -> None:
        """The slave said what it holds of this master's log."""
        if self.state == NodeState.FOLLOWING and self.received is not None and received > self.received:
            self.gained.add(received - self.received, clock.monotonic())
        self.received, self.flushed, self.applied = received, flushed, applied
        self.become(NodeState.FOLLOWING, clock)

    def disk_gone(self) -> None:
        """What was known of its disk says nothing of this slave: another one has it."""
        self.received = self.flushed = self.applied = None
        self.verified_offset = PhysicalOffset(0)

    def dropped(self, reason: str, kind: StreamEndReason, clock: Clock) -> None:
        """Its stream ended."""
        self.last_drop_reason, self.last_drop_kind = reason, kind
        self.last_drop_ms, self.dropped_at = clock.wall_ms(), clock.monotonic()


def to_remove(records: Mapping[str, SlaveRecord], counted: Collection[str]) -> str | None:
    """Who makes room for one more: who left first of those that are neither connected nor `counted`: members.

    None: there is room, or all of them are.
    """
    if len(records) < MOST_REMEMBERED:
        return None
    gone = [record for record in records.values() if not record.connected and record.node not in counted]
    return min(gone, key=lambda record: record.dropped_at).node if gone else None


def with_absent(reported: Mapping[str, SlaveRecord], known: Iterable[str], expected: int) -> list[SlaveRecord]:
    """The slaves that were reported, by name; while those are fewer than `expected`, also who is `known` otherwise, and may be missing.

    Once all that are expected were reported, another node may have taken the place of one that is known and will never come. So it is with
    one that has left while as many are connected: the log is not held for it.
    """
    if 0 < expected <= sum(record.connected for record in reported.values()):
        reported = {node: record for node, record in reported.items() if record.connected}
    absent = set(known) - reported.keys() if len(reported) < expected else set()
    records = {**reported, **{node: SlaveRecord(node, NO_REPLICA) for node in absent}}
    return [records[node] for node in sorted(records)]
