"""What replicas tell each other beside the log's bytes: it crosses the wire unchanged, and what cannot be right is refused."""

import asyncio
import random
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace

import pytest

from dittomq._pb.ditto.metadata.v1.metadata_pb2 import QueueMinimum
from dittomq._pb.ditto.replication.v1 import replication_pb2 as pb
from dittomq.copies import LogStart
from dittomq.errors import InvalidField
from dittomq.offsets import LAST_EPOCH, Epoch, PhysicalOffset
from dittomq.replication.events import (
    MAX_MISSING_RANGES,
    MAX_REPLICATION_SLOTS,
    Chunk,
    Goodbye,
    HandshakeResult,
    Heartbeat,
    LeafDigests,
    LeafProbe,
    RangeDigest,
    ReplicationSlots,
    SlaveAck,
    SyncAction,
)
from dittomq.wire import log_start as wire_log_start
from dittomq.wire import replication as wire
from dittomq.wire.epochs import MAX_CHARACTERS
from dittomq.wire.log_start import PART_ROWS, log_start_from_pb, log_start_to_pb
from tests.support.handshakes import ONE, handshake


def at(offset: int) -> PhysicalOffset:
    return PhysicalOffset(offset)


def arrives(parts: Iterable[pb.FetchLogStartResponse]) -> LogStart:
    async def travelling() -> AsyncIterator[pb.FetchLogStartResponse]:
        for part in parts:
            yield pb.FetchLogStartResponse.FromString(part.SerializeToString())

    return asyncio.run(log_start_from_pb(travelling()))


@pytest.mark.parametrize("count", [0, 1, PART_ROWS - 1, PART_ROWS, PART_ROWS + 1, 2 * PART_ROWS])
@pytest.mark.parametrize("hidden", [0, 1, PART_ROWS])
def test_where_queues_begin_crosses_the_wire_in_parts_of_a_bounded_size(count: int, hidden: int) -> None:
    told = LogStart(
        at(2**40),
        {(f"topic-{number // 8}", number % 8): number for number in range(count)},
        {("%RETRY%" + f"{number}", 2**31 - 1): 2**63 - 1 for number in range(hidden)},
    )
    parts = list(log_start_to_pb(told))

    assert arrives(parts) == told
    assert all(len(part.first_offsets) + len(part.deleted_below) <= PART_ROWS for part in parts)


@pytest.mark.parametrize(
    ("first_offsets", "hidden", "reserved_below"),
    [(0, 0, 3), (1, 2, 3), (PART_ROWS - 1, 1, 1), (PART_ROWS + 1, 1, PART_ROWS), (1, PART_ROWS, 1)],
)
def test_reserved_offsets_come_last_in_a_log_start(first_offsets: int, hidden: int, reserved_below: int) -> None:
    tables = [{(f"t{at}", at % 9): at + 1 for at in range(count)} for count in (first_offsets, hidden, reserved_below)]
    told = LogStart(PhysicalOffset(4_096), *tables)

    parts = list(log_start_to_pb(told))

    assert all(len(part.first_offsets) + len(part.deleted_below) + len(part.reserved_below) <= PART_ROWS for part in parts)
    assert arrives(parts) == told


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
    for part in [
        pb.FetchLogStartResponse(first_offsets=[row]),
        pb.FetchLogStartResponse(deleted_below=[row]),
        pb.FetchLogStartResponse(reserved_below=[row]),
    ]:
        with pytest.raises(InvalidField):
            arrives([part])


def test_an_answer_without_parts_with_other_parts_or_with_too_many_rows_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    full = pb.FetchLogStartResponse(first_offsets=[QueueMinimum(topic="a", queue=number, min_offset=1) for number in range(PART_ROWS)])
    monkeypatch.setattr(wire_log_start, "MAX_ROWS", PART_ROWS + 1)
    other = pb.FetchLogStartResponse(first_offsets=[QueueMinimum(topic="b", queue=number, min_offset=1) for number in range(2)])

    for parts in ([], [full, other], [pb.FetchLogStartResponse(min_offset=1), pb.FetchLogStartResponse(min_offset=2)]):
        with pytest.raises(InvalidField):
            arrives(parts)
    full.first_offsets.add(topic="a", queue=PART_ROWS, min_offset=1)
    with pytest.raises(InvalidField):
        arrives([full])


@pytest.mark.parametrize("digest", [None, RangeDigest(at(10), at(20), b"x"), RangeDigest(at(10), at(20), b"")])
@pytest.mark.parametrize("begin", [None, at(0), at(2**40)])
@pytest.mark.parametrize("reverify_from", [None, at(0), at(2**40)])
@pytest.mark.parametrize("adopted", [0, 6, LAST_EPOCH])
def test_an_ack_crosses_the_wire_unchanged(
    digest: RangeDigest | None, begin: PhysicalOffset | None, reverify_from: PhysicalOffset | None, adopted: int
) -> None:
    ack = SlaveAck(Epoch(7), at(2**41), at(2**40), at(0), digest, begin, reverify_from, Epoch(adopted))

    assert wire.slave_event_from_pb(pb.ReplicateRequest.FromString(wire.slave_frame(ack).SerializeToString())) == ack


@pytest.mark.parametrize("slots", [None, (), (("a/1", at(0)), ("a/2", at(2**40)))])
def test_for_whom_a_master_keeps_its_log_crosses_the_wire_with_its_heartbeat(slots: ReplicationSlots | None) -> None:
    beat = Heartbeat(Epoch(7), at(2**41), at(2**40), None, None, slots)

    assert wire.master_event_from_pb(pb.ReplicateResponse.FromString(wire.master_frame(beat, 0))) == beat


@pytest.mark.parametrize("silent_s", [None, 0.0, 0.25, 3.5])
def test_a_masters_silence_crosses_the_wire_with_its_heartbeat(silent_s: float | None) -> None:
    beat = Heartbeat(Epoch(7), at(2**41), at(2**40), None, None, silent_s=silent_s)

    assert wire.master_event_from_pb(pb.ReplicateResponse.FromString(wire.master_frame(beat, 0))) == beat


@pytest.mark.parametrize(
    "slots",
    [
        [pb.ReplicationSlot(node="a/1", offset=-1)],
        [pb.ReplicationSlot(node="a" * 1_025)],
        [pb.ReplicationSlot(node=f"a/{number}") for number in range(MAX_REPLICATION_SLOTS + 1)],
    ],
)
def test_holds_that_cannot_be_are_refused(slots: list[pb.ReplicationSlot]) -> None:
    with pytest.raises(InvalidField, match=r"heartbeat\.slots"):
        wire.master_event_from_pb(pb.ReplicateResponse(heartbeat=pb.Heartbeat(epoch=7, slots=pb.ReplicationSlots(slots=slots))))


@pytest.mark.parametrize("size", [0, 1, 127, 128, 16_383, 16_384, 2**20, 2**21])
def test_a_chunk_crosses_the_wire_unchanged(size: int) -> None:
    chunk = Chunk(Epoch(3), at(2**40), 2**32 - 1, random.Random(size).randbytes(size), at(2**40 - 1), at(2**41))

    assert wire.master_event_from_pb(pb.ReplicateResponse.FromString(wire.master_frame(chunk, 0))) == chunk


def leaves(start: int, end: int, count: int) -> pb.ReplicateRequest:
    return pb.ReplicateRequest(leaves=pb.LeafDigests(start_offset=start, end_offset=end, digests=bytes(16) * count))


@pytest.mark.parametrize("span", [(0, 1), (7, 24), (0, 4_096), (5, 9_000), (0, 2**20), (3, 2**20 + 4), (0, 2**30), (1, 2**30)])
def test_leaves_arrive_if_they_are_so_many_as_the_range_has(span: tuple[int, int]) -> None:
    count = LeafProbe(at(span[0]), at(span[1])).leaves
    said = wire.slave_event_from_pb(leaves(*span, count))

    assert isinstance(said, LeafDigests)
    assert (said.start, said.end, said.digests) == (*span, (bytes(16),) * count)
    for other in (0, count - 1, count + 1, 900_000):
        with pytest.raises(InvalidField):
            wire.slave_event_from_pb(leaves(*span, other))


@pytest.mark.parametrize("span", [(0, 0), (10, 5), (-16, 0), (-(2**63), 2**63 - 1)])
def test_leaves_of_no_range_are_refused(span: tuple[int, int]) -> None:
    for count in (0, 1, 16):
        with pytest.raises(InvalidField):
            wire.slave_event_from_pb(leaves(*span, count))


@pytest.mark.parametrize("field", ["cluster", "broker", "replica_uuid", "incarnation", "birth", "replication_address", "verified_with"])
def test_a_handshake_with_a_name_beyond_the_limit_is_refused(field: str) -> None:
    handshake = pb.Handshake(**{field: "x" * MAX_CHARACTERS})  # type: ignore[arg-type]
    wire.slave_event_from_pb(pb.ReplicateRequest(handshake=handshake))

    setattr(handshake, field, "x" * (MAX_CHARACTERS + 1))
    with pytest.raises(InvalidField, match=field):
        wire.slave_event_from_pb(pb.ReplicateRequest(handshake=handshake))


def test_what_a_slave_lacks_crosses_the_wire_and_is_bounded() -> None:
    missing_ranges = tuple((PhysicalOffset(number), PhysicalOffset(number + 1)) for number in range(0, 2 * MAX_MISSING_RANGES, 2))
    told = replace(handshake(1, 900), missing_ranges=missing_ranges)
    frame = wire.handshake_to_pb(told)
    assert wire.slave_event_from_pb(pb.ReplicateRequest.FromString(frame.SerializeToString())) == told

    nothing_told = replace(handshake(1, 900), missing_ranges=None)
    assert wire.slave_event_from_pb(wire.handshake_to_pb(nothing_told)) == nothing_told

    for each in (None, (), missing_ranges):
        ack = SlaveAck(Epoch(1), PhysicalOffset(900), PhysicalOffset(900), PhysicalOffset(0), missing_now=each)
        assert wire.slave_event_from_pb(pb.ReplicateRequest.FromString(wire.ack_to_pb(ack).SerializeToString())) == ack

    frame.handshake.missing_ranges.ranges.add(start_offset=900, end_offset=901)
    with pytest.raises(InvalidField, match="missing_ranges"):
        wire.slave_event_from_pb(frame)


def test_handshake_carries_the_replicas_group_and_promise() -> None:
    told = replace(handshake(1, 900), incarnation="i1", birth="b1", adopted=Epoch(3), promised=Epoch(LAST_EPOCH))
    frame = wire.handshake_to_pb(told)

    assert wire.slave_event_from_pb(pb.ReplicateRequest.FromString(frame.SerializeToString())) == told


@pytest.mark.parametrize("counts", [True, False])
@pytest.mark.parametrize("birth", ["", "b1"])
@pytest.mark.parametrize("end", [None, at(900)])
def test_a_handshake_result_crosses_the_wire_unchanged(end: PhysicalOffset | None, birth: str, counts: bool) -> None:
    handshake_result = HandshakeResult(SyncAction.RESYNC, at(3), "why", Epoch(7), ONE, 500, end, "u0", birth, counts)

    assert wire.master_event_from_pb(pb.ReplicateResponse.FromString(wire.master_frame(handshake_result, 0))) == handshake_result


def test_a_goodbye_crosses_the_wire() -> None:
    frame = wire.slave_frame(Goodbye())

    assert wire.slave_event_from_pb(pb.ReplicateRequest.FromString(frame.SerializeToString())) == Goodbye()


def test_a_digest_larger_than_one_is_refused() -> None:
    large = pb.SegmentDigest(start_offset=0, end_offset=10, digest=bytes(17))

    for frame in (pb.ReplicateRequest(handshake=pb.Handshake(digests=[large])), pb.ReplicateRequest(ack=pb.Ack(digest=large))):
        with pytest.raises(InvalidField):
            wire.slave_event_from_pb(frame)
