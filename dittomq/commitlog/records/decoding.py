"""Records as values: every field, for whoever inspects a log, and messages, for readers. Pure."""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from dittomq.commitlog.records.compression import COMPRESSED, inflate
from dittomq.commitlog.records.format import (
    BORN_IPV6,
    CRC_BYTES,
    CRC_NAME,
    FRONT,
    HEADER,
    MAGIC_1,
    MAGIC_2,
    START,
    STORE_IPV6,
    Host,
    decode_properties,
    lay_out,
)
from dittomq.errors import CorruptRecord, DittoError
from dittomq.message import StoredMessage
from dittomq.offsets import PhysicalOffset, QueueOffset
from dittomq.properties import KEY_SEPARATOR, KEYS, OURS, TAGS

_SYSTEM_FLAG_AT = 39


@dataclass(eq=False)
class Unsupported(DittoError):
    """What stands there is no record that this version knows; it need not be damaged."""

    reason: ClassVar[str] = "UNSUPPORTED_RECORD"
    position: int
    magic: int

    def __str__(self) -> str:
        return f"byte {self.position:,} begins with magic {self.magic:08x}, which this version does not know"


@dataclass(frozen=True, slots=True)
class Record:
    """Every field of a record. `body` is as stored; `property_bytes` are all properties as written, the record CRC's too.

    A topic that is not UTF-8 is shown with replacements.
    """

    size: int
    magic: int
    body_crc: int
    queue: int
    flag: int
    queue_offset: int
    physical_offset: int
    system_flag: int
    born_ms: int
    born_host: Host
    store_ms: int
    store_host: Host
    reconsume_times: int
    prepared_offset: int
    body: bytes
    topic: str
    property_bytes: bytes

    @property
    def properties(self) -> Mapping[str, str]:
        """Names and values, the record CRC's too."""
        return decode_properties(self.property_bytes)


def decode(record: bytes, position: int) -> Record:
    """Every field, of any version. The caller has checked the CRCs. Raises Unsupported or CorruptRecord."""
    magic = START.unpack_from(record)[1]
    if magic not in {MAGIC_1, MAGIC_2}:
        raise Unsupported(position, magic)
    layout = lay_out(record)
    if layout is None:
        raise CorruptRecord("this store", position, "lengths in the record do not add up")
    size, _, body_crc, queue, flag, queue_offset, physical_offset, system_flag, born_ms = FRONT.unpack_from(record)
    born_host, at = _host(record, 48, ipv6=bool(system_flag & BORN_IPV6))
    (store_ms,) = struct.unpack_from(">q", record, at)
    store_host, at = _host(record, at + 8, ipv6=bool(system_flag & STORE_IPV6))
    reconsume_times, prepared_offset = struct.unpack_from(">iq", record, at)
    return Record(
        size, magic, body_crc, queue, flag, queue_offset, physical_offset, system_flag, born_ms, born_host, store_ms, store_host,
        reconsume_times, prepared_offset, bytes(record[layout.body : layout.body_end]),
        bytes(record[layout.topic : layout.properties - 2]).decode("utf-8", "replace"),
        bytes(record[layout.properties :]),
    )  # fmt: skip


def message_of(record: bytes) -> StoredMessage:
    """What a reader gets of a whole record: the body as it was published. Raises MessageTooLarge, DecompressionFailed, and CorruptRecord
    where it is whole by its checksum only.
    """
    layout = lay_out(record)
    if layout is None:
        raise CorruptRecord("this store", int.from_bytes(record[28:36], "big"), "lengths in the record do not add up")
    body, body_end, topic, properties = layout
    if record[_SYSTEM_FLAG_AT] & (BORN_IPV6 | STORE_IPV6):
        found = decode(record, 0)
        _, _, _, queue, flag, queue_offset, position, system_flag, born_ms = FRONT.unpack_from(record)
        store_ms = found.store_ms
    else:
        _, _, _, queue, flag, queue_offset, position, system_flag, born_ms, _, _, store_ms, *_ = HEADER.unpack_from(record)
    end = len(record)
    seal = end - CRC_BYTES
    keys, tag, values = values_of(record[properties : seal if properties <= seal and record.startswith(CRC_NAME, seal) else end])
    stored = record[body:body_end]
    return StoredMessage(
        record[topic : properties - 2].decode("utf-8", "replace"), queue, QueueOffset(queue_offset), PhysicalOffset(position), end,
        inflate(stored, system_flag) if system_flag & COMPRESSED else stored, keys, tag, values, flag, born_ms, store_ms,
    )  # fmt: skip


def values_of(properties: bytes) -> tuple[tuple[str, ...], str, dict[str, str]]:
    """Keys, tag, and what else a producer has set."""
    values = decode_properties(properties)
    keys = tuple(values[KEYS].split(KEY_SEPARATOR)) if KEYS in values else ()
    tag = values.get(TAGS, "")
    for name in OURS:
        values.pop(name, None)
    return keys, tag, values


def _host(record: bytes, at: int, *, ipv6: bool) -> tuple[Host, int]:
    stop = at + (16 if ipv6 else 4)
    return Host(bytes(record[at:stop]), int.from_bytes(record[stop : stop + 4], "big", signed=True)), stop + 4
