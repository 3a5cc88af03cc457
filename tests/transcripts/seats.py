"""`seats` on the stage: streams that come and go at a master's door, by the numbers of their seats.

The master is a/0 with the disk u0.

> Handshake node=a/1 replica_uuid=u1
> Ack seat=1                                        the stream of that seat says something that would count
> Ended seat=1
"""

from typing import Any

from dittomq.replication.session_registry import SessionRegistry, SessionSlot
from tests.transcripts.script import shown


class Door:
    """All streams of one master."""

    ticks = False

    def __init__(self, given: dict[str, Any], now: float) -> None:
        self._seats = SessionRegistry("a/0", "u0")
        self._known: dict[int, SessionSlot] = {}

    def act(self, event: str, given: dict[str, Any], now: float) -> list[str]:
        """Who sits, who must leave, and what counts."""
        match event:
            case "Handshake" if why := self._seats.why_not(given["node"], given["replica_uuid"]):
                return [f"Refused why={shown(why)}"]
            case "Handshake":
                seat, losers = self._seats.take(given["node"], given["replica_uuid"])
                self._known[seat.number] = seat
                return [*(f"EndStream seat={loser.number}" for loser in losers), f"Seated seat={seat.number}"]
            case "Ack":
                return ["Counts" if self._seats.speaks(self._known[given["seat"]]) else "CountsForNothing"]
            case _:
                assert event == "Ended", f"a door has no event {event}"
        seat = self._known.pop(given["seat"])
        return [f"Gone node={seat.node}"] if self._seats.leave(seat) else []
