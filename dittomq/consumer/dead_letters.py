"""Dead letters: which of them are asked for, page by page, and what a replay makes of one."""

import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from dittomq.consumer.retries import RECONSUME_TIME, RETRY_TOPIC, tries_before
from dittomq.errors import InvalidField
from dittomq.message import StoredMessage

MAX_DEAD_LETTERS: Final = 256
DEFAULT_DEAD_LETTERS: Final = 32

_TOKEN: Final = re.compile(r"([0-9]{1,18})\.([0-9]{1,9})\.([0-9]{1,18})\.([0-9a-f]{8})")


@dataclass(frozen=True, slots=True)
class DeadLetterQuery:
    """A page of what a group gave up at `from_ms` or later, in ms since 1970; `page_token` "" for the first page."""

    group: str
    from_ms: int = 0
    page_size: int = DEFAULT_DEAD_LETTERS
    page_token: str = ""


@dataclass(frozen=True, slots=True)
class DeadLetterMessage:
    """A message that a group has given up, as it lies in the group's dead-letter topic."""

    message: StoredMessage

    @property
    def origin_topic(self) -> str:
        """Where it was published; "" when it does not say."""
        return self.message.properties.get(RETRY_TOPIC, "")

    @property
    def tries(self) -> int:
        """Tries before it was given up; 0 when it does not say."""
        return tries_before(self.message.properties)


@dataclass(frozen=True, slots=True)
class DeadLetterPage:
    """Dead letters by queue and offset; `next_token` "" behind the last."""

    letters: tuple[DeadLetterMessage, ...]
    next_token: str


class LetterPlace(NamedTuple):
    """Queue of the dead-letter topic, and queue offset."""

    queue: int
    offset: int


@dataclass(frozen=True, slots=True)
class ReplayOrder:
    """What to replay: a page, or `only` that one dead letter."""

    query: DeadLetterQuery
    only: LetterPlace | None = None
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class ReplayedLetter:
    """A dead letter whose copy lies, or would lie, in that queue of the group's retry topic."""

    place: LetterPlace
    retry_queue: int


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """What one call replayed; `next_token` "" where nothing is left."""

    replayed: tuple[ReplayedLetter, ...]
    next_token: str


class LetterCursor(NamedTuple):
    """Where a page begins. No page goes beyond `end`, the byte of the log at which what was confirmed ended for the first page."""

    end: int
    place: LetterPlace


def cursor_token(query: DeadLetterQuery, cursor: LetterCursor) -> str:
    """The page token of a place. Copies of a log are equal as far as it is confirmed: every node of the broker group understands it."""
    return f"{cursor.end}.{cursor.place.queue}.{cursor.place.offset}.{_mark(query)}"


def cursor_of(query: DeadLetterQuery) -> LetterCursor | None:
    """Where the page asked for begins; None for the first. Raises InvalidField for another query's token."""
    if not query.page_token:
        return None
    found = _TOKEN.fullmatch(query.page_token)
    if found is None or found[4] != _mark(query):
        raise InvalidField("page_token", "is not a token of this group and from_time; take next_page_token of the page before, or none")
    return LetterCursor(int(found[1]), LetterPlace(int(found[2]), int(found[3])))


def replayed_properties(properties: Mapping[str, str]) -> Mapping[str, str]:
    """Of the copy: the group tries it as often as a new message. Where and as what it was published stays."""
    return {name: value for name, value in properties.items() if name != RECONSUME_TIME}


def _mark(query: DeadLetterQuery) -> str:
    """Tells one query from the others, whatever its page."""
    text = f"{query.group}\0{query.from_ms}"
    return f"{binascii.crc32(text.encode()):08x}"
