"""Reads commit logs byte by byte, from RocketMQ's format alone: shares nothing with the product's own code.

size i32 · magic i32 · body CRC i32 · queue i32 · flag i32 · queue offset i64 · physical offset i64 · sysflag i32 · born i64
born host 8 · stored i64 · store host 8 · reconsumed i32 · prepared i64 · body i32+n · topic i8+n · properties i16+n
"""

import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

_FIXED = struct.Struct(">iiIiiqqiq8sq8siq")
_MAGIC = -626_843_481
BLANK = -875_286_124
_FOLDER = "commitlog/"
_CRC_NAME = b"__CRC32#\x01"
_CRC_BYTES = 20


class Malformed(Exception):
    """The bytes are no log. The text says where and why."""


@dataclass(frozen=True, slots=True)
class ParsedRecord:
    """A record that passed every check."""

    topic: str
    queue: int
    queue_offset: int
    physical_offset: int
    size: int
    body: bytes
    stored_ms: int
    properties: bytes


@dataclass(frozen=True, slots=True)
class ParsedLog:
    """A whole log: `content` are its bytes from `start` to `end`."""

    start: int
    end: int
    content: bytes
    records: tuple[ParsedRecord, ...]


def parse_log(files: Mapping[str, bytes]) -> ParsedLog:
    """The log in a data directory; raises Malformed when anything in it is not as it must be."""
    names = sorted(path for path in files if path.startswith(_FOLDER))
    start = int(names[0].removeprefix(_FOLDER)) if names else 0
    content = bytearray()
    for name in names:
        if int(name.removeprefix(_FOLDER)) != start + len(content):
            raise Malformed(f"{name} does not begin where the file before it ends, at {start + len(content)}")
        content += files[name]
    at, records = 0, []
    while (found := _next(content, at, start)) is not None:
        record, at = found
        if record is not None:
            records.append(record)
    if content[at:].strip(b"\0"):
        raise Malformed(f"bytes that are not zero lie behind the log's end {start + at}")
    return ParsedLog(start, start + at, bytes(content[:at]), tuple(records))


def record_at(files: Mapping[str, bytes], offset: int) -> ParsedRecord:
    """The record that begins at a physical offset, whatever lies around it; raises Malformed."""
    for name in sorted((path for path in files if path.startswith(_FOLDER)), reverse=True):
        start = int(name.removeprefix(_FOLDER))
        if start <= offset < start + len(files[name]):
            found = _next(files[name], offset - start, start)
            if found is None or found[0] is None:
                raise Malformed(f"no record begins at {offset}")
            return found[0]
    raise Malformed(f"no file holds offset {offset}")


def parse_record(raw: bytes, offset: int) -> ParsedRecord:
    """A record from its bytes, as it must lie at a physical offset; raises Malformed."""
    found = _next(raw, 0, offset)
    if found is None or found[0] is None or found[1] != len(raw):
        raise Malformed(f"no record of {len(raw)} bytes begins at {offset}")
    return found[0]


def _next(content: bytes | bytearray, at: int, base: int) -> tuple[ParsedRecord | None, int] | None:
    """A record, or None for a blank, and where the next one begins; None at the log's end."""
    if at + 8 > len(content):
        if at != len(content):
            raise Malformed(f"{len(content) - at} bytes are left at {base + at}")
        return None
    size, magic = struct.unpack_from(">ii", content, at)
    if (size, magic) == (0, 0):
        return None
    if magic == BLANK and 8 <= size <= len(content) - at:
        return None, at + size
    if magic != _MAGIC or not 91 <= size <= len(content) - at:
        raise Malformed(f"size {size} and magic {magic} at {base + at}")
    return _record(bytes(content[at : at + size]), base + at), at + size


@lru_cache(maxsize=2_048)
def _record(raw: bytes, offset: int) -> ParsedRecord:
    """Copies hold the same records, and each is looked at often."""
    size, _, body_crc, queue, _, queue_offset, physical_offset, _, _, _, stored_ms, _, _, _ = _FIXED.unpack_from(raw)
    rest = memoryview(raw)[_FIXED.size :]
    body, rest = _field(rest, 4)
    topic, rest = _field(rest, 1)
    properties, rest = _field(rest, 2)
    problem = ""
    if rest:
        problem = f"{len(rest)} bytes too many"
    elif physical_offset != offset:
        problem = f"says that it lies at {physical_offset}"
    elif zlib.crc32(body) & 0x7FFFFFFF != body_crc:
        problem = "body CRC"
    elif bytes(properties[-_CRC_BYTES:]) != _crc_property(raw[:-_CRC_BYTES]):
        problem = "record CRC"
    if problem:
        raise Malformed(f"record at {offset}: {problem}")
    return ParsedRecord(bytes(topic).decode(), queue, queue_offset, physical_offset, size, bytes(body), stored_ms, bytes(properties))


def _crc_property(before: bytes) -> bytes:
    """The last property of a record: ten decimal digits, the least significant one first."""
    return _CRC_NAME + f"{zlib.crc32(before) & 0x7FFFFFFF:010d}"[::-1].encode() + b"\x02"


def _field(rest: memoryview, width: int) -> tuple[memoryview, memoryview]:
    """A length of `width` bytes and what follows it, and the rest."""
    length = int.from_bytes(rest[:width], "big")
    if width + length > len(rest):
        raise Malformed("a field is longer than its record")
    return rest[width : width + length], rest[width + length :]
