"""The consume queues that a log makes, from RocketMQ's format alone: shares nothing with the product's own code.

position i64 · size i32 · Java's hash of the tag i64
"""

import struct
from collections.abc import Iterator, Mapping, Sequence

from tests.simulation.parser import ParsedRecord

QueueKey = tuple[str, int]
_UNIT = struct.Struct(">qiq")
_FOLDER = "consumequeue"


def differences(
    files: Mapping[str, bytes], records: Sequence[ParsedRecord], begins: Mapping[QueueKey, int], *, units: int
) -> Iterator[str]:
    """What of `files` is not what these records make of it, to the byte, in sentences.

    What lies before the message with which a queue begins is not looked at: its record may be gone.
    """
    expected: dict[str, bytearray] = {}
    for record in records:
        key = (record.topic, record.queue)
        if record.queue_offset >= begins.get(key, 0):
            file = expected.setdefault(path_of(key, record.queue_offset, units), bytearray(units * _UNIT.size))
            _UNIT.pack_into(file, record.queue_offset % units * _UNIT.size, *unit_of(record))
    empty = bytes(units * _UNIT.size)
    for path in sorted({*expected, *(path for path in files if path.startswith(f"{_FOLDER}/"))}):
        _, topic, queue, first = path.split("/")
        hidden = max(0, begins.get((topic, int(queue)), 0) * _UNIT.size - int(first))
        held, wanted = files.get(path), expected.get(path, empty if hidden else b"")
        if held is None:
            yield f"{path} is missing"
        elif not wanted:
            yield f"{path} holds {len(held)} bytes, and no message belongs there"
        elif len(held) != len(wanted):
            yield f"{path} has {len(held)} bytes"
        elif held[hidden:] != wanted[hidden:]:
            at = next(at for at in range(hidden, len(held), _UNIT.size) if held[at : at + _UNIT.size] != wanted[at : at + _UNIT.size])
            units_there = _UNIT.unpack_from(held, at), _UNIT.unpack_from(wanted, at)
            yield f"unit {(int(first) + at) // _UNIT.size} of {path} is {units_there[0]}, the log makes {units_there[1]}"


def path_of(key: QueueKey, offset: int, units: int) -> str:
    """The file that holds the unit of a message."""
    return f"{_FOLDER}/{key[0]}/{key[1]}/{offset // units * units * _UNIT.size:020d}"


def unit_of(record: ParsedRecord) -> tuple[int, int, int]:
    """What its unit says."""
    return record.physical_offset, record.size, _tag_hash(record.properties)


def unit_in(files: Mapping[str, bytes], record: ParsedRecord, units: int) -> tuple[int, int, int]:
    """What the disk says in its place; zeros where there is no file."""
    path = path_of((record.topic, record.queue), record.queue_offset, units)
    at = record.queue_offset % units * _UNIT.size
    found: tuple[int, int, int] = _UNIT.unpack(files.get(path, b"")[at : at + _UNIT.size].ljust(_UNIT.size, b"\0"))
    return found


def properties_of(record: ParsedRecord) -> dict[str, str]:
    """Its properties by name."""
    return dict(pair.split("\x01") for pair in record.properties.decode().split("\x02") if pair)


def _tag_hash(raw: bytes) -> int:
    """Java's hash of the tag, as RocketMQ puts it into a unit; 0 without a tag."""
    tags = [pair.removeprefix("TAGS\x01") for pair in raw.decode().split("\x02") if pair.startswith("TAGS\x01")]
    code = 0
    for character in "".join(tags):
        code = (31 * code + ord(character)) % (1 << 32)
    return code - (1 << 32) if code >= 1 << 31 else code
