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

_Lows = Mapping[tuple[str, int], int]


def beginning_to_pb(beginning: LogStart) -> Iterator[pb.FetchLogStartResponse]:
    """In parts of 2,000 rows, one at least."""
    queues, hidden, leapt = _rows(beginning.lows), _rows(beginning.hidden), _rows(beginning.leapt)
    while True:
        part = pb.FetchLogStartResponse(min_offset=beginning.offset, queues=islice(queues, PART_ROWS))
        part.hidden.extend(islice(hidden, PART_ROWS - len(part.queues)))
        part.leapt.extend(islice(leapt, PART_ROWS - len(part.queues) - len(part.hidden)))
        yield part
        if len(part.queues) + len(part.hidden) + len(part.leapt) < PART_ROWS:
            return


async def beginning_from_pb(parts: AsyncIterable[pb.FetchLogStartResponse]) -> LogStart:
    """All parts together; InvalidField for more than 1,000,000 rows, for a row that names no queue, and for parts that do not fit."""
    offset: int | None = None
    lows: dict[tuple[str, int], int] = {}
    hidden: dict[tuple[str, int], int] = {}
    leapt: dict[tuple[str, int], int] = {}
    async for part in parts:
        rows = len(part.queues) + len(part.hidden) + len(part.leapt)
        if rows > PART_ROWS or rows + len(lows) + len(hidden) + len(leapt) > MAX_ROWS:
            raise InvalidField("queues", f"more than {PART_ROWS:,} in a part, or {MAX_ROWS:,} in all")
        if part.min_offset < 0 or part.min_offset != (part.min_offset if offset is None else offset):
            raise InvalidField("min_offset", f"{part.min_offset:,} in an answer that began with {offset}")
        offset = part.min_offset
        lows.update(map(_checked, part.queues))
        hidden.update(map(_checked, part.hidden))
        leapt.update(map(_checked, part.leapt))
    if offset is None:
        raise InvalidField("min_offset", "the answer has no part")
    return LogStart(PhysicalOffset(offset), lows, hidden, leapt)


def _rows(lows: _Lows) -> Iterator[metadata_pb2.QueueMinimum]:
    return (metadata_pb2.QueueMinimum(topic=topic, queue=queue, min_offset=low) for (topic, queue), low in lows.items())


def _checked(row: metadata_pb2.QueueMinimum) -> tuple[tuple[str, int], int]:
    """Queues have folders that are called after them."""
    if not safe_topic(row.topic.encode()) or row.queue < 0 or row.min_offset < 0:
        raise InvalidField("queues", f"{row.topic[:64]!a}, {row.queue}, {row.min_offset} is no queue with its first offset")
    return (row.topic, row.queue), row.min_offset
