"""Limits that are checked before anything is sent: what fails here is surely not stored."""

from dittomq.errors import InvalidField, MessageTooLarge
from dittomq.message import MAX_BODY_BYTES, MAX_PROPERTIES_BYTES, Message
from dittomq.properties import NAME_END, PROPERTY_END, check_property, encode_properties

MESSAGE_OVERHEAD_BYTES = 64
"""What a message counts beyond its body and properties, in frames and in waiting bytes."""

_MAX_BYTES = MAX_PROPERTIES_BYTES - 256  # the producer's identity and the record's checksum are properties too
_MAX_UTF8_BYTES = 4  # of one character
_SEPARATORS = 2


def checked_size(message: Message) -> int:
    """The message's size for frames and limits, bytes; raises InvalidField or MessageTooLarge."""
    body = message.body
    if not isinstance(body, bytes):
        raise InvalidField("body", f"is {type(body).__name__}, not bytes; encode it first")
    size = len(body)
    if size > MAX_BODY_BYTES:
        raise MessageTooLarge("the body", size, MAX_BODY_BYTES)
    if message.keys or message.tag or message.properties:
        size += _properties_size(message)
    return size + len(message.order_key) + MESSAGE_OVERHEAD_BYTES


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
        characters += len(key) + _SEPARATORS
    for name, value in message.properties.items():
        check_property(name, value)
        characters += len(name) + len(value) + _SEPARATORS
    if NAME_END in message.tag or PROPERTY_END in message.tag:
        raise InvalidField("tag", "0x01 and 0x02 separate properties and cannot be part of a tag")
    if characters * _MAX_UTF8_BYTES <= _MAX_BYTES:
        return characters
    size = len(encode_properties(message.keys, message.tag, message.properties))
    if size > _MAX_BYTES:
        raise MessageTooLarge("keys, tag and properties together", size, _MAX_BYTES)
    return size
