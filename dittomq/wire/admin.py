"""ditto.admin.v1 ↔ values, both ways. From the wire comes a valid value or InvalidField; an absent number is None, never zero."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from dittomq._pb.ditto.admin.v1 import admin_pb2 as pb
from dittomq.copies import MessageSpan, RangeOutcome, RepairReport, RepairRequest
from dittomq.errors import InvalidField
from dittomq.ha_status import DataLossKind, HaStatus, NodeState, NodeView, PinView, StreamEndReason, WaitKind
from dittomq.metadata.topics import DEFAULT_QUEUES, QueueStatus, TopicConfig, TopicUpdate
from dittomq.offsets import PhysicalOffset, QueueOffset
from dittomq.routes import PERMISSION_READ, PERMISSION_WRITE
from dittomq.wire.metadata import version_from_pb
from dittomq.wire.times import ms_from_pb, timestamp_to_pb

MAX_TOPIC_PAGE = 10_000
DEFAULT_TOPIC_PAGE = 1_000
MIN_WATCH_S = 0.1
MAX_WATCH_S = 60.0
DEFAULT_WATCH_S = 0.5
_CHANGES_IN_A_PART = 100
_STATE_TO_PB = {each: f"NODE_STATE_{'UNSPECIFIED' if each is NodeState.UNKNOWN else each.name}" for each in NodeState}
_STATE_FROM_PB = {pb.NodeState.Value(name): each for each, name in _STATE_TO_PB.items()}
_END_TO_PB = {each: f"STREAM_END_REASON_{each.name}" for each in StreamEndReason}
_END_FROM_PB = {pb.StreamEndReason.Value(name): each for each, name in _END_TO_PB.items()}
_LOSS_TO_PB = {each: f"DATA_LOSS_KIND_{each.name}" for each in DataLossKind}
_LOSS_FROM_PB = {pb.DataLossKind.Value(name): each for each, name in _LOSS_TO_PB.items()}
_WAIT_TO_PB = {each: f"WAIT_KIND_{each.name}" for each in WaitKind}
_WAIT_FROM_PB = {pb.WaitKind.Value(name): each for each, name in _WAIT_TO_PB.items()}
_UPDATABLE = ("read_queues", "write_queues", "permission")


@dataclass(frozen=True, slots=True)
class TopicPage:
    """Topics by name; an empty token means that no more follow."""

    topics: tuple[TopicConfig, ...]
    next_page_token: str


@dataclass(frozen=True, slots=True)
class EffectiveSetting:
    """One setting as it is in force: "table.key", the value as in TOML, and where it came from."""

    key: str
    value: str
    origin: str


@dataclass(frozen=True, slots=True)
class BrokerDescription:
    """What a node is and how it is configured."""

    version: str
    cluster: str
    node: str
    role: str
    state: str
    replica_uuid: str
    settings: tuple[EffectiveSetting, ...]


@dataclass(frozen=True, slots=True)
class SwitchoverOrder:
    """The master is to give its place to the slave `target`, "broker/id". `validate_only`: check only, change nothing."""

    target: str
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class SwitchoverAnswer:
    """The slave was sent, or would be: the master leads, or led, in `epoch`, and the slave opens a higher one."""

    epoch: int


@dataclass(frozen=True, slots=True)
class FailoverOrder:
    """The node "broker/id" that is called is to stand for election. `validate_only`: check only, change nothing."""

    node: str
    allow_data_loss: bool = False
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class FailoverAnswer:
    """The node stands, or would, against the group record of `epoch`, 0 for no record.

    `data_loss`: what may be lost, in words, "" for nothing; it lies at or behind the physical offset `data_loss_above`. `silent`: members
    that did not answer; nothing fences those.
    """

    epoch: int
    data_loss: str
    silent: tuple[str, ...]
    data_loss_above: int | None = None


@dataclass(frozen=True, slots=True)
class PauseOrder:
    """Automatic failover of a broker group is to stop, or to start. `validate_only`: check only, change nothing."""

    broker: str
    paused: bool
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class HaChange:
    """One change of the group record, as the master noted it at the wall time `time_ms`.

    `members` and `master` are "broker/id". `duration_ms`: so long no master took writes before, or so long the write took.
    """

    time_ms: int
    revision: int
    epoch: int
    master: str
    members: tuple[str, ...]
    cause: str
    duration_ms: int


def topic_to_pb(topic: TopicConfig) -> pb.Topic:
    """Encode a topic."""
    return pb.Topic(name=topic.name, read_queues=topic.read_queues, write_queues=topic.write_queues, permission=topic.permission)


def topic_from_pb(message: pb.Topic) -> TopicConfig:
    """Decode a topic, defaults filled in. Its limits are checked where it is created."""
    return TopicConfig(
        name=message.name,
        read_queues=message.read_queues or DEFAULT_QUEUES,
        write_queues=message.write_queues or DEFAULT_QUEUES,
        permission=message.permission if message.HasField("permission") else PERMISSION_READ | PERMISSION_WRITE,
    )


def update_topic_request(update: TopicUpdate) -> pb.UpdateTopicRequest:
    """Encode settings for a topic, whatever version the topics have."""
    return pb.UpdateTopicRequest(topic=topic_to_pb(update.topic), update_mask=update.fields)


def topic_update(request: pb.UpdateTopicRequest) -> TopicUpdate:
    """Decode settings for a topic. Their limits are checked where it is changed."""
    fields = tuple(request.update_mask)
    if not fields or not set(fields).issubset(_UPDATABLE):
        raise InvalidField("update_mask", f"names what to change: one or more of {', '.join(_UPDATABLE)}")
    for field in fields:
        if not getattr(request.topic, field):
            raise InvalidField(f"topic.{field}", "is named by update_mask and has no value; give one")
    known = version_from_pb(request.data_version) if request.HasField("data_version") else None
    return TopicUpdate(topic_from_pb(request.topic), fields, known)


def get_topic_response(topic: TopicConfig, queues: Iterable[QueueStatus]) -> pb.GetTopicResponse:
    """Encode a topic and what its queues hold."""
    return pb.GetTopicResponse(
        topic=topic_to_pb(topic),
        queues=[pb.QueueStatus(queue=each.queue, min_offset=each.min_offset, max_offset=each.max_offset) for each in queues],
    )


def topic_and_queues(response: pb.GetTopicResponse) -> tuple[TopicConfig, tuple[QueueStatus, ...]]:
    """Decode a topic and what its queues hold."""
    queues = tuple(QueueStatus(each.queue, each.min_offset, each.max_offset) for each in response.queues)
    return topic_from_pb(response.topic), queues


def list_topics_request(page_token: str) -> pb.ListTopicsRequest:
    """Encode the question for a page of the greatest size."""
    return pb.ListTopicsRequest(page_size=MAX_TOPIC_PAGE, page_token=page_token)


def topic_page_size(request: pb.ListTopicsRequest) -> int:
    """Topics wanted in a page."""
    if not 0 <= request.page_size <= MAX_TOPIC_PAGE:
        raise InvalidField("page_size", f"{request.page_size:,} is outside 1 to {MAX_TOPIC_PAGE:,}")
    return request.page_size or DEFAULT_TOPIC_PAGE


def list_topics_response(page: TopicPage) -> pb.ListTopicsResponse:
    """Encode a page of topics."""
    return pb.ListTopicsResponse(topics=[topic_to_pb(topic) for topic in page.topics], next_page_token=page.next_page_token)


def topic_page(response: pb.ListTopicsResponse) -> TopicPage:
    """Decode a page of topics."""
    return TopicPage(tuple(topic_from_pb(topic) for topic in response.topics), response.next_page_token)


def get_broker_response(broker: BrokerDescription) -> pb.GetBrokerResponse:
    """Encode what a node is."""
    return pb.GetBrokerResponse(
        version=broker.version,
        cluster=broker.cluster,
        node=broker.node,
        role=broker.role,
        state=broker.state,
        replica_uuid=broker.replica_uuid,
        settings=[pb.Setting(key=each.key, value=each.value, origin=each.origin) for each in broker.settings],
    )


def broker_description(response: pb.GetBrokerResponse) -> BrokerDescription:
    """Decode what a node is."""
    return BrokerDescription(
        version=response.version,
        cluster=response.cluster,
        node=response.node,
        role=response.role,
        state=response.state,
        replica_uuid=response.replica_uuid,
        settings=tuple(EffectiveSetting(each.key, each.value, each.origin) for each in response.settings),
    )


def switchover_request(order: SwitchoverOrder) -> pb.SwitchoverRequest:
    """Encode the order to switch over."""
    return pb.SwitchoverRequest(target=order.target, validate_only=order.validate_only)


def switchover_order(request: pb.SwitchoverRequest) -> SwitchoverOrder:
    """Decode to whom this master is to give its place."""
    return SwitchoverOrder(request.target, request.validate_only)


def switchover_response(answer: SwitchoverAnswer) -> pb.SwitchoverResponse:
    """Encode the answer of a master."""
    return pb.SwitchoverResponse(epoch=answer.epoch)


def switchover_answer(response: pb.SwitchoverResponse) -> SwitchoverAnswer:
    """Decode the answer of a master."""
    return SwitchoverAnswer(response.epoch)


def failover_request(order: FailoverOrder) -> pb.FailoverRequest:
    """Encode the order to stand for election."""
    return pb.FailoverRequest(node=order.node, allow_data_loss=order.allow_data_loss, validate_only=order.validate_only)


def failover_order(request: pb.FailoverRequest) -> FailoverOrder:
    """Decode the order to stand for election."""
    return FailoverOrder(request.node, request.allow_data_loss, request.validate_only)


def failover_response(answer: FailoverAnswer) -> pb.FailoverResponse:
    """Encode the answer of a node that stands."""
    return pb.FailoverResponse(
        epoch=answer.epoch, data_loss=answer.data_loss, silent=answer.silent, data_loss_above_offset=answer.data_loss_above
    )


def failover_answer(response: pb.FailoverResponse) -> FailoverAnswer:
    """Decode the answer of a node that stands."""
    above = response.data_loss_above_offset if response.HasField("data_loss_above_offset") else None
    return FailoverAnswer(response.epoch, response.data_loss, tuple(response.silent), above)


def set_paused_request(order: PauseOrder) -> pb.SetPausedRequest:
    """Encode the order to stop or to start automatic failover."""
    return pb.SetPausedRequest(broker=order.broker, paused=order.paused, validate_only=order.validate_only)


def pause_order(request: pb.SetPausedRequest) -> PauseOrder:
    """Decode the order to stop or to start automatic failover."""
    return PauseOrder(request.broker, request.paused, request.validate_only)


def set_paused_response(changed: bool) -> pb.SetPausedResponse:
    """Encode whether the flag was another one before."""
    return pb.SetPausedResponse(changed=changed)


def ha_history_responses(changes: Sequence[HaChange]) -> Iterator[pb.GetHaHistoryResponse]:
    """Encode the history, oldest first, in parts."""
    for start in range(0, len(changes), _CHANGES_IN_A_PART):
        part = changes[start : start + _CHANGES_IN_A_PART]
        yield pb.GetHaHistoryResponse(
            changes=[
                pb.HaChange(
                    time=timestamp_to_pb(each.time_ms),
                    revision=each.revision,
                    epoch=each.epoch,
                    master=each.master,
                    members=each.members,
                    cause=each.cause,
                    duration=_duration(each.duration_ms / 1000),
                )
                for each in part
            ]
        )


def ha_changes(response: pb.GetHaHistoryResponse) -> tuple[HaChange, ...]:
    """Decode a part of the history."""
    return tuple(
        HaChange(
            ms_from_pb(each.time),
            each.revision,
            each.epoch,
            each.master,
            tuple(each.members),
            each.cause,
            round(_seconds(each.duration) * 1000),
        )
        for each in response.changes
    )


def watch_request(period_s: float) -> pb.WatchHaStatusRequest:
    """Encode the wish to be told of changes, at most once in `period_s`."""
    return pb.WatchHaStatusRequest(period=_duration(period_s))


def watch_limits(request: pb.WatchHaStatusRequest) -> tuple[float, int]:
    """Least seconds between two answers, and how many are wanted, 0 for any number."""
    period_s = _seconds(request.period) if request.HasField("period") else DEFAULT_WATCH_S
    if not MIN_WATCH_S <= period_s <= MAX_WATCH_S:
        raise InvalidField("period", f"{period_s:g} s is outside {MIN_WATCH_S:g} to {MAX_WATCH_S:g} s")
    if request.max_responses < 0:
        raise InvalidField("max_responses", f"{request.max_responses:,} is negative; 0 means any number")
    return period_s, request.max_responses


def watch_response(status: HaStatus) -> pb.WatchHaStatusResponse:
    """Encode one answer of a watch."""
    return pb.WatchHaStatusResponse(status=get_ha_status_response(status))


def get_ha_status_response(status: HaStatus) -> pb.GetHaStatusResponse:
    """Encode one node's view of its group."""
    return pb.GetHaStatusResponse(
        node=status.node,
        cluster=status.cluster,
        broker=status.broker,
        epoch=status.epoch,
        role=status.role,
        in_sync_replicas=status.in_sync_replicas,
        in_sync_now=status.in_sync_now,
        replicas_expected=status.replicas_expected,
        min_offset=status.min_offset,
        end_offset=status.end,
        flushed_offset=status.flushed,
        confirmed_offset=status.confirmed,
        readable_offset=status.readable,
        writable=status.writable,
        degraded=status.degraded,
        degraded_since_time=_timestamp(status.degraded_since_ms),
        waiting_for=status.waiting_for,
        nodes=_node_views_to_pb(status.nodes),
        replica_ack_level=status.replica_ack_level,
        members=status.members,
        failover=status.failover,
        coordination_store=status.coordination_store,
        coordination_problem=status.coordination_problem,
        uncounted=status.uncounted,
        data_loss=status.data_loss,
        data_loss_kind=None if status.data_loss_kind is None else _LOSS_TO_PB[status.data_loss_kind],
        waiting_kind=None if status.waiting_kind is None else _WAIT_TO_PB[status.waiting_kind],
    )


def _node_views_to_pb(nodes: Sequence[NodeView]) -> list[pb.NodeView]:
    return [
        pb.NodeView(
            node=view.node,
            role=view.role,
            state=_STATE_TO_PB[view.state],
            received_offset=view.received,
            flushed_offset=view.flushed,
            applied_offset=view.applied,
            received_lag_bytes=view.received_lag_bytes,
            flushed_lag_bytes=view.flushed_lag_bytes,
            applied_lag_bytes=view.applied_lag_bytes,
            received_lag=_duration(view.received_lag_s),
            flushed_lag=_duration(view.flushed_lag_s),
            verified_offset=view.verified_offset,
            since_time=_timestamp(view.since_ms),
            transfer_bytes_per_s=view.transfer_bytes_per_s,
            received_bytes_per_s=view.received_bytes_per_s,
            last_drop_reason=view.last_drop_reason,
            last_drop_time=_timestamp(view.last_drop_ms),
            applied_lag=_duration(view.applied_lag_s),
            pins=[pb.PinView(run=pin.run, start_offset=pin.start, until_time=_timestamp(pin.until_ms)) for pin in view.pins],
            damaged_bytes=view.damaged_bytes,
            resync_done_bytes=view.resync_done_bytes,
            resync_total_bytes=view.resync_total_bytes,
            switchover_target=view.switchover_target,
            last_drop_kind=None if view.last_drop_kind is None else _END_TO_PB[view.last_drop_kind],
        )
        for view in nodes
    ]


def ha_status(response: pb.GetHaStatusResponse) -> HaStatus:
    """Decode one node's view of its group."""
    return HaStatus(
        node=response.node,
        cluster=response.cluster,
        broker=response.broker,
        epoch=response.epoch,
        role=response.role,
        in_sync_replicas=response.in_sync_replicas,
        in_sync_now=response.in_sync_now,
        replicas_expected=response.replicas_expected,
        min_offset=response.min_offset,
        end=response.end_offset,
        flushed=response.flushed_offset,
        confirmed=response.confirmed_offset,
        readable=response.readable_offset,
        writable=response.writable,
        degraded=response.degraded,
        degraded_since_ms=ms_from_pb(response.degraded_since_time) if response.HasField("degraded_since_time") else None,
        waiting_for=response.waiting_for,
        nodes=tuple(_node_view(view) for view in response.nodes),
        replica_ack_level=response.replica_ack_level,
        members=tuple(response.members),
        failover=response.failover,
        coordination_store=response.coordination_store,
        coordination_problem=response.coordination_problem,
        uncounted=tuple(response.uncounted),
        data_loss=response.data_loss,
        data_loss_kind=_LOSS_FROM_PB.get(response.data_loss_kind),
        waiting_kind=_WAIT_FROM_PB.get(response.waiting_kind),
    )


def _node_view(view: pb.NodeView) -> NodeView:
    return NodeView(
        node=view.node,
        role=view.role,
        state=_STATE_FROM_PB.get(view.state, NodeState.UNKNOWN),
        received=view.received_offset if view.HasField("received_offset") else None,
        flushed=view.flushed_offset if view.HasField("flushed_offset") else None,
        applied=view.applied_offset if view.HasField("applied_offset") else None,
        received_lag_bytes=view.received_lag_bytes if view.HasField("received_lag_bytes") else None,
        flushed_lag_bytes=view.flushed_lag_bytes if view.HasField("flushed_lag_bytes") else None,
        applied_lag_bytes=view.applied_lag_bytes if view.HasField("applied_lag_bytes") else None,
        received_lag_s=_seconds(view.received_lag) if view.HasField("received_lag") else None,
        flushed_lag_s=_seconds(view.flushed_lag) if view.HasField("flushed_lag") else None,
        verified_offset=view.verified_offset if view.HasField("verified_offset") else None,
        since_ms=ms_from_pb(view.since_time) if view.HasField("since_time") else None,
        transfer_bytes_per_s=view.transfer_bytes_per_s,
        received_bytes_per_s=view.received_bytes_per_s,
        applied_lag_s=_seconds(view.applied_lag) if view.HasField("applied_lag") else None,
        last_drop_reason=view.last_drop_reason,
        last_drop_ms=ms_from_pb(view.last_drop_time) if view.HasField("last_drop_time") else None,
        pins=tuple(PinView(pin.run, pin.start_offset, ms_from_pb(pin.until_time)) for pin in view.pins),
        damaged_bytes=view.damaged_bytes if view.HasField("damaged_bytes") else None,
        resync_done_bytes=view.resync_done_bytes if view.HasField("resync_done_bytes") else None,
        resync_total_bytes=view.resync_total_bytes if view.HasField("resync_total_bytes") else None,
        switchover_target=view.switchover_target,
        last_drop_kind=_END_FROM_PB.get(view.last_drop_kind, StreamEndReason.OTHER) if view.last_drop_kind else None,
    )


def _timestamp(ms: int | None) -> Timestamp | None:
    return None if ms is None else timestamp_to_pb(ms)


def _duration(seconds: float | None) -> Duration | None:
    if seconds is None:
        return None
    nanos = round(seconds * 1e9)
    return Duration(seconds=nanos // 1_000_000_000, nanos=nanos % 1_000_000_000)


def _seconds(duration: Duration) -> float:
    return float(duration.seconds * 1_000_000_000 + duration.nanos) / 1e9


def repair_request(order: RepairRequest) -> pb.RepairRequest:
    return pb.RepairRequest(node=order.node, start_offset=order.start, end_offset=order.end, validate_only=order.validate_only)


def repair_order(request: pb.RepairRequest) -> RepairRequest:
    start = PhysicalOffset(request.start_offset) if request.HasField("start_offset") else None
    end = PhysicalOffset(request.end_offset) if request.HasField("end_offset") else None
    return RepairRequest(request.node, start, end, request.validate_only)


def repair_response(report: RepairReport) -> pb.RepairResponse:
    ranges = [
        pb.RepairedRange(
            start_offset=each.start,
            end_offset=each.end,
            source=each.source,
            problem=each.problem,
            messages=[pb.MessageRun(topic=run.topic, queue=run.queue, first_offset=run.first, end_offset=run.end) for run in each.messages],
            more_messages=each.more_messages,
        )
        for each in report.ranges
    ]
    return pb.RepairResponse(start_offset=report.start, end_offset=report.end, ranges=ranges, done=report.is_done)


def repair_report(response: pb.RepairResponse) -> RepairReport:
    ranges = tuple(
        RangeOutcome(
            PhysicalOffset(each.start_offset),
            PhysicalOffset(each.end_offset),
            each.source,
            each.problem,
            tuple(MessageSpan(run.topic, run.queue, QueueOffset(run.first_offset), QueueOffset(run.end_offset)) for run in each.messages),
            each.more_messages,
        )
        for each in response.ranges
    )
    return RepairReport(PhysicalOffset(response.start_offset), PhysicalOffset(response.end_offset), ranges, response.done)
