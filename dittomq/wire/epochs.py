"""Epochs on the wire. One that nothing can come after would be remembered by every node that hears of it: no master ever leads again."""

from dittomq.errors import InvalidField
from dittomq.offsets import LAST_EPOCH, Epoch


def epoch_from_pb(field: str, number: int) -> Epoch:
    if not 0 <= number <= LAST_EPOCH:
        raise InvalidField(field, f"{number:,} is no epoch: they count the starts of masters, from 1")
    return Epoch(number)
