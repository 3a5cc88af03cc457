"""A record's properties: `name 0x01 value 0x02` repeated, and what consume queues keep of a tag.

Source: Apache RocketMQ, MessageDecoder#messageProperties2String and MessageExtBrokerInner#tagsString2tagsCode.
"""

import struct
from collections.abc import Mapping, Sequence
from functools import lru_cache

from dittomq.errors import InvalidField

NAME_END = "\x01"
PROPERTY_END = "\x02"
KEYS = "KEYS"
TAGS = "TAGS"
PRODUCER_ID = "PID"
SEQUENCE = "SEQ"
RECORD_CRC = "__CRC32#"
OURS = frozenset({KEYS, TAGS, PRODUCER_ID, SEQUENCE, RECORD_CRC})
RESERVED = OURS | {"DELAY", "REAL_TOPIC", "REAL_QID", "DITTO_DUE", "DITTO_ORIGIN", "DITTO_KEYS", "DITTO_OUTCOME", "TRAN_MSG", "PGROUP"}
KEY_SEPARATOR = " "
_REMEMBERED_CHARACTERS = 128


def check_property(name: str, value: str) -> None:
    """Refuse what would change meaning on disk: separators, an empty name or value, a name of ours."""
    if not name or not value:
        raise InvalidField("properties", "names and values are not empty")
    if name in RESERVED:
        raise InvalidField("properties", f'"{name}" is reserved; use keys, tag, a delay, or another name')
    for text in (name, value):
        if NAME_END in text or PROPERTY_END in text:
            raise InvalidField("properties", f'"{name}" holds 0x01 or 0x02, which separate properties')


def encode_properties(keys: Sequence[str], tag: str, extra: Mapping[str, str]) -> bytes:
    """The property field without a producer's identity and without the record CRC. Raises InvalidField for separators."""
    parts = []
    if keys:
        parts.append(f"{KEYS}{NAME_END}{KEY_SEPARATOR.join(keys)}{PROPERTY_END}")
    if tag:
        parts.append(f"{TAGS}{NAME_END}{tag}{PROPERTY_END}")
    for text in (*keys, tag):
        if NAME_END in text or PROPERTY_END in text:
            raise InvalidField("keys, tag", "0x01 and 0x02 separate properties and cannot be part of one")
    parts += [f"{name}{NAME_END}{value}{PROPERTY_END}" for name, value in extra.items()]
    return "".join(parts).encode()


def tags_code(tag: str) -> int:
    """What consume queues keep of a tag: its hash; 0 for none. Takes 70 ns a character, and keeps short tags only."""
    return _remembered_hash(tag) if len(tag) <= _REMEMBERED_CHARACTERS else java_hash(tag)


def java_hash(text: str, before: int = 0) -> int:
    """Java's String.hashCode: 32 bits, signed. `before` is the hash of what stands before the text."""
    code = before
    for unit in text.encode() if text.isascii() else _utf16(text):
        code = (31 * code + unit) & 0xFFFFFFFF
    return code - (1 << 32) if code & 0x80000000 else code


@lru_cache(maxsize=1_024)
def _remembered_hash(tag: str) -> int:
    return java_hash(tag)


def _utf16(text: str) -> tuple[int, ...]:
    units = text.encode("utf-16-be")
    return struct.unpack(f">{len(units) // 2}H", units)
