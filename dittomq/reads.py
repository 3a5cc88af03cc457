"""What a reader asks of one queue and what a node answers."""

import sys
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from dittomq.message import MAX_PROPERTIES_BYTES, StoredMessage
from dittomq.offsets import Epoch, PhysicalOffset, QueueOffset
from dittomq.tokens import ConsistencyToken

MAX_PULL_MESSAGES = 4_096
MAX_PULL_BYTES = 4 * 1024 * 1024
DEFAULT_PULL_MESSAGES = 32
DEFAULT_PULL_BYTES = 256 * 1024
MAX_PULL_WAIT_S = 60.0
MIN_STREAM_WAIT_S: Final = 1.0
DEFAULT_STREAM_WAIT_S: Final = 30.0
MAX_PULL_TAGS = 256
MAX_STALENESS_S = 3_600.0
MAX_FOUND_MESSAGES: Final = 64
DEFAULT_FOUND_MESSAGES: Final = 16
MAX_KEY_CHARACTERS: Final = 4_096
MAX_LONG: Final = (1 << 63) - 1
MAX_PULL_TAG_CHARACTERS = MAX_PROPERTIES_BYTES  # a tag that a message can have is never too long to be asked for


class PullStatus(StrEnum):
    """How a pull ended."""

    FOUND = "FOUND"
    NO_NEW_MESSAGE = "NO_NEW_MESSAGE"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    BEHIND = "BEHIND"


@dataclass(frozen=True, slots=True)
class ReadableRange:
    """What may be read: records that end at or below `end`; those that end above `confirmed` may be undone."""

    end: PhysicalOffset
    confirmed: PhysicalOffset


ALL: Final = ReadableRange(PhysicalOffset(sys.maxsize), PhysicalOffset(sys.maxsize))


@dataclass(frozen=True, slots=True)
class PullRequest:
    """Messages wanted of one queue. `tags` empty: all. `at_least` None: whatever the copy has. `wait_s` 0: do not wait.

    `group`: the consumer group that reads, "" for none. `max_staleness_s`: the answer lacks nothing confirmed longer ago; None: any age.
    `as_records`: messages may come as the records that hold them, also of other tags of the same hash. `epoch`: that of the answer in which
    the message before `offset` was read, None: unknown.
    """

    topic: str
    queue: int
    offset: QueueOffset
    max_messages: int = DEFAULT_PULL_MESSAGES
    max_bytes: int = DEFAULT_PULL_BYTES
    wait_s: float = 0.0
    tags: frozenset[str] = frozenset()
    at_least: ConsistencyToken | None = None
    prefer_text: bool = False
    group: str = ""
    max_staleness_s: float | None = None
    as_records: bool = False
    epoch: Epoch | None = None


@dataclass(frozen=True, slots=True)
class PullStreamOrder:
    """The same on and on: an answer without messages comes after each `wait_s`. `max_responses`: it ends then; 0: never."""

    pull: PullRequest
    max_responses: int = 0


@dataclass(frozen=True, slots=True)
class PullResult:
    """Messages of one queue in its order. The queue holds [min_offset, max_offset) here, `confirmed` is the log's confirmed end.

    `unconfirmed_from`: from this queue offset on a new master may undo what was returned, or passed over because of its tag, and put
    other messages there; None: nothing of it. `suggested_broker_id`: the node of the group that the next pull of this queue had better
    ask; 0 is the master. `records`, on the node that answers: ordinary ones as they lie in its log, one behind the other, instead of their
    messages. `epoch`: in which the last message that was looked at was written; that of the
    request where none was.
    """

    status: PullStatus
    messages: tuple[StoredMessage, ...]
    next_offset: QueueOffset
    min_offset: QueueOffset
    max_offset: QueueOffset
    confirmed: PhysicalOffset
    unconfirmed_from: QueueOffset | None = None
    suggested_broker_id: int = 0
    records: bytes = b""
    epoch: Epoch | None = None


@dataclass(frozen=True, slots=True)
class KeyQuery:
    """Messages of a topic with a key, stored in [from_ms, to_ms), newest first. `page_token` "": the first page."""

    topic: str
    key: str
    from_ms: int = 0
    to_ms: int = MAX_LONG
    page_size: int = DEFAULT_FOUND_MESSAGES
    page_token: str = ""


@dataclass(frozen=True, slots=True)
class KeyPage:
    """A page of messages, newest first. `next_token` "": the last one."""

    messages: tuple[StoredMessage, ...]
    next_token: str
