"""What groups have given up, as the nodes of a broker group answer for it. A master replays it, a slave names the master."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NoReturn, Protocol

from dittomq.broker.consumer_offsets import ConsumerOffsets, OffsetRules
from dittomq.broker.lane_reads import read_on
from dittomq.commitlog.reading import QueueSlice
from dittomq.consumer.dead_letters import (
    DeadLetterMessage,
    DeadLetterPage,
    DeadLetterQuery,
    LetterCursor,
    LetterPlace,
    ReplayOrder,
    ReplayResult,
    cursor_of,
    cursor_token,
)
from dittomq.consumer.retries import dead_letter_topic
from dittomq.doors.workers import Executor
from dittomq.errors import NotMaster, NotReady, OffsetOutOfRange, TopicNotFound
from dittomq.message import StoredMessage
from dittomq.offsets import PhysicalOffset
from dittomq.reads import MAX_PULL_BYTES, ReadableRange

_PAGE_BYTES: Final = MAX_PULL_BYTES - 1024 * 1024


class LetterStore(Protocol):
    """The part of a store that dead letters are read from. All calls block and run on a lane."""

    def queue_range_below(self, topic: str, queue: int, end: int) -> tuple[int, int]: ...

    def offset_at(self, topic: str, queue: int, time_ms: int, end: int) -> int | None: ...

    def read_queue(  # noqa: PLR0917 - as the store has it
        self,
        topic: str,
        queue: int,
        offset: int,
        max_messages: int,
        max_bytes: int,
        tags: frozenset[str] = frozenset(),
        readable: ReadableRange = ...,
    ) -> QueueSlice: ...


@dataclass(frozen=True, slots=True)
class DeadLetterReads:
    """Reads dead letters that are confirmed. `lane` is one for reads; `damaged` hears where a record is."""

    offsets: ConsumerOffsets
    store: LetterStore
    lane: Executor
    rules: OffsetRules
    damaged: Callable[[int], None]

    async def page(self, query: DeadLetterQuery) -> DeadLetterPage:
        """At most `page_size` dead letters, of one queue, and at most 3 MiB or one of them.

        Raises GroupNotFound, InvalidField for a strange token, NotReady where this node does not know yet that all is confirmed which
        the first page knew of, and CorruptRecord.
        """
        self.offsets.find_group(query.group, self.rules)
        cursor, confirmed = cursor_of(query), self.rules.confirmed()
        if cursor is not None and cursor.end > confirmed:
            raise NotReady(self.rules.node, "it does not know yet that all is confirmed which the page before knew of; ask again")
        queues = self._queues(query.group)
        end = PhysicalOffset(confirmed if cursor is None else cursor.end)
        return await read_on(self.lane, lambda: self._read(query, queues, end, cursor), self.damaged)

    async def one(self, group: str, place: LetterPlace) -> DeadLetterMessage:
        """The dead letter there; raises GroupNotFound, OffsetOutOfRange where there is none, and CorruptRecord."""
        self.offsets.find_group(group, self.rules)
        end, topic = self.rules.confirmed(), dead_letter_topic(group)

        def read() -> DeadLetterMessage:
            found = self._messages(topic, place, 1, end)
            if not found or found[0].queue_offset != place.offset:
                bounds = self.store.queue_range_below(topic, place.queue, end)
                raise OffsetOutOfRange(f"queue {place.queue}: queue offset", place.offset, *bounds)
            return DeadLetterMessage(found[0])

        return await read_on(self.lane, read, self.damaged)

    def _queues(self, group: str) -> int:
        """Of the group's dead-letter topic, which is made for the first one."""
        try:
            topic = self.rules.topic(dead_letter_topic(group))
        except TopicNotFound:
            self.rules.check_complete()
            return 0
        return max(topic.read_queues, topic.write_queues)

    def _read(self, query: DeadLetterQuery, queues: int, end: PhysicalOffset, cursor: LetterCursor | None) -> DeadLetterPage:
        topic, begin = dead_letter_topic(query.group), LetterPlace(0, 0) if cursor is None else cursor.place
        for queue in range(begin.queue, queues):
            low, high = self.store.queue_range_below(topic, queue, end)
            at = max(low, begin.offset if queue == begin.queue else 0)
            if query.from_ms and (later := self.store.offset_at(topic, queue, query.from_ms, end)) is not None:
                at = max(at, later)
            found = self._messages(topic, LetterPlace(queue, at), query.page_size, end) if at < high else []
            if found:
                behind = found[-1].queue_offset + 1
                next_place = LetterPlace(queue, behind) if behind < high else LetterPlace(queue + 1, 0)
                token = cursor_token(query, LetterCursor(end, next_place)) if next_place.queue < queues else ""
                return DeadLetterPage(tuple(map(DeadLetterMessage, found)), token)
        return DeadLetterPage((), "")

    def _messages(self, topic: str, place: LetterPlace, count: int, end: PhysicalOffset) -> list[StoredMessage]:
        readable = ReadableRange(end, end)
        return list(self.store.read_queue(topic, place.queue, place.offset, count, _PAGE_BYTES, readable=readable).messages)


class DeadLetterReplays(Protocol):
    """Replays dead letters, or says who does."""

    async def replay(self, order: ReplayOrder) -> ReplayResult: ...


@dataclass(frozen=True, slots=True)
class SlaveReplays:
    """Replays nothing and names the master; `master` tells its client address, empty while unknown."""

    node: str
    master: Callable[[], str]

    async def replay(self, order: ReplayOrder) -> NoReturn:
        """Raise NotMaster."""
        raise NotMaster(self.node, self.master())
