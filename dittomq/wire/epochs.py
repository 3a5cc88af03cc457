"""Epochs on the wire, and the nodes that open them.

An epoch that nothing can come after would be remembered by every node that hears of it: no master ever leads again. Whoever gives way to a
node that cannot be takes its number for good, and no nameserver ever takes it in.
"""

from typing import Final

from dittomq.errors import InvalidField
from dittomq.offsets import LAST_EPOCH, Epoch

MAX_NODE_ID: Final = 2**31 - 1


def epoch_from_pb(field: str, number: int) -> Epoch:
    if not 0 <= number <= LAST_EPOCH:
        raise InvalidField(field, f"{number:,} is no epoch: they count the starts of masters, from 1")
    return Epoch(number)


def node_id_from_pb(field: str, number: int) -> int:
    if not 0 <= number <= MAX_NODE_ID:
        raise InvalidField(field, f"{number:,} is no node's number; they are 0 to {MAX_NODE_ID:,}")
    return number
