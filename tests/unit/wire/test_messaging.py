"""Messages, frames, receipts, pulls and admin values survive the way over the wire."""

from dataclasses import replace

import pytest
from google.protobuf.duration_pb2 import Duration
from hypothesis import given
from hypothesis import strategies as st

from dittomq._pb.ditto.admin.v1 import admin_pb2
from dittomq._pb.ditto.messaging.v1 import messaging_pb2 as pb
from dittomq.commitlog.records.decoding import message_of
from dittomq.commitlog.records.encoding import encode_draft
from dittomq.commitlog.records.format import Host
from dittomq.epoch_history import EpochEntry
from dittomq.errors import InvalidField
from dittomq.ha_status import DataLossKind, HaStatus, NodeState, NodeView, PinView, StreamEndReason, WaitKind
from dittomq.message import Ack, Copy, CopyState, Draft, Message, PutStatus, StoredMessage
from dittomq.metadata.topics import TopicConfig
from dittomq.offsets import Epoch, PhysicalOffset, QueueOffset
from dittomq.places import AppendResult
from dittomq.properties import encode_properties
from dittomq.reads import PullRequest, PullResult, PullStatus, PullStreamOrder
from dittomq.receipts import BatchReceipt
from dittomq.tokens import ConsistencyToken, decode_token
from dittomq.wire import admin, messaging
from dittomq.wire.publishing import StoredBatch, stored_batch_to_pb, stored_message_to_pb

WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
OFFSETS = st.integers(0, 2**62)
MESSAGES = st.builds(
    StoredMessage,
    topic=WORDS,
    queue=st.integers(0, 1_023),
    queue_offset=OFFSETS.map(QueueOffset),
    physical_offset=OFFSETS.map(PhysicalOffset),
    record_bytes=st.integers(0, 2**31 - 1),
    body=st.binary(max_size=20),
    keys=st.lists(WORDS).map(tuple),
    tag=WORDS,
    properties=st.dictionaries(WORDS, WORDS),
    flag=st.integers(-(2**31), 2**31 - 1),
    born_ms=OFFSETS,
    store_ms=OFFSETS,
)
ANSWERS = st.builds(
    PullResult,
    status=st.sampled_from(PullStatus),
    messages=st.lists(MESSAGES, max_size=3).map(tuple),
    next_offset=OFFSETS.map(QueueOffset),
    min_offset=OFFSETS.map(QueueOffset),
    max_offset=OFFSETS.map(QueueOffset),
    confirmed=OFFSETS.map(PhysicalOffset),
    unconfirmed_from=st.none() | OFFSETS.map(QueueOffset),
    epoch=st.none() | OFFSETS.map(Epoch),
)
ORDERS = st.builds(
    PullRequest,
    topic=WORDS,
    queue=st.integers(0, 1_023),
    offset=OFFSETS.map(QueueOffset),
    max_messages=st.integers(1, 4_096),
    max_bytes=st.integers(1, 4 * 1024 * 1024),
    wait_s=st.integers(0, 60_000).map(lambda ms: ms / 1_000),
    tags=st.frozensets(st.sampled_from(["a", "b c", "d"])),
    at_least=st.none()
    | st.builds(
        ConsistencyToken,
        st.just("a.b"),
        OFFSETS.map(Epoch),
        OFFSETS.map(PhysicalOffset),
        st.none() | st.integers(0, 2**64 - 1),
        st.none() | OFFSETS,
    ),
    prefer_text=st.booleans(),
    group=st.sampled_from(["", "billing", "%RETRY-1"]),
    max_staleness_s=st.none() | st.integers(1, 3_600_000).map(lambda ms: ms / 1_000),
    as_records=st.booleans(),
    epoch=st.none() | OFFSETS.map(Epoch),
)

ORDER = PullRequest("orders", 3, QueueOffset(4))


def record_of(offset: int, body: bytes, tag: str = "") -> bytes:
    host = Host(bytes((127, 0, 0, 1)), 10911)
    return encode_draft(Draft("orders", 3, 0, 1_000, body, encode_properties((), tag, {}), 0), offset, 1_000 * offset, 2_000, host=host)


def answer_of(records: bytes, *messages: StoredMessage) -> PullResult:
    offsets = QueueOffset(7), QueueOffset(0), QueueOffset(7)
    return PullResult(PullStatus.FOUND, messages, *offsets, PhysicalOffset(7_000), records=records)


@given(ANSWERS, st.booleans())
def test_an_answer_to_a_pull_comes_back_as_it_was_also_as_text(answer: PullResult, prefer_text: bool) -> None:
    sent = messaging.pull_response(answer, prefer_text=prefer_text).SerializeToString()

    assert messaging.pull_answer(pb.PullResponse.FromString(sent), ORDER, "a/0") == answer


def test_records_and_messages_of_an_answer_come_back_as_messages_in_queue_order() -> None:
    records = [record_of(offset, b"%d" % offset) for offset in (4, 6)]
    odd = message_of(record_of(5, b"5"))
    sent = messaging.pull_response(answer_of(b"".join(records), odd), prefer_text=False).SerializeToString()

    found = messaging.pull_answer(pb.PullResponse.FromString(sent), ORDER, "a/0")

    assert found.messages == (message_of(records[0]), odd, message_of(records[1]))


def test_messages_of_other_tags_of_the_same_hash_are_left_out() -> None:
    records = record_of(4, b"4", "Aa") + record_of(5, b"5", "BB")
    sent = messaging.pull_response(answer_of(records), prefer_text=False)

    [found] = messaging.pull_answer(sent, replace(ORDER, tags=frozenset({"BB"})), "a/0").messages

    assert (found.tag, found.queue_offset) == ("BB", 5)


@given(ORDERS)
def test_a_pull_comes_back_as_it_was(order: PullRequest) -> None:
    assert messaging.pull_order(pb.PullRequest.FromString(messaging.pull_request(order).SerializeToString())) == order


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (pb.PullRequest(topic="t", offset=0), "queue"),
        (pb.PullRequest(topic="t", queue=0), "offset"),
        (pb.PullRequest(topic="t", queue=-1, offset=0), "queue"),
        (pb.PullRequest(topic="t", queue=0, offset=-1), "offset"),
        (pb.PullRequest(topic="t", queue=0, offset=0, max_messages=4_097), "max_messages"),
        (pb.PullRequest(topic="t", queue=0, offset=0, max_bytes=-1), "max_bytes"),
        (pb.PullRequest(topic="t", queue=0, offset=0, wait={"seconds": 61}), "wait"),
        (pb.PullRequest(topic="t", queue=0, offset=0, wait={"nanos": -1}), "wait"),
        (pb.PullRequest(topic="t", queue=0, offset=0, at_least="?"), "at_least"),
        (pb.PullRequest(topic="t", queue=0, offset=0, epoch=-1), "epoch"),
        (pb.PullRequest(topic="t", queue=0, offset=0, group="no group"), "group"),
        (pb.PullRequest(topic="t", queue=0, offset=0, group="g" * 121), "group"),
        (pb.PullRequest(topic="t", queue=0, offset=0, form=2), "form"),  # type: ignore[arg-type]
        (pb.PullRequest(topic="t", queue=0, offset=0, max_staleness=Duration()), "max_staleness"),
        (pb.PullRequest(topic="t", queue=0, offset=0, max_staleness=Duration(seconds=-1)), "max_staleness"),
        (pb.PullRequest(topic="t", queue=0, offset=0, max_staleness=Duration(seconds=3_600, nanos=1_000_000)), "max_staleness"),
        (pb.PullRequest(topic="t", queue=0, offset=0, tag="t" * 32_768), "tag"),
        (pb.PullRequest(topic="t", queue=0, offset=0, tag="||".join(["t"] * 257)), "tag"),
        (pb.PullRequest(topic="t", queue=0, offset=0, tag="||".join(map(str, range(2_000_000)))), "tag"),
    ],
)
def test_a_pull_outside_its_limits_names_the_field(request_: pb.PullRequest, field: str) -> None:
    with pytest.raises(InvalidField) as raised:
        messaging.pull_order(request_)
    assert raised.value.field == field


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (pb.PullStreamRequest(topic="t", queue=0), "offset"),
        (pb.PullStreamRequest(topic="t", queue=0, offset=0, wait={"nanos": 999_999_999}), "wait"),
        (pb.PullStreamRequest(topic="t", queue=0, offset=0, wait={"seconds": 61}), "wait"),
        (pb.PullStreamRequest(topic="t", queue=0, offset=0, max_responses=-1), "max_responses"),
    ],
)
def test_a_stream_of_pulls_outside_its_limits_names_the_field(request_: pb.PullStreamRequest, field: str) -> None:
    with pytest.raises(InvalidField) as raised:
        messaging.pull_stream_order(request_)
    assert raised.value.field == field


@given(ANSWERS, st.booleans())
def test_an_answer_of_a_stream_has_the_bytes_of_one_to_a_pull(answer: PullResult, prefer_text: bool) -> None:
    streamed = messaging.pull_stream_response(answer, prefer_text=prefer_text).SerializeToString()

    assert messaging.pull_answer(pb.PullResponse.FromString(streamed), ORDER, "a/0") == answer


def test_a_stream_takes_what_a_pull_takes_by_the_same_numbers() -> None:
    pull = PullRequest(
        "t", 3, QueueOffset(7), 5, 6, 8.0, frozenset("ab"), ConsistencyToken("a", Epoch(1), PhysicalOffset(9)), True, "g", 2.0
    )
    sent = messaging.pull_request(pull).SerializeToString()

    assert messaging.pull_stream_order(pb.PullStreamRequest.FromString(sent)) == PullStreamOrder(pull)


def test_a_stream_that_names_no_wait_tells_every_half_minute_that_nothing_came() -> None:
    order = messaging.pull_stream_order(pb.PullStreamRequest(topic="t", queue=0, offset=0))

    assert order.pull.wait_s == 30.0


@pytest.mark.parametrize("tags", [{"t" * 32_767}, {str(number) for number in range(256)}])
def test_the_longest_tag_of_a_message_and_256_tags_can_be_asked_for(tags: set[str]) -> None:
    order = PullRequest("t", 0, QueueOffset(0), tags=frozenset(tags))

    assert messaging.pull_order(messaging.pull_request(order)).tags == tags


def test_a_batch_carries_every_part_of_its_messages() -> None:
    full = Message("t", b"\x00", None, ("k1", "k2"), "tag", "order", {"p": "q"}, 7, 8)
    frame = messaging.BatchRequest(5, [full, Message("t", b"")], [3, 0], None, Ack.MASTER_FLUSHED, 2.5, "p-0", 9, 700)

    request = messaging.batch_request(frame)

    first, second = request.messages
    assert (first.topic, first.body, first.queue, list(first.keys), first.tag) == ("t", b"\x00", 3, ["k1", "k2"], "tag")
    assert (first.order_key, dict(first.properties), first.flag, first.born_ms) == ("order", {"p": "q"}, 7, 8)
    assert second.HasField("queue")
    assert second.WhichOneof("content") == "body"
    assert (request.ack, request.timeout.ToMilliseconds(), request.producer_id) == (pb.ACK_LEVEL_MASTER_FLUSHED, 2_500, "p-0")
    assert (request.first_sequence, request.batch_id, request.min_possible_offset) == (9, 5, 700)


def stored_response() -> pb.PublishStreamResponse:
    runs = [
        pb.ReceiptRun(
            first_index=0, topic="t", queue=1, first_queue_offset=40, first_physical_offset=1_000, record_bytes=[100, 50], store_ms=7
        ),
        pb.ReceiptRun(first_index=2, topic="t", queue=2, first_queue_offset=0, first_physical_offset=1_150, record_bytes=[70], store_ms=8),
    ]
    stored = pb.BatchStored(
        status=pb.PUT_STATUS_FLUSH_SLAVE_TIMEOUT,
        asked=pb.ACK_LEVEL_REPLICA_FLUSHED,
        levels_reached=[pb.ACK_LEVEL_MASTER_RECEIVED],
        copies=[pb.Copy(node="a/0", state=pb.COPY_STATE_FLUSHED)],
        epoch=3,
        broker="a",
        runs=runs,
    )
    return pb.PublishStreamResponse(batch_id=1, stored=stored)


def test_receipts_of_a_batch_name_the_epoch_of_each_message() -> None:
    ours, older = (EpochEntry(Epoch(epoch), 0, incarnation, PhysicalOffset(0)) for epoch, incarnation in ((3, 2**64 - 1), (2, 5)))
    placed = [AppendResult("t", 0, QueueOffset(at), PhysicalOffset(100 * at), [100], 7) for at in range(2)]
    stored = StoredBatch(PutStatus.PUT_OK, Ack.MASTER_FLUSHED, (), (), [older, ours], "a", placed, duplicate=False)

    sent = pb.PublishStreamResponse.FromString(stored_batch_to_pb(1, stored).SerializeToString())
    frame = messaging.batch_outcome(sent)
    alone = messaging.receipt(stored_message_to_pb(stored).receipt)

    assert isinstance(frame, BatchReceipt)
    assert [decode_token(frame.receipt(at).token) for at in range(2)] == [
        ConsistencyToken("a", Epoch(2), PhysicalOffset(100), 5, 100),
        ConsistencyToken("a", Epoch(3), PhysicalOffset(200), 2**64 - 1, 100),
    ]
    assert alone.token == frame.receipt(0).token


def test_each_message_of_a_batch_gets_its_own_receipt() -> None:
    frame = messaging.batch_outcome(stored_response())
    assert isinstance(frame, BatchReceipt)

    receipts = [frame.receipt(index) for index in range(3)]

    assert len(frame) == 3
    assert [(one.queue, one.queue_offset, one.physical_offset, one.record_bytes, one.token) for one in receipts] == [
        (1, 40, 1_000, 100, "3.1100-100.a"),
        (1, 41, 1_100, 50, "3.1150-50.a"),
        (2, 0, 1_150, 70, "3.1220-70.a"),
    ]
    assert receipts[0].status is PutStatus.FLUSH_SLAVE_TIMEOUT
    assert receipts[0].copies == (Copy("a/0", CopyState.FLUSHED),)
    with pytest.raises(IndexError):
        frame.receipt(3)


def test_a_batch_without_an_outcome_or_of_an_unknown_status_is_refused() -> None:
    unknown = stored_response()
    unknown.stored.status = 99  # type: ignore[assignment]  # a later version's

    for response in (pb.PublishStreamResponse(batch_id=1), unknown):
        with pytest.raises(InvalidField):
            messaging.batch_outcome(response)


NUMBERS = st.none() | OFFSETS
SECONDS = st.none() | st.integers(0, 10**6).map(lambda ms: ms / 1_000)
VIEWS = st.builds(
    NodeView,
    node=WORDS,
    role=WORDS,
    received=NUMBERS,
    flushed=NUMBERS,
    applied=NUMBERS,
    received_lag_bytes=NUMBERS,
    flushed_lag_bytes=NUMBERS,
    applied_lag_bytes=NUMBERS,
    received_lag_s=SECONDS,
    flushed_lag_s=SECONDS,
    applied_lag_s=SECONDS,
    verified_offset=NUMBERS,
    since_ms=st.none() | st.integers(0, 10**13),
    transfer_bytes_per_s=OFFSETS,
    received_bytes_per_s=OFFSETS,
    last_drop_reason=WORDS,
    last_drop_kind=st.none() | st.sampled_from(StreamEndReason),
    state=st.sampled_from(NodeState),
    resync_done_bytes=NUMBERS,
    resync_total_bytes=NUMBERS,
    switchover_target=WORDS,
    last_drop_ms=st.none() | st.integers(0, 10**13),
    pins=st.lists(st.builds(PinView, run=WORDS, start=OFFSETS, until_ms=st.integers(0, 10**13)), max_size=2).map(tuple),
)
SMALL = st.integers(0, 100)
STATUSES = st.builds(
    HaStatus,
    node=WORDS,
    cluster=WORDS,
    broker=WORDS,
    epoch=OFFSETS,
    role=WORDS,
    in_sync_replicas=SMALL,
    in_sync_now=SMALL,
    replicas_expected=SMALL,
    min_offset=OFFSETS,
    end=OFFSETS,
    flushed=OFFSETS,
    confirmed=OFFSETS,
    readable=OFFSETS,
    writable=st.booleans(),
    degraded=st.booleans(),
    degraded_since_ms=st.none() | st.integers(0, 10**13),
    waiting_for=WORDS,
    nodes=st.lists(VIEWS, max_size=3).map(tuple),
    members=st.lists(WORDS, max_size=3).map(tuple),
    failover=WORDS,
    coordination_store=WORDS,
    coordination_problem=WORDS,
    uncounted=st.lists(WORDS, max_size=3).map(tuple),
    data_loss=WORDS,
    data_loss_kind=st.none() | st.sampled_from(DataLossKind),
    waiting_kind=st.none() | st.sampled_from(WaitKind),
)


@given(STATUSES)
def test_ha_status_comes_back_with_unknown_as_unknown_and_zero_as_zero(status: HaStatus) -> None:
    sent = admin.get_ha_status_response(status).SerializeToString()

    assert admin.ha_status(admin_pb2.GetHaStatusResponse.FromString(sent)) == status


@pytest.mark.parametrize("above", [None, 0, 900])
def test_failover_answer_comes_back_with_no_loss_apart_from_a_loss_of_all(above: int | None) -> None:
    answer = admin.FailoverAnswer(7, "" if above is None else "acknowledged messages may be lost", ("a/0",), above)
    sent = admin.failover_response(answer).SerializeToString()

    assert admin.failover_answer(admin_pb2.FailoverResponse.FromString(sent)) == answer


def test_a_topic_without_numbers_has_the_defaults() -> None:
    assert admin.topic_from_pb(admin_pb2.Topic(name="t")) == TopicConfig("t", 8, 8, 6)
    assert admin.topic_from_pb(admin.topic_to_pb(TopicConfig("t", 1, 2, 0))) == TopicConfig("t", 1, 2, 0)
