"""Every field of a request that holds a topic or a group is known, so that none goes unchecked."""

import pytest
from google.protobuf import descriptor_pool

from dittomq._pb.ditto.admin.v1 import admin_pb2, groups_pb2
from dittomq._pb.ditto.audit.v1 import audit_pb2
from dittomq._pb.ditto.coordination.v1 import coordination_pb2
from dittomq._pb.ditto.messaging.v1 import consumer_groups_pb2, consumer_sessions_pb2, messaging_pb2, transactions_pb2
from dittomq._pb.ditto.metadata.v1 import metadata_pb2
from dittomq._pb.ditto.naming.v1 import naming_pb2
from dittomq._pb.ditto.replication.v1 import election_pb2, replication_pb2
from dittomq.rpc.places import LATER, Named, Places, call_fields
from dittomq.security.access import AccessRole

_MODULES = (admin_pb2, groups_pb2, audit_pb2, coordination_pb2, consumer_groups_pb2, messaging_pb2, transactions_pb2)
_ALL = [
    call_fields(f"{service.full_name}/{method.name}")
    for module in (*_MODULES, metadata_pb2, naming_pb2, election_pb2, replication_pb2)
    for service in module.DESCRIPTOR.services_by_name.values()
    for method in service.methods
]
_LIMITED = [places for places in _ALL if places.role in {AccessRole.PRODUCE, AccessRole.CONSUME, AccessRole.ADMIN}]
_CLUSTER = {f"ditto.admin.v1.BrokerService/{name}" for name in ("GetBroker", "Switchover", "Failover", "SetPaused", "Repair")} | {
    f"ditto.naming.v1.NameServerService/{name}"
    for name in ("SetWritePermission", "PutKeyValue", "GetKeyValue", "ListKeyValues", "DeleteKeyValue")
}
_NO_NAMES = {
    "tag",
    "text",
    "key",
    "keys",
    "order_key",
    "producer_id",
    "member",
    "process",
    "page_token",
    "at_least",
    "update_mask",
    "token",
    "lease_token",
    "lease_tokens",
    "id",
}


@pytest.mark.parametrize("places", _LIMITED, ids=lambda places: places.method)
def test_every_call_that_rules_limit_names_what_it_is_about_or_is_known_not_to(places: Places) -> None:
    assert places.has_names != (places.method in LATER | _CLUSTER)


@pytest.mark.parametrize("places", [places for places in _LIMITED if places.method not in _CLUSTER], ids=lambda places: places.method)
def test_no_text_of_a_request_is_a_name_that_nobody_looks_at(places: Places) -> None:
    """A new field of text is either a topic, a group, or is listed here as neither."""
    service, _, name = places.method.partition("/")
    method = descriptor_pool.Default().FindServiceByName(service).methods_by_name[name]  # type: ignore[no-untyped-call]
    known = {path[-1][0] for path in (*places.topics, *places.groups)}

    assert _texts(method.input_type) - known - _NO_NAMES == set()


def _texts(message: "object") -> set[str]:
    found: set[str] = set()
    for field in message.fields:  # type: ignore[attr-defined]
        if field.type == field.TYPE_STRING:
            found.add(field.name)
        elif field.message_type is not None and not field.message_type.GetOptions().map_entry:
            found |= _texts(field.message_type) if field.message_type.full_name.startswith("ditto.") else set()
    return found


def test_every_message_of_a_batch_is_looked_at() -> None:
    batch = messaging_pb2.PublishStreamRequest(
        messages=[messaging_pb2.Message(topic="a"), messaging_pb2.Message(topic="b")], runs=[messaging_pb2.MessageRun(topic="c")]
    )

    named = call_fields("ditto.messaging.v1.MessagingService/PublishStream").named(batch)

    assert named.topics == {"a", "b", "c"}


def test_a_transaction_names_its_group_and_a_join_all_that_it_reads() -> None:
    publish = messaging_pb2.PublishRequest(message=messaging_pb2.Message(topic="a"), transaction_group="g")
    join = consumer_sessions_pb2.JoinRequest(
        join=consumer_sessions_pb2.JoinMember(
            group="g",
            subscriptions=[consumer_sessions_pb2.TopicSubscription(topic="a")],
            held=[consumer_sessions_pb2.QueueSet(topic="%RETRY%h")],
        )
    )

    assert call_fields("ditto.messaging.v1.MessagingService/Publish").named(publish) == Named(frozenset({"a"}), frozenset({"g"}))
    assert call_fields("ditto.messaging.v1.ConsumerGroupService/Join").named(join) == Named(frozenset({"a"}), frozenset({"g", "h"}))


def test_an_admins_call_is_told_by_what_it_is_about() -> None:
    request = admin_pb2.CreateTopicRequest(topic=admin_pb2.Topic(name="orders"), validate_only=True)

    assert call_fields("ditto.admin.v1.TopicService/CreateTopic").resource(request) == "topic=orders validate_only"
