"""Epoch histories, as handshakes, handshake results and positions carry them, and what a copy lacks."""

from itertools import pairwise

from dittomq._pb.ditto.replication.v1 import replication_pb2 as pb
from dittomq.epoch_history import FOREIGN, EpochEntry, EpochHistory, grows
from dittomq.errors import InvalidField
from dittomq.offsets import PhysicalOffset
from dittomq.replication.events import MAX_MISSING_RANGES, MissingRanges
from dittomq.wire.epochs import epoch_from_pb, node_id_from_pb

MAX_EPOCH_HISTORY_ENTRIES = 10_000


def epoch_history_to_pb(epoch_history: EpochHistory) -> list[pb.EpochEntry]:
    """Oldest first."""
    return [
        pb.EpochEntry(epoch=entry.epoch, master_id=entry.master_id, incarnation=entry.incarnation, start_offset=entry.start)
        for entry in epoch_history
    ]


def epoch_history_from_pb(entries: list[pb.EpochEntry]) -> EpochHistory:
    """Checked: at most 10,000 entries, epochs and starts grow as an epoch history's do."""
    if len(entries) > MAX_EPOCH_HISTORY_ENTRIES:
        raise InvalidField("epoch_history", f"{len(entries):,} entries, the limit is {MAX_EPOCH_HISTORY_ENTRIES:,}")
    epoch_history = tuple(
        EpochEntry(
            epoch_from_pb("epoch_history", entry.epoch),
            FOREIGN if entry.master_id == FOREIGN else node_id_from_pb("epoch_history.master_id", entry.master_id),
            entry.incarnation,
            PhysicalOffset(entry.start_offset),
        )
        for entry in entries
    )
    for before, after in pairwise(epoch_history):
        if not grows((before, after)):
            raise InvalidField(
                "epoch_history", f"epoch {after.epoch} at {after.start} does not come after epoch {before.epoch} at {before.start}"
            )
    return epoch_history


def missing_ranges_to_pb(missing_ranges: MissingRanges | None) -> pb.MissingRanges | None:
    """In their order; None: it is not given."""
    return (
        None
        if missing_ranges is None
        else pb.MissingRanges(ranges=[pb.ByteRange(start_offset=start, end_offset=end) for start, end in missing_ranges])
    )


def missing_ranges_from_pb(given: pb.Handshake | pb.Ack) -> MissingRanges | None:
    """Checked: not too many. None: it is not given."""
    ranges = given.missing_ranges.ranges
    if len(ranges) > MAX_MISSING_RANGES:
        raise InvalidField("missing_ranges.ranges", f"{len(ranges)} ranges, the limit is {MAX_MISSING_RANGES}")
    return (
        tuple((PhysicalOffset(each.start_offset), PhysicalOffset(each.end_offset)) for each in ranges)
        if given.HasField("missing_ranges")
        else None
    )
