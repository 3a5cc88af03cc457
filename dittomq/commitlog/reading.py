"""⑧ Messages of a queue and ranges of the log, for any thread. Every record's checksum is verified before it is handed out."""

import contextlib
from bisect import bisect_left
from dataclasses import dataclass, field
from itertools import count, islice, repeat
from operator import add, attrgetter
from typing import NamedTuple

from dittomq.commitlog.disk.log import Log
from dittomq.commitlog.disk.storage import PAGE_BYTES, speaks_of_bytes
from dittomq.commitlog.queues.consume_queue import BLANK_UNIT_BYTES, ConsumeQueue, QueueIndex
from dittomq.commitlog.records import rocketmq_records
from dittomq.commitlog.records.batch_index import whole_end
from dittomq.commitlog.records.checksum_policy import ChecksumPolicy
from dittomq.commitlog.records.compression import DecompressionFailed, MissingPackage
from dittomq.commitlog.records.decoding import message_of
from dittomq.commitlog.records.format import MARK_BYTES, MAX_RECORD_BYTES, START, intact, problem_of
from dittomq.commitlog.records.plain_messages import Place, count_whole, messages_in
from dittomq.commitlog.records.record_scanner import HEADER_BYTES, View, span_at
from dittomq.errors import CorruptRecord, NotReady, OffsetOutOfRange, Refused
from dittomq.message import StoredMessage
from dittomq.offsets import PhysicalOffset, QueueOffset
from dittomq.properties import tags_code
from dittomq.reads import ReadableRange

_MAX_UNITS = 16_384
_UNITS_AT_ONCE = 1_024
_GAP_BYTES = 16 * 1024
_SIZE = attrgetter("size")

Unit = tuple[PhysicalOffset, int, int]
"""Of a message: its position, its size, the code of its tag."""


@dataclass(frozen=True, slots=True)
class QueueSlice:
    """Messages of a queue in order. The queue holds [min, max), as far as its reader may see; the next read starts at `next_offset`.

    `unconfirmed_from`: the first message, returned or passed over, that ends above what the reader takes for confirmed; None: no such one.
    `read_to`: where the newest message that was looked at ends in the log; None: none was. `records`: see ReadRequest.
    """

    messages: list[StoredMessage]
    next_offset: QueueOffset
    min: QueueOffset
    max: QueueOffset
    unconfirmed_from: QueueOffset | None = None
    read_to: PhysicalOffset | None = None
    records: bytes = b""


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """What a read asks for; at least one message is returned however large it is. No `tags`: all.

    `as_records`: ordinary records are returned as they lie there, one behind the other, also those of other tags of the same hash; what is
    left, messages that are to be made of something else, may lie between them. Otherwise all are messages.
    """

    offset: int
    max_messages: int
    max_bytes: int
    tags: frozenset[str]
    readable: ReadableRange
    as_records: bool = False


@dataclass(slots=True)
class _Found:
    """What was found of what a read asks for; `count` messages, `records` being some of them."""

    wanted: ReadRequest
    queue: ConsumeQueue
    node: str
    count: int = 0
    messages: list[StoredMessage] = field(default_factory=list)
    records: list[bytes] = field(default_factory=list)

    def take_records(self, records: bytes, count: int) -> None:
        """Whole ones, one behind the other."""
        if self.wanted.as_records:
            self.records.append(records)
            self.count += count
            return
        for message in messages_in(records, topic=self.queue.topic, queue=self.queue.queue, node=self.node):
            self.take(message)

    def take(self, message: StoredMessage) -> None:
        """A message, if it has a tag that is wanted."""
        if not self.wanted.tags or message.tag in self.wanted.tags:
            self.messages.append(message)
            self.count += 1


class StoreReader:
    """Reads one log and its queues."""

    def __init__(self, log: Log, seals: ChecksumPolicy, index: QueueIndex, node: str) -> None:
        self._log = log
        self._seals = seals
        self._index = index
        self._node = node

    def records(self, start: int, limit: int, max_bytes: int) -> bytes:
        """Whole records and marks in [start, limit) of one segment and hand: at most `max_bytes`, or one larger; b"" when none fits.

        Raises CorruptRecord at the first of them that is damaged, or that the disk does not give.
        """
        segment_end = self._log.segment_of(start)[1]
        sealed_range = self._seals.at(start)
        limit, end_of = min(limit, sealed_range.end), whole_end if sealed_range.sealed else rocketmq_records.whole_end
        wanted = min(max_bytes, limit - start)
        try:
            data = self._bytes(start, wanted)
        except CorruptRecord as refused:
            end, problem = end_of(self._given(start, wanted), start, segment_end)
            raise CorruptRecord(self._node, end, problem or refused.problem) from refused
        end, problem = end_of(data, start, segment_end)
        if end == start and not problem and len(data) >= MARK_BYTES:
            size = START.unpack_from(data)[0]
            if len(data) < size <= limit - start:
                data = self._bytes(start, size)
                end, problem = end_of(data, start, segment_end)
        if problem:
            raise CorruptRecord(self._node, end, problem)
        return data[: end - start]

    def record(self, position: int) -> bytes:
        """The whole record that begins there. Raises CorruptRecord."""
        found = self.records(position, self._log.end, MARK_BYTES)
        if not found:
            raise CorruptRecord(self._node, position, "no record of a possible size begins there")
        return found

    def begins_at(self, position: int) -> bool:
        """Whether a record, or a segment's mark, seems to begin here: by its first bytes, its checksum is not looked at."""
        segment_end = self._log.segment_of(position)[1]
        view = View(self._log.read(position, HEADER_BYTES), position, segment_end)
        return span_at(view, position) is not None

    def queue(self, topic: str, queue_id: int, wanted: ReadRequest) -> QueueSlice:
        """Messages from an offset on. Raises OffsetOutOfRange, in offsets of the queue, and NotReady while they are being cut or dropped.

        When the very first one cannot be had: CorruptRecord for a damaged one, MessageTooLarge for one that inflates beyond the limit.
        """
        queue = self._index.queues.get((topic, queue_id)) or ConsumeQueue(topic, queue_id, 0, 0)
        try:
            return self._look(queue, wanted)
        except Refused as problem:
            in_bytes = isinstance(problem, OffsetOutOfRange) and problem.unit == "byte"
            if not (in_bytes or self._log.is_truncated):
                raise
            low, high = queue.range
            if not (low <= wanted.offset < high or self._log.is_truncated):
                raise OffsetOutOfRange("queue offset", wanted.offset, low, high) from problem
            raise NotReady(self._node, "what lies there in its log is just being cut or dropped; ask again") from problem

    def range_below(self, topic: str, queue_id: int, end: int) -> tuple[int, int]:
        """Offsets [min, max) of a queue's messages, none from the first on that ends above the byte `end`. Raises OSError."""
        queue = self._index.queues.get((topic, queue_id))
        low, high = queue.range if queue is not None else (0, 0)
        at = high
        while queue is not None and at > low:
            first = max(low, at - _UNITS_AT_ONCE, (at - 1) // self._index.file_units * self._index.file_units)
            above = [first + place for place, unit in enumerate(self._index.units(queue, first, at - first)) if _ends_above(unit, end)]
            if not above:
                break
            at = high = above[0]
        return low, high

    def position_before(self, topic: str, queue_id: int, offset: int) -> PhysicalOffset | None:
        """Where the message before `offset` begins in the log; None when the queue does not reach so far, or begins there."""
        queue = self._index.queues.get((topic, queue_id))
        low, high = queue.range if queue is not None else (0, 0)
        return self._position(queue, offset - 1) if queue is not None and low < offset <= high else None

    def queue_end_at(self, topic: str, queue_id: int, end: PhysicalOffset, offset: int) -> int:
        """Where a queue would end in a log that ended at the byte `end`, before the message before `offset`.

        Logarithmic, as `range_below` is not: the log may have grown long since.
        """
        queue = self._index.queues[topic, queue_id]
        low, _ = queue.range
        return low + bisect_left(range(low, offset - 1), end, key=lambda number: self._position(queue, number))

    def _position(self, queue: ConsumeQueue, number: int) -> PhysicalOffset:
        units = self._index.units(queue, number, 1)
        return units[0][0] if units else PhysicalOffset(0)

    def _look(self, queue: ConsumeQueue, wanted: ReadRequest) -> QueueSlice:
        low, high = queue.range
        if not low <= wanted.offset <= high:
            raise OffsetOutOfRange("queue offset", wanted.offset, low, high)
        codes = {tags_code(tag) for tag in wanted.tags}
        into = _Found(wanted, queue, self._node)
        unconfirmed_from: QueueOffset | None = None
        read_to: PhysicalOffset | None = None
        at, room = wanted.offset, wanted.max_bytes
        stop = min(high, at + _MAX_UNITS)
        while at < stop and into.count < wanted.max_messages:
            most = _UNITS_AT_ONCE if codes else max(2, wanted.max_messages - into.count)  # of two neighbours one may tell of the other
            units = self._units(queue, at, min(stop - at, most, _UNITS_AT_ONCE))
            least, log_stop = 0 if into.count else 1, self._log.stop
            choice = _Room(wanted.max_messages - into.count, room, least, min(wanted.readable.end, log_stop))
            found, looked_at = _choose(units, at, codes, choice)
            if looked_at == 0:
                if _waits(units, wanted.readable.end, log_stop):
                    high = at
                    break
                if into.count:
                    break
                raise self._hole(queue, at)
            fetched, taken, problem = self._fetch(found, room, into)
            passed = looked_at if fetched == len(found) else found[fetched].offset - at
            if unconfirmed_from is None:
                unconfirmed_from = _first_above(units[:passed], at, wanted.readable.confirmed)
            read_to = _newest_end(units[:passed]) or read_to
            at += passed
            room -= taken
            if fetched < len(found):
                if problem is not None and not into.count and at == wanted.offset:
                    raise problem
                break
            if room <= 0:
                break
        bounds = QueueOffset(at), QueueOffset(low), QueueOffset(high)
        return QueueSlice(into.messages, *bounds, unconfirmed_from, read_to, b"".join(into.records))

    def _fetch(self, found: list[Place], room: int, into: _Found) -> tuple[int, int, Refused | None]:
        """Take messages as far as their bodies have room, the first one in any case.

        Returns how many of those found there are, the bytes they take, and why the next one is not there.
        """
        at = taken = 0
        block = _Block(0, b"", 0, sealed=False)
        while at < len(found):
            try:
                if at == block.stop:
                    block = self._block(found, at)
                if neighbours := block.count_whole(into.queue, found[at : block.stop]):
                    whole = found[at : at + neighbours]
                    into.take_records(block.records(whole), neighbours)
                    taken += sum(map(_SIZE, whole))
                    at += neighbours
                if at == block.stop:
                    continue
                each = found[at]
                record = block.records([each]) or self._bytes(each.position, each.size)
                message = self._message(into.queue, each, record, sealed=block.sealed)
            except Refused as problem:
                return at, taken, problem
            size = max(each.size, len(message.body))
            if size > each.size and at and taken + size > room:  # it grew when it was inflated
                return at, taken, None
            taken += size
            into.take(message)
            at += 1
        return at, taken, None

    def _block(self, found: list[Place], first: int) -> "_Block":
        """The bytes of the records from that one on that lie close together. Raises CorruptRecord, when the disk does not give even one."""
        base, sealed_range = found[first].position, self._seals.at(found[first].position)
        stop = _last_neighbour(found, first, min(self._log.segment_of(base)[1], sealed_range.end))
        try:
            data = self._bytes(base, found[stop - 1].end - base)
        except CorruptRecord:
            if stop == first + 1:
                raise
            stop, data = first + 1, b""  # each by itself: most of them can be had
        return _Block(base, data, stop, sealed=sealed_range.sealed)

    def _bytes(self, start: int, length: int) -> bytes:
        try:
            return self._log.read(start, length)
        except OSError as error:
            if not speaks_of_bytes(error):
                raise
            if start + length > self._log.end:  # cut meanwhile
                raise OffsetOutOfRange("byte", start, self._log.min_offset, self._log.end) from error
            raise CorruptRecord(self._node, start, f"the disk does not give its bytes: {error.strerror}") from error

    def _given(self, start: int, length: int) -> bytes:
        """The same up to the first page that the disk does not give."""
        at, stop, pages = start, start + length, list[bytes]()
        with contextlib.suppress(CorruptRecord):
            while at < stop and (page := self._bytes(at, min(PAGE_BYTES - at % PAGE_BYTES, stop - at))):
                pages.append(page)
                at += len(page)
        return b"".join(pages)

    def _message(self, queue: ConsumeQueue, unit: Place, record: bytes, *, sealed: bool) -> StoredMessage:
        """The message that a unit names. Raises CorruptRecord, MessageTooLarge, NotReady, and OffsetOutOfRange when it was cut."""
        if len(record) != unit.size or not sealed or not intact(record, unit.position):
            if unit.end > self._log.end:  # cut meanwhile
                raise OffsetOutOfRange("byte", unit.position, self._log.min_offset, self._log.end)
            problem = problem_of(record, unit.position, sealed=sealed) if len(record) == unit.size else "it is cut off"
            if problem:
                raise CorruptRecord(self._node, unit.position, problem)
        try:
            message = message_of(record)
        except MissingPackage as missing:
            raise NotReady(self._node, str(missing)) from missing
        except DecompressionFailed as broken:
            raise CorruptRecord(self._node, unit.position, str(broken)) from broken
        if (message.topic, message.queue, message.queue_offset) != (queue.topic, queue.queue, unit.offset):
            raise CorruptRecord(self._node, unit.position, "it is not the message that the queue names")
        return message

    def _units(self, queue: ConsumeQueue, first: int, count: int) -> list[Unit]:
        """Units from `first` on, up to one that the disk does not give: none where that is the first."""
        while count > 0:
            try:
                return self._index.units(queue, first, count)
            except OSError as error:
                if not speaks_of_bytes(error):
                    raise
                count //= 2
        return []

    def _hole(self, queue: ConsumeQueue, offset: int) -> CorruptRecord | OffsetOutOfRange:
        low, high = queue.range
        if not low <= offset < high:  # cut or deleted meanwhile
            return OffsetOutOfRange("queue offset", offset, low, high)
        before = self._units(queue, offset - 1, 1) if offset > low else []
        position = before[0][0] + before[0][1] if before and _can_be(*before[0][:2]) else self._log.min_offset
        problem = "was damaged when its queue was built, or its number was left out"
        try:
            held = self._index.units(queue, offset, 1)
            if held and held[0][1] not in {0, BLANK_UNIT_BYTES}:
                problem = "cannot be found, because the file of its queue is damaged there"
        except OSError as error:
            if not speaks_of_bytes(error):
                raise
            problem = f"cannot be found, because the disk does not give its place: {error.strerror}"
        return CorruptRecord(self._node, position, f"message {offset:,} of queue {queue.queue} of {queue.topic} {problem}")


class _Block(NamedTuple):
    """Bytes of the log from position `base` on, with the records of units up to number `stop`; none where each is to be read by itself."""

    base: int
    data: bytes
    stop: int
    sealed: bool

    def count_whole(self, queue: ConsumeQueue, places: list[Place]) -> int:
        """How many there are at these places of a queue, up to the first that is to be looked at more closely."""
        return count_whole(self.data, self.base, places, topic=queue.topic, queue=queue.queue) if self.sealed else 0

    def records(self, places: list[Place]) -> bytes:
        """Those records, one behind the other; b"" where there are no bytes."""
        start, end = places[0].position, places[-1].end
        if sum(map(_SIZE, places)) == end - start:
            return self.data[start - self.base : end - self.base]
        return b"".join([self.data[place.position - self.base : place.end - self.base] for place in places])


@dataclass(frozen=True, slots=True)
class _Room:
    """How much is still wanted; `least` messages are taken whatever their size, none that ends above `end`."""

    messages: int
    size: int
    least: int
    end: int


def _last_neighbour(found: list[Place], first: int, stop: int) -> int:
    """One past the last of the units from `first` on that are read at once: they lie close together and end at or below `stop`."""
    last, end = first + 1, found[first].end
    for _, position, size in islice(found, last, None):
        if not end <= position <= end + _GAP_BYTES or position + size > stop:
            break
        last, end = last + 1, position + size
    return last


def _ends_above(unit: Unit, end: int) -> bool:
    position, size, _ = unit
    return _can_be(position, size) and position + size > end


def _can_be(position: int, size: int) -> bool:
    """Whether a record may have that place; not where the unit has rotted, is a hole or a blank."""
    return position >= 0 and 0 < size <= MAX_RECORD_BYTES


def _waits(units: list[Unit], end: int, log_stop: int) -> bool:
    """Whether the first unit is of a message above `end`. One that has rotted may name a place behind the log, or behind the next one's."""
    if not units or not _ends_above(units[0], end) or _ends_above(units[0], log_stop):
        return False
    return len(units) == 1 or units[1][1] <= 0 or _ends_above(units[1], end)


def _first_above(units: list[Unit], first: int, end: int) -> QueueOffset | None:
    """The first of the neighbouring messages from `first` on that ends above `end`; they lie in the log in their order."""
    if not units or not _ends_above(units[-1], end):
        return None
    return next(QueueOffset(first + index) for index, unit in enumerate(units) if _ends_above(unit, end))


def _newest_end(units: list[Unit]) -> PhysicalOffset | None:
    """Where the last of the neighbouring messages ends in the log; None when nothing says so."""
    position, size, _ = units[-1] if units else (PhysicalOffset(0), 0, 0)
    return PhysicalOffset(position + size) if _can_be(position, size) else None


def _choose(units: list[Unit], first: int, codes: set[int], room: _Room) -> tuple[list[Place], int]:
    """Wanted units as far as there is room, up to a hole or what is not readable; and how many were looked at."""
    found: list[Place] = []
    taken, make = 0, tuple.__new__
    if 1 < len(units) <= room.messages and not codes:  # mostly there is room for all of them, and nothing odd
        positions, sizes, _ = zip(*units, strict=True)
        is_usual = min(positions) >= 0 and min(sizes) > 0 and max(sizes) <= MAX_RECORD_BYTES and sum(sizes) <= room.size
        if is_usual and max(map(add, positions, sizes)) <= room.end:
            return list(map(make, repeat(Place), zip(count(first), positions, sizes, strict=False))), len(units)
    for index, (position, size, code) in enumerate(units):
        if position < 0 or not 0 < size <= MAX_RECORD_BYTES or position + size > room.end:  # `_can_be`, of which a call costs as much
            return found, index
        if codes and code not in codes:
            continue
        if len(found) == room.messages or (len(found) >= room.least and taken + size > room.size):
            return found, index
        found.append(make(Place, (first + index, position, size)))
        taken += size
    return found, len(units)
