from dataclasses import replace

import pytest

from dittomq.errors import DuplicateBrokerId, InvalidField, NotReady, SessionExpired, TopicNotFound, VersionConflict
from dittomq.offsets import Epoch
from dittomq.routes import BrokerState, DataVersion, GroupMaster, Registration, Role, TopicQueues
from services.nameserver.registry import LATE_MS, Registry
from tests.support.naming import UUID_A, UUID_B, at, beat, master, orders, slave

EXPIRY_MS = 30_000
PERIOD_MS = 10_000


@pytest.fixture
def registry() -> Registry:
    return Registry("dittomq", EXPIRY_MS, at(0))


def listed(registry: Registry) -> dict[str, str]:
    """The replica uuids of all nodes, by name."""
    return {node.name: node.replica_uuid for node in registry.page(0, "", "default").nodes}


def promoted(uuid: str, *, host: str = "a-1", epoch: int) -> Registration:
    """Node a/1, which leads."""
    return replace(master(uuid, host=host, epoch=epoch), configured_id=1)


def demoted(uuid: str, *, epoch: int = 7) -> Registration:
    """Node a/0, which follows a/1."""
    return replace(slave(uuid, host="a-0", epoch=epoch), configured_id=0)


class TestWhoMayTakeANodeId:
    def test_the_same_replica_at_its_address_takes_its_id_at_once(self, registry: Registry) -> None:
        for number in range(5):
            registry.register(master(), f"s{number}", at(number))

        assert registry.nodes == 1

    def test_another_replica_without_a_higher_epoch_is_refused_while_the_holder_lives(self, registry: Registry) -> None:
        registry.register(master(UUID_A, epoch=7), "s1", at(0))

        with pytest.raises(DuplicateBrokerId, match="a-0:10911"):
            registry.register(master(UUID_B, host="other", epoch=7), "s2", at(EXPIRY_MS - 1))

    def test_another_replica_takes_the_id_of_a_holder_that_fell_silent(self, registry: Registry) -> None:
        registry.register(master(UUID_A, epoch=7), "s1", at(0))

        registry.register(master(UUID_B, host="other", epoch=3), "s2", at(EXPIRY_MS))

        assert listed(registry) == {"a/0": UUID_B}

    def test_another_replica_takes_the_id_of_a_holder_that_said_goodbye(self, registry: Registry) -> None:
        registry.register(master(UUID_A, epoch=7), "s1", at(0))
        registry.unregister("s1")

        registry.register(master(UUID_B, host="other", epoch=3), "s2", at(1))

        assert listed(registry) == {"a/0": UUID_B}

    def test_a_higher_epoch_takes_the_id_at_once(self, registry: Registry) -> None:
        registry.register(master(UUID_A, epoch=7), "s1", at(0))

        registry.register(master(UUID_B, host="other", epoch=8), "s2", at(1))

        assert listed(registry) == {"a/0": UUID_B}

    def test_who_lost_its_id_is_asked_to_register_again(self, registry: Registry) -> None:
        registry.register(master(UUID_A, epoch=7), "s1", at(0))
        registry.register(master(UUID_B, host="other", epoch=8), "s2", at(1))

        with pytest.raises(SessionExpired):
            registry.heartbeat(beat("s1"), at(2))

    def test_who_lost_its_id_cannot_come_back_with_its_old_epoch(self, registry: Registry) -> None:
        registry.register(master(UUID_A, epoch=7), "s1", at(0))
        registry.register(master(UUID_B, host="other", epoch=8), "s2", at(1))

        with pytest.raises(DuplicateBrokerId):
            registry.register(master(UUID_A, epoch=7), "s3", at(2))

    def test_the_heartbeat_of_a_replicas_older_session_asks_it_to_register(self, registry: Registry) -> None:
        registry.register(master(), "s1", at(0))
        registry.register(master(), "s2", at(1))

        with pytest.raises(SessionExpired):
            registry.heartbeat(beat("s1"), at(2))

    def test_another_node_of_the_same_name_is_refused_whatever_its_broker_id(self, registry: Registry) -> None:
        registry.register(promoted(UUID_A, epoch=7), "s1", at(0))

        with pytest.raises(DuplicateBrokerId, match="a/1 is held by the replica at a-1:10911"):
            registry.register(slave(UUID_B, host="other", epoch=7), "s2", at(1))


class TestChangesOfRoles:
    def test_a_promoted_slave_takes_the_masters_id_and_leaves_its_own(self, registry: Registry) -> None:
        registry.register(master(UUID_A), "s1", at(0))
        registry.register(slave(UUID_B), "s2", at(0))

        registry.register(promoted(UUID_B, epoch=8), "s3", at(1))

        assert listed(registry) == {"a/1": UUID_B}

    def test_a_demoted_master_has_the_id_of_the_node_that_leads(self, registry: Registry) -> None:
        registry.register(promoted(UUID_B, epoch=8), "s1", at(0))

        registry.register(demoted(UUID_A), "s2", at(1))

        assert [(node.name, node.broker_id) for node in registry.page(0, "", "default").nodes] == [("a/1", 0), ("a/0", 1)]

    def test_an_old_master_that_has_not_read_the_record_is_told_who_has_its_id(self, registry: Registry) -> None:
        registry.register(promoted(UUID_B, epoch=8), "s1", at(0))

        with pytest.raises(DuplicateBrokerId) as refused:
            registry.register(master(UUID_A, epoch=7), "s2", at(1))

        assert refused.value.is_displaced
        assert str(refused.value) == "the id of a/0 is held by a/1 at a-1:10911, which was elected: it moves with the record"

    def test_a_slave_takes_its_id_back_from_a_dead_node_by_the_newer_epoch_of_its_log(self, registry: Registry) -> None:
        registry.register(demoted(UUID_A, epoch=8), "s1", at(0))

        with pytest.raises(DuplicateBrokerId):
            registry.register(slave(UUID_B, epoch=8), "s2", at(1))
        registry.register(slave(UUID_B, epoch=9), "s2", at(2))

        assert listed(registry) == {"a/1": UUID_B}

    def test_a_slave_that_has_the_masters_id_is_no_master(self, registry: Registry) -> None:
        registry.register(replace(master(), role=Role.SLAVE), "s1", at(0))

        assert registry.register(slave(), "s2", at(1)).master is None
        assert [each.permission for each in registry.route("orders", "default", at(1)).queues] == [4]


class TestAStoreThatWasCopied:
    """One replica uuid at two addresses."""

    def test_a_copy_is_refused_by_name_and_the_node_that_heartbeats_stays(self, registry: Registry) -> None:
        registry.register(master(host="one"), "s1", at(0))
        for second in range(10, 100, 10):
            registry.heartbeat(beat("s1"), at(second * 1_000))

            with pytest.raises(DuplicateBrokerId, match=f"the replica id {UUID_A} of a/0 is held by the replica at one:10911"):
                registry.register(master(host="two"), "s2", at(second * 1_000 + 9_000))

        assert listed(registry) == {"a/0": UUID_A}
        assert registry.heartbeat(beat("s1"), at(100_000)).master == GroupMaster("one:10911", "one:10912", Epoch(7))

    def test_a_copy_under_another_id_is_refused_too(self, registry: Registry) -> None:
        registry.register(master(UUID_A, host="one"), "s1", at(0))

        with pytest.raises(DuplicateBrokerId, match="its disk is a copy; give it another identity") as refused:
            registry.register(slave(UUID_A, host="two"), "s2", at(1))

        assert not refused.value.is_displaced

        assert listed(registry) == {"a/0": UUID_A}

    def test_a_replica_moves_when_it_has_missed_a_heartbeat_at_its_old_address(self, registry: Registry) -> None:
        registry.register(master(host="one"), "s1", at(0))

        with pytest.raises(DuplicateBrokerId):
            registry.register(master(host="two"), "s2", at(10_000 + LATE_MS))
        registry.register(master(host="two"), "s3", at(10_000 + LATE_MS + 1))

        assert [node.address for node in registry.page(0, "", "default").nodes] == ["two:10911"]

    def test_a_replica_that_said_goodbye_moves_at_once(self, registry: Registry) -> None:
        registry.register(master(host="one"), "s1", at(0))
        registry.unregister("s1")

        registry.register(master(host="two"), "s2", at(1))

        assert registry.nodes == 1

    def test_an_elected_replica_moves_at_once(self, registry: Registry) -> None:
        registry.register(slave(UUID_B, host="one"), "s1", at(0))

        registry.register(promoted(UUID_B, host="two", epoch=8), "s2", at(1))

        assert [node.address for node in registry.page(0, "", "default").nodes] == ["two:10911"]


class TestComingAndGoing:
    def test_a_silent_node_is_forgotten_at_the_expiry_and_not_before(self, registry: Registry) -> None:
        registry.register(master(), "s1", at(0))

        assert registry.expire(at(EXPIRY_MS - 1)) == []
        assert registry.expire(at(EXPIRY_MS)) == ["a/0"]

        with pytest.raises(NotReady):
            registry.route("orders", "default", at(0))

    def test_a_heartbeat_keeps_a_node(self, registry: Registry) -> None:
        registry.register(master(), "s1", at(0))

        registry.heartbeat(beat("s1"), at(EXPIRY_MS - 1))

        assert registry.expire(at(2 * EXPIRY_MS - 2)) == []

    def test_an_expired_node_is_asked_to_register_again(self, registry: Registry) -> None:
        registry.register(master(), "s1", at(0))
        registry.expire(at(EXPIRY_MS))

        with pytest.raises(SessionExpired):
            registry.heartbeat(beat("s1"), at(EXPIRY_MS))

    def test_a_goodbye_removes_a_node_at_once(self, registry: Registry) -> None:
        registry.register(master(), "s1", at(0))

        assert registry.unregister("s1") == "a/0"
        assert registry.nodes == 0

    def test_a_late_goodbye_of_an_old_session_removes_nobody(self, registry: Registry) -> None:
        registry.register(master(), "s1", at(0))
        registry.register(master(), "s2", at(1))

        assert registry.unregister("s1") is None
        assert registry.nodes == 1

    def test_a_changed_topic_table_is_asked_for(self, registry: Registry) -> None:
        registry.register(master(), "s1", at(0))

        assert not registry.heartbeat(beat("s1"), at(1)).must_reregister
        assert registry.heartbeat(beat("s1", version=DataVersion(1, 2, 4)), at(2)).must_reregister

    def test_a_heartbeat_carries_a_new_epoch_and_state(self, registry: Registry) -> None:
        registry.register(replace(master(), state=BrokerState.RECOVERING), "s1", at(0))

        registry.heartbeat(beat("s1", epoch=8), at(1))

        [node] = registry.page(0, "", "default").nodes
        assert (node.epoch, node.state) == (8, BrokerState.SERVING)


class TestWhatABrokerHears:
    def test_a_slave_hears_where_its_master_is(self, registry: Registry) -> None:
        registry.register(master(), "s1", at(0))

        assert registry.register(slave(), "s2", at(1)).master == GroupMaster("a-0:10911", "a-0:10912", Epoch(7))

    def test_a_slave_without_a_master_hears_of_none_and_then_of_the_one_that_came(self, registry: Registry) -> None:
        assert registry.register(slave(), "s2", at(0)).master is None

        registry.register(replace(master(), state=BrokerState.RECOVERING), "s1", at(1))

        assert registry.heartbeat(beat("s2"), at(2)).master == GroupMaster("a-0:10911", "a-0:10912", Epoch(7))

    def test_a_slave_hears_of_the_masters_newest_epoch(self, registry: Registry) -> None:
        registry.register(slave(), "s2", at(0))
        registry.register(master(epoch=7), "s1", at(0))
        registry.heartbeat(beat("s1", epoch=9), at(1))

        assert registry.heartbeat(beat("s2"), at(2)).master == GroupMaster("a-0:10911", "a-0:10912", Epoch(9))

    def test_the_answer_carries_the_expiry(self, registry: Registry) -> None:
        assert registry.register(master(), "s1", at(1_234)).broker_expiry_ms == EXPIRY_MS


class TestRoutes:
    def test_a_route_names_queues_and_nodes_of_every_group_in_order(self, registry: Registry) -> None:
        registry.register(master("c" * 32, host="b-0", broker="b"), "s3", at(0))
        registry.register(slave(), "s2", at(0))
        registry.register(master(), "s1", at(0))

        route = registry.route("orders", "default", at(0))

        assert [(each.broker, each.write_queues, each.permission) for each in route.queues] == [("a", 8, 6), ("b", 8, 6)]
        assert [node.name for node in route.nodes] == ["a/0", "a/1", "b/0"]

    def test_route_tells_a_master_that_takes_no_writes_from_one_that_is_not_heard_yet(self, registry: Registry) -> None:
        """Nobody waits for the right to write to the first."""
        registry.register(slave(), "s0", at(0))
        [unheard] = registry.route("orders", "default", at(0)).queues
        registry.register(replace(master(), permission=4), "s1", at(0))
        [closed] = registry.route("orders", "default", at(0)).queues

        assert (unheard.permission, unheard.writes_off) == (4, False)
        assert (closed.permission, closed.writes_off) == (4, True)

    def test_a_brokers_permission_masks_that_of_its_topics(self, registry: Registry) -> None:
        registry.register(replace(master(), permission=4), "s1", at(0))

        assert [each.permission for each in registry.route("orders", "default", at(0)).queues] == [4]

    def test_a_recovering_master_is_found_and_not_writable(self, registry: Registry) -> None:
        registry.register(replace(master(), state=BrokerState.RECOVERING), "s1", at(0))

        assert [each.permission for each in registry.route("orders", "default", at(0)).queues] == [4]

    def test_without_a_master_a_slaves_topics_can_be_read_and_not_written(self, registry: Registry) -> None:
        registry.register(slave(), "s2", at(0))

        assert [(each.read_queues, each.permission) for each in registry.route("orders", "default", at(0)).queues] == [(8, 4)]

    def test_a_living_masters_queue_counts_win_over_a_slaves(self, registry: Registry) -> None:
        registry.register(replace(slave(), topics=(orders(queues=4),)), "s2", at(0))
        registry.register(replace(master(), topics=(orders(queues=16),)), "s1", at(0))

        assert [each.read_queues for each in registry.route("orders", "default", at(0)).queues] == [16]

    def test_a_topic_that_only_a_slave_holds_is_added_for_reading(self, registry: Registry) -> None:
        registry.register(master(), "s1", at(0))
        registry.register(replace(slave(), topics=(TopicQueues("older", 3, 3, 6),)), "s2", at(0))

        assert [(each.read_queues, each.permission) for each in registry.route("older", "default", at(0)).queues] == [(3, 4)]

    def test_a_topic_that_its_last_holder_dropped_is_gone(self, registry: Registry) -> None:
        registry.register(master(), "s1", at(0))
        registry.register(slave(), "s2", at(0))
        registry.register(replace(master(), topics=()), "s3", at(1))
        assert registry.route("orders", "default", at(0)).queues

        registry.register(replace(slave(), topics=()), "s4", at(2))

        with pytest.raises(TopicNotFound):
            registry.route("orders", "default", at(PERIOD_MS))

    def test_a_route_gives_the_addresses_of_the_network_asked_for(self, registry: Registry) -> None:
        addresses = {"default": "a-0:10911", "external": "mq.example.org:31911"}
        registry.register(replace(master(), addresses=addresses), "s1", at(0))
        registry.register(slave(), "s2", at(0))

        assert [node.address for node in registry.route("orders", "external", at(0)).nodes] == ["mq.example.org:31911"]

    def test_a_network_that_nobody_advertises_is_refused_by_name(self, registry: Registry) -> None:
        registry.register(master(), "s1", at(0))

        with pytest.raises(InvalidField, match="elsewhere"):
            registry.route("orders", "elsewhere", at(0))

    def test_an_unknown_topic_is_refused_with_the_nearest_name(self, registry: Registry) -> None:
        registry.register(master(), "s1", at(0))

        with pytest.raises(TopicNotFound) as refused:
            registry.route("oders", "default", at(PERIOD_MS))

        assert (refused.value.similar, refused.value.where) == ("orders", "cluster dittomq")


class TestPages:
    def test_pages_follow_one_another_in_the_order_of_names(self, registry: Registry) -> None:
        for number in range(5):
            registry.register(slave(f"{number:032x}", host=f"h{number}", broker_id=number + 1), f"s{number}", at(0))

        first = registry.page(3, "", "default")
        second = registry.page(3, first.next_page_token, "default")

        assert [node.broker_id for node in first.nodes + second.nodes] == [1, 2, 3, 4, 5]
        assert second.next_page_token == ""

    def test_a_token_of_an_older_list_is_refused(self, registry: Registry) -> None:
        registry.register(master(), "s1", at(0))
        registry.register(slave(), "s2", at(0))
        token = registry.page(1, "", "default").next_page_token
        registry.unregister("s2")

        with pytest.raises(VersionConflict):
            registry.page(1, token, "default")

    def test_a_token_outlives_heartbeats_and_repeated_registrations(self, registry: Registry) -> None:
        registry.register(master(), "s1", at(0))
        registry.register(slave(), "s2", at(0))
        token = registry.page(1, "", "default").next_page_token
        registry.heartbeat(beat("s1"), at(1))
        registry.register(slave(), "s3", at(1))

        assert [node.name for node in registry.page(1, token, "default").nodes] == ["a/1"]
