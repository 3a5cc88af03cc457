"""The same frame sent again under the same sequence, when much has changed since."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from dittomq._pb.ditto.messaging.v1 import messaging_pb2 as pb
from tests.support.real_group import MASTER, TOPIC, RealGroup, real_group, shape
from tests.support.waiting import eventually

pytestmark = pytest.mark.tier("nightly")

PUBLISH = "ditto.messaging.v1.MessagingService/Publish"
PUBLISH_STREAM = "ditto.messaging.v1.MessagingService/PublishStream"
GONE = "resent"


@pytest.fixture
def gone(group: RealGroup) -> Iterator[str]:
    """A topic that its test deletes."""
    [made] = group.mq.admin.create_topic(GONE, 2)
    assert made.error is None
    yield GONE
    group.mq.admin.delete_topic(GONE)


def frame(first: int, count: int = 3, producer_id: str = "resender", topic: str = GONE) -> pb.PublishStreamRequest:
    messages = [pb.Message(topic=topic, body=b"%d" % number, queue=number % 2) for number in range(first, first + count)]
    return pb.PublishStreamRequest(batch_id=first, messages=messages, producer_id=producer_id, first_sequence=first)


def test_a_batch_that_was_stored_before_its_topic_was_deleted_gets_its_first_receipt(group: RealGroup, gone: str) -> None:
    [first] = group.stream(MASTER, PUBLISH_STREAM, [frame(0)], pb.PublishStreamResponse)
    group.mq.admin.delete_topic(gone)

    again, never = group.stream(MASTER, PUBLISH_STREAM, [frame(0), frame(3)], pb.PublishStreamResponse)

    assert again.stored.duplicate
    for run in first.stored.runs:
        run.duplicate = True
    assert list(again.stored.runs) == list(first.stored.runs)
    assert (never.refused.reason, never.refused.index) == ("TOPIC_NOT_FOUND", 0)


def test_a_batch_that_is_stored_in_part_only_is_refused_like_a_new_one(group: RealGroup, gone: str) -> None:
    group.stream(MASTER, PUBLISH_STREAM, [frame(0, producer_id="parted")], pb.PublishStreamResponse)
    group.mq.admin.delete_topic(gone)

    [longer] = group.stream(MASTER, PUBLISH_STREAM, [frame(0, 4, producer_id="parted")], pb.PublishStreamResponse)

    assert longer.refused.reason == "TOPIC_NOT_FOUND"


def test_resent_message_of_a_deleted_topic_gets_its_first_receipt(group: RealGroup, gone: str) -> None:
    """It was stored before the topic was deleted."""
    request = pb.PublishRequest(message=pb.Message(topic=gone, body=b"once", queue=1), producer_id="single", sequence=0)
    first = group.call(MASTER, PUBLISH, request, pb.PublishResponse).receipt
    group.mq.admin.delete_topic(gone)

    again = group.call(MASTER, PUBLISH, request, pb.PublishResponse).receipt
    request.sequence = 1
    with pytest.raises(grpc.RpcError, match="does not exist in a/0"):
        group.call(MASTER, PUBLISH, request, pb.PublishResponse)

    assert again.duplicate
    assert (again.queue, again.queue_offset, again.physical_offset) == (first.queue, first.queue_offset, first.physical_offset)


def test_what_was_stored_before_is_not_refused_when_not_enough_replicas_are_left(tmp_path: Path) -> None:
    with real_group(tmp_path, shape(1, master={"replication.min_in_sync_replicas": 2})) as group:
        single = pb.PublishRequest(message=pb.Message(topic=TOPIC, body=b"once", queue=1), producer_id="single", sequence=0)
        first = group.call(MASTER, PUBLISH, single, pb.PublishResponse).receipt
        [stored] = group.stream(MASTER, PUBLISH_STREAM, [frame(0, topic=TOPIC)], pb.PublishStreamResponse)
        group.cluster.kill("a/1")
        numbers = itertools.count()

        def refused() -> bool:
            new = frame(0, producer_id=f"p{next(numbers)}", topic=TOPIC)
            [answer] = group.stream(MASTER, PUBLISH_STREAM, [new], pb.PublishStreamResponse)
            return bool(answer.refused.reason == "NOT_ENOUGH_REPLICAS")

        eventually(refused, "the slave is missed")
        again, never = group.stream(MASTER, PUBLISH_STREAM, [frame(0, topic=TOPIC), frame(3, topic=TOPIC)], pb.PublishStreamResponse)
        assert again.stored.duplicate
        assert [run.first_physical_offset for run in again.stored.runs] == [run.first_physical_offset for run in stored.stored.runs]
        assert never.refused.reason == "NOT_ENOUGH_REPLICAS"
        assert group.call(MASTER, PUBLISH, single, pb.PublishResponse).receipt.physical_offset == first.physical_offset
        single.sequence = 1
        with pytest.raises(grpc.RpcError, match="1 copy in sync"):
            group.call(MASTER, PUBLISH, single, pb.PublishResponse)
