"""ditto.naming.v1 ↔ `dittomq.routes`. From the wire comes a valid value or InvalidField."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from dittomq._pb.ditto.naming.v1 import naming_pb2 as pb
from dittomq.errors import InvalidField
from dittomq.offsets import Epoch
from dittomq.routes import (
    BrokerState,
    ChangedTopics,
    DataVersion,
    GroupMaster,
    HeartbeatRequest,
    HeartbeatResult,
    KeyValue,
    KeyValuePage,
    Node,
    NodePage,
    QueueRange,
    Registration,
    RegistrationResult,
    Role,
    Route,
    RouteWatchOrder,
    TopicQueues,
    WatchedRoute,
)
from dittomq.wire.epochs import epoch_from_pb
from dittomq.wire.times import ms_from_pb, timestamp_to_pb

MAX_TOPICS: Final = 100_000
MAX_CHANGED_TOPICS: Final = 1_000
"""So many changed, and so many removed ones, a heartbeat takes."""
MAX_NETWORKS: Final = 16

_ROLE = {
    pb.BROKER_ROLE_ASYNC_MASTER: Role.ASYNC_MASTER,
    pb.BROKER_ROLE_SYNC_MASTER: Role.SYNC_MASTER,
    pb.BROKER_ROLE_SLAVE: Role.SLAVE,
}
_STATE = {pb.BROKER_STATE_RECOVERING: BrokerState.RECOVERING, pb.BROKER_STATE_SERVING: BrokerState.SERVING}
_PB_ROLE = {role: number for number, role in _ROLE.items()}
_PB_STATE = {state: number for number, state in _STATE.items()}


def registration(request: pb.RegisterBrokerRequest) -> Registration:
    """What a node says of itself."""
    if not request.HasField("broker_id"):
        raise InvalidField("broker_id", "is missing; 0 is the master")
    _check_number("topics", request.topics, MAX_TOPICS)
    return Registration(
        cluster=request.cluster,
        broker=request.broker,
        broker_id=request.broker_id,
        replica_uuid=request.replica_uuid,
        epoch=epoch_from_pb("epoch", request.epoch),
        role=_role(request.role),
        state=_state(request.state),
        addresses=_addresses("addresses", request.addresses),
        replication_addresses=_addresses("replication_addresses", request.replication_addresses),
        permission=request.permission,
        topics=tuple(map(_topic_queues, request.topics)),
        data_version=_version(request.data_version),
        registration_period_ms=request.registration_period_ms,
        configured_id=request.configured_id if request.HasField("configured_id") else None,
    )


def registration_request(value: Registration) -> pb.RegisterBrokerRequest:
    return pb.RegisterBrokerRequest(
        cluster=value.cluster,
        broker=value.broker,
        broker_id=value.broker_id,
        replica_uuid=value.replica_uuid,
        epoch=value.epoch,
        role=_PB_ROLE[value.role],
        state=_PB_STATE[value.state],
        addresses=_pb_addresses(value.addresses),
        replication_addresses=_pb_addresses(value.replication_addresses),
        permission=value.permission,
        topics=map(_topic_entry, value.topics),
        data_version=_pb_version(value.data_version),
        registration_period_ms=value.registration_period_ms,
        configured_id=value.configured_id,
    )


def membership(response: pb.RegisterBrokerResponse) -> RegistrationResult:
    return RegistrationResult(response.session_id, _master(response), response.broker_expiry_ms, dict(response.order_topics))


def membership_response(value: RegistrationResult) -> pb.RegisterBrokerResponse:
    return pb.RegisterBrokerResponse(
        session_id=value.session_id,
        master=_pb_master(value.master),
        broker_expiry_ms=value.broker_expiry_ms,
        order_topics=value.order_topics,
    )


def beat(request: pb.HeartbeatRequest) -> HeartbeatRequest:
    _check_number("changed_topics", request.changed_topics, MAX_CHANGED_TOPICS)
    _check_number("removed_topics", request.removed_topics, MAX_CHANGED_TOPICS)
    changes = None
    if request.HasField("changed_since"):
        changes = ChangedTopics(
            _version(request.changed_since), tuple(map(_topic_queues, request.changed_topics)), tuple(request.removed_topics)
        )
    return HeartbeatRequest(
        request.session_id, _version(request.data_version), epoch_from_pb("epoch", request.epoch), _state(request.state), changes
    )


def beat_request(value: HeartbeatRequest) -> pb.HeartbeatRequest:
    request = pb.HeartbeatRequest(
        session_id=value.session_id, data_version=_pb_version(value.data_version), epoch=value.epoch, state=_PB_STATE[value.state]
    )
    if value.changes is not None:
        request.changed_since.CopyFrom(_pb_version(value.changes.since))
        request.changed_topics.extend(map(_topic_entry, value.changes.changed))
        request.removed_topics.extend(value.changes.removed)
    return request


def beat_answer(response: pb.HeartbeatResponse) -> HeartbeatResult:
    return HeartbeatResult(response.must_reregister, _master(response))


def beat_response(value: HeartbeatResult) -> pb.HeartbeatResponse:
    return pb.HeartbeatResponse(must_reregister=value.must_reregister, master=_pb_master(value.master))


def _queue_range(value: pb.QueueRange) -> QueueRange:
    return QueueRange(value.broker, value.read_queues, value.write_queues, value.permission, value.writes_off)


def _pb_queue_range(value: QueueRange) -> pb.QueueRange:
    return pb.QueueRange(
        broker=value.broker,
        read_queues=value.read_queues,
        write_queues=value.write_queues,
        permission=value.permission,
        writes_off=value.writes_off,
    )


def route(topic: str, response: pb.GetRouteResponse) -> Route:
    queues = map(_queue_range, response.queues)
    return Route(topic, response.cluster, tuple(queues), tuple(map(_node, response.nodes)), response.warming_up, response.order_config)


def route_response(value: Route) -> pb.GetRouteResponse:
    return pb.GetRouteResponse(
        cluster=value.cluster,
        queues=map(_pb_queue_range, value.queues),
        nodes=map(_pb_node, value.nodes),
        warming_up=value.warming_up,
        order_config=value.order_config,
    )


def watch_order(request: pb.WatchRoutesRequest) -> RouteWatchOrder:
    if request.max_responses < 0:
        raise InvalidField("max_responses", f"{request.max_responses} is negative; 0 means any number")
    return RouteWatchOrder(tuple(request.topics), request.network, request.max_responses)


def watched_route_response(value: WatchedRoute) -> pb.WatchRoutesResponse:
    found = None if value.route is None else route_response(value.route)
    return pb.WatchRoutesResponse(topic=value.topic, route=found, reason=value.reason)


def node_page(response: pb.ListBrokersResponse) -> NodePage:
    return NodePage(tuple(map(_node, response.nodes)), response.next_page_token)


def node_page_response(value: NodePage) -> pb.ListBrokersResponse:
    return pb.ListBrokersResponse(nodes=map(_pb_node, value.nodes), next_page_token=value.next_page_token)


def key_value(value: pb.KeyValue) -> KeyValue:
    return KeyValue(value.namespace, value.key, value.value)


def pb_key_value(value: KeyValue) -> pb.KeyValue:
    return pb.KeyValue(namespace=value.namespace, key=value.key, value=value.value)


def key_value_page_response(value: KeyValuePage) -> pb.ListKeyValuesResponse:
    return pb.ListKeyValuesResponse(key_values=map(pb_key_value, value.key_values), next_page_token=value.next_page_token)


def _master(response: pb.RegisterBrokerResponse | pb.HeartbeatResponse) -> GroupMaster | None:
    if not response.HasField("master"):
        return None
    master = response.master
    return GroupMaster(master.address, master.replication_address, epoch_from_pb("master.epoch", master.epoch))


def _pb_master(master: GroupMaster | None) -> pb.GroupMaster | None:
    if master is None:
        return None
    return pb.GroupMaster(address=master.address, replication_address=master.replication_address, epoch=master.epoch)


def _node(node: pb.Node) -> Node:
    return Node(
        cluster=node.cluster,
        broker=node.broker,
        broker_id=node.broker_id,
        role=_role(node.role),
        state=_state(node.state),
        epoch=Epoch(node.epoch),
        address=node.address,
        replication_address=node.replication_address,
        seen_ms=ms_from_pb(node.seen_time),
        data_version=_version(node.data_version),
        replica_uuid=node.replica_uuid,
        addresses=_addresses("addresses", node.addresses),
        configured_id=node.configured_id if node.HasField("configured_id") else None,
    )


def _pb_node(node: Node) -> pb.Node:
    return pb.Node(
        cluster=node.cluster,
        broker=node.broker,
        broker_id=node.broker_id,
        role=_PB_ROLE[node.role],
        state=_PB_STATE[node.state],
        epoch=node.epoch,
        address=node.address,
        replication_address=node.replication_address,
        addresses=_pb_addresses(node.addresses),
        seen_time=timestamp_to_pb(node.seen_ms),
        data_version=_pb_version(node.data_version),
        replica_uuid=node.replica_uuid,
        configured_id=node.configured_id,
    )


def _topic_queues(entry: pb.TopicEntry) -> TopicQueues:
    return TopicQueues(entry.topic, entry.read_queues, entry.write_queues, entry.permission)


def _topic_entry(queues: TopicQueues) -> pb.TopicEntry:
    return pb.TopicEntry(topic=queues.topic, read_queues=queues.read_queues, write_queues=queues.write_queues, permission=queues.permission)


def _role(number: pb.BrokerRole) -> Role:
    if number not in _ROLE:
        raise InvalidField("role", f"{number} is no role; send one of {', '.join(_ROLE.values())}")
    return _ROLE[number]


def _state(number: pb.BrokerState) -> BrokerState:
    if number not in _STATE:
        raise InvalidField("state", f"{number} is no state; send RECOVERING or SERVING")
    return _STATE[number]


def _version(version: pb.DataVersion) -> DataVersion:
    return DataVersion(version.state_version, version.timestamp_ms, version.counter)


def _pb_version(version: DataVersion) -> pb.DataVersion:
    return pb.DataVersion(state_version=version.state_version, timestamp_ms=version.timestamp_ms, counter=version.counter)


def _addresses(field: str, given: Sequence[pb.NetworkAddress]) -> Mapping[str, str]:
    _check_number(field, given, MAX_NETWORKS)
    found: dict[str, str] = {}
    for each in given:
        if each.network in found:
            raise InvalidField(field, f'network "{each.network}" is named twice')
        found[each.network] = each.address
    return found


def _check_number(field: str, given: Sequence[Any], most: int) -> None:
    """Before they are taken apart, which takes much longer than to send them."""
    if len(given) > most:
        raise InvalidField(f"number of {field}", f"{len(given):,} is outside [0, {most:,}]")


def _pb_addresses(addresses: Mapping[str, str]) -> list[pb.NetworkAddress]:
    return [pb.NetworkAddress(network=network, address=addresses[network]) for network in sorted(addresses)]
