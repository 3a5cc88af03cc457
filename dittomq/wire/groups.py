"""ditto.admin.v1.GroupService ↔ values. From the wire comes a valid value or InvalidField; an absent setting is its default."""

from collections.abc import Mapping
from typing import Any

from dittomq._pb.ditto.admin.v1 import groups_pb2 as pb
from dittomq.errors import InvalidField
from dittomq.metadata.groups import GROUP_SETTINGS, GroupUpdate
from dittomq.metadata.rows import GroupConfig
from dittomq.metadata.tables import TablePage
from dittomq.wire.metadata import version_from_pb

MAX_GROUP_PAGE = 10_000
DEFAULT_GROUP_PAGE = 1_000
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


def _is_given(message: pb.Group, field: str) -> bool:
    return message.retry_queues != 0 if field == _NUMBER_OF_QUEUES else message.HasField(field)
