"""Makes logs byte by byte for the tests of parser and checkers, from RocketMQ's format alone."""

import struct
import zlib

SEGMENT_BYTES = 65_536


def record(offset: int, topic: str, queue: int, queue_offset: int, *, body: bytes) -> bytes:
    """A record as it lies at a physical offset."""
    name, properties = topic.encode(), b"KEYS\x01k\x02"
    size = 91 + len(body) + len(name) + len(properties) + 20
    head = struct.pack(">iiIiiqqiq", size, -626_843_481, zlib.crc32(body) & 0x7FFFFFFF, queue, 0, queue_offset, offset, 0, 1)
    head += struct.pack(">8sq8siq", bytes(8), 1_700_000_000_000, bytes(8), 0, 0)
    head += struct.pack(">i", len(body)) + body + bytes([len(name)]) + name + struct.pack(">h", len(properties) + 20) + properties
    return head + b"__CRC32#\x01" + f"{zlib.crc32(head) & 0x7FFFFFFF:010d}"[::-1].encode() + b"\x02"


def log_of(*messages: tuple[str, int, int, bytes]) -> dict[str, bytes]:
    """The files of a log of messages (topic, queue, queue offset, body), with blanks where a segment has no room."""
    content = b""
    for message in messages:
        raw = record(len(content), *message[:3], body=message[3])
        left = -len(content) % SEGMENT_BYTES or SEGMENT_BYTES
        if len(raw) + 8 > left:
            content += struct.pack(">ii", left, -875_286_124) + bytes(left - 8)
            raw = record(len(content), *message[:3], body=message[3])
        content += raw
    content += bytes(-len(content) % SEGMENT_BYTES)
    return {f"commitlog/{start:020d}": content[start : start + SEGMENT_BYTES] for start in range(0, len(content), SEGMENT_BYTES)}
