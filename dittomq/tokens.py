"""Tokens: opaque text in a receipt that asks a reader for a copy that holds the message. Brokers and clients agree on it here."""

import re
from typing import NamedTuple

from dittomq.errors import InvalidField
from dittomq.offsets import Epoch, PhysicalOffset

MAX_TOKEN_CHARACTERS = 255

# Tokens of brokers that name no incarnation begin with the epoch.
_FORM = re.compile(r"(?:i([0-9a-f]{16})\.)?([0-9]+)\.([0-9]+)(?:-([0-9]+))?\.(.+)", re.DOTALL)


_MESSAGE_ID = re.compile(r"(?:[0-9A-Fa-f]{32}|[0-9A-Fa-f]{56})")


class OffsetMessageId(NamedTuple):
    """RocketMQ's id of a stored message: the host and port that stored it stand before the place where it lies."""

    address: bytes
    port: int


class ConsistencyToken(NamedTuple):
    """A copy of `broker` whose readable end is at or beyond `end` holds the message, where the master that stored it wrote its bytes.

    `epoch` is that master's, and `incarnation` tells it from another one that opened an epoch of this number; None: that is not known.
    `size` is that of the message's record in bytes; None where the token only names an end.
    """

    broker: str
    epoch: Epoch
    end: PhysicalOffset
    incarnation: int | None = None
    size: int | None = None

    @property
    def position(self) -> PhysicalOffset | None:
        """Where the message's record begins; None where the token does not say."""
        return None if self.size is None or self.size > self.end else PhysicalOffset(self.end - self.size)


def encode_token(broker: str, epoch: Epoch, end: PhysicalOffset, incarnation: int | None = None, *, size: int | None = None) -> str:
    """The text for a message of `broker` whose record ends at `end` and has so many bytes."""
    opening, length = "" if incarnation is None else f"i{incarnation:016x}.", "" if size is None else f"-{size}"
    return f"{opening}{epoch}.{end}{length}.{broker}"


def decode_token(text: str, field: str = "at_least") -> ConsistencyToken:
    """The token behind the text; raises InvalidField for anything `encode_token` did not make."""
    found = _FORM.fullmatch(text) if len(text) <= MAX_TOKEN_CHARACTERS else None
    if found is not None:
        incarnation, epoch, end, size, broker = found[1], int(found[2]), int(found[3]), int(found[4]) if found[4] else None, found[5]
        if max(epoch, end, size or 0) < 1 << 63:
            known = None if incarnation is None else int(incarnation, 16)
            return ConsistencyToken(broker, Epoch(epoch), PhysicalOffset(end), known, size)
    raise InvalidField(field, "is not a token; hand on the token of a receipt as it is")


def parse_id(text: str) -> tuple[OffsetMessageId | ConsistencyToken, PhysicalOffset]:
    """What an id says, a receipt's token or RocketMQ's message id, and where the message lies by it. Raises InvalidField."""
    if _MESSAGE_ID.fullmatch(text):
        data = bytes.fromhex(text)
        address, port, position = data[:-12], int.from_bytes(data[-12:-8], "big"), int.from_bytes(data[-8:], "big")
        if position >= 1 << 63:
            raise InvalidField("id", f'"{text}" names a place that no log has')
        return OffsetMessageId(address, port), PhysicalOffset(position)
    try:
        token = decode_token(text, "id")
    except InvalidField as problem:
        raise InvalidField("id", "is neither a receipt's token nor RocketMQ's message id of 32 or 56 hexadecimal digits") from problem
    if token.position is None:
        raise InvalidField("id", "is a token that does not say where its message begins; take that of a receipt")
    return token, token.position
