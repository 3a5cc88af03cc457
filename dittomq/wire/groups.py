"""ditto.admin.v1.GroupService ↔ values. From the wire comes a valid value or InvalidField; an absent setting is its default."""

from collections.abc import Iterable, Mapping
from typing import Any

from google.protobuf.duration_pb2 import Duration

from dittomq._pb.ditto.admin.v1 import groups_pb2 as pb
from dittomq.consumer_progress import MAX_OFFSETS_IN_A_CALL, GroupProgress, QueueProgress, QueueReset, ResetOrder, ResetTarget
from dittomq.errors import InvalidField
from dittomq.metadata.groups import GROUP_SETTINGS, GroupUpdate
from dittomq.metadata.rows import GroupConfig
from dittomq.metadata.tables import TablePage
from dittomq.metadata.topics import check_topic_name
from dittomq.wire.metadata import version_from_pb
from dittomq.wire.times import ms_from_pb, timestamp_to_pb

MAX_GROUP_PAGE = 10_000
DEFAULT_GROUP_PAGE = 1_000
_TARGETS = {pb.ResetTarget.Value(f"RESET_TARGET_{each.name}"): each for each in ResetTarget}
_NUMBER_OF_QUEUES = "retry_queues"  # the only setting whose 0 means its default


def group_to_pb(group: GroupConfig) -> pb.Group:
    """Encode a group."""
    return pb.Group(name=group.name, **{field: getattr(group, field) for field in GROUP_SETTINGS})


def group_from_pb(message: pb.Group) -> GroupConfig:
    """Decode a group, defaults filled in. Its limits are checked where it is created."""
    given: Mapping[str, Any] = {field: getattr(message, field) for field in GROUP_SETTINGS if _is_given(message, field)}
    return GroupConfig(message.name, **given)


def update_group_request(update: GroupUpdate) -> pb.UpdateGroupRequest:
    """Encode settings for a group, whatever version the groups have."""
    return pb.UpdateGroupRequest(group=group_to_pb(update.group), update_mask=update.fields)


def group_update(request: pb.UpdateGroupRequest) -> GroupUpdate:
    """Decode settings for a group. Their limits are checked where it is changed."""
    fields = tuple(request.update_mask)
    if not fields or not set(fields).issubset(GROUP_SETTINGS):
        raise InvalidField("update_mask", f"names what to change: one or more of {', '.join(GROUP_SETTINGS)}")
    for field in fields:
        if not _is_given(request.group, field):
            raise InvalidField(f"group.{field}", "is named by update_mask and has no value; give one")
    known = version_from_pb(request.data_version) if request.HasField("data_version") else None
    return GroupUpdate(group_from_pb(request.group), fields, known)


def list_groups_request(page_token: str) -> pb.ListGroupsRequest:
    """Encode the question for a page of the greatest size."""
    return pb.ListGroupsRequest(page_size=MAX_GROUP_PAGE, page_token=page_token)


def group_page_size(request: pb.ListGroupsRequest) -> int:
    """Groups wanted in a page."""
    if not 0 <= request.page_size <= MAX_GROUP_PAGE:
        raise InvalidField("page_size", f"{request.page_size:,} is outside 1 to {MAX_GROUP_PAGE:,}")
    return request.page_size or DEFAULT_GROUP_PAGE


def list_groups_response(page: TablePage[GroupConfig]) -> pb.ListGroupsResponse:
    """Encode a page of groups."""
    return pb.ListGroupsResponse(groups=[group_to_pb(group) for group in page.rows], next_page_token=page.next_token)


def listed_groups(response: pb.ListGroupsResponse) -> tuple[tuple[GroupConfig, ...], str]:
    """Decode a page of groups, and the token of the next one."""
    return tuple([group_from_pb(group) for group in response.groups]), response.next_page_token


def progress_response(progress: GroupProgress) -> pb.GetProgressResponse:
    """Encode how far a group is."""
    return pb.GetProgressResponse(queues=map(_progress_to_pb, progress.queues), members=progress.members)


def group_progress(response: pb.GetProgressResponse) -> GroupProgress:
    """Decode how far a group is."""
    rows = [
        QueueProgress(
            topic=each.topic,
            queue=each.queue,
            committed=each.committed_offset if each.HasField("committed_offset") else None,
            end=each.end_offset,
            lag=each.lag,
            oldest_unread_ms=each.oldest_unread_age.ToMilliseconds() if each.HasField("oldest_unread_age") else None,
            member=each.member,
            resets=each.reset_count,
        )
        for each in response.queues
    ]
    return GroupProgress(tuple(rows), tuple(response.members))


def reset_request(order: ResetOrder) -> pb.ResetOffsetsRequest:
    """Encode a reset."""
    return pb.ResetOffsetsRequest(
        group=order.group,
        topic=order.topic,
        queues=order.queues,
        target=f"RESET_TARGET_{order.target.name}",
        time=timestamp_to_pb(order.value) if order.target is ResetTarget.TIME else None,
        offset=order.value if order.target is ResetTarget.OFFSET else None,
        validate_only=order.validate_only,
    )


def reset_order(request: pb.ResetOffsetsRequest) -> ResetOrder:
    """Decode a reset."""
    check_topic_name(request.topic, "topic")
    if len(request.queues) > MAX_OFFSETS_IN_A_CALL or any(queue < 0 for queue in request.queues):
        raise InvalidField("queues", f"are at most {MAX_OFFSETS_IN_A_CALL:,} queues of the topic, or none for all")
    if request.target not in _TARGETS:
        raise InvalidField("target", "says where to go on: RESET_TARGET_EARLIEST, _LATEST, _TIME or _OFFSET")
    target, value = _TARGETS[request.target], 0
    if target is ResetTarget.TIME:
        if not request.HasField("time"):
            raise InvalidField("time", "is missing; give it with RESET_TARGET_TIME")
        value = ms_from_pb(request.time)
    if target is ResetTarget.OFFSET:
        if not request.HasField("offset") or request.offset < 0:
            raise InvalidField("offset", "is the next queue offset to read, 0 or more, with RESET_TARGET_OFFSET")
        value = request.offset
    return ResetOrder(request.group, request.topic, target, value, tuple(dict.fromkeys(request.queues)), request.validate_only)


def reset_response(resets: Iterable[QueueReset]) -> pb.ResetOffsetsResponse:
    """Encode what a reset moved."""
    return pb.ResetOffsetsResponse(
        queues=[pb.QueueReset(queue=each.queue, before_offset=each.before, offset=each.offset) for each in resets]
    )


def queue_resets(response: pb.ResetOffsetsResponse) -> list[QueueReset]:
    """Decode what a reset moved."""
    return [QueueReset(each.queue, each.before_offset if each.HasField("before_offset") else None, each.offset) for each in response.queues]


def _progress_to_pb(progress: QueueProgress) -> pb.QueueProgress:
    age = Duration()
    if progress.oldest_unread_ms is not None:
        age.FromMilliseconds(progress.oldest_unread_ms)
    return pb.QueueProgress(
        topic=progress.topic,
        queue=progress.queue,
        committed_offset=progress.committed,
        end_offset=progress.end,
        lag=progress.lag,
        oldest_unread_age=None if progress.oldest_unread_ms is None else age,
        member=progress.member,
        reset_count=progress.resets,
    )


def _is_given(message: pb.Group, field: str) -> bool:
    return message.retry_queues != 0 if field == _NUMBER_OF_QUEUES else message.HasField(field)
