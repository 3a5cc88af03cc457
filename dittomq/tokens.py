"""Tokens: opaque text in a receipt that asks a reader for a copy that holds the message. Brokers and clients agree on it here."""

import re
from typing import NamedTuple

from dittomq.errors import InvalidField
from dittomq.offsets import Epoch, PhysicalOffset

MAX_TOKEN_CHARACTERS = 255

# Tokens of brokers that name no incarnation begin with the epoch.
_FORM = re.compile(r"(?:i([0-9a-f]{16})\.)?([0-9]+)\.([0-9]+)\.(.+)", re.DOTALL)


class ConsistencyToken(NamedTuple):
    """A copy of `broker` whose readable end is at or beyond `end` holds the message, where the master that stored it wrote its bytes.

    `epoch` is that master's, and `incarnation` tells it from another one that opened an epoch of this number; None: that is not known.
    """

    broker: str
    epoch: Epoch
    end: PhysicalOffset
    incarnation: int | None = None


def encode_token(broker: str, epoch: Epoch, end: PhysicalOffset, incarnation: int | None = None) -> str:
    """The text for a message of `broker` whose record ends at `end`."""
    opening = "" if incarnation is None else f"i{incarnation:016x}."
    return f"{opening}{epoch}.{end}.{broker}"


def decode_token(text: str) -> ConsistencyToken:
    """The token behind the text; raises InvalidField for anything `encode_token` did not make."""
    found = _FORM.fullmatch(text) if len(text) <= MAX_TOKEN_CHARACTERS else None
    if found is not None:
        incarnation, epoch, end, broker = found[1], int(found[2]), int(found[3]), found[4]
        if max(epoch, end) < 1 << 63:
            return ConsistencyToken(broker, Epoch(epoch), PhysicalOffset(end), None if incarnation is None else int(incarnation, 16))
    raise InvalidField("at_least", "is not a token; hand on the token of a receipt as it is")
