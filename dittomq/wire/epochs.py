"""Epochs on the wire. One that nothing can come after would be remembered by every node that hears of it: no master ever leads again."""

from typing import Final

from dittomq.errors import InvalidField
from dittomq.offsets import Epoch

MAX_EPOCH: Final = (1 << 62) - 1  # the largest number that files of ours hold


def epoch_from_pb(field: str, number: int) -> Epoch:
    if not 0 <= number <= MAX_EPOCH:
        raise InvalidField(field, f"{number:,} is no epoch: they count the starts of masters, from 1")
    return Epoch(number)
