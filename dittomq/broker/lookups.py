"""⑧ Look-ups on masters and slaves: a message by its id, messages by a key, a queue's offset by a time. Only what can be read is found."""

import binascii
import contextlib
import re
from collections.abc import AsyncIterator
from typing import Final

from dittomq.broker.lane_reads import read_on
from dittomq.broker.pull_service import PullRules
from dittomq.commitlog.store import KeySearch, Store
from dittomq.doors.workers import Executor
from dittomq.epoch_history import entry_at
from dittomq.errors import InvalidField, MessageNotFound, PermissionDenied, QueueNotFound, TopicNotFound, VersionConflict
from dittomq.message import MAX_BODY_BYTES, StoredMessage
from dittomq.metadata.topics import TopicConfig
from dittomq.offsets import PhysicalOffset, QueueOffset
from dittomq.reads import DEFAULT_FOUND_MESSAGES, MAX_LONG, MAX_PULL_BYTES, KeyPage, KeyQuery
from dittomq.routes import PERMISSION_READ
from dittomq.tokens import ConsistencyToken, OffsetMessageId, parse_id

_PAGE_TOKEN = re.compile(r"([0-9]{1,19})\.([0-9]{1,19})\.([0-9a-f]{8})")
_SPARE_BYTES: Final = 1024 * 1024


class LookupService:
    """Looks messages up for this node's readers."""

    def __init__(self, node: str, store: Store, lane: Executor, rules: PullRules) -> None:
        self._node = node
        self._store = store
        self._lane = lane
        self._rules = rules

    async def offset_at(self, topic: str, queue: int, time_ms: int) -> QueueOffset:
        """The first readable message stored at or after that time; the queue's end where there is none. Raises QueueNotFound."""
        config = self._topic(topic)
        if not 0 <= queue < max(config.read_queues, config.write_queues):
            raise QueueNotFound(topic, queue, config.read_queues)
        end = self._rules.readable().end
        found = await self._lane.call(lambda: self._store.offset_at(topic, queue, time_ms, end))
        return QueueOffset(0) if found is None else found

    @contextlib.asynccontextmanager
    async def message(self, text: str, connection: str) -> AsyncIterator[StoredMessage]:
        """The message of that id or token, counted as unread until the block ends. Raises MessageNotFound, InvalidField, CorruptRecord."""
        share = await self._rules.room.take(connection, MAX_BODY_BYTES)
        try:
            yield await self.find(text)
        finally:
            share.give_back()

    async def find(self, text: str) -> StoredMessage:
        """The same, where somebody else counts."""
        named, position = parse_id(text)
        if isinstance(named, ConsistencyToken) and not self.is_of(named, text):
            raise MessageNotFound(self._node, text)
        end = self._rules.readable().end
        found = await read_on(self._lane, lambda: self._store.message_at(position, end), self._rules.damaged)
        if found is None:
            self._rules.check_complete()
            raise MessageNotFound(self._node, text)
        message, host = found
        if isinstance(named, OffsetMessageId) and (host.address, host.port) != (named.address, named.port):
            raise MessageNotFound(self._node, text)
        self._topic(message.topic)
        return message

    @contextlib.asynccontextmanager
    async def by_key(self, query: KeyQuery, connection: str) -> AsyncIterator[KeyPage]:
        """A page of messages, counted as unread until the block ends. Raises InvalidField, TopicNotFound, VersionConflict."""
        self._topic(query.topic)
        before, generation = self._page_start(query), self._store.generation
        end, most = self._rules.readable().end, query.page_size or DEFAULT_FOUND_MESSAGES
        share = await self._rules.room.take(connection, MAX_PULL_BYTES)
        try:
            search = KeySearch(query.topic, query.key, query.from_ms, query.to_ms, before, most, MAX_PULL_BYTES - _SPARE_BYTES)
            found = await self._lane.call(lambda: self._store.find_by_key(search, end))
            token = "" if found.next_before is None else f"{generation}.{found.next_before}.{self._mark(query)}"
            yield KeyPage(tuple(found.messages), token)
        finally:
            share.give_back()

    def is_of(self, token: ConsistencyToken, text: str) -> bool:
        """As `is_of` says."""
        return is_of(self._store, self._rules.broker, token, text)

    def _topic(self, name: str) -> TopicConfig:
        try:
            topic = self._rules.topic(name)
        except TopicNotFound:
            self._rules.check_complete()
            raise
        if not topic.permission & PERMISSION_READ:
            raise PermissionDenied(f'topic "{name}" cannot be read: its permission is {topic.permission}, reading needs bit 4')
        return topic

    def _page_start(self, query: KeyQuery) -> int:
        if not query.page_token:
            return MAX_LONG
        found = _PAGE_TOKEN.fullmatch(query.page_token)
        if found is None or found[3] != self._mark(query):
            raise InvalidField("page_token", "is not a token of this search on this node; take next_page_token of the page before, or none")
        if int(found[1]) != self._store.generation:
            raise VersionConflict("messages with this key")
        return int(found[2])

    def _mark(self, query: KeyQuery) -> str:
        """Tells one search, on one node, from the others."""
        text = f"{self._store.replica_uuid}\0{query.topic}\0{query.key}\0{query.from_ms}\0{query.to_ms}"
        return f"{binascii.crc32(text.encode()):08x}"


def is_of(store: Store, broker: str, token: ConsistencyToken, text: str) -> bool:
    """Whether this log holds the bytes of the master that gave the token: another one may have written there since.

    Raises InvalidField for a token of another broker group.
    """
    if token.broker != broker:
        raise InvalidField("id", f'"{text[:64]}" is of broker group "{token.broker}", this is "{broker}"')
    entry = entry_at(store.epoch_history, PhysicalOffset(token.end - 1))
    if entry is None:
        return token.epoch == 0
    return entry.epoch == token.epoch and token.incarnation in {None, entry.incarnation}
