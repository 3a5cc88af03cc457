"""ditto.messaging.v1.ConsumerGroupService ↔ values. From the wire comes a valid value or InvalidField."""

from collections.abc import Iterable, Sequence

from dittomq._pb.ditto.messaging.v1 import consumer_groups_pb2 as pb
from dittomq.consumer_progress import MAX_OFFSETS_IN_A_CALL, CommittedOffset, OffsetCommit
from dittomq.errors import InvalidField
from dittomq.metadata.topics import check_topic_name


def get_offsets_request(group: str, queues: Iterable[tuple[str, int]]) -> pb.GetOffsetsRequest:
    """Encode the question for what a group has committed of each (topic, queue)."""
    return pb.GetOffsetsRequest(group=group, queues=[pb.TopicQueue(topic=topic, queue=queue) for topic, queue in queues])


def asked_queues(request: pb.GetOffsetsRequest) -> list[tuple[str, int]]:
    """Decode the queues asked for."""
    _check_count("queues", len(request.queues))
    return [(each.topic, _queue(f"queues[{index}]", each)) for index, each in enumerate(request.queues)]


def commit_offsets_request(group: str, commits: Iterable[OffsetCommit]) -> pb.CommitOffsetsRequest:
    """Encode commits of a group."""
    rows = [
        pb.OffsetCommit(topic=each.topic, queue=each.queue, offset=each.offset, reset_count=each.resets, epoch=each.epoch)
        for each in commits
    ]
    return pb.CommitOffsetsRequest(group=group, commits=rows)


def offset_commits(request: pb.CommitOffsetsRequest) -> list[OffsetCommit]:
    """Decode the commits."""
    _check_count("commits", len(request.commits))
    return [_commit(f"commits[{index}]", each) for index, each in enumerate(request.commits)]


def get_offsets_response(offsets: Sequence[CommittedOffset]) -> pb.GetOffsetsResponse:
    """Encode what is committed."""
    return pb.GetOffsetsResponse(offsets=map(_committed_to_pb, offsets))


def commit_offsets_response(offsets: Sequence[CommittedOffset]) -> pb.CommitOffsetsResponse:
    """Encode what is committed now."""
    return pb.CommitOffsetsResponse(offsets=map(_committed_to_pb, offsets))


def committed_offsets(response: pb.GetOffsetsResponse | pb.CommitOffsetsResponse) -> list[CommittedOffset]:
    """Decode what is committed."""
    return [
        CommittedOffset(each.topic, each.queue, each.offset if each.HasField("offset") else None, each.reset_count)
        for each in response.offsets
    ]


def _commit(field: str, message: pb.OffsetCommit) -> OffsetCommit:
    queue = _queue(field, message)
    if not message.HasField("offset") or message.offset < 0:
        raise InvalidField(f"{field}.offset", "is the next queue offset to read, 0 or more")
    if message.reset_count < 0:
        raise InvalidField(f"{field}.reset_count", f"{message.reset_count} is negative; send what came with the offset, or nothing")
    if message.epoch < 0:
        raise InvalidField(f"{field}.epoch", f"{message.epoch} is negative; send what came with the answer, or nothing")
    resets = message.reset_count if message.HasField("reset_count") else None
    return OffsetCommit(message.topic, queue, message.offset, resets, message.epoch if message.HasField("epoch") else None)


def _queue(field: str, message: pb.TopicQueue | pb.OffsetCommit) -> int:
    check_topic_name(message.topic, f"{field}.topic")
    if not message.HasField("queue") or message.queue < 0:
        raise InvalidField(f"{field}.queue", "is a queue of the topic, 0 or more")
    return message.queue


def _check_count(field: str, count: int) -> None:
    if not 1 <= count <= MAX_OFFSETS_IN_A_CALL:
        raise InvalidField(field, f"are {count:,}; send 1 to {MAX_OFFSETS_IN_A_CALL:,} in a call")


def _committed_to_pb(committed: CommittedOffset) -> pb.CommittedOffset:
    return pb.CommittedOffset(topic=committed.topic, queue=committed.queue, offset=committed.offset, reset_count=committed.resets)
