"""④ Which stream speaks for a replica: the newest one of its uuid, and the newest one of its node.

Pure. Two streams of one replica, or two disks of one node, never count as two copies, nor one of them for the other.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Seat:
    """One stream's right to speak, from its hello on. Numbers grow."""

    number: int
    node: str
    replica_uuid: str


class Seats:
    """All streams that speak for somebody."""

    def __init__(self) -> None:
        self._seated: set[Seat] = set()
        self._last = 0

    def take(self, node: str, replica_uuid: str) -> tuple[Seat, tuple[Seat, ...]]:
        """A hello was heard. Returns the seat of its stream and those that it loses others: their streams must end."""
        losers = {seat for seat in self._seated if seat.node == node or seat.replica_uuid == replica_uuid}
        self._last += 1
        seat = Seat(self._last, node, replica_uuid)
        self._seated = (self._seated - losers) | {seat}
        return seat, tuple(sorted(losers, key=lambda loser: loser.number))

    def speaks(self, seat: Seat) -> bool:
        """Whether what its stream says counts."""
        return seat in self._seated

    def leave(self, seat: Seat) -> bool:
        """Its stream has ended. Returns whether nobody speaks for its node any more."""
        self._seated.discard(seat)
        return all(other.node != seat.node for other in self._seated)
