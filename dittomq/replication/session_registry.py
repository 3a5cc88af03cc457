"""④ Which stream speaks for a replica: the newest one of its uuid, and the newest one of its node.

Pure. Two streams of one replica, or two disks of one node, never count as two copies, nor one of them for the other. Nor does the
master for a slave of its own.
"""

from dataclasses import dataclass

from dittomq.replication.events import MAX_REPLICATION_SLOTS


@dataclass(frozen=True, slots=True)
class SessionSlot:
    """One stream's right to speak, from its handshake on. Numbers grow."""

    number: int
    node: str
    replica_uuid: str


class SessionRegistry:
    """All streams that speak for a replica."""

    def __init__(self, node: str, replica_uuid: str) -> None:
        """Of a master's node and disk."""
        self._node = node
        self._replica_uuid = replica_uuid
        self._seated: set[SessionSlot] = set()
        self._last = 0

    def why_not(self, node: str, replica_uuid: str) -> str:
        """Why the node that sends its handshake gets no seat; empty when it gets one."""
        if node == self._node:
            return f"it is called {node}, as this master is; give it a broker_id of its own"
        if replica_uuid == self._replica_uuid:
            return f"its store is a copy of this master's and calls itself the same; empty the data_dir of {node}"
        others = {seat.node for seat in self._seated if seat.replica_uuid != replica_uuid} - {node}
        if len(others) >= MAX_REPLICATION_SLOTS:
            return f"it has as many slaves as a master has, {MAX_REPLICATION_SLOTS}: {', '.join(sorted(others))}; stop one of them"
        return ""

    def take(self, node: str, replica_uuid: str) -> tuple[SessionSlot, tuple[SessionSlot, ...]]:
        """A handshake was heard. Returns the seat of its stream and those that it loses others: their streams must end."""
        losers = {seat for seat in self._seated if seat.node == node or seat.replica_uuid == replica_uuid}
        self._last += 1
        seat = SessionSlot(self._last, node, replica_uuid)
        self._seated = (self._seated - losers) | {seat}
        return seat, tuple(sorted(losers, key=lambda loser: loser.number))

    def speaks(self, seat: SessionSlot) -> bool:
        """Whether what its stream says counts."""
        return seat in self._seated

    def leave(self, seat: SessionSlot) -> bool:
        """Its stream has ended. Returns whether no other stream speaks for its node."""
        self._seated.discard(seat)
        return all(other.node != seat.node for other in self._seated)
