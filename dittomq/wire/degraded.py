"""Degraded ranges, as streams and descriptions of copies carry them."""

from collections.abc import Sequence
from itertools import pairwise

from dittomq._pb.ditto.replication.v1 import replication_pb2 as pb
from dittomq.errors import InvalidField
from dittomq.offsets import PhysicalOffset
from dittomq.replication.degraded import MAX_RANGES, Degraded, DegradedRange


def degraded_to_pb(ranges: Degraded) -> list[pb.DegradedRange]:
    """As they are."""
    return [
        pb.DegradedRange(start_offset=each.start, end_offset=each.end, since_ms=each.since_ms, messages=each.messages) for each in ranges
    ]


def degraded_from_pb(ranges: Sequence[pb.DegradedRange]) -> Degraded:
    """Checked: at most 1,001, in order, without overlaps; only the last one may go on."""
    if len(ranges) > MAX_RANGES + 1:
        raise InvalidField("ranges", f"{len(ranges):,} degraded ranges, the limit is {MAX_RANGES + 1:,}")
    found = tuple(
        DegradedRange(
            PhysicalOffset(each.start_offset),
            PhysicalOffset(each.end_offset) if each.HasField("end_offset") else None,
            each.since_ms if each.HasField("since_ms") else None,
            each.messages if each.HasField("messages") else None,
        )
        for each in ranges
    )
    borders = [border for each in found for border in (each.start, each.end) if border is not None]
    goes_on = any(each.end is None for each in found[:-1])
    if goes_on or any(low > high for low, high in pairwise((0, *borders))):
        raise InvalidField("ranges", "degraded ranges do not follow one another")
    return found
