"""ditto.metadata.v1 ↔ `dittomq.metadata`. The four RPCs have one shape; each has its own messages."""

from collections.abc import Iterable, Mapping
from typing import Any

from dittomq._pb.ditto.metadata.v1 import metadata_pb2 as pb
from dittomq.errors import InvalidField
from dittomq.metadata import fastjson
from dittomq.metadata.formats import CONSUMER_OFFSETS, DELAY_OFFSETS, GROUPS, TOPICS, TableKind
from dittomq.metadata.offset_table import OffsetPage
from dittomq.metadata.rows import ConsumerOffset, DelayOffset, GroupConfig, Json
from dittomq.metadata.tables import MAX_PAGE_ROWS, Ask, TablePage
from dittomq.metadata.topics import TopicConfig
from dittomq.offsets import Epoch
from dittomq.routes import DataVersion
from dittomq.wire.epochs import epoch_from_pb

_VERSION_FIELDS: Mapping[str, TableKind[Any]] = {
    "topics": TOPICS,
    "groups": GROUPS,
    "consumer_offsets": CONSUMER_OFFSETS,
    "delay_offsets": DELAY_OFFSETS,
}

GetAllResponse = (
    pb.GetAllTopicConfigResponse | pb.GetAllConsumerOffsetResponse | pb.GetAllDelayOffsetResponse | pb.GetAllSubscriptionGroupConfigResponse
)
GetAllRequest = (
    pb.GetAllTopicConfigRequest | pb.GetAllConsumerOffsetRequest | pb.GetAllDelayOffsetRequest | pb.GetAllSubscriptionGroupConfigRequest
)


def ask(request: GetAllRequest) -> Ask:
    known = request.known_version if request.HasField("known_version") else None
    return Ask(None if known is None else version_from_pb(known), request.page_size, request.page_token)


def version_from_pb(version: pb.DataVersion) -> DataVersion:
    """As it is."""
    return DataVersion(version.state_version, version.timestamp_ms, version.counter)


def version_to_pb(version: DataVersion) -> pb.DataVersion:
    """As it is."""
    return pb.DataVersion(state_version=version.state_version, timestamp_ms=version.timestamp_ms, counter=version.counter)


def topics_request(value: Ask) -> pb.GetAllTopicConfigRequest:
    return pb.GetAllTopicConfigRequest(
        known_version=_known(value), page_size=value.page_size, page_token=value.page_token, takes_changes=True
    )


def topics_page(response: pb.GetAllTopicConfigResponse) -> TablePage[TopicConfig]:
    rows = tuple(map(_topic, response.topics))
    minimums = {(each.topic, each.queue): each.min_offset for each in response.minimums}
    return TablePage(
        version_from_pb(response.version),
        rows,
        response.next_page_token,
        response.not_modified,
        minimums,
        led=_led(response),
        is_delta=response.is_delta,
        removed=tuple(response.removed),
    )


def topics_response(page: TablePage[TopicConfig]) -> pb.GetAllTopicConfigResponse:
    return pb.GetAllTopicConfigResponse(
        not_modified=page.not_modified,
        leading_epoch=page.led,
        version=version_to_pb(page.version),
        topics=map(_pb_topic, page.rows),
        next_page_token=page.next_token,
        minimums=(pb.QueueMinimum(topic=topic, queue=queue, min_offset=low) for (topic, queue), low in page.minimums.items()),
        is_delta=page.is_delta,
        removed=page.removed,
    )


def groups_request(value: Ask) -> pb.GetAllSubscriptionGroupConfigRequest:
    return pb.GetAllSubscriptionGroupConfigRequest(
        known_version=_known(value), page_size=value.page_size, page_token=value.page_token, takes_changes=True
    )


def groups_page(response: pb.GetAllSubscriptionGroupConfigResponse) -> TablePage[GroupConfig]:
    rows = tuple(map(_group, response.groups))
    return TablePage(
        version_from_pb(response.version),
        rows,
        response.next_page_token,
        response.not_modified,
        led=_led(response),
        is_delta=response.is_delta,
        removed=tuple(response.removed),
    )


def groups_response(page: TablePage[GroupConfig]) -> pb.GetAllSubscriptionGroupConfigResponse:
    return pb.GetAllSubscriptionGroupConfigResponse(
        not_modified=page.not_modified,
        leading_epoch=page.led,
        version=version_to_pb(page.version),
        groups=map(_pb_group, page.rows),
        next_page_token=page.next_token,
        is_delta=page.is_delta,
        removed=page.removed,
    )


def consumer_offsets_request(value: Ask, *, takes_changes: bool) -> pb.GetAllConsumerOffsetRequest:
    return pb.GetAllConsumerOffsetRequest(
        known_version=_known(value), page_size=value.page_size, page_token=value.page_token, takes_changes=takes_changes
    )


def consumer_offsets_page(response: pb.GetAllConsumerOffsetResponse) -> OffsetPage:
    return OffsetPage(
        version_from_pb(response.version),
        tuple([offset_row(row) for row in response.offsets]),
        response.next_page_token,
        response.not_modified,
        response.is_delta,
        response.has_more,
        tuple([(name.topic, name.group) for name in response.removed]),
        led=_led(response),
    )


def consumer_offsets_response(page: OffsetPage) -> pb.GetAllConsumerOffsetResponse:
    return pb.GetAllConsumerOffsetResponse(
        not_modified=page.not_modified,
        leading_epoch=page.led,
        version=version_to_pb(page.version),
        offsets=map(offset_row_to_pb, page.rows),
        next_page_token=page.next_token,
        is_delta=page.is_delta,
        has_more=page.has_more,
        removed=(pb.TopicAndGroup(topic=topic, group=group) for topic, group in page.removed),
    )


def offset_row(row: pb.ConsumerOffset) -> ConsumerOffset:
    """As it is."""
    return ConsumerOffset(row.topic, row.group, row.queue, row.offset, row.reset_count, row.group_incarnation)


def offset_row_to_pb(row: ConsumerOffset) -> pb.ConsumerOffset:
    """As it is."""
    return pb.ConsumerOffset(
        topic=row.topic,
        group=row.group,
        queue=row.queue,
        offset=row.offset,
        reset_count=row.resets,
        group_incarnation=row.incarnation,
    )


def delay_offsets_request(value: Ask) -> pb.GetAllDelayOffsetRequest:
    return pb.GetAllDelayOffsetRequest(known_version=_known(value), page_size=value.page_size, page_token=value.page_token)


def delay_offsets_page(response: pb.GetAllDelayOffsetResponse) -> TablePage[DelayOffset]:
    rows = tuple(DelayOffset(row.level, row.offset, row.rocketmq_offset) for row in response.offsets)
    return TablePage(version_from_pb(response.version), rows, response.next_page_token, response.not_modified, led=_led(response))


def delay_offsets_response(page: TablePage[DelayOffset]) -> pb.GetAllDelayOffsetResponse:
    return pb.GetAllDelayOffsetResponse(
        not_modified=page.not_modified,
        leading_epoch=page.led,
        version=version_to_pb(page.version),
        offsets=(pb.DelayOffset(level=row.level, offset=row.offset, rocketmq_offset=row.rocketmq_offset) for row in page.rows),
        next_page_token=page.next_token,
    )


def versions_response(versions: Mapping[str, DataVersion]) -> pb.WatchVersionsResponse:
    """Encode versions by the name of their table's kind."""
    return pb.WatchVersionsResponse(**{field: version_to_pb(versions[kind.name]) for field, kind in _VERSION_FIELDS.items()})


def versions(response: pb.WatchVersionsResponse) -> dict[str, DataVersion]:
    """Decode the same."""
    return {kind.name: version_from_pb(getattr(response, field)) for field, kind in _VERSION_FIELDS.items()}


def watched_responses(request: pb.WatchVersionsRequest) -> int:
    """How many answers are wanted at most; 0: any number."""
    if request.max_responses < 0:
        raise InvalidField("max_responses", f"{request.max_responses} is negative; 0 means any number")
    return request.max_responses


def return_request(rows: Iterable[ConsumerOffset]) -> pb.ReturnConsumerOffsetsRequest:
    """Encode offsets for a master."""
    return pb.ReturnConsumerOffsetsRequest(offsets=map(offset_row_to_pb, rows))


def returned_offsets(request: pb.ReturnConsumerOffsetsRequest) -> list[ConsumerOffset]:
    """Decode the same."""
    if len(request.offsets) > MAX_PAGE_ROWS:
        raise InvalidField("offsets", f"are {len(request.offsets):,}; send at most {MAX_PAGE_ROWS:,} at once")
    rows = [offset_row(row) for row in request.offsets]
    for index, row in enumerate(rows):
        if min(row.queue, row.offset, row.resets) < 0:
            raise InvalidField(f"offsets[{index}]", "has a negative number")
    return rows


def _topic(row: pb.TopicConfig) -> TopicConfig:
    return TopicConfig(
        name=row.topic,
        read_queues=row.read_queues,
        write_queues=row.write_queues,
        permission=row.permission,
        sys_flag=row.sys_flag,
        order=row.order,
        attributes=dict(row.attributes),
        filter_type=row.filter_type,
        other_fields=_other_fields(row.other_fields),
    )


def _pb_topic(row: TopicConfig) -> pb.TopicConfig:
    return pb.TopicConfig(
        topic=row.name,
        read_queues=row.read_queues,
        write_queues=row.write_queues,
        permission=row.permission,
        sys_flag=row.sys_flag,
        order=row.order,
        attributes=row.attributes,
        filter_type=row.filter_type,
        other_fields=_text(row.other_fields),
    )


def _group(row: pb.SubscriptionGroupConfig) -> GroupConfig:
    return GroupConfig(
        name=row.group,
        consume_enable=row.consume_enable,
        consume_from_min_enable=row.consume_from_min_enable,
        consume_broadcast_enable=row.consume_broadcast_enable,
        consume_message_orderly=row.consume_message_orderly,
        retry_queues=row.retry_queues,
        retry_max_times=row.retry_max_times,
        broker_id=row.broker_id,
        which_broker_when_consume_slowly=row.which_broker_when_consume_slowly,
        incarnation=row.incarnation,
        attributes=dict(row.attributes),
        other_fields=_other_fields(row.other_fields),
    )


def _pb_group(row: GroupConfig) -> pb.SubscriptionGroupConfig:
    return pb.SubscriptionGroupConfig(
        group=row.name,
        consume_enable=row.consume_enable,
        consume_from_min_enable=row.consume_from_min_enable,
        consume_broadcast_enable=row.consume_broadcast_enable,
        consume_message_orderly=row.consume_message_orderly,
        retry_queues=row.retry_queues,
        retry_max_times=row.retry_max_times,
        broker_id=row.broker_id,
        which_broker_when_consume_slowly=row.which_broker_when_consume_slowly,
        incarnation=row.incarnation,
        attributes=row.attributes,
        other_fields=_text(row.other_fields),
    )


def _text(other_fields: Mapping[str | int, Json]) -> str:
    return fastjson.dumps(dict(other_fields)) if other_fields else ""


def _other_fields(text: str) -> dict[str | int, Json]:
    if not text:
        return {}
    try:
        fields = fastjson.loads(text)
    except ValueError as error:
        raise InvalidField("other_fields", f"is not JSON ({error}); send one object, or nothing") from error
    if not isinstance(fields, dict):
        raise InvalidField("other_fields", "is no JSON object; send one, or nothing")
    return fields


def _led(response: GetAllResponse) -> Epoch:
    return epoch_from_pb("leading_epoch", response.leading_epoch)


def _known(value: Ask) -> pb.DataVersion | None:
    return None if value.known is None else version_to_pb(value.known)
