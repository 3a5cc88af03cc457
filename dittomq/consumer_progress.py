"""How far a consumer group has read a queue, as it is committed and told."""

from dataclasses import dataclass

MAX_OFFSETS_IN_A_CALL = 1_024


@dataclass(frozen=True, slots=True)
class OffsetCommit:
    """The next queue offset to read. `resets`: how often the offset was reset as the reader knows; None: as it is now."""

    topic: str
    queue: int
    offset: int
    resets: int | None = None


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """The next queue offset to read, None: none was committed; and how often it was reset."""

    topic: str
    queue: int
    offset: int | None
    resets: int = 0
