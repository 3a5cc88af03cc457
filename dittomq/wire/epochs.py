"""Epochs on the wire, and the nodes that speak of them.

An epoch that nothing can come after would be remembered by every replica that promises it: nobody could ever be elected again. So it is
refused, and so is a name that no node can have.
"""

from typing import Final

from dittomq.errors import InvalidField
from dittomq.offsets import LAST_EPOCH, Epoch, PhysicalOffset

MAX_NODE_ID: Final = 2**31 - 1
MAX_CHARACTERS: Final = 1_024
_LAST_OFFSET: Final = 2**62


def epoch_from_pb(field: str, number: int) -> Epoch:
    """Checked: 0 to LAST_EPOCH."""
    if not 0 <= number <= LAST_EPOCH:
        raise InvalidField(field, f"{number:,} is no epoch: they count the starts of masters, from 1")
    return Epoch(number)


def node_id_from_pb(field: str, number: int) -> int:
    """Checked: 0 to 2^31 - 1."""
    if not 0 <= number <= MAX_NODE_ID:
        raise InvalidField(field, f"{number:,} is no node's number; they are 0 to {MAX_NODE_ID:,}")
    return number


def offset_from_pb(field: str, number: int) -> PhysicalOffset:
    """Checked: 0 to 2^62."""
    if not 0 <= number <= _LAST_OFFSET:
        raise InvalidField(field, f"{number:,} is no offset in a log; they are 0 to {_LAST_OFFSET:,}")
    return PhysicalOffset(number)


def text_from_pb(field: str, text: str) -> str:
    """Checked: at most 1,024 characters."""
    if len(text) > MAX_CHARACTERS:
        raise InvalidField(field, f"{len(text):,} characters, the limit is {MAX_CHARACTERS:,}")
    return text


def node_from_pb(field: str, text: str) -> str:
    """Checked: "broker/id"."""
    broker, _, number = text_from_pb(field, text).rpartition("/")
    if not broker or not (number.isascii() and number.isdigit()) or len(number) > len(str(MAX_NODE_ID)) or int(number) > MAX_NODE_ID:
        raise InvalidField(field, f'{text[:64]!a} is no node; nodes are called "broker/id"')
    return text
