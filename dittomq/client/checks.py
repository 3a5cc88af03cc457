"""Limits that are checked before anything is sent: what fails here is surely not stored."""

from dittomq.errors import InvalidField, MessageTooLarge
from dittomq.message import MAX_BODY_BYTES, MAX_PROPERTIES_BYTES, Message
from dittomq.metadata.topics import check_topic_name
from dittomq.properties import check_property, encode_properties

MESSAGE_OVERHEAD_BYTES = 64
"""What a message counts beyond its body and properties, in frames and in waiting bytes."""

_RESERVED_PROPERTIES_BYTES = 256  # the producer's identity and the record's checksum are properties too


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


def check_topic(topic: str) -> None:
    """Refuse what can be no topic."""
    check_topic_name(topic)


def _properties_size(message: Message) -> int:
    if isinstance(message.keys, str):
        raise InvalidField("keys", "is one text; give a list of keys")
    for key in message.keys:
        if not key or " " in key:
            raise InvalidField("keys", f"{key[:40]!r} is empty or holds a space; keys are separated by spaces")
    for name, value in message.properties.items():
        check_property(name, value)
    size = len(encode_properties(message.keys, message.tag, message.properties))
    if size > MAX_PROPERTIES_BYTES - _RESERVED_PROPERTIES_BYTES:
        raise MessageTooLarge("keys, tag and properties together", size, MAX_PROPERTIES_BYTES - _RESERVED_PROPERTIES_BYTES)
    return size
