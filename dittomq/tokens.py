"""Tokens: opaque text in a receipt that asks a reader for a copy that holds the message. Brokers and clients agree on it here."""

from typing import NamedTuple

from dittomq.errors import InvalidField
from dittomq.offsets import Epoch, PhysicalOffset

MAX_TOKEN_CHARACTERS = 255


class Token(NamedTuple):
    """A copy of `broker` whose readable end is at or beyond `end` holds the message; `epoch` is that of the master that stored it."""

    broker: str
    epoch: Epoch
    end: PhysicalOffset


def encode_token(broker: str, epoch: Epoch, end: PhysicalOffset) -> str:
    """The text for a message of `broker` whose record ends at `end`."""
    return f"{epoch}.{end}.{broker}"


def decode_token(text: str) -> Token:
    """The token behind the text; raises InvalidField for anything `encode_token` did not make."""
    parts = text.split(".", 2) if len(text) <= MAX_TOKEN_CHARACTERS else []
    if len(parts) == 3 and parts[2] and all(part.isascii() and part.isdecimal() for part in parts[:2]):
        epoch, end, broker = int(parts[0]), int(parts[1]), parts[2]
        if max(epoch, end) < 1 << 63:
            return Token(broker, Epoch(epoch), PhysicalOffset(end))
    raise InvalidField("at_least", "is not a token; hand on the token of a receipt as it is")
