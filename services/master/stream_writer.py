"""④ What one slave is told, and whether it reads that."""

from collections.abc import Awaitable, Callable

from dittomq.doors.clock import Clock
from dittomq.errors import StreamReset
from dittomq.replication.active_time import ActiveTime
from dittomq.replication.events import Chunk, HandshakeResult, Heartbeat, LeafProbe, MissingRange

MasterMessage = HandshakeResult | Chunk | MissingRange | Heartbeat | LeafProbe


class StreamWriter:
    """One stream's. The session ends a slave that is silent, but hears of no time while something that it says is not taken."""

    def __init__(self, node: str, clock: Clock, silence_s: float, send: Callable[[MasterMessage], Awaitable[None]]) -> None:
        self._node = node
        self._clock = clock
        self._silence_s = silence_s
        self._send = send
        self._time = ActiveTime(clock.monotonic())
        self._received_at = 0.0  # of the running time
        self._is_writing = False

    def received(self) -> None:
        """The slave said something."""
        self._received_at = self._time.at(self._clock.monotonic())

    async def write(self, message: MasterMessage) -> None:
        """Return when the line has taken it."""
        self._received_at, self._is_writing = max(self._received_at, self._time.at(self._clock.monotonic())), True
        await self._send(message)
        self._is_writing = False

    def check(self) -> None:
        """Raise StreamReset where what is said is not taken for as long as a slave may be silent. Call it once a second."""
        silent_s = self._time.at(self._clock.monotonic()) - self._received_at
        if self._is_writing and silent_s > self._silence_s:
            raise StreamReset(self._node, f"silent for {silent_s:.0f} s, and what it is told is not read")
