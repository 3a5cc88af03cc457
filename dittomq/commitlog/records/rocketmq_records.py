"""Records that RocketMQ wrote: which of them are whole, and what its consume queues keep of them. Pure.

Nothing seals them. A record counts when its lengths add up, it names its own position, and its body matches its CRC. One without
a record CRC whose properties end in a zero byte is torn, though all that is right: the last bytes of it never came.
Producers' sequences in them are not believed either: a redelivery of RocketMQ is a copy with all properties.

RocketMQ may seal what it appends to a store of ours (enabledAppendPropCRC). It is told from ours by what we never write: a message
that was born on another host than it is stored on.

Source: Apache RocketMQ 4.9.7 and 5.3.3, CommitLog#checkMessageAndReturnSize, CommitLogDispatcherBuildConsumeQueue,
MessageStoreConfig#messageDelayLevel.
"""

import struct
from dataclasses import dataclass
from typing import ClassVar

from zlib_ng.zlib_ng import crc32

from dittomq.commitlog.records.format import (
    CRC_BYTES,
    CRC_MASK,
    CRC_NAME,
    IPV6_FLAGS,
    KEY_NAME,
    MAGIC_MARK,
    MARK_BYTES,
    MAX_QUEUE_OFFSETS,
    ROLLED_BACK,
    START,
    IndexEntry,
    Scan,
    decode_properties,
    due_code,
    lay_out,
    problem_of,
    queue_problem,
    safe_topic,
    sealed_crc,
    start_problem,
    store_ms_of,
)
from dittomq.delays import SCHEDULE_TOPIC
from dittomq.errors import DittoError
from dittomq.properties import TAGS, tags_code

INNER_BATCH = 0x80
# The property that names further queues for a message.
MULTI_DISPATCH = "INNER_MULTI_DISPATCH"
_TRANSACTION = 0xC
_PREPARED = 0x4
_TAGS_NAME = b"TAGS\x01"
_LMQ_NAME = b"INNER_MULTI_QUEUE_OFFSET\x01"
# Born host, store host, reconsume times, prepared offset: by the only system flags of ours, those of IPv4 and of IPv6 hosts.
_ORIGINS = {0: struct.Struct(">48x8s8x8siq"), IPV6_FLAGS: struct.Struct(">48x20s8x20siq")}
ORIGIN_BYTES = max(origin.size for origin in _ORIGINS.values())
# body CRC, queue, queue offset, position, system flag
_FRONT = struct.Struct(">8xIi4xqqi")


@dataclass(eq=False)
class NotRead(DittoError):
    """A record of a kind that this version does not read; `what` holds it."""

    reason: ClassVar[str] = "NOT_READ"
    position: int
    what: str

    def __str__(self) -> str:
        return f"the record at byte {self.position:,} belongs to {self.what}, which this version does not read"


def scan(data: bytes, base: int, segment_end: int) -> Scan:
    """Like `dittomq.commitlog.records.format.scan`, for records that nothing seals. Bytes behind a mark mean nothing. Raises NotRead."""
    entries: list[IndexEntry] = []
    at, length = 0, len(data)
    while length - at >= MARK_BYTES:
        size, magic = START.unpack_from(data, at)
        position, stop = base + at, at + size
        if magic == MAGIC_MARK and position + size == segment_end:
            if base + length < segment_end:
                return Scan(entries, position, "")
            entries.append(IndexEntry(position, segment_end, "", -1, -1, 0, 0, "", -1, b""))
            return Scan(entries, segment_end, "")
        problem = start_problem(size, magic, position, segment_end)
        if problem or stop > length:
            return Scan(entries, position, problem)
        entry = _entry(data[at:stop], position)
        if isinstance(entry, str):
            return Scan(entries, position, entry)
        entries.append(entry)
        at = stop
    return Scan(entries, base + at, "")


def whole_end(data: bytes, base: int, segment_end: int) -> tuple[int, str]:
    """Like `scan`, where only the end and the problem matter."""
    found = scan(data, base, segment_end)
    return found.end, found.problem


def carries_seal(record: bytes) -> bool:
    """Whether the record ends in a record CRC, right or wrong."""
    return record.startswith(CRC_NAME, len(record) - CRC_BYTES)


def by_another_hand(record: bytes) -> bool:
    """Whether no node of ours made the record, sealed or not, from its first ORIGIN_BYTES, or all of it where it is shorter.

    Ours name one host as the one that bore and stored the message, and have no other flag, no other try, no transaction.
    """
    origin = _ORIGINS.get(int.from_bytes(record[36:40], "big"))
    if origin is None:
        return True
    born_host, store_host, reconsume_times, prepared_offset = origin.unpack_from(record)
    return bool(reconsume_times or prepared_offset) or born_host != store_host


def surely_anothers(record: bytes) -> bool:
    """Whether somebody else made this record, which is whole by the rule for what nothing seals, and no power loss made it of ours."""
    return by_another_hand(record) or not (carries_seal(record) or may_be_ours(record))


def may_be_ours(record: bytes) -> bool:
    """Whether this record, which is whole by the rule for what nothing seals, is whole by ours too, or a power loss made it of such a one.

    Of a torn record of ours a whole sector of zeros may lie in the properties, and have taken the seal with it. RocketMQ forbids no
    zero byte there either: such a message counts as another's where other hosts, or the end of our clean stop, tell so.
    """
    layout = lay_out(record)
    assert layout is not None, "it is whole"
    if by_another_hand(record):
        return False
    return b"\0" in record[layout.properties :] or record.endswith(sealed_crc(crc32(record[:-CRC_BYTES])))


def in_queues(system_flag: int) -> bool:
    """Whether a consume queue has a unit for the record: not while its transaction is open, and not when it was rolled back."""
    return system_flag & _TRANSACTION not in {_PREPARED, ROLLED_BACK}


def code_of(topic: str, values: dict[str, str], store_ms: int) -> int:
    """What the consume queue keeps beside a record's place: its tag's hash, or when a delayed message is due, in ms."""
    if topic == SCHEDULE_TOPIC and (due := due_code(values, store_ms)) is not None:
        return due
    return tags_code(values.get(TAGS, ""))


def _entry(record: bytes, position: int) -> IndexEntry | str:
    """What a store keeps of the record, or why it is damaged."""
    layout = lay_out(record)
    body_crc, queue, queue_offset, stated, system_flag = _FRONT.unpack_from(record)
    if layout is None or stated != position or record[-1] == 0 or crc32(record[layout.body : layout.body_end]) & CRC_MASK != body_crc:
        problem = problem_of(record, position, sealed=False)
        if problem or layout is None:
            return problem
    topic = safe_topic(record[layout.topic : layout.properties - 2])
    if not topic or queue < 0 or not 0 <= queue_offset < MAX_QUEUE_OFFSETS:
        return queue_problem(record)
    properties = record[layout.properties :]
    if system_flag & INNER_BATCH:
        raise NotRead(position, "a batch queue")
    if _LMQ_NAME in properties:
        raise NotRead(position, "LMQ queues")
    store_ms = store_ms_of(record)
    end = position + len(record)
    keyed = properties if KEY_NAME in properties and system_flag & ROLLED_BACK != ROLLED_BACK else b""
    if not in_queues(system_flag):
        return IndexEntry(position, end, topic, -1, -1, 0, store_ms, "", -1, keyed)
    coded = _TAGS_NAME in properties or topic == SCHEDULE_TOPIC
    code = code_of(topic, decode_properties(properties), store_ms) if coded else 0
    return IndexEntry(position, end, topic, queue, queue_offset, code, store_ms, "", -1, keyed)
