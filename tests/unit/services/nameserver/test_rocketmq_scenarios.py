"""What RocketMQ's tests of RouteInfoManager ask, asked of our registry; README.md has the table from scenario to test."""

import asyncio
import random
from dataclasses import replace

import pytest

from dittomq.errors import DuplicateBrokerId, InvalidField, SessionExpired, TopicNotFound
from dittomq.offsets import Epoch
from dittomq.routes import ORDER_TOPIC_CONFIG, DataVersion, KeyValue, Registration, TopicQueues
from services.nameserver.config import NameserverConfig
from services.nameserver.key_values_file import Namespaces
from services.nameserver.registry import WRITES_OFF, Registry
from services.nameserver.service import NameServer
from tests.support.manual_clock import HandClock
from tests.support.naming import UUID_A, UUID_B, at, beat, kept_values, master, orders, slave

EXPIRY_MS = 30_000
SETTLED_MS = 10_000
UUID_C = "c" * 32


@pytest.fixture
def registry() -> Registry:
    return Registry("dittomq", EXPIRY_MS, at(0))


def names(topics: tuple[str, ...]) -> tuple[TopicQueues, ...]:
    return tuple(TopicQueues(topic, 8, 8, 6) for topic in topics)


def permissions(registry: Registry, topic: str = "orders") -> list[int]:
    return [each.permission for each in registry.route(topic, "default", at(0)).queues]


def ids(registry: Registry) -> list[tuple[str, int]]:
    return [(node.name, node.broker_id) for node in registry.route("orders", "default", at(0)).nodes]


def promoted(epoch: int = 8) -> Registration:
    """Node a/1, which leads in its place."""
    return replace(master(UUID_B, host="a-1", epoch=epoch), configured_id=1)


def demoted(epoch: int = 8) -> Registration:
    """Node a/0, which follows a/1."""
    return replace(slave(UUID_A, host="a-0", epoch=epoch), configured_id=0)


class Names:
    """A nameserver with these values."""

    def __init__(self, found: Namespaces | None = None) -> None:
        self.values = kept_values(found)
        self.server = NameServer(NameserverConfig(), HandClock(), random.Random(1), self.values)

    def set_writable(self, broker: str, *, writable: bool) -> int:
        return asyncio.run(self.server.set_writable(broker, writable=writable))

    def permissions(self, topic: str = "orders") -> list[int]:
        return [each.permission for each in self.server.route(topic, "").queues]


class TestRegistration:
    def test_register_slave_broker_shows_both_ids_in_routes(self, registry: Registry) -> None:
        registry.register(master(), "s1", at(0))
        registry.register(slave(), "s2", at(0))

        assert ids(registry) == [("a/0", 0), ("a/1", 1)]

    def test_unregister_ends_the_route_with_the_last_node(self, registry: Registry) -> None:
        registry.register(master(), "s1", at(0))
        registry.register(replace(master(UUID_C, host="b-0", broker="b"), topics=names(("others",))), "s3", at(0))

        registry.unregister("s1")

        with pytest.raises(TopicNotFound):
            registry.route("orders", "default", at(SETTLED_MS))

    def test_delete_topic_in_one_group_leaves_it_in_the_others(self, registry: Registry) -> None:
        registry.register(master(), "s1", at(0))
        registry.register(master(UUID_C, host="b-0", broker="b"), "s2", at(0))

        registry.register(replace(master(), topics=()), "s3", at(1))

        assert [each.broker for each in registry.route("orders", "default", at(1)).queues] == ["b"]

    def test_delete_topic_in_all_groups_ends_its_route(self, registry: Registry) -> None:
        for broker, uuid in (("a", UUID_A), ("b", UUID_C)):
            registry.register(master(uuid, host=broker, broker=broker), broker, at(0))
            registry.register(replace(master(uuid, host=broker, broker=broker), topics=()), broker * 2, at(1))

        with pytest.raises(TopicNotFound):
            registry.route("orders", "default", at(SETTLED_MS))

    def test_create_new_topic_on_a_master_adds_it_for_the_whole_group(self, registry: Registry) -> None:
        registry.register(master(), "s1", at(0))
        registry.register(slave(), "s2", at(0))

        registry.register(replace(master(), topics=(orders(), *names(("new",)))), "s3", at(1))

        route = registry.route("new", "default", at(1))
        assert [(each.broker, each.permission) for each in route.queues] == [("a", 6)]
        assert [node.name for node in route.nodes] == ["a/0", "a/1"]

    def test_register_single_topic_with_a_first_registration_is_taken(self, registry: Registry) -> None:
        """RocketMQ ignores it: there it is the sign of a change that was sent alone."""
        registry.register(replace(master(), topics=names(("only",))), "s1", at(0))

        assert registry.route("only", "default", at(0)).queues

    def test_delete_topic_with_broker_registration_follows_the_new_table(self, registry: Registry) -> None:
        registry.register(replace(master(), topics=names(("kept", "gone"))), "s1", at(0))

        registry.register(replace(master(), topics=names(("kept",))), "s2", at(1))

        assert registry.route("kept", "default", at(1)).queues
        with pytest.raises(TopicNotFound):
            registry.route("gone", "default", at(SETTLED_MS))


class TestSwitchBrokerRole:
    def test_switch_broker_role_leaves_each_node_under_its_new_id_only(self, registry: Registry) -> None:
        registry.register(master(), "s1", at(0))
        registry.register(slave(), "s2", at(0))

        registry.register(promoted(), "s3", at(1))
        registry.register(demoted(), "s4", at(2))

        assert ids(registry) == [("a/1", 0), ("a/0", 1)]

    def test_switch_broker_role_back_leaves_each_node_under_its_old_id(self, registry: Registry) -> None:
        registry.register(promoted(), "s1", at(0))
        registry.register(demoted(), "s2", at(0))

        registry.register(master(UUID_A, epoch=9), "s3", at(1))
        registry.register(slave(UUID_B, epoch=9), "s4", at(2))

        assert ids(registry) == [("a/0", 0), ("a/1", 1)]

    def test_switch_broker_role_leaves_room_for_a_new_slave(self, registry: Registry) -> None:
        registry.register(master(), "s1", at(0))
        registry.register(slave(), "s2", at(0))
        registry.register(promoted(), "s3", at(1))
        registry.register(demoted(), "s4", at(2))

        registry.register(slave(UUID_C, host="a-2", broker_id=2), "s5", at(3))

        assert ids(registry) == [("a/1", 0), ("a/0", 1), ("a/2", 2)]

    def test_switch_broker_role_outlives_the_goodbye_of_the_old_session(self, registry: Registry) -> None:
        registry.register(master(), "s1", at(0))
        registry.register(slave(), "s2", at(0))
        registry.register(promoted(), "s3", at(1))

        assert registry.unregister("s2") is None
        assert registry.unregister("s1") is None
        assert ids(registry) == [("a/1", 0)]

    def test_master_changed_from_a_slave_needs_a_higher_epoch(self, registry: Registry) -> None:
        registry.register(master(epoch=8), "s1", at(0))
        registry.register(slave(), "s2", at(0))

        with pytest.raises(DuplicateBrokerId):
            registry.register(promoted(epoch=8), "s3", at(1))

        assert ids(registry) == [("a/0", 0), ("a/1", 1)]


class TestUnregistration:
    def test_unregister_slave_broker_leaves_the_master_and_the_right_to_write(self, registry: Registry) -> None:
        registry.register(master(), "s1", at(0))
        registry.register(slave(), "s2", at(0))

        registry.unregister("s2")

        assert (ids(registry), permissions(registry)) == ([("a/0", 0)], [6])

    def test_unregister_master_broker_takes_the_right_to_write_and_no_slaves_id(self, registry: Registry) -> None:
        """RocketMQ's acting master gets id 0 in the route; its old slaves keep the right to write, which none of them takes."""
        registry.register(master(), "s1", at(0))
        registry.register(slave(), "s2", at(0))

        registry.unregister("s1")

        assert (ids(registry), permissions(registry)) == ([("a/1", 1)], [4])

    def test_register_only_slave_broker_can_be_read(self, registry: Registry) -> None:
        registry.register(slave(), "s1", at(0))

        assert (ids(registry), permissions(registry)) == ([("a/1", 1)], [4])

    def test_write_bit_returns_when_the_master_does(self, registry: Registry) -> None:
        registry.register(slave(), "s1", at(0))

        registry.register(master(), "s2", at(1))

        assert permissions(registry) == [6]

    def test_multiple_unregistrations_remove_all_of_them(self, registry: Registry) -> None:
        registry.register(master(), "s1", at(0))
        registry.register(slave(), "s2", at(0))

        assert [registry.unregister(session) for session in ("s1", "s2")] == ["a/0", "a/1"]
        assert registry.nodes == 0

    def test_a_scan_of_not_active_brokers_ends_the_session_of_an_expired_one(self, registry: Registry) -> None:
        registry.register(master(), "s1", at(0))
        registry.register(slave(), "s2", at(EXPIRY_MS - 1))

        assert registry.expire(at(EXPIRY_MS)) == ["a/0"]
        assert ids(registry) == [("a/1", 1)]
        with pytest.raises(SessionExpired):
            registry.heartbeat(beat("s1"), at(EXPIRY_MS))


class TestVersions:
    def test_broker_topic_config_is_unchanged_at_an_equal_version(self, registry: Registry) -> None:
        registry.register(master(), "s1", at(0))

        assert not registry.heartbeat(beat("s1"), at(1)).must_reregister

    def test_broker_topic_config_is_changed_at_another_version(self, registry: Registry) -> None:
        registry.register(master(), "s1", at(0))

        assert registry.heartbeat(beat("s1", version=DataVersion(1, 2, 4)), at(1)).must_reregister

    def test_topic_config_of_an_unknown_broker_is_asked_for(self, registry: Registry) -> None:
        with pytest.raises(SessionExpired):
            registry.heartbeat(beat("unknown"), at(0))

    def test_query_broker_topic_config_returns_the_version(self, registry: Registry) -> None:
        registry.register(replace(master(), data_version=DataVersion(7, 8, 9)), "s1", at(0))

        assert [node.data_version for node in registry.page(0, "", "default").nodes] == [DataVersion(7, 8, 9)]

    def test_a_version_check_counts_as_a_sign_of_life(self, registry: Registry) -> None:
        registry.register(master(), "s1", at(0))
        registry.heartbeat(beat("s1", version=DataVersion(9, 9, 9)), at(EXPIRY_MS - 1))

        assert registry.expire(at(EXPIRY_MS + 1)) == []


class TestRouteData:
    def test_pickup_topic_route_data_counts_groups_and_nodes(self, registry: Registry) -> None:
        for number in range(3):
            registry.register(master(f"{number:032x}", host=f"h{number}", broker=f"b{number}"), f"s{number}", at(0))

        route = registry.route("orders", "default", at(0))

        assert (len(route.queues), len(route.nodes), {each.permission for each in route.queues}) == (3, 3, {6})

    def test_pickup_topic_route_data_follows_a_broker_that_left(self, registry: Registry) -> None:
        registry.register(master(), "s1", at(0))
        registry.register(master(UUID_C, host="b-0", broker="b"), "s2", at(0))

        registry.unregister("s1")

        assert [each.broker for each in registry.route("orders", "default", at(0)).queues] == ["b"]

    @pytest.mark.parametrize("config", ["a:4;b:4", "a:1"])  # partitioned, global
    def test_pickup_order_topic_route_data_carries_the_order_configuration(self, config: str) -> None:
        names = Names({ORDER_TOPIC_CONFIG: {"orders": config}})
        names.server.register(replace(master(), topics=(orders(), TopicQueues("others", 1, 1, 6))))

        assert names.server.route("orders", "").order_config == config
        assert names.server.route("others", "").order_config == ""


class TestOrderTopics:
    def test_order_topics_are_handed_to_a_broker_at_its_registration(self) -> None:
        names = Names({ORDER_TOPIC_CONFIG: {"orders": "a:4"}, "other": {"key": "value"}})

        assert dict(names.server.register(master()).order_topics) == {"orders": "a:4"}

    def test_a_broker_is_asked_to_register_when_order_topics_have_changed(self) -> None:
        names = Names()
        session = names.server.register(master()).session_id
        assert not names.server.heartbeat(beat(session)).must_reregister

        asyncio.run(names.values.put(KeyValue(ORDER_TOPIC_CONFIG, "orders", "a:4")))

        assert names.server.heartbeat(beat(session)).must_reregister

    def test_other_values_ask_no_broker_to_register(self) -> None:
        names = Names()
        session = names.server.register(master()).session_id

        asyncio.run(names.values.put(KeyValue("other", "key", "value")))

        assert not names.server.heartbeat(beat(session)).must_reregister


class TestWritePermission:
    def test_wipe_write_permission_returns_how_many_topics_it_is_about(self) -> None:
        names = Names()
        names.server.register(replace(master(), topics=(orders(), TopicQueues("others", 1, 1, 4))))
        names.server.register(replace(slave(), topics=(orders(), TopicQueues("older", 1, 1, 6))))

        assert names.set_writable("a", writable=False) == 3
        assert names.permissions() == [4]

    def test_add_write_permission_gives_back_what_the_topic_has_and_no_more(self) -> None:
        """RocketMQ gives every topic of the broker the right to be read and written, whatever it had before."""
        names = Names()
        names.server.register(replace(master(), topics=(orders(), TopicQueues("frozen", 1, 1, 4))))
        names.set_writable("a", writable=False)

        assert names.set_writable("a", writable=True) == 2
        assert (names.permissions(), names.permissions("frozen")) == ([6], [4])

    def test_wiped_write_permission_outlives_registrations(self) -> None:
        """In RocketMQ the next change of a topic gives it back unseen."""
        names = Names()
        names.server.register(master())
        names.set_writable("a", writable=False)

        names.server.register(replace(master(), data_version=DataVersion(2, 3, 4)))

        assert names.permissions() == [4]

    def test_wiped_write_permission_outlives_a_restart_of_the_nameserver(self) -> None:
        names = Names({WRITES_OFF: {"a": "off"}})

        names.server.register(master())

        assert names.permissions() == [4]

    def test_wiping_the_write_permission_of_an_unknown_group_is_refused(self) -> None:
        names = Names()

        with pytest.raises(InvalidField, match='no node of broker group "b" is registered'):
            names.set_writable("b", writable=False)

        assert names.values.values == 0

    def test_write_permission_of_a_group_that_is_gone_can_be_given_back(self) -> None:
        names = Names({WRITES_OFF: {"a": "off"}})

        assert names.set_writable("a", writable=True) == 0
        assert names.values.values == 0

    def test_wiped_write_permission_of_one_group_leaves_the_others_theirs(self) -> None:
        names = Names()
        names.server.register(master())
        names.server.register(master(UUID_C, host="b-0", broker="b"))

        names.set_writable("b", writable=False)

        assert names.permissions() == [6, 4]


def test_a_stale_epoch_is_refused_and_changes_nothing(registry: Registry) -> None:
    registry.register(promoted(epoch=8), "s1", at(0))

    with pytest.raises(DuplicateBrokerId):
        registry.register(replace(master(UUID_A), epoch=Epoch(7)), "s2", at(1))

    assert ids(registry) == [("a/1", 0)]
