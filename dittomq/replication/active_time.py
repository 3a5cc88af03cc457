"""Time as a process lives it: what it slept through, stopped or starved, is no silence of anybody else."""

LONGEST_STEP_S = 2.0


class ActiveTime:
    """Seconds that this process ran, from monotonic ones. Its owner looks at least once a second; a longer pause counts as two at most."""

    def __init__(self, now: float) -> None:
        self._seen_at = now
        self._ran_s = 0.0

    def at(self, now: float) -> float:
        """Seconds run since the beginning."""
        self._ran_s += min(now - self._seen_at, LONGEST_STEP_S)
        self._seen_at = now
        return self._ran_s
