"""What replicas ask and answer in an election: it crosses the wire unchanged, and what cannot be right is refused by its field."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from dittomq._pb.ditto.replication.v1 import election_pb2 as pb
from dittomq._pb.ditto.replication.v1 import replication_pb2
from dittomq.epoch_history import EpochEntry
from dittomq.errors import InvalidField
from dittomq.group_record import ReplicaId
from dittomq.offsets import LAST_EPOCH, Epoch, PhysicalOffset
from dittomq.replication.election_events import Position, SentBy, StandOrder
from dittomq.replication.events import MAX_REPLICATION_SLOTS
from dittomq.replication.promise import PromiseRequest
from dittomq.routes import DataVersion
from dittomq.wire import election as wire
from dittomq.wire.epochs import MAX_CHARACTERS

FULL = Position(
    node="a/1",
    replica=ReplicaId("u1", "i1"),
    birth="b1",
    adopted=Epoch(3),
    log_end=PhysicalOffset(900),
    log_start=PhysicalOffset(100),
    promised=Epoch(LAST_EPOCH),
    confirmed=PhysicalOffset(800),
    revision=7,
    damaged_bytes=40,
    priority=-5,
    sees_master=True,
    leads=True,
    dropped_torn_tail=True,
    address="a-1:10912",
    tables=(DataVersion(1, 2, 3), DataVersion(), DataVersion(4, 5, 6)),
    slots=(("a/2", PhysicalOffset(0)), ("a/3", PhysicalOffset(500))),
    epoch_history=(EpochEntry(Epoch(3), 0, 2**64 - 1, PhysicalOffset(0)),),
)
BARE = Position(
    node="a/0",
    replica=ReplicaId("u0", "i0"),
    birth="",
    adopted=Epoch(0),
    log_end=PhysicalOffset(0),
    promised=Epoch(0),
    confirmed=PhysicalOffset(0),
)
REQUEST = PromiseRequest("a/2", ReplicaId("u2", "i2"), Epoch(4), "b1", SentBy.OPERATOR)
LONG = "x" * (MAX_CHARACTERS + 1)


@pytest.mark.parametrize("yes", [True, False])
@pytest.mark.parametrize("position", [FULL, BARE])
def test_where_a_replica_stands_crosses_the_wire_unchanged(position: Position, yes: bool) -> None:
    asked = wire.ask_response(position, yes).SerializeToString()
    promised = wire.promise_response(position, yes).SerializeToString()

    assert wire.ask_answer(pb.AskResponse.FromString(asked)) == (position, yes)
    assert wire.promise_answer(pb.PromiseResponse.FromString(promised)) == (position, yes)


@pytest.mark.parametrize("sent_by", list(SentBy))
def test_questions_cross_the_wire_unchanged(sent_by: SentBy) -> None:
    for candidate in ("", "a/2"):
        assert wire.asked(wire.ask_request(candidate, sent_by, "c", "a")) == (candidate, sent_by)
    for birth in ("", "b1"):
        request = replace(REQUEST, sent_by=sent_by, birth=birth)
        assert wire.promise_asked(wire.promise_request(request, "c", "a")) == request


@pytest.mark.parametrize("order", [StandOrder(SentBy.MASTER), StandOrder(SentBy.OPERATOR), StandOrder(SentBy.OPERATOR, True)])
def test_an_order_to_stand_crosses_the_wire_unchanged(order: StandOrder) -> None:
    assert wire.stand_order(wire.stand_request(order, "c", "a")) == order


@pytest.mark.parametrize("order", [StandOrder(SentBy.NOBODY), StandOrder(SentBy.MASTER, True), StandOrder(SentBy.NOBODY, True)])
def test_an_order_that_nobody_may_give_is_refused(order: StandOrder) -> None:
    with pytest.raises(InvalidField, match=r"sent_by|allow_data_loss"):
        wire.stand_order(wire.stand_request(order, "c", "a"))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("node", ""),
        ("node", "a"),
        ("node", "/1"),
        ("node", "a/-1"),
        ("node", "a/²"),
        ("node", f"a/{2**31}"),
        ("node", LONG + "/1"),
        ("replica", ""),
        ("replica", "u1"),
        ("replica", ".i1"),
        ("replica", "u1."),
        ("replica", "u 1.i1"),
        ("replica", "u1.i\n"),
        ("replica", LONG + ".i1"),
        ("birth", LONG),
        ("address", LONG),
        ("log_end_offset", -1),
        ("log_end_offset", 2**62 + 1),
        ("log_start_offset", -1),
        ("log_start_offset", 901),
        ("confirmed_offset", -1),
        ("record_revision", -1),
        ("damaged_bytes", -1),
        ("adopted_epoch", -1),
        ("promised_epoch", LAST_EPOCH + 1),
    ],
)
def test_a_position_that_cannot_be_is_refused(field: str, value: Any) -> None:
    response = wire.ask_response(FULL, True)
    setattr(response.position, field, value)

    with pytest.raises(InvalidField, match=f"position.{field}"):
        wire.ask_answer(response)


def test_more_slots_or_another_epoch_history_than_can_be_are_refused() -> None:
    def with_slots(*slots: replication_pb2.ReplicationSlot) -> pb.AskResponse:
        response = wire.ask_response(BARE, True)
        response.position.slots.slots.extend(slots)
        return response

    wire.ask_answer(with_slots(*[replication_pb2.ReplicationSlot(node=f"a/{number}") for number in range(MAX_REPLICATION_SLOTS)]))
    falls = wire.ask_response(BARE, True)
    falls.position.epoch_history.extend([replication_pb2.EpochEntry(epoch=2), replication_pb2.EpochEntry(epoch=1, start_offset=9)])
    for response in (
        with_slots(*[replication_pb2.ReplicationSlot(node=f"a/{number}") for number in range(MAX_REPLICATION_SLOTS + 1)]),
        with_slots(replication_pb2.ReplicationSlot(node="a")),
        with_slots(replication_pb2.ReplicationSlot(node="a/1", offset=-1)),
        falls,
    ):
        with pytest.raises(InvalidField):
            wire.ask_answer(response)


@pytest.mark.parametrize(
    ("field", "value"),
    [("candidate", ""), ("candidate", "a"), ("candidate_replica", "u2"), ("epoch", 0), ("epoch", LAST_EPOCH + 1), ("birth", LONG)],
)
def test_a_promise_that_cannot_be_asked_for_is_refused(field: str, value: Any) -> None:
    request = wire.promise_request(REQUEST, "c", "a")
    setattr(request, field, value)

    with pytest.raises(InvalidField, match=field):
        wire.promise_asked(request)


def test_a_sender_that_this_version_does_not_know_is_refused() -> None:
    for read, request in (
        (wire.asked, pb.AskRequest(candidate="a/1", sent_by=9)),  # type: ignore[arg-type]  # as a later version sends it
        (wire.stand_order, pb.StandRequest(sent_by=9)),  # type: ignore[arg-type]
    ):
        ask: Callable[[Any], object] = read
        with pytest.raises(InvalidField, match="sent_by"):
            ask(request)
