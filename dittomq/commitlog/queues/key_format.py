"""Files of the key index as bytes: by a message's key to its position. Pure: no disk, no clock.

RocketMQ's layout, all integers big-endian; `slots` and `entries` are settings, times are store times in ms:

    0 begin ms i64 │ 8 end ms i64 │ 16 begin position i64 │ 24 end position i64 │ 32 used slots i32 │ 36 count i32
    40 slots, i32 each: the number of the newest entry whose hash falls there, 0 for none
    40 + 4 × slots: entries, 20 bytes each: hash i32 │ position i64 │ seconds since begin i32 │ the slot's entry before it i32

Entry 0 is never used, so `count` is one more than there are. A message has an entry for each of its keys and for its UNIQ_KEY;
the hash is Java's of `topic#key`, without its sign. A file is named by the time of its first entry, yyyyMMddHHmmssSSS.

Source: Apache RocketMQ 5.3.3, IndexService#buildIndex, IndexFile#putKey, IndexHeader.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Self

from dittomq.commitlog.records.format import decode_properties
from dittomq.properties import KEY_SEPARATOR, KEYS, java_hash

_HEADER = struct.Struct(">qqqqii")
SLOT = struct.Struct(">i")
ENTRY = struct.Struct(">iqii")
HEADER_BYTES = 40

_UNIQUE_KEY = "UNIQ_KEY"
_MAX_INT = 0x7FFFFFFF
_LAST_MS = 253_402_300_799_999  # the last millisecond that has a year of four digits


@dataclass(frozen=True, slots=True)
class Header:
    """The first 40 bytes of a file: what its entries cover."""

    begin_ms: int
    end_ms: int
    begin_position: int
    end_position: int
    used_slots: int
    count: int

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """From the file's first 40 bytes."""
        return cls(*_HEADER.unpack(data))

    def encode(self) -> bytes:
        """The file's first 40 bytes."""
        return _HEADER.pack(self.begin_ms, self.end_ms, self.begin_position, self.end_position, self.used_slots, self.count)


@dataclass(frozen=True, slots=True)
class KeySizes:
    """What each file holds: the same in RocketMQ's settings `maxHashSlotNum` and `maxIndexNum`."""

    slots: int
    entries: int

    @property
    def file_bytes(self) -> int:
        """Size of a file."""
        return self.entry_at(self.entries)

    def entry_at(self, number: int) -> int:
        """Where an entry lies."""
        return HEADER_BYTES + self.slots * SLOT.size + number * ENTRY.size

    @staticmethod
    def slot_at(slot: int) -> int:
        """Where a slot lies."""
        return HEADER_BYTES + slot * SLOT.size


ROCKETMQ_KEY_SIZES = KeySizes(slots=5_000_000, entries=20_000_000)
"""RocketMQ's defaults: files of 420,000,040 bytes, mostly holes at first."""


@dataclass(frozen=True, slots=True)
class KeyMark:
    """How far the index is durably built: these files, oldest first; all are full but the last.

    That one has this count, and its newest entry is of the record at `end`.
    """

    sizes: KeySizes
    files: tuple[str, ...] = ()
    count: int = 0
    end: int = 0


def keys_of(properties: bytes) -> Iterator[str]:
    """The keys under which a message is found, from its encoded properties."""
    values = decode_properties(properties)
    if _UNIQUE_KEY in values:
        yield values[_UNIQUE_KEY]
    yield from filter(None, values.get(KEYS, "").split(KEY_SEPARATOR))


def key_hash(topic: str, key: str) -> int:
    """What the index keeps of a key: 31 bits."""
    code = abs(java_hash(key, _topic_hash(topic)))
    return code if code <= _MAX_INT else 0


def seconds_since(begin_ms: int, store_ms: int) -> int:
    """The age in an entry; `begin_ms` 0 is none."""
    return min(max(store_ms - begin_ms, 0) // 1_000, _MAX_INT) if begin_ms > 0 else 0


def file_name(store_ms: int) -> str:
    """What a file is called whose first entry was stored then; in UTC, where RocketMQ takes its own clock and time zone."""
    seconds, rest_ms = divmod(min(max(store_ms, 0), _LAST_MS), 1_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y%m%d%H%M%S}{rest_ms:03d}"


@lru_cache(maxsize=4_096)
def _topic_hash(topic: str) -> int:
    return java_hash(f"{topic}#")
