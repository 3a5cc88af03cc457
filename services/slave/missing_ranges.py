"""What a slave tells its master of the damage in its own log."""

from dittomq.commitlog.store import Store
from dittomq.offsets import PhysicalOffset
from dittomq.replication.events import MAX_MISSING_RANGES, MissingRanges


def missing_ranges(store: Store, end: PhysicalOffset) -> MissingRanges:
    """Of what it holds up to `end`; of very many ranges the oldest as one."""
    ranges = [(PhysicalOffset(low), PhysicalOffset(high)) for low, high in store.damage.clipped(store.min_offset, end).ranges]
    oldest, rest = ranges[: 1 - MAX_MISSING_RANGES], ranges[1 - MAX_MISSING_RANGES :]
    return ((oldest[0][0], oldest[-1][1]), *rest) if oldest else tuple(rest)
