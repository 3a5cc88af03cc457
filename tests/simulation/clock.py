"""The clock door: both clocks of one node, in virtual time."""

import asyncio

_START_MS = 1_700_000_000_000


class SimulatedClock:
    """A node's clocks. The wall clock is off by `skew_ms` and may be made to jump; the monotonic one never goes back."""

    def __init__(self, loop: asyncio.AbstractEventLoop, skew_ms: int = 0, monotonic_start_s: float = 0.0) -> None:
        self._loop = loop
        self._skew_ms = skew_ms
        self._monotonic_start_s = monotonic_start_s

    def monotonic(self) -> float:
        return self._monotonic_start_s + self._loop.time()

    def wall_ms(self) -> int:
        return _START_MS + self._skew_ms + int(self._loop.time() * 1_000)

    def jump(self, by_ms: int) -> None:
        """Set the wall clock forward or back."""
        self._skew_ms += by_ms
