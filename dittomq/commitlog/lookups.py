"""⑧ Single messages of a log: by where they lie, by a key, by when they were stored. For any thread; only what its queue names is found."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from dittomq.commitlog.disk.log import Log
from dittomq.commitlog.disk.storage import speaks_of_bytes
from dittomq.commitlog.queues.consume_queue import BLANK_UNIT_BYTES, QueueIndex
from dittomq.commitlog.queues.key_format import keys_of
from dittomq.commitlog.queues.key_index import KeyIndex
from dittomq.commitlog.reading import StoreReader
from dittomq.commitlog.records.compression import DecompressionFailed, MissingPackage
from dittomq.commitlog.records.decoding import decode, message_of
from dittomq.commitlog.records.format import MAX_RECORD_BYTES, Host, store_ms_of
from dittomq.errors import CorruptRecord, NotReady, Refused
from dittomq.message import StoredMessage
from dittomq.offsets import PhysicalOffset, QueueOffset
from dittomq.properties import NAME_END, PROPERTY_END

_HEAD_BYTES = 76
_MOST_ENTRIES = 10_000
_PROBED_UNITS = 32


@dataclass(frozen=True, slots=True)
class KeySearch:
    """Messages of a topic with a key, newest first: stored in [from_ms, to_ms), lying below `before`. `most` and `most_bytes` end it."""

    topic: str
    key: str
    from_ms: int
    to_ms: int
    before: int
    most: int
    most_bytes: int


@dataclass(frozen=True, slots=True)
class KeyMatches:
    """What was found. `next_before`: go on below it; None: there is no more.

    `suspects`: places of records that may match as well and could not be read, because they are damaged or because none begins there.
    """

    messages: list[StoredMessage]
    next_before: PhysicalOffset | None
    suspects: tuple[PhysicalOffset, ...] = ()


@dataclass(frozen=True, slots=True)
class StoreLookups:
    """Looks into one log and its indexes. `is_damaged` finds out whether the record that holds a byte is not whole."""

    node: str
    log: Log
    index: QueueIndex
    keys: KeyIndex
    reader: StoreReader
    is_damaged: Callable[[int], bool]

    def message_at(self, position: int, end: int) -> tuple[StoredMessage, Host] | None:
        """The message whose record begins there and ends at or below `end`, and the host that stored it; None when there is none.

        Raises CorruptRecord where it is damaged, or its place in its queue, MessageTooLarge where it inflates beyond the limit.
        """
        if not self.log.min_offset <= position < min(end, self.log.end):
            return None
        try:
            record = self.reader.record(position)
        except CorruptRecord:
            if self.is_damaged(position):
                raise
            return None  # no record begins there
        return self._read(record, position, end)

    def find_by_key(self, search: KeySearch, end: int) -> KeyMatches:
        """Messages that end at or below `end`. One that is damaged is a suspect."""
        found, suspects = list[StoredMessage](), list[PhysicalOffset]()
        size, last = 0, None
        for count, position in enumerate(self._candidates(search, end)):
            if len(found) >= search.most or size >= search.most_bytes or count >= _MOST_ENTRIES:
                return KeyMatches(found, PhysicalOffset(last if last is not None else position + 1), tuple(suspects))
            last = position
            try:
                message = self._match(search, position, end)
            except CorruptRecord:
                suspects.append(PhysicalOffset(position))
                continue
            if message is not None:
                found.append(message)
                size += max(message.record_bytes, len(message.body))
        return KeyMatches(found, None, tuple(suspects))

    def offset_at(self, topic: str, queue_id: int, time_ms: int, end: int) -> QueueOffset | None:
        """The first readable message of a queue that was stored at or after that time, else one past the last; None for no such queue."""
        queue = self.index.queues.get((topic, queue_id))
        if queue is None:
            return None
        low, high = queue.range
        while low < high:
            middle = (low + high) // 2
            at, stored_ms = self._stored_from(topic, queue_id, middle, high, end=end)
            if stored_ms is None or stored_ms >= time_ms:
                high = middle
            else:
                low = at + 1
        return QueueOffset(low)

    def _candidates(self, search: KeySearch, end: int) -> Iterator[int]:
        before = min(search.before, end)
        yield from (
            position for position in self.keys.positions(search.topic, search.key, search.from_ms, search.to_ms) if position < before
        )

    def _match(self, search: KeySearch, position: int, end: int) -> StoredMessage | None:
        """The message there, if it is one of those. Raises CorruptRecord where nothing can be read."""
        try:
            if not self.log.min_offset <= position < min(end, self.log.end):
                return None
            found = self._read(self.reader.record(position), position, end)
        except CorruptRecord:
            raise
        except Refused:
            return None
        if found is None:
            return None
        message = found[0]
        is_named = message.topic == search.topic and search.from_ms <= message.store_ms < search.to_ms
        return message if is_named and search.key in _keys(message) else None

    def _read(self, record: bytes, position: int, end: int) -> tuple[StoredMessage, Host] | None:
        """What a whole record says; None where it is no message, or ends above `end`."""
        if position + len(record) > end:
            return None
        try:
            message = message_of(record)
        except MissingPackage as missing:
            raise NotReady(self.node, str(missing)) from missing
        except DecompressionFailed as broken:
            raise CorruptRecord(self.node, position, str(broken)) from broken
        except (CorruptRecord, ValueError):  # a segment's end mark
            return None
        return (message, decode(record, position).store_host) if self._names(message) else None

    def _names(self, message: StoredMessage) -> bool:
        """Whether its queue names it: what a body holds may look like a record. Raises CorruptRecord where nothing says so any more."""
        queue = self.index.queues.get((message.topic, message.queue))
        if queue is None or not queue.min <= message.queue_offset < queue.max:
            return False
        try:
            units = self.index.units(queue, message.queue_offset, 1)
        except OSError as error:
            if not speaks_of_bytes(error):
                raise
            units = []
        if not units or units[0][1] in {0, BLANK_UNIT_BYTES}:
            raise CorruptRecord(self.node, message.physical_offset, "its place in the file of its queue is damaged")
        return units[0][:2] == (message.physical_offset, message.record_bytes)

    def _stored_from(self, topic: str, queue_id: int, first: int, stop: int, *, end: int) -> tuple[int, int | None]:
        """The first message from `first` on of which it can be said when it was stored; None: of none near it, or it cannot be read yet."""
        queue = self.index.queues[topic, queue_id]
        for at in range(first, min(stop, first + _PROBED_UNITS)):
            try:
                units = self.index.units(queue, at, 1)
                if not units or units[0][1] in {0, BLANK_UNIT_BYTES} or not 0 < units[0][1] <= MAX_RECORD_BYTES:
                    continue
                position, size, _ = units[0]
                if position + size > end:
                    return at, None
                return at, store_ms_of(self.log.read(position, _HEAD_BYTES))
            except OSError as error:
                if not speaks_of_bytes(error):
                    raise
        return first, None


def _keys(message: StoredMessage) -> list[str]:
    """Under which it is found."""
    unique = message.properties.get("UNIQ_KEY")
    encoded = f"KEYS{NAME_END}{' '.join(message.keys)}{PROPERTY_END}"
    return [*keys_of(encoded.encode()), *([unique] if unique else [])]
