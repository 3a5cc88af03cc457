"""What a broker takes in of a frame, and how little it does for what it will refuse."""

import sys
from typing import Any

import pytest

from dittomq._pb.ditto.messaging.v1 import messaging_pb2 as pb
from dittomq.commitlog.records.format import tags_code_of
from dittomq.errors import InvalidField, MessageTooLarge
from dittomq.message import MAX_BATCH_BYTES, MAX_BODY_BYTES, MAX_ORDER_KEY_CHARACTERS, MAX_PROPERTIES_BYTES
from dittomq.metadata.topics import TopicConfig
from dittomq.properties import java_hash, tags_code
from dittomq.wire.drafts import MessageRefused, Topics
from dittomq.wire.publishing import PublishOrder, publish_batch, publish_request

TOPICS = Topics({"orders": TopicConfig("orders")}, "a/0", lambda _topic, _queues: 0, 0)
MIB = 1024 * 1024


def message(**fields: Any) -> pb.Message:
    return pb.Message(topic="orders", queue=0, **fields)


def publish(one: pb.Message) -> PublishOrder:
    return publish_request(pb.PublishRequest(message=one), TOPICS)


@pytest.mark.parametrize(
    "one",
    [
        message(tag="t" * 8 * MIB),
        message(keys=["k" * 33_000]),
        message(keys=["k"] * 17_000),
        message(keys=[""] * 17_000),
        message(properties={"p": "v" * 33_000}),
        message(properties={f"{number:04}": "v" for number in range(8_192)}),
        message(tag="t" * 11_000, keys=["k" * 11_000], properties={"p": "v" * 11_000}),
    ],
    ids=["tag", "key", "keys", "empty keys", "property", "properties", "all"],
)
def test_properties_that_no_record_has_room_for_are_refused_and_the_message_named(one: pb.Message) -> None:
    frame = pb.PublishStreamRequest(messages=[message(body=b"x"), one])

    with pytest.raises(MessageRefused) as raised:
        publish_batch(frame, TOPICS)

    assert raised.value.index == 1
    assert isinstance(raised.value.cause, MessageTooLarge)
    assert raised.value.cause.size > raised.value.cause.limit == MAX_PROPERTIES_BYTES


def test_a_tag_that_a_record_has_room_for_is_taken_with_its_code() -> None:
    tag = "t" * 32_000

    order = publish(message(tag=tag))

    assert order.drafts[0].tags_code == java_hash(tag) == tags_code_of(order.drafts[0].properties)


def test_a_wrong_key_of_a_small_message_is_still_named_as_such() -> None:
    with pytest.raises(MessageRefused) as raised:
        publish(message(keys=["a b"]))

    assert isinstance(raised.value.cause, InvalidField)


def test_an_order_key_beyond_its_limit_is_refused_and_the_message_named() -> None:
    def keyed(characters: int) -> pb.PublishStreamRequest:
        return pb.PublishStreamRequest(messages=[message(body=b"x"), pb.Message(topic="orders", order_key="k" * characters)])

    assert len(publish_batch(keyed(MAX_ORDER_KEY_CHARACTERS), TOPICS).drafts) == 2
    with pytest.raises(MessageRefused, match="order_key: has 32,768 characters; use at most 32,767") as raised:
        publish_batch(keyed(MAX_ORDER_KEY_CHARACTERS + 1), TOPICS)

    assert raised.value.index == 1


def test_batch_is_refused_at_the_first_message_beyond_its_limit() -> None:
    """None behind it is looked at."""
    fits = [message(body=bytes(MAX_BODY_BYTES))] * 2
    beyond = [message(body=b"x"), pb.Message(topic="nowhere")]

    with pytest.raises(MessageTooLarge) as raised:
        publish_batch(pb.PublishStreamRequest(messages=[*fits, *beyond]), TOPICS)

    assert (raised.value.size, raised.value.limit) == (MAX_BATCH_BYTES + 1, MAX_BATCH_BYTES)
    assert publish_batch(pb.PublishStreamRequest(messages=fits), TOPICS).size == MAX_BATCH_BYTES


def test_no_long_tag_is_kept_once_its_code_is_known() -> None:
    tag = "long" * 1_000
    properties = b"TAGS\x01" + tag.encode() + b"\x02"
    kept_before = sys.getrefcount(tag)
    blocks_before = sys.getallocatedblocks()

    assert tags_code(tag) == tags_code_of(properties)
    for number in range(200):
        tags_code(f"{tag}{number}")
        tags_code_of(properties + b"%d" % number)

    assert sys.getrefcount(tag) == kept_before
    assert sys.getallocatedblocks() - blocks_before < 200
