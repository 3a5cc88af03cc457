"""Time. Durations and deadlines use the monotonic clock; the wall clock only labels records and reports."""

import time
from typing import Protocol


class Clock(Protocol):
    """Both clocks of one node."""

    def monotonic(self) -> float:
        """Seconds since some fixed moment; never goes back."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since 1970; may jump."""
        ...


class OsClock:
    """The machine's clocks."""

    monotonic = staticmethod(time.monotonic)

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000
