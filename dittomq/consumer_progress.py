"""How far a consumer group has read a queue, as it is committed and told."""

from dataclasses import dataclass
from enum import Enum

MAX_OFFSETS_IN_A_CALL = 1_024


@dataclass(frozen=True, slots=True)
class OffsetCommit:
    """The next queue offset to read. `resets`: how often the offset was reset as the reader knows; None: as it is now.

    `epoch`: that of the answer in which the last message below `offset` was read; None: unknown.
    """

    topic: str
    queue: int
    offset: int
    resets: int | None = None
    epoch: int | None = None


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """The next queue offset to read, None: none was committed; and how often it was reset."""

    topic: str
    queue: int
    offset: int | None
    resets: int = 0


@dataclass(frozen=True, slots=True)
class QueueProgress:
    """How far a group is in a queue whose confirmed messages end at `end`, exclusive.

    `committed` None: it has committed nothing. `lag` messages are not read, the first of which was stored `oldest_unread_ms` ago; None:
    there is none, or it cannot be read. `member` reads the queue; "": none, or not known.
    """

    topic: str
    queue: int
    committed: int | None
    end: int
    lag: int
    oldest_unread_ms: int | None = None
    member: str = ""
    resets: int = 0


@dataclass(frozen=True, slots=True)
class GroupProgress:
    """How far a group is, by topic and queue, and its members."""

    queues: tuple[QueueProgress, ...]
    members: tuple[str, ...] = ()


class ResetTarget(Enum):
    """Where a reset moves offsets to. TIME is the first message stored at that time or later."""

    EARLIEST = 1
    LATEST = 2
    TIME = 3
    OFFSET = 4


@dataclass(frozen=True, slots=True)
class ResetOrder:
    """Move the offsets of a group in a topic. `queues` empty: all. `value`: of TIME milliseconds since 1970, of OFFSET the queue offset."""

    group: str
    topic: str
    target: ResetTarget
    value: int = 0
    queues: tuple[int, ...] = ()
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class QueueReset:
    """What a reset moved in one queue; `before` None: nothing was committed."""

    queue: int
    before: int | None
    offset: int
