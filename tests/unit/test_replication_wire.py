"""What replicas tell each other beside the log's bytes: it crosses the wire unchanged, and what cannot be right is refused."""

import asyncio
import random
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace

import pytest

from dittomq._pb.ditto.metadata.v1.metadata_pb2 import QueueMinimum
from dittomq._pb.ditto.replication.v1 import replication_pb2 as pb
from dittomq.copies import Beginning
from dittomq.errors import InvalidField
from dittomq.offsets import Epoch, PhysicalOffset
from dittomq.replication.degraded import DegradedRange
from dittomq.replication.events import (
    MAX_HOLDS,
    MAX_LACKS,
    MAX_PROMISES,
    Chunk,
    DegradedRanges,
    Heartbeat,
    LeafDigests,
    LeafProbe,
    RangeDigest,
    SlaveAck,
    SlaveHolds,
)
from dittomq.replication.standings import GroupRules, Stance, Standing, StepDownOrder, SteppedDown
from dittomq.routes import DataVersion, Opening
from dittomq.wire import beginning as wire_beginning
from dittomq.wire import replication as wire
from dittomq.wire import standing as wire_standing
from dittomq.wire.beginning import PART_ROWS, beginning_from_pb, beginning_to_pb
from dittomq.wire.degraded import degraded_from_pb
from tests.support.starts import hello


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
    ("lows", "hidden", "leapt"), [(0, 0, 3), (1, 2, 3), (PART_ROWS - 1, 1, 1), (PART_ROWS + 1, 1, PART_ROWS), (1, PART_ROWS, 1)]
)
def test_numbers_that_were_left_out_arrive_behind_all_else_that_is_told_of_a_beginning(lows: int, hidden: int, leapt: int) -> None:
    tables = [{(f"t{at}", at % 9): at + 1 for at in range(count)} for count in (lows, hidden, leapt)]
    told = Beginning(PhysicalOffset(4_096), *tables)

    parts = list(beginning_to_pb(told))

    assert all(len(part.queues) + len(part.hidden) + len(part.leapt) <= PART_ROWS for part in parts)
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
    for part in [pb.FetchBeginningResponse(queues=[row]), pb.FetchBeginningResponse(hidden=[row]), pb.FetchBeginningResponse(leapt=[row])]:
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


@pytest.mark.parametrize("digest", [None, RangeDigest(at(10), at(20), b"x"), RangeDigest(at(10), at(20), b"")])
@pytest.mark.parametrize("begin", [None, at(0), at(2**40)])
@pytest.mark.parametrize("doubted", [None, at(0), at(2**40)])
@pytest.mark.parametrize("incarnation", [None, 0, 2**64 - 1])
def test_an_ack_crosses_the_wire_unchanged(
    digest: RangeDigest | None, begin: PhysicalOffset | None, doubted: PhysicalOffset | None, incarnation: int | None
) -> None:
    ack = SlaveAck(Epoch(7), at(2**41), at(2**40), at(0), digest, begin, doubted, incarnation)

    assert wire.slave_event_from_pb(pb.ReplicateRequest.FromString(wire.slave_frame(ack).SerializeToString())) == ack


def test_degraded_ranges_cross_the_wire_unchanged() -> None:
    known = (DegradedRange(at(0), at(10), None, 0), DegradedRange(at(10), at(20), 0, None), DegradedRange(at(2**40), None, 2**41, None))
    frame = wire.master_frame(DegradedRanges(Epoch(7), known), 0)

    assert wire.master_event_from_pb(pb.ReplicateResponse.FromString(frame)) == DegradedRanges(Epoch(7), known)


@pytest.mark.parametrize("holds", [None, (), (("a/1", at(0)), ("a/2", at(2**40)))])
def test_for_whom_a_master_keeps_its_log_crosses_the_wire_with_its_heartbeat(holds: SlaveHolds | None) -> None:
    beat = Heartbeat(Epoch(7), at(2**41), at(2**40), None, None, holds)

    assert wire.master_event_from_pb(pb.ReplicateResponse.FromString(wire.master_frame(beat, 0))) == beat


@pytest.mark.parametrize(
    "holds",
    [
        [pb.SlaveHold(node="a/1", offset=-1)],
        [pb.SlaveHold(node="a" * 1_025)],
        [pb.SlaveHold(node=f"a/{number}") for number in range(MAX_HOLDS + 1)],
    ],
)
def test_holds_that_cannot_be_are_refused(holds: list[pb.SlaveHold]) -> None:
    with pytest.raises(InvalidField, match=r"heartbeat\.holds"):
        wire.master_event_from_pb(pb.ReplicateResponse(heartbeat=pb.Heartbeat(epoch=7, holds=pb.SlaveHolds(holds=holds))))


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
        degraded_from_pb([pb.DegradedRange(start_offset=start, end_offset=end) for start, end in spans])


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


@pytest.mark.parametrize("field", ["cluster", "broker", "replica_uuid", "replication_address", "verified_with"])
def test_a_hello_with_a_name_beyond_the_limit_is_refused(field: str) -> None:
    hello = pb.Hello(**{field: "x" * wire.MAX_HELLO_CHARACTERS})  # type: ignore[arg-type]
    wire.slave_event_from_pb(pb.ReplicateRequest(hello=hello))

    setattr(hello, field, "x" * (wire.MAX_HELLO_CHARACTERS + 1))
    with pytest.raises(InvalidField, match=field):
        wire.slave_event_from_pb(pb.ReplicateRequest(hello=hello))


def test_what_a_slave_lacks_crosses_the_wire_and_is_bounded() -> None:
    lacks = tuple((PhysicalOffset(number), PhysicalOffset(number + 1)) for number in range(0, 2 * MAX_LACKS, 2))
    told = replace(hello(1, 900), lacks=lacks)
    frame = wire.hello_to_pb(told)
    assert wire.slave_event_from_pb(pb.ReplicateRequest.FromString(frame.SerializeToString())) == told

    nothing_told = replace(hello(1, 900), lacks=None)
    assert wire.slave_event_from_pb(wire.hello_to_pb(nothing_told)) == nothing_told

    for lacked in (None, (), lacks):
        ack = SlaveAck(Epoch(1), PhysicalOffset(900), PhysicalOffset(900), PhysicalOffset(0), lacks_now=lacked)
        assert wire.slave_event_from_pb(pb.ReplicateRequest.FromString(wire.ack_to_pb(ack).SerializeToString())) == ack

    frame.hello.lacked.ranges.add(start_offset=900, end_offset=901)
    with pytest.raises(InvalidField, match="lacked"):
        wire.slave_event_from_pb(frame)


def test_what_a_slave_has_noted_for_others_crosses_the_wire_and_is_bounded() -> None:
    promises = tuple(Opening(Epoch(number + 1), number) for number in range(MAX_PROMISES))
    told = replace(hello(1, 900), promises=promises)
    frame = wire.hello_to_pb(told)
    assert wire.slave_event_from_pb(pb.ReplicateRequest.FromString(frame.SerializeToString())) == told

    frame.hello.promised.add(epoch=99, opener_id=99)
    with pytest.raises(InvalidField, match="promised"):
        wire.slave_event_from_pb(frame)
    with pytest.raises(InvalidField, match="promised"):
        wire.slave_event_from_pb(pb.ReplicateRequest(hello=pb.Hello(promised=[pb.PromisedEpoch(epoch=-1)])))


def test_what_a_master_that_steps_down_knows_of_others_crosses_the_wire_and_is_bounded() -> None:
    known = tuple(Opening(Epoch(number + 1), number) for number in range(MAX_PROMISES))
    told = SteppedDown(at(900), ("a/1", "a/2"), (DegradedRange(at(100), at(200), 3),), Epoch(4), known)
    frame = wire_standing.stepped_down_to_pb(told)
    assert wire_standing.stepped_down(pb.StepDownResponse.FromString(frame.SerializeToString())) == told

    frame.known.add(epoch=99, opener_id=99)
    with pytest.raises(InvalidField, match="known"):
        wire_standing.stepped_down(frame)
    with pytest.raises(InvalidField, match="known"):
        wire_standing.stepped_down(pb.StepDownResponse(known=[pb.PromisedEpoch(epoch=-1)]))


def test_a_digest_larger_than_one_is_refused() -> None:
    large = pb.SegmentDigest(start_offset=0, end_offset=10, digest=bytes(17))

    for frame in (pb.ReplicateRequest(hello=pb.Hello(digests=[large])), pb.ReplicateRequest(ack=pb.Ack(digest=large))):
        with pytest.raises(InvalidField):
            wire.slave_event_from_pb(frame)


@pytest.mark.parametrize(
    "rules",
    [GroupRules("SYNC_MASTER", 3, 2), GroupRules("ASYNC_MASTER", 0, 1, 1, "ASYNC_FLUSH", "received")],
    ids=["of an older node", "whole"],
)
def test_what_a_node_is_configured_to_agree_on_crosses_the_wire(rules: GroupRules) -> None:
    told = Standing("a/1", 1, 1, "u1", Stance.FOLLOWING, (), at(0), at(0), Epoch(0), None, rules, DataVersion())

    heard = wire_standing.standing(pb.DescribeReplicaResponse.FromString(wire_standing.standing_to_pb(told).SerializeToString()))

    assert heard == told


def test_what_a_master_says_that_makes_room_and_a_slave_that_has_crosses_the_wire() -> None:
    rules, known = GroupRules("SYNC_MASTER", 3, 2), (Opening(Epoch(2), 1), Opening(Epoch(4), 2))
    leads = Standing("a/0", 0, 0, "u0", Stance.LEADING, (), at(0), at(0), Epoch(0), None, rules, DataVersion(), hands_over=True)
    has_led = replace(leads, stance=Stance.FOLLOWING, hands_over=False, stepped_down_at=at(9), witnessed=Epoch(3), known=known)

    for told in (leads, has_led):
        answer = pb.DescribeReplicaResponse.FromString(wire_standing.standing_to_pb(told).SerializeToString())
        assert wire_standing.standing(answer) == told


def test_a_master_that_cannot_only_validate_a_demotion_refuses_it_instead_of_stepping_down() -> None:
    asked = StepDownOrder("a/1", "u1", 1, DataVersion(1, 2, 3), 3.0, "a-1:1", validate_only=True)
    request = wire_standing.step_down_request(asked, "dittomq", "a")

    assert wire_standing.step_down_order(request).validate_only
    request.ClearField("validate_only")  # as an older one reads it
    with pytest.raises(InvalidField, match="timeout_ms"):
        wire_standing.step_down_order(request)
