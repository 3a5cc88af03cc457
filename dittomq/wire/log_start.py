"""Where a log and its queues begin, as it travels: in parts, checked row by row."""

from collections.abc import AsyncIterable, Iterator, Mapping
from itertools import islice

from dittomq._pb.ditto.metadata.v1 import metadata_pb2
from dittomq._pb.ditto.replication.v1 import replication_pb2 as pb
from dittomq.commitlog.records.format import safe_topic
from dittomq.copies import LogStart
from dittomq.errors import InvalidField
from dittomq.offsets import PhysicalOffset

PART_ROWS = 2_000
MAX_ROWS = 1_000_000

_Offsets = Mapping[tuple[str, int], int]


def log_start_to_pb(log_start: LogStart) -> Iterator[pb.FetchLogStartResponse]:
    """In parts of 2,000 rows, one at least."""
    first_offsets, deleted_below, reserved_below = (
        _rows(log_start.first_offsets),
        _rows(log_start.deleted_below),
        _rows(log_start.reserved_below),
    )
    while True:
        part = pb.FetchLogStartResponse(min_offset=log_start.offset, first_offsets=islice(first_offsets, PART_ROWS))
        part.deleted_below.extend(islice(deleted_below, PART_ROWS - len(part.first_offsets)))
        part.reserved_below.extend(islice(reserved_below, PART_ROWS - len(part.first_offsets) - len(part.deleted_below)))
        yield part
        if len(part.first_offsets) + len(part.deleted_below) + len(part.reserved_below) < PART_ROWS:
            return


async def log_start_from_pb(parts: AsyncIterable[pb.FetchLogStartResponse]) -> LogStart:
    """All parts together; InvalidField for more than 1,000,000 rows, for a row that names no queue, and for parts that do not fit."""
    offset: int | None = None
    first_offsets: dict[tuple[str, int], int] = {}
    deleted_below: dict[tuple[str, int], int] = {}
    reserved_below: dict[tuple[str, int], int] = {}
    async for part in parts:
        rows = len(part.first_offsets) + len(part.deleted_below) + len(part.reserved_below)
        if rows > PART_ROWS or rows + len(first_offsets) + len(deleted_below) + len(reserved_below) > MAX_ROWS:
            raise InvalidField("queues", f"more than {PART_ROWS:,} in a part, or {MAX_ROWS:,} in all")
        if part.min_offset < 0 or part.min_offset != (part.min_offset if offset is None else offset):
            raise InvalidField("min_offset", f"{part.min_offset:,} in an answer that began with {offset}")
        offset = part.min_offset
        first_offsets.update(map(_checked, part.first_offsets))
        deleted_below.update(map(_checked, part.deleted_below))
        reserved_below.update(map(_checked, part.reserved_below))
    if offset is None:
        raise InvalidField("min_offset", "the answer has no part")
    return LogStart(PhysicalOffset(offset), first_offsets, deleted_below, reserved_below)


def _rows(first_offsets: _Offsets) -> Iterator[metadata_pb2.QueueMinimum]:
    return (metadata_pb2.QueueMinimum(topic=topic, queue=queue, min_offset=low) for (topic, queue), low in first_offsets.items())


def _checked(row: metadata_pb2.QueueMinimum) -> tuple[tuple[str, int], int]:
    """Queues have folders that are called after them."""
    if not safe_topic(row.topic.encode()) or row.queue < 0 or row.min_offset < 0:
        raise InvalidField("queues", f"{row.topic[:64]!a}, {row.queue}, {row.min_offset} is no queue with its first offset")
    return (row.topic, row.queue), row.min_offset
