"""⑤ How long a slave waits before it dials again: hardly, a few times shortly, then longer each time, never in step with others. Pure."""

from typing import Final

AT_ONCE_S: Final = 0.02  # a stream that held was most likely cut by what is over by now
FIRST_S: Final = 0.1
LONGEST_S: Final = 2.0
SHORT_ONES: Final = 4  # a group that changes places has a master again within half a second


class Backoff:
    """The pauses of one slave. After a stream that held for longer than the longest of them it dials at once, then they begin anew."""

    def __init__(self) -> None:
        self._taken = 0

    def after(self, stream_s: float, chance: float) -> float:
        """How long to wait after a stream of `stream_s` seconds: half of the pause, and by chance in [0, 1) up to all of it."""
        if stream_s > LONGEST_S:
            self._taken = 0
            return AT_ONCE_S * (0.5 + chance / 2)
        doublings = min(16, max(0, self._taken + 1 - SHORT_ONES))
        self._taken += 1
        return min(LONGEST_S, FIRST_S * 2.0**doublings) * (0.5 + chance / 2)
