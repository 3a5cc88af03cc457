"""③ Records of the commit log as bytes. Pure: no disk, no clock.

A record (version 1, IPv4 hosts; all integers big-endian; RocketMQ's layout):

    0 size i32 │ 4 magic │ 8 body CRC │ 12 queue │ 16 flag │ 20 queue offset i64 │ 28 physical offset i64 │ 36 system flag
    40 born ms i64 │ 48 born host 4+i32 │ 56 store ms i64 │ 64 store host 4+i32 │ 72 reconsume times │ 76 prepared offset i64
    84 body length i32 │ body │ topic length u8 │ topic │ properties length i16 │ properties, the last 20 bytes of them:
                                                                  `__CRC32#` 0x01, 10 digits, lowest first, 0x02

Version 2 has another magic and a topic length of two bytes; an IPv6 host takes 20 bytes instead of 8 (system flag 0x10 born,
0x20 store). Both CRCs are CRC-32 without its highest bit; the record's covers all but its own 20 bytes. A *sealed* record
carries it, and every record that we write is sealed.

The mark at a segment's end: i32 bytes up to that end, magic. The rest of the segment is zeros. A record never spans segments.

A unit of a consume queue, 20 bytes: physical offset i64 │ size i32 │ tags code i64.

Source: Apache RocketMQ 5.3.3, MessageExtEncoder, MessageDecoder, CommitLog, ConsumeQueue.
"""

import struct
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from zlib_ng.zlib_ng import crc32

from dittomq.delays import SCHEDULE_TOPIC, level_delay_ms, level_in
from dittomq.message import MAX_BODY_BYTES
from dittomq.properties import tags_code

MAGIC_1 = 0xDAA320A7
MAGIC_2 = 0xDAA320AB
MAGIC_MARK = 0xCBD43194
FIXED_BYTES = 91
MARK_BYTES = 8
UNIT_BYTES = 20
# Java counts the bytes of a queue in a long.
MAX_QUEUE_OFFSETS = (1 << 63) // UNIT_BYTES
CRC_BYTES = 20
MAX_RECORD_BYTES = MAX_BODY_BYTES + 64 * 1024
MAX_TOPIC_BYTES = 127

HEADER = struct.Struct(">iIIiiqqiq4siq4siiqi")
START = struct.Struct(">iI")
# What comes before the first host.
FRONT = struct.Struct(">iIIiiqqiq")
UNIT = struct.Struct(">qiq")
LENGTH_16 = struct.Struct(">h")
CRC_NAME = b"__CRC32#\x01"
CRC_MASK = 0x7FFFFFFF
# Part of KEYS and of UNIQ_KEY: without it a record has no key.
KEY_NAME = b"KEY"
# A transaction that was rolled back; RocketMQ leaves it out of the key index.
ROLLED_BACK = 0xC
BORN_IPV6 = 0x10
STORE_IPV6 = 0x20
# Both hosts are IPv6.
IPV6_FLAGS = BORN_IPV6 | STORE_IPV6

# size, magic, queue, queue offset, physical offset, system flag, store ms, body length
_SCANNED = struct.Struct(">iI4xi4xqqi16xq20xi")
_POSITION = struct.Struct(">q")
_QUEUE = struct.Struct(">i4xq")
_TAGS_NAME = b"TAGS\x01"
_PID_NAME = b"PID\x01"
_SEQ_NAME = b"SEQ\x01"
_REMEMBERED_BYTES = 128
# A folder's name has no more, nor has a topic whose length stands in one byte.
_FOLDER_NAME_BYTES = 255
_MAX_LONG = 0x7FFF_FFFF_FFFF_FFFF


class IndexEntry(NamedTuple):
    """What a store keeps of a whole record; `queue` is -1 for one that no queue knows and for the mark at a segment's end.

    `producer_id` is empty for none. `keyed` are the properties of a record that the key index may have to know, empty for others.
    """

    start: int
    end: int
    topic: str
    queue: int
    queue_offset: int
    tags_code: int
    store_ms: int
    producer_id: str
    sequence: int
    keyed: bytes


class Scan(NamedTuple):
    """Whole records from the first byte on, up to position `end`. `problem`: what stands there is none; empty: bytes ran out."""

    entries: list[IndexEntry]
    end: int
    problem: str


class Host(NamedTuple):
    """An address as it is in a record: 4 or 16 bytes, and a port."""

    address: bytes
    port: int


class Form(NamedTuple):
    """What the hosts' kind makes of a record: its header up to the body, its system flag, its size without topic, body and properties."""

    header: struct.Struct
    system_flag: int
    fixed_bytes: int

    def record_bytes(self, topic_bytes: int, body_bytes: int, properties_bytes: int) -> int:
        """Size of the record we write; `properties_bytes` without the record CRC."""
        return self.fixed_bytes + body_bytes + topic_bytes + properties_bytes + CRC_BYTES


class RecordLayout(NamedTuple):
    """Where the parts of a record lie, counted from its first byte."""

    body: int
    body_end: int
    topic: int
    properties: int


IPV4 = Form(HEADER, 0, FIXED_BYTES)
IPV6 = Form(struct.Struct(">iIIiiqqiq16siq16siiqi"), IPV6_FLAGS, FIXED_BYTES + 24)


def form_of(host: Host) -> Form:
    """Of the records that name this host as the one that bore and stored them."""
    return IPV6 if len(host.address) == 16 else IPV4


def sealed_crc(crc: int) -> bytes:
    """The record CRC as the last property."""
    return b"%b%b\x02" % (CRC_NAME, (b"%010d" % (crc & CRC_MASK))[::-1])


def mark(remaining: int) -> bytes:
    """The 8 bytes of a segment's end mark, `remaining` bytes before that end."""
    return START.pack(remaining, MAGIC_MARK)


def strip_crc(properties: bytes) -> bytes:
    """The properties without any record CRC that a producer sent, and ending in a separator."""
    kept = [part for part in properties.split(b"\x02") if part and not part.startswith(CRC_NAME)]
    return b"".join(part + b"\x02" for part in kept)


def scan(data: bytes, base: int, segment_end: int, at: int = 0) -> Scan:
    """Read and verify sealed records from index `at` of `data` on, where one begins; `data` begins at position `base` of a segment
    that ends at `segment_end`.

    The way for a few of them, and for what is unusual; `dittomq.commitlog.records.batch_index` takes many.
    """
    entries: list[IndexEntry] = []
    view, length, unpack, make = memoryview(data), len(data), _SCANNED.unpack_from, tuple.__new__
    opening, producer_id, sequence = b"", "", -1
    while length - at >= _SCANNED.size:
        size, magic, queue, queue_offset, position, system_flag, store_ms, body_bytes = unpack(data, at)
        stop = at + size
        if magic != MAGIC_1 or system_flag & IPV6_FLAGS or position != base + at or size < FIXED_BYTES + CRC_BYTES or stop > length:
            break
        tail = stop - CRC_BYTES
        if data[tail:stop] != b"__CRC32#\x01%b\x02" % (b"%010d" % (crc32(view[at:tail]) & CRC_MASK))[::-1]:
            break
        body_end = at + 88 + body_bytes
        if not 0 <= body_bytes <= size - FIXED_BYTES - CRC_BYTES:
            break
        topic_end = body_end + 1 + data[body_end]
        topic = _known_topic(data[body_end + 1 : topic_end])
        if topic_end + 2 > tail or not topic or queue < 0 or stop > segment_end - base - MARK_BYTES:
            break
        stated_bytes = int.from_bytes(data[topic_end : topic_end + 2], "big", signed=True)
        if stated_bytes != stop - topic_end - 2 or not 0 <= queue_offset < MAX_QUEUE_OFFSETS:
            break
        properties = data[topic_end + 2 : tail]
        # Neighbours are mostly of one producer: only the digits differ.
        known = opening and properties.startswith(opening)
        digits = properties[len(opening) : properties.find(b"\x02", len(opening))] if known else b""
        if digits.isdigit() and len(digits) <= 19:
            sequence = int(digits)
        else:
            producer_id, sequence = sequence_of(properties)
            opening = properties[: properties.find(b"\x02", 4) + 5] if producer_id else b""
        # Not `in`, here and where records are made: on bytes it first tries its operand as a number, which costs more than the search.
        code = tags_code_of(properties) if properties.find(_TAGS_NAME) >= 0 else 0
        if topic == SCHEDULE_TOPIC:
            code = scheduled_code(properties, store_ms)
        keyed = properties if properties.find(KEY_NAME) >= 0 and system_flag & ROLLED_BACK != ROLLED_BACK else b""
        entries.append(make(IndexEntry, (position, base + stop, topic, queue, queue_offset, code, store_ms, producer_id, sequence, keyed)))
        at = stop
    return _scan_slowly(data, at, Scan(entries, base, ""), segment_end)


def whole_end(data: bytes, base: int, segment_end: int, at: int = 0) -> tuple[int, str]:
    """Like `scan`, where only the end and the problem matter and who made a seal is believed; what comes before index `at` is whole."""
    view, length, unpack = memoryview(data), len(data), _SCANNED.unpack_from
    while length - at >= _SCANNED.size:
        size, _, _, _, position, _, _, _ = unpack(data, at)
        stop = at + size
        tail = stop - CRC_BYTES
        if position != base + at or size < FIXED_BYTES + CRC_BYTES or stop > length:
            break
        if data[tail:stop] != b"__CRC32#\x01%b\x02" % (b"%010d" % (crc32(view[at:tail]) & CRC_MASK))[::-1]:
            break
        at = stop
    rest = scan(data, base, segment_end, at)
    return rest.end, rest.problem


def _scan_slowly(data: bytes, at: int, found: Scan, segment_end: int) -> Scan:
    """Go on from `at` with what the quick way leaves: marks, other versions, what is damaged or cut off. `found.end` is the base."""
    entries, base, _ = found
    view, length = memoryview(data), len(data)
    while length - at >= MARK_BYTES:
        size, magic = START.unpack_from(data, at)
        if magic == MAGIC_MARK:
            problem = mark_problem(view[at:], base + at, segment_end)
            if problem or base + length < segment_end:
                return Scan(entries, base + at, problem)
            entries.append(IndexEntry(base + at, segment_end, "", -1, -1, 0, 0, "", -1, b""))
            return Scan(entries, segment_end, "")
        stop = at + size
        problem = start_problem(size, magic, base + at, segment_end)
        if problem or stop > length:
            return Scan(entries, base + at, problem)
        entry = _entry(data[at:stop], base + at)
        if isinstance(entry, str):
            return Scan(entries, base + at, entry)
        entries.append(entry)
        at = stop
    return Scan(entries, base + at, "")


def start_problem(size: int, magic: int, position: int, segment_end: int) -> str:
    """Why no record can start with these 8 bytes; empty when one can."""
    if magic not in {MAGIC_1, MAGIC_2}:
        return "no record starts here" if size == 0 and magic == 0 else f"magic {magic:08x} is unsupported"
    if not FIXED_BYTES <= size <= min(MAX_RECORD_BYTES, segment_end - position - MARK_BYTES):
        return f"a record cannot have {size:,} bytes here"
    return ""


def mark_problem(view: memoryview, position: int, segment_end: int) -> str:
    """Why the mark at `position`, with what is there of the zeros behind it, is wrong; empty when it is right."""
    remaining = START.unpack_from(view)[0]
    if position + remaining != segment_end:
        return f"an end-of-file mark names {remaining:,} bytes, {segment_end - position:,} remain"
    if any_set(view[MARK_BYTES:remaining]):
        return "bytes behind the end-of-file mark are not zeros"
    return ""


def any_set(view: memoryview) -> bool:
    """Whether any byte is not zero."""
    zeros = _zeros()
    return any(bytes(view[at : at + len(zeros)]) != zeros[: len(view) - at] for at in range(0, len(view), len(zeros)))


def intact(record: bytes, position: int) -> bool:
    """Whether a sealed record of the right size is whole and lies where it says: the quick way of `problem_of`."""
    seal = b"__CRC32#\x01%b\x02" % (b"%010d" % (crc32(memoryview(record)[:-CRC_BYTES]) & CRC_MASK))[::-1]
    return record[-CRC_BYTES:] == seal and _POSITION.unpack_from(record, 28)[0] == position


def lay_out(record: bytes | memoryview) -> RecordLayout | None:
    """Where the parts are; None when the lengths inside do not add up to the record."""
    length = len(record)
    if length < FIXED_BYTES:
        return None
    magic, system_flag = START.unpack_from(record)[1], int.from_bytes(record[36:40], "big")
    at = 84 + (12 if system_flag & BORN_IPV6 else 0) + (12 if system_flag & STORE_IPV6 else 0)
    body = at + 4
    body_end = body + int.from_bytes(record[at:body], "big", signed=True)
    topic = body_end + (2 if magic == MAGIC_2 else 1)
    if not body <= body_end or topic > length:
        return None
    properties = topic + int.from_bytes(record[body_end:topic], "big") + 2
    if properties > length:
        return None
    stop = properties + int.from_bytes(record[properties - 2 : properties], "big", signed=True)
    return RecordLayout(body, body_end, topic, properties) if properties <= stop == length else None


def problem_of(record: bytes, position: int, *, sealed: bool) -> str:
    """Why a record of the right size is damaged, empty when it is whole. `sealed`: it must carry the record CRC."""
    problem = body_problem(record, position)
    if problem:
        return problem
    layout = lay_out(record)
    assert layout is not None, "its lengths add up"
    has_crc = len(record) - layout.properties >= CRC_BYTES and record[-CRC_BYTES:].startswith(CRC_NAME)
    if not sealed:
        torn = not has_crc and len(record) > layout.properties and record[-1] == 0
        return "its properties end in zeros: it is torn" if torn else ""
    if not has_crc:
        return "it has no record checksum"
    return "" if record[-CRC_BYTES:] == sealed_crc(crc32(record[:-CRC_BYTES])) else "its record checksum does not match"


def body_problem(record: bytes, position: int) -> str:
    """Why RocketMQ takes a record of the right size for damaged, empty when it does not: it looks at no more."""
    layout = lay_out(record)
    if layout is None:
        return "lengths in the record do not add up"
    stated = int.from_bytes(record[28:36], "big", signed=True)
    if stated != position:
        return f"it says that it lies at {stated:,}"
    body = record[layout.body : layout.body_end]
    return "its checksum does not match the body" if body and crc32(body) & CRC_MASK != int.from_bytes(record[8:12], "big") else ""


def queue_problem(record: bytes) -> str:
    """Why no queue can hold the record where it says, whose lengths add up; empty when one can: a damaged record, for a node."""
    layout = lay_out(record)
    assert layout is not None, "its lengths add up"
    topic, (queue, offset) = record[layout.topic : layout.properties - 2], _QUEUE.unpack_from(record, 12)
    named = f"it names topic {topic[:64]!r}, queue {queue}"
    if not safe_topic(topic) or queue < 0:
        return named
    return "" if 0 <= offset < MAX_QUEUE_OFFSETS else f"{named}, offset {offset:,}"


def store_ms_of(head: bytes) -> int:
    """When the record was stored, from its first 76 bytes."""
    (store_ms,) = _POSITION.unpack_from(head, 68 if head[39] & BORN_IPV6 else 56)
    return int(store_ms)


def decode_properties(properties: bytes) -> dict[str, str]:
    """Names and values; a value may hold 0x01; what has no 0x01 at all is dropped."""
    pairs = (part.partition("\x01") for part in properties.decode("utf-8", "replace").split("\x02"))
    return {name: value for name, separator, value in pairs if separator}


def sequence_of(properties: bytes) -> tuple[str, int]:
    """Producer id and sequence that open the properties; ("", -1) when they do not."""
    if not properties.startswith(_PID_NAME):
        return "", -1
    id_end = properties.find(b"\x02", 4)
    digits = properties[id_end + 5 : properties.find(b"\x02", id_end + 5)]
    if id_end <= 4 or properties[id_end + 1 : id_end + 5] != _SEQ_NAME or not digits.isdigit() or len(digits) > 19:
        return "", -1
    return properties[4:id_end].decode("utf-8", "replace"), int(digits)


def tags_code_of(properties: bytes) -> int:
    """What the consume queue keeps of the tag in encoded properties; 0 for none."""
    at = 0 if properties.startswith(_TAGS_NAME) else properties.find(b"\x02" + _TAGS_NAME) + 1
    if at == 0 and not properties.startswith(_TAGS_NAME):
        return 0
    value = properties[at + len(_TAGS_NAME) :].partition(b"\x02")[0]
    return _remembered_code(value) if len(value) <= _REMEMBERED_BYTES else _code_of(value)


def scheduled_code(properties: bytes, store_ms: int) -> int:
    """What the consume queue keeps of a message that lies in the schedule topic: when it is due, in ms since 1970, as RocketMQ does."""
    due = due_code(decode_properties(properties), store_ms)
    return tags_code_of(properties) if due is None else due


def due_code(properties: Mapping[str, str], store_ms: int) -> int | None:
    """When a message that lies in the schedule topic is due, in ms since 1970; None when it names no level."""
    level = level_in(properties)
    return min(store_ms + level_delay_ms(level), _MAX_LONG) if level > 0 else None


def safe_topic(name: bytes) -> str:
    """The topic's name, empty when no folder may be called so."""
    return _known_topic(name) if len(name) <= _FOLDER_NAME_BYTES else ""


def _entry(record: bytes, position: int) -> IndexEntry | str:
    """What a store keeps of the record, or why it is damaged."""
    layout = lay_out(record)
    if layout is None or not intact(record, position):  # the record CRC covers the body too: see `scan`
        return problem_of(record, position, sealed=True)
    queue, queue_offset = _QUEUE.unpack_from(record, 12)
    topic_name, properties = record[layout.topic : layout.properties - 2], record[layout.properties : -CRC_BYTES]
    topic = safe_topic(topic_name)
    if not topic or queue < 0 or not 0 <= queue_offset < MAX_QUEUE_OFFSETS:
        return queue_problem(record)
    producer_id, sequence = sequence_of(properties)
    end = position + len(record)
    keyed = properties if KEY_NAME in properties and record[39] & ROLLED_BACK != ROLLED_BACK else b""
    store_ms = store_ms_of(record)
    code = scheduled_code(properties, store_ms) if topic == SCHEDULE_TOPIC else tags_code_of(properties)
    return IndexEntry(position, end, topic, queue, queue_offset, code, store_ms, producer_id, sequence, keyed)


@lru_cache(maxsize=4_096)
def _known_topic(name: bytes) -> str:
    """The same of a name that is not too long for a folder: longer ones are not to be remembered."""
    try:
        topic = name.decode()
    except UnicodeDecodeError:
        return ""
    bad = not topic or topic in {".", ".."} or "/" in topic or "\0" in topic
    return "" if bad else topic


@lru_cache(maxsize=4_096)
def _remembered_code(tag: bytes) -> int:
    return _code_of(tag)


def _code_of(tag: bytes) -> int:
    return tags_code(tag.decode("utf-8", "replace"))


@lru_cache(maxsize=1)
def _zeros() -> bytes:
    return bytes(1024 * 1024)
