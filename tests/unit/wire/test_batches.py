"""Runs of a frame mean what the same messages mean one by one, whatever is wrong with them."""

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from dittomq._pb.ditto.messaging.v1 import messaging_pb2 as pb
from dittomq.errors import InvalidField
from dittomq.message import MAX_BATCH_BYTES, MAX_BATCH_MESSAGES, MAX_BODY_BYTES, Message
from dittomq.metadata.topics import TopicConfig
from dittomq.wire.drafts import MessageRefused, Topics
from dittomq.wire.messaging import BatchRequest, batch_request
from dittomq.wire.publishing import PublishOrder, publish_batch, resent_batch
from tests.support.frame_view import spelled_out

KNOWN = {
    "orders": TopicConfig("orders", write_queues=4),
    "bills": TopicConfig("bills", write_queues=2),
    "closed": TopicConfig("closed", permission=4),
}
KIB = 1024


def topics() -> Topics:
    turns = iter(range(1 << 30))
    return Topics(KNOWN, "a/0", lambda _topic, queues: next(turns) % queues, 77)


def run(*bodies: bytes, topic: str = "orders", queue: int | None = 0, tag: str = "") -> pb.MessageRun:
    return pb.MessageRun(topic=topic, queue=queue, tag=tag, bodies=bodies)


def outcome(frame: pb.PublishStreamRequest) -> tuple[str, PublishOrder | str]:
    """What becomes of it: the order, or the refusal with the message it names."""
    try:
        order = publish_batch(frame, topics())
        return "taken", replace(order, drafts=list(order.drafts))
    except MessageRefused as refused:
        return f"message {refused.index} refused", repr(refused.cause)
    except Exception as refused:  # noqa: BLE001
        return "refused", repr(refused)


def both(runs: Sequence[pb.MessageRun], **fields: Any) -> tuple[tuple[str, PublishOrder | str], tuple[str, PublishOrder | str]]:
    frame = pb.PublishStreamRequest(runs=runs, **fields)
    return outcome(frame), outcome(spelled_out(frame))


ODD = {
    "no queue": [run(b"a"), run(b"b", b"c", queue=None)],
    "a queue too high": [run(b"a", b"b"), run(b"c", queue=4)],
    "a queue below 0": [run(b"a", queue=-1)],
    "no such topic": [run(b"a", b"b"), run(b"c", topic="nowhere")],
    "a topic that takes no writes": [run(b"a"), run(b"c", topic="closed")],
    "a tag": [run(b"a", b"b", tag="paid"), run(b"c")],
    "a tag in another script": [run(b"a", tag="оплачен")],
    "a long tag": [run(b"a", b"b", tag="t" * 20_000)],
    "a tag too long": [run(b"a"), run(b"b", b"c", tag="t" * 32_768)],
    "a tag with a separator": [run(b"a"), run(b"b", tag="x\x01y"), run(b"c")],
    "an empty body": [run(b"", b"a", b"")],
    "a body too large": [run(b"a", bytes(MAX_BODY_BYTES)), run(b"b", bytes(MAX_BODY_BYTES + 1))],
    "a frame too large": [run(bytes(MAX_BODY_BYTES)), run(b"a", bytes(MAX_BATCH_BYTES - MAX_BODY_BYTES), b"b", topic="nowhere")],
    "a frame too large by its properties": [run(*[bytes(8 * KIB)] * 1_020, bytes(32 * KIB - 1), tag="t" * 20), run(b"a", topic="nowhere")],
    "no message": [run(), run(topic="nowhere")],
    "an empty run": [run(b"a"), run(), run(b"b")],
    "too many messages": [run(*[b""] * MAX_BATCH_MESSAGES), run(b"a")],
}


@pytest.mark.parametrize("identity", [{}, {"producer_id": "p-1", "first_sequence": 99}], ids=["no identity", "an identity"])
@pytest.mark.parametrize("runs", ODD.values(), ids=ODD)
def test_runs_are_taken_or_refused_like_their_messages(runs: list[pb.MessageRun], identity: dict[str, Any]) -> None:
    short, long = both(runs, **identity)

    assert short == long


def test_any_runs_give_the_drafts_of_their_messages() -> None:
    chance = random.Random(20)
    for number in range(300):
        runs = [
            run(
                *[chance.randbytes(chance.choice([0, 1, 100, 5 * KIB])) for _ in range(chance.choice([0, 1, 3, 40]))],
                topic=chance.choice(["orders"] * 9 + ["bills", "nowhere"]),
                queue=chance.choice([0, 1, 1, 1, 2, None]),
                tag=chance.choice(["", "", "paid", "a-b"]),
            )
            for _ in range(chance.randrange(1, 6))
        ]
        short, long = both(runs, producer_id="p", first_sequence=chance.randrange(1 << 40))

        assert short == long, f"frame {number} of seed 20"


def test_a_batch_has_messages_or_runs() -> None:
    frame = pb.PublishStreamRequest(messages=[pb.Message(topic="orders", body=b"a")], runs=[run(b"b")])

    for take in (lambda: publish_batch(frame, topics()), lambda: resent_batch(frame)):
        with pytest.raises(InvalidField, match="messages or runs, not both"):
            take()


def test_a_batch_has_a_bounded_number_of_runs_also_of_empty_ones() -> None:
    frame = pb.PublishStreamRequest(runs=[run()] * (MAX_BATCH_MESSAGES + 1))

    with pytest.raises(InvalidField, match="at most 1,024 runs, not 1,025"):
        publish_batch(frame, topics())


def test_a_resent_batch_counts_the_messages_of_its_runs() -> None:
    frame = pb.PublishStreamRequest(runs=[run(b"a", b"b"), run(b"c")], producer_id="p", first_sequence=5)

    assert resent_batch(frame).sequences == range(5, 8)


def sent(messages: Sequence[Message], queues: Sequence[int]) -> pb.PublishStreamRequest:
    return batch_request(BatchRequest(1, messages, queues, None, None, 3.0, "p", 0, 0))


def test_neighbours_with_nothing_but_a_body_travel_as_runs() -> None:
    messages = [Message("orders", b"%d" % at, tag="paid" if at < 10 else "") for at in range(20)]

    frame = sent(messages, [0] * 15 + [1] * 5)

    assert not frame.messages
    assert [(one.topic, one.queue, one.tag, len(one.bodies)) for one in frame.runs] == [
        ("orders", 0, "paid", 10), ("orders", 0, "", 5), ("orders", 1, "", 5)
    ]  # fmt: skip
    assert [body for one in frame.runs for body in one.bodies] == [message.body for message in messages]


@pytest.mark.parametrize(
    "odd",
    [
        Message("orders", b"", keys=("k",)),
        Message("orders", b"", properties={"p": "v"}),
        Message("orders", b"", flag=1),
        Message("orders", b"", born_ms=1),
    ],
    ids=["keys", "properties", "flag", "born"],
)
def test_messages_with_more_than_that_travel_one_by_one(odd: Message) -> None:
    frame = sent([Message("orders", b"a")] * 10 + [odd], [0] * 11)

    assert not frame.runs
    assert len(frame.messages) == 11


def test_runs_that_would_be_no_shorter_are_not_made() -> None:
    assert not sent([Message("orders", b"a")], [0]).runs
    assert not sent([Message("orders", b"a")] * 12, [0, 1, 2] * 4).runs
