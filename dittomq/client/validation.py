"""Limits that are checked before anything is sent: what fails here is surely not stored."""

from datetime import datetime
from operator import index

from dittomq.delays import check_wait
from dittomq.errors import InvalidField, MessageTooLarge
from dittomq.message import MAX_BODY_BYTES, MAX_ORDER_KEY_CHARACTERS, MAX_PROPERTIES_BYTES, Message
from dittomq.properties import NAME_END, PROPERTY_END, check_property, encode_properties

MESSAGE_OVERHEAD_BYTES = 64
"""What a message counts beyond its body and properties, in batches and in waiting bytes."""

_MAX_BYTES = MAX_PROPERTIES_BYTES - 256  # the producer's identity and the record's checksum are properties too
_MAX_UTF8_BYTES = 4  # of one character
_SEPARATORS = 2
_FLAG_BITS, _QUEUE_BITS, _TIME_BITS = 32, 32, 64  # of what the wire carries


def checked_size(message: Message) -> int:
    """The message's size for batches and limits, bytes; raises InvalidField or MessageTooLarge."""
    body = message.body
    if not isinstance(body, bytes):
        raise InvalidField("body", f"is {type(body).__name__}, not bytes; encode it first")
    size = len(body)
    if size > MAX_BODY_BYTES:
        raise MessageTooLarge("the body", size, MAX_BODY_BYTES)
    if len(message.order_key) > MAX_ORDER_KEY_CHARACTERS:
        raise InvalidField("order_key", f"has {len(message.order_key):,} characters; use at most {MAX_ORDER_KEY_CHARACTERS:,}")
    if not (message.topic.isascii() and message.order_key.isascii()):
        encoded("topic", message.topic)
        encoded("order_key", message.order_key)
    if message.queue is not None:
        check_number("queue", message.queue, _QUEUE_BITS)
    if message.flag or message.born_ms:
        check_number("flag", message.flag, _FLAG_BITS)
        check_number("born_ms", message.born_ms, _TIME_BITS)
    if message.delay_ms or message.deliver_ms:
        check_number("delay_ms", message.delay_ms, _TIME_BITS)
        check_number("deliver_ms", message.deliver_ms, _TIME_BITS)
        check_wait(message.delay_ms, message.deliver_ms)
    if message.keys or message.tag or message.properties:
        size += _properties_size(message)
    return size + len(message.order_key) + MESSAGE_OVERHEAD_BYTES


def is_plain(message: Message) -> bool:
    """Whether it has nothing but its topic, its queue and its body."""
    named = message.keys or message.tag or message.order_key or message.properties
    return not (named or message.flag or message.born_ms or message.delay_ms or message.deliver_ms)


def encoded(field: str, text: str) -> bytes:
    """The text in UTF-8; raises InvalidField for half of a surrogate pair, which has none."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidField(field, f"{text[error.start : error.end]!r} is half of a surrogate pair and cannot be sent") from error


def milliseconds(field: str, seconds: float) -> int:
    """Whole milliseconds; raises InvalidField for what is no number of seconds."""
    try:
        return round(seconds * 1_000)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidField(field, f"{seconds!r} is no number of seconds") from error


def epoch_ms(field: str, at: datetime | None) -> int:
    """That time in ms since 1970, 0 for none; raises InvalidField for one without a time zone."""
    if at is None:
        return 0
    zone = getattr(at, "utcoffset", None)  # whatever a caller hands in
    if zone is None or zone() is None:
        raise InvalidField(field, f"{at!r} is no datetime with a time zone; make one with datetime.now(UTC), for example")
    return int(at.timestamp() * 1_000)


def is_address(text: str) -> bool:
    """Whether it is "host:port"."""
    host, _, port = text.rpartition(":")
    is_host = host and "/" not in host and not any(map(str.isspace, host)) and not any("\ud800" <= each <= "\udfff" for each in host)
    return bool(is_host) and port.isascii() and port.isdecimal() and len(port) <= 5 and 0 < int(port) < 65_536


def check_number(field: str, number: int, bits: int) -> None:
    """Raise InvalidField unless it is a signed number of so many bits, which is what the wire carries."""
    try:
        fits = -(1 << bits - 1) <= index(number) < 1 << bits - 1
    except TypeError as error:
        raise InvalidField(field, f"is {type(number).__name__}, not int") from error
    if not fits:
        raise InvalidField(field, f"{number} is no signed number of {bits} bits")


def _properties_size(message: Message) -> int:
    """Exact only where the limit is near: encoding costs more than all other checks."""
    if isinstance(message.keys, str):
        raise InvalidField("keys", "is one text; give a list of keys")
    characters = len(message.tag)
    for key in message.keys:
        if not key or " " in key:
            raise InvalidField("keys", f"{key[:40]!r} is empty or holds a space; keys are separated by spaces")
        if NAME_END in key or PROPERTY_END in key:
            raise InvalidField("keys", "0x01 and 0x02 separate properties and cannot be part of a key")
        if not key.isascii():
            encoded("keys", key)
        characters += len(key) + _SEPARATORS
    for name, value in message.properties.items():
        if not (name.isascii() and value.isascii()):
            encoded("properties", name + value)
        check_property(name, value)
        characters += len(name) + len(value) + _SEPARATORS
    if not message.tag.isascii():
        encoded("tag", message.tag)
    if NAME_END in message.tag or PROPERTY_END in message.tag:
        raise InvalidField("tag", "0x01 and 0x02 separate properties and cannot be part of a tag")
    if characters * _MAX_UTF8_BYTES <= _MAX_BYTES:
        return characters
    size = len(encode_properties(message.keys, message.tag, message.properties))
    if size > _MAX_BYTES:
        raise MessageTooLarge("keys, tag and properties together", size, _MAX_BYTES)
    return size
