"""The key index that a log makes, from RocketMQ's format alone: shares nothing with the product's own code.

begin ms i64 · end ms i64 · begin position i64 · end position i64 · used slots i32 · count i32 · slots i32 each
entries from number 1 on, of number 0 the room only: hash i32 · position i64 · seconds since begin i32 · the slot's entry before it i32
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from tests.simulation.parser import ParsedRecord

_HEADER = struct.Struct(">qqqqii")
_ENTRY = struct.Struct(">iqii")


@dataclass(slots=True)
class KeyFile:
    """One file. `since_ms` is where its first entry's seconds count from."""

    name: str
    slot_count: int
    room: int
    since_ms: int
    entries: list[bytes] = field(default_factory=list)
    slots: dict[int, int] = field(default_factory=dict)
    begin: tuple[int, int] = (0, 0)
    end: tuple[int, int] = (0, 0)

    @property
    def is_full(self) -> bool:
        return len(self.entries) + 1 == self.room

    def add(self, key: str, record: ParsedRecord) -> None:
        hashed = _hash(f"{record.topic}#{key}")
        begin_ms = self.begin[0] if self.entries else self.since_ms
        seconds = max(0, record.stored_ms - begin_ms) // 1_000 if begin_ms else 0
        slot = hashed % self.slot_count
        self.entries.append(_ENTRY.pack(hashed, record.physical_offset, seconds, self.slots.get(slot, 0)))
        self.slots[slot] = len(self.entries)
        self.end = record.stored_ms, record.physical_offset
        if len(self.entries) == 1:
            self.begin = self.end

    def encode(self) -> bytes:
        (begin_ms, begin), (end_ms, end) = self.begin, self.end
        header = _HEADER.pack(begin_ms, end_ms, begin, end, len(self.slots), len(self.entries) + 1)
        slots = b"".join(self.slots.get(slot, 0).to_bytes(4, "big") for slot in range(self.slot_count))
        entries = bytes(_ENTRY.size) + b"".join(self.entries)
        return header + slots + entries.ljust(self.room * _ENTRY.size, b"\0")


def key_files(records: Sequence[ParsedRecord], *, slots: int, entries: int) -> list[KeyFile]:
    """The files that a log with these records from its first byte on has, oldest first."""
    files: list[KeyFile] = []
    for record in records:
        for key in _keys(record.properties):
            if not files or files[-1].is_full:
                files.append(_next_file(files, record.stored_ms, slots, entries))
            files[-1].add(key, record)
    return files


def entries_of(data: bytes, *, slots: int) -> list[tuple[int, int]]:
    """Hash and position of each entry of a file, as far as the file goes."""
    count: int = _HEADER.unpack_from(data)[5]
    first = _HEADER.size + slots * 4 + _ENTRY.size
    there = min(count - 1, max(0, len(data) - first) // _ENTRY.size)
    return [_ENTRY.unpack_from(data, first + number * _ENTRY.size)[:2] for number in range(there)]


def _next_file(files: Sequence[KeyFile], stored_ms: int, slots: int, entries: int) -> KeyFile:
    moment = datetime.fromtimestamp(stored_ms // 1_000, UTC)
    name = f"{moment:%Y%m%d%H%M%S}{stored_ms % 1_000:03d}"
    if not files:
        return KeyFile(name, slots, entries, 0)
    return KeyFile(max(name, f"{int(files[-1].name) + 1:017d}"), slots, entries, files[-1].end[0])


def _keys(properties: bytes) -> list[str]:
    pairs = [pair.split("\x01") for pair in properties.decode().split("\x02") if pair]
    return [key for name, value in pairs if name == "KEYS" for key in value.split(" ")]


def _hash(text: str) -> int:
    code = 0
    for character in text:
        code = (31 * code + ord(character)) % (1 << 32)
    code = abs(code - (1 << 32) if code >= 1 << 31 else code)
    return code if code < 1 << 31 else 0
