"""When a node was heard last, as a nameserver counts it. Pure: the caller brings the time."""

from dataclasses import dataclass
from typing import NamedTuple


class Now(NamedTuple):
    """Both clocks, in milliseconds."""

    monotonic_ms: int
    wall_ms: int


@dataclass(slots=True)
class LastSeen:
    """When a node was heard last. For `suspended_ms` since then the nameserver was suspended, which counts as no silence of the node."""

    at: Now
    suspended_ms: int = 0

    def silent_ms(self, now: Now) -> int:
        """For how long the node was not heard, whether the nameserver listened or not."""
        return now.monotonic_ms - self.at.monotonic_ms

    def counted_ms(self, now: Now) -> int:
        """For how long the nameserver listened and did not hear it."""
        return self.silent_ms(now) - self.suspended_ms

    def add_suspension(self, ms: int, now: Now) -> None:
        """The nameserver was suspended for so long until now."""
        self.suspended_ms = min(self.suspended_ms + ms, self.silent_ms(now))
