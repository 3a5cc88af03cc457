"""What replicas tell each other beside the log's bytes: it crosses the wire unchanged, and what cannot be right is refused."""

import asyncio
import random
from collections.abc import AsyncIterator, Iterable

import pytest

from dittomq._pb.ditto.metadata.v1.metadata_pb2 import QueueMinimum
from dittomq._pb.ditto.replication.v1 import replication_pb2 as pb
from dittomq.copies import Beginning
from dittomq.errors import InvalidField
from dittomq.offsets import Epoch, PhysicalOffset
from dittomq.replication.degraded import DegradedRange
from dittomq.replication.events import Chunk, DegradedRanges
from dittomq.wire import beginning as wire_beginning
from dittomq.wire import replication as wire
from dittomq.wire.beginning import PART_ROWS, beginning_from_pb, beginning_to_pb


def at(offset: int) -> PhysicalOffset:
    return PhysicalOffset(offset)


def arrives(parts: Iterable[pb.FetchBeginningResponse]) -> Beginning:
    async def travelling() -> AsyncIterator[pb.FetchBeginningResponse]:
        for part in parts:
            yield pb.FetchBeginningResponse.FromString(part.SerializeToString())

    return asyncio.run(beginning_from_pb(travelling()))


@pytest.mark.parametrize("count", [0, 1, PART_ROWS - 1, PART_ROWS, PART_ROWS + 1, 2 * PART_ROWS])
@pytest.mark.parametrize("hidden", [0, 1, PART_ROWS])
def test_where_queues_begin_crosses_the_wire_in_parts_of_a_bounded_size(count: int, hidden: int) -> None:
    told = Beginning(
        at(2**40),
        {(f"topic-{number // 8}", number % 8): number for number in range(count)},
        {("%RETRY%" + f"{number}", 2**31 - 1): 2**63 - 1 for number in range(hidden)},
    )
    parts = list(beginning_to_pb(told))

    assert arrives(parts) == told
    assert all(len(part.queues) + len(part.hidden) <= PART_ROWS for part in parts)


@pytest.mark.parametrize(
    "row",
    [
        QueueMinimum(topic="../../etc", queue=0, min_offset=1),
        QueueMinimum(topic="", queue=0, min_offset=1),
        QueueMinimum(topic="a", queue=-1, min_offset=1),
        QueueMinimum(topic="a", queue=0, min_offset=-1),
    ],
)
def test_a_row_that_names_no_queue_is_refused(row: QueueMinimum) -> None:
    for part in (pb.FetchBeginningResponse(queues=[row]), pb.FetchBeginningResponse(hidden=[row])):
        with pytest.raises(InvalidField):
            arrives([part])


def test_an_answer_without_parts_with_other_parts_or_with_too_many_rows_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    full = pb.FetchBeginningResponse(queues=[QueueMinimum(topic="a", queue=number, min_offset=1) for number in range(PART_ROWS)])
    monkeypatch.setattr(wire_beginning, "MAX_ROWS", PART_ROWS + 1)
    other = pb.FetchBeginningResponse(queues=[QueueMinimum(topic="b", queue=number, min_offset=1) for number in range(2)])

    for parts in ([], [full, other], [pb.FetchBeginningResponse(min_offset=1), pb.FetchBeginningResponse(min_offset=2)]):
        with pytest.raises(InvalidField):
            arrives(parts)
    full.queues.add(topic="a", queue=PART_ROWS, min_offset=1)
    with pytest.raises(InvalidField):
        arrives([full])


def test_degraded_ranges_cross_the_wire_unchanged() -> None:
    known = (DegradedRange(at(0), at(10), None, 0), DegradedRange(at(10), at(20), 0, None), DegradedRange(at(2**40), None, 2**41, None))
    frame = wire.master_frame(DegradedRanges(Epoch(7), known), 0)

    assert wire.master_event_from_pb(pb.ReplicateResponse.FromString(frame)) == DegradedRanges(Epoch(7), known)


@pytest.mark.parametrize("size", [0, 1, 127, 128, 16_383, 16_384, 2**20, 2**21])
def test_a_chunk_crosses_the_wire_unchanged(size: int) -> None:
    chunk = Chunk(Epoch(3), at(2**40), 2**32 - 1, random.Random(size).randbytes(size), at(2**40 - 1), at(2**41))

    assert wire.master_event_from_pb(pb.ReplicateResponse.FromString(wire.master_frame(chunk, 0))) == chunk


@pytest.mark.parametrize(
    "spans",
    [[(10, 5)], [(10, 20), (15, 30)], [(10, 20), (5, 8)], [(10, None), (20, 30)], [(-5, 3)], [(number, number) for number in range(1_002)]],
)
def test_degraded_ranges_that_cannot_be_are_refused(spans: list[tuple[int, int | None]]) -> None:
    with pytest.raises(InvalidField):
        wire.degraded_from_pb([pb.DegradedRange(start_offset=start, end_offset=end) for start, end in spans])
