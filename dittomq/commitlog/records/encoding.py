"""Records as bytes, of every kind that RocketMQ reads: the inverse of `dittomq.commitlog.records.decoding`. Pure.

The plain way, one record and all of its fields. `dittomq.commitlog.append` and `dittomq.commitlog.records.bulk` make the one kind that a
master appends, for whole groups; they are held against this.

Source: Apache RocketMQ 5.3.3, MessageExtEncoder, CommitLog#asyncPutMessage.
"""

import struct

from zlib_ng.zlib_ng import crc32

from dittomq.commitlog.records.decoding import Record
from dittomq.commitlog.records.format import (
    BORN_IPV6,
    CRC_BYTES,
    CRC_MASK,
    CRC_NAME,
    FRONT,
    LENGTH_16,
    MAGIC_1,
    MAGIC_2,
    MAX_TOPIC_BYTES,
    STORE_IPV6,
    Host,
    form_of,
    sealed_crc,
    strip_crc,
)
from dittomq.message import MAX_PROPERTIES_BYTES, Draft

_LONGEST_TOPIC = {MAGIC_1: MAX_TOPIC_BYTES, MAGIC_2: 65_535}


def encode(record: Record) -> bytes:
    """The record with these fields; its size and its checksums are computed, those in `record` are not looked at.

    It is sealed if its properties end in a record CRC. Raises ValueError for fields that no record can hold.
    """
    topic, body, properties = record.topic.encode(), record.body, record.property_bytes
    if len(topic) > _LONGEST_TOPIC.get(record.magic, -1):
        raise ValueError(f"no record with magic {record.magic:08x} holds a topic of {len(topic):,} bytes")
    if len(properties) > MAX_PROPERTIES_BYTES:
        raise ValueError(f"{len(properties):,} bytes of properties are more than {MAX_PROPERTIES_BYTES:,}")
    is_sealed = len(properties) >= CRC_BYTES and properties[-CRC_BYTES:].startswith(CRC_NAME)
    encoded = b"".join((
        _host(record.born_host, record.system_flag & BORN_IPV6), struct.pack(">q", record.store_ms),
        _host(record.store_host, record.system_flag & STORE_IPV6),
        struct.pack(">iqi", record.reconsume_times, record.prepared_offset, len(body)), body,
        struct.pack(">B" if record.magic == MAGIC_1 else ">H", len(topic)), topic, LENGTH_16.pack(len(properties)),
        properties[:-CRC_BYTES] if is_sealed else properties,
    ))  # fmt: skip
    front = FRONT.pack(
        FRONT.size + len(encoded) + is_sealed * CRC_BYTES, record.magic, crc32(body) & CRC_MASK, record.queue, record.flag,
        record.queue_offset, record.physical_offset, record.system_flag, record.born_ms,
    )  # fmt: skip
    return front + encoded + (sealed_crc(crc32(encoded, crc32(front))) if is_sealed else b"")


def encode_draft(draft: Draft, queue_offset: int, physical_offset: int, store_ms: int, *, host: Host) -> bytes:
    """The sealed record that a master at `host` makes of a message."""
    properties = strip_crc(draft.properties) + sealed_crc(0)
    return encode(
        Record(
            0, MAGIC_1, 0, draft.queue, draft.flag, queue_offset, physical_offset, form_of(host).system_flag, draft.born_ms, host,
            store_ms, host, 0, 0, draft.body, draft.topic, properties,
        )
    )  # fmt: skip


def _host(host: Host, is_ipv6: int) -> bytes:
    if len(host.address) != (16 if is_ipv6 else 4):
        raise ValueError(f"the system flag says otherwise than a host's {len(host.address)} bytes")
    return host.address + struct.pack(">i", host.port)
