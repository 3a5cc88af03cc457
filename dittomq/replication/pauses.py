"""⑤ How long a slave waits before it dials again: longer each time, and never in step with others. Pure."""

from typing import Final

FIRST_S: Final = 0.1
LONGEST_S: Final = 2.0


class Pauses:
    """The pauses of one slave. A stream that held for longer than the longest of them makes the next one short."""

    def __init__(self) -> None:
        self._next_s = FIRST_S

    def after(self, stream_s: float, chance: float) -> float:
        """How long to wait after a stream of `stream_s` seconds: half of the pause, and by chance in [0, 1) up to all of it."""
        if stream_s > LONGEST_S:
            self._next_s = FIRST_S
        pause_s, self._next_s = self._next_s, min(LONGEST_S, 2 * self._next_s)
        return pause_s * (0.5 + chance / 2)
