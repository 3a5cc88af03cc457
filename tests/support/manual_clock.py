"""A clock that goes when it is told to."""


class HandClock:
    """`now_s` is its only time."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s

    def wall_ms(self) -> int:
        return int(self.now_s * 1_000)
