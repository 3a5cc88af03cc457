"""⑤ How long a slave waits before it dials again: longer each time, and never in step with others. Pure but for the chance it is given."""

import random
from typing import Final

FIRST_S: Final = 0.1
LONGEST_S: Final = 2.0


class Pauses:
    """The pauses of one slave. A stream that held for a while makes the next pause a short one."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._next_s = FIRST_S

    def after(self, stream_s: float) -> float:
        """How long to wait after a stream of `stream_s` seconds: between half of the pause and all of it, by chance."""
        if stream_s > 2 * LONGEST_S:
            self._next_s = FIRST_S
        pause_s, self._next_s = self._next_s, min(LONGEST_S, 2 * self._next_s)
        return pause_s * self._chance.uniform(0.5, 1.0)
