from dataclasses import replace

import pytest

from dittomq.errors import InvalidField, NodeIdTaken, NotReady, SessionEnded, TopicNotFound, VersionChanged
from dittomq.offsets import Epoch
from dittomq.routes import Claim, DataVersion, NodeState, Opening, TopicQueues
from services.nameserver.openings import Openings
from services.nameserver.registry import Registry
from tests.support.naming import UUID_A, UUID_B, at, beat, master, orders, slave

EXPIRY_MS = 30_000


@pytest.fixture
def registry() -> Registry:
    return Registry("dittomq", EXPIRY_MS, at(0), Openings())


class TestWhoMayTakeANodeId:
    def test_the_same_replica_takes_its_id_at_once_from_another_address(self, registry: Registry) -> None:
        registry.register(master(), "s1", at(0))

        registry.register(master(host="moved"), "s2", at(1))

        assert [node.address for node in registry.route("orders", "default", at(0)).nodes] == ["moved:10911"]

    def test_another_replica_without_a_higher_epoch_is_refused_while_the_holder_lives(self, registry: Registry) -> None:
        registry.register(master(UUID_A, epoch=7), "s1", at(0))

        with pytest.raises(NodeIdTaken, match="a-0:10911"):
            registry.register(master(UUID_B, host="other", epoch=7), "s2", at(EXPIRY_MS - 1))

    def test_another_replica_takes_the_id_of_a_holder_that_fell_silent(self, registry: Registry) -> None:
        registry.register(master(UUID_A, epoch=7), "s1", at(0))

        registry.register(master(UUID_B, host="other", epoch=3), "s2", at(EXPIRY_MS))

        assert [node.replica_uuid for node in registry.route("orders", "default", at(0)).nodes] == [UUID_B]

    def test_another_replica_takes_the_id_of_a_holder_that_said_goodbye(self, registry: Registry) -> None:
        registry.register(master(UUID_A, epoch=7), "s1", at(0))
        registry.unregister("s1")

        registry.register(master(UUID_B, host="other", epoch=3), "s2", at(1))

        assert [node.replica_uuid for node in registry.route("orders", "default", at(0)).nodes] == [UUID_B]

    def test_a_higher_epoch_takes_the_id_at_once(self, registry: Registry) -> None:
        registry.register(master(UUID_A, epoch=7), "s1", at(0))

        registry.register(master(UUID_B, host="other", epoch=8), "s2", at(1))

        assert [node.replica_uuid for node in registry.route("orders", "default", at(0)).nodes] == [UUID_B]

    def test_a_superseded_broker_is_told_to_stop_at_its_next_heartbeat(self, registry: Registry) -> None:
        registry.register(master(UUID_A, epoch=7), "s1", at(0))
        registry.register(master(UUID_B, host="other", epoch=8), "s2", at(1))

        with pytest.raises(SessionEnded) as ended:
            registry.heartbeat(beat("s1"), at(2))

        assert ended.value.superseded

    def test_a_superseded_broker_cannot_come_back_with_its_old_epoch(self, registry: Registry) -> None:
        registry.register(master(UUID_A, epoch=7), "s1", at(0))
        registry.register(master(UUID_B, host="other", epoch=8), "s2", at(1))

        with pytest.raises(NodeIdTaken):
            registry.register(master(UUID_A, epoch=7), "s3", at(2))

    def test_the_heartbeat_of_a_replicas_older_session_asks_it_to_register_and_not_to_stop(self, registry: Registry) -> None:
        registry.register(master(), "s1", at(0))
        registry.register(master(), "s2", at(1))

        with pytest.raises(SessionEnded) as ended:
            registry.heartbeat(beat("s1"), at(2))

        assert not ended.value.superseded

    def test_a_replica_that_takes_another_id_leaves_its_old_one(self, registry: Registry) -> None:
        registry.register(slave(UUID_B, host="a-1"), "s1", at(0))

        registry.register(master(UUID_B, host="a-1", epoch=8), "s2", at(1))

        assert [node.name for node in registry.page(0, "", "default", at(0)).nodes] == ["a/0"]


class TestAStoreThatWasCopied:
    """One replica uuid at two addresses."""

    def test_a_uuid_that_goes_back_and_forth_is_refused_at_both_addresses(self, registry: Registry) -> None:
        registry.register(master(host="one"), "s1", at(0))
        registry.register(master(host="two"), "s2", at(1_000))

        with pytest.raises(NodeIdTaken):
            registry.register(master(host="one"), "s3", at(2_000))
        with pytest.raises(NodeIdTaken):
            registry.register(master(host="two"), "s4", at(3_000))

        assert registry.nodes == 0

    def test_the_one_that_is_left_is_taken_again_when_the_other_was_silent_for_the_expiry(self, registry: Registry) -> None:
        registry.register(master(host="one"), "s1", at(0))
        registry.register(master(host="two"), "s2", at(1_000))
        with pytest.raises(NodeIdTaken):
            registry.register(master(host="one"), "s3", at(2_000))

        with pytest.raises(NodeIdTaken):
            registry.register(master(host="two"), "s4", at(2_000 + EXPIRY_MS - 1))
        registry.register(master(host="two"), "s5", at(2_000 + EXPIRY_MS))

        assert registry.nodes == 1

    def test_a_replica_that_moved_and_said_goodbye_may_move_back(self, registry: Registry) -> None:
        registry.register(master(host="one"), "s1", at(0))
        registry.register(master(host="two"), "s2", at(1_000))
        registry.unregister("s2")

        registry.register(master(host="one"), "s3", at(2_000))

        assert registry.nodes == 1

    def test_a_replica_that_registers_again_where_it_is_goes_nowhere(self, registry: Registry) -> None:
        for number in range(5):
            registry.register(master(), f"s{number}", at(number))

        assert registry.nodes == 1


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

        with pytest.raises(SessionEnded) as ended:
            registry.heartbeat(beat("s1"), at(EXPIRY_MS))

        assert not ended.value.superseded

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

        assert not registry.heartbeat(beat("s1"), at(1)).register_again
        assert registry.heartbeat(beat("s1", version=DataVersion(1, 2, 4)), at(2)).register_again

    def test_a_heartbeat_carries_a_new_epoch_and_state(self, registry: Registry) -> None:
        registry.register(replace(master(), state=NodeState.RECOVERING), "s1", at(0))

        registry.heartbeat(beat("s1", epoch=8), at(1))

        [node] = registry.page(0, "", "default", at(0)).nodes
        assert (node.epoch, node.state) == (8, NodeState.SERVING)


class TestWhatABrokerHears:
    def test_a_slave_hears_where_its_master_is(self, registry: Registry) -> None:
        registry.register(master(), "s1", at(0))

        answer = registry.register(slave(), "s2", at(1))

        assert (answer.master, answer.master_replication) == ("a-0:10911", "a-0:10912")

    def test_a_slave_without_a_master_hears_of_none_and_then_of_the_one_that_came(self, registry: Registry) -> None:
        assert registry.register(slave(), "s2", at(0)).master == ""

        registry.register(replace(master(), state=NodeState.RECOVERING), "s1", at(1))

        assert registry.heartbeat(beat("s2"), at(2)).master == "a-0:10911"

    def test_the_answer_carries_the_expiry_and_the_time_that_the_nameserver_is_up(self, registry: Registry) -> None:
        answer = registry.register(master(), "s1", at(1_234))

        assert (answer.broker_expiry_ms, answer.uptime_ms) == (EXPIRY_MS, 1_234)

    def test_the_groups_highest_epoch_is_told_even_after_its_holder_is_gone(self, registry: Registry) -> None:
        registry.register(master(UUID_A, epoch=9), "s1", at(0))
        registry.unregister("s1")

        assert registry.register(slave(epoch=7), "s2", at(1)).newest.epoch == 9

    def test_a_node_that_has_not_heard_of_a_higher_epoch_is_asked_to_register_again(self, registry: Registry) -> None:
        registry.register(slave(epoch=7), "s2", at(0))
        registry.register(master(epoch=9), "s1", at(1))

        assert registry.heartbeat(beat("s2"), at(2)).register_again


class TestRoutes:
    def test_a_route_names_queues_and_nodes_of_every_group_in_order(self, registry: Registry) -> None:
        registry.register(master("c" * 32, host="b-0", broker="b"), "s3", at(0))
        registry.register(slave(), "s2", at(0))
        registry.register(master(), "s1", at(0))

        route = registry.route("orders", "default", at(0))

        assert [(each.broker, each.write_queues, each.permission) for each in route.queues] == [("a", 8, 6), ("b", 8, 6)]
        assert [node.name for node in route.nodes] == ["a/0", "a/1", "b/0"]

    def test_a_brokers_permission_masks_that_of_its_topics(self, registry: Registry) -> None:
        registry.register(replace(master(), permission=4), "s1", at(0))

        assert [each.permission for each in registry.route("orders", "default", at(0)).queues] == [4]

    def test_a_recovering_master_is_found_and_not_writable(self, registry: Registry) -> None:
        registry.register(replace(master(), state=NodeState.RECOVERING), "s1", at(0))

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
            registry.route("orders", "default", at(0))

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
            registry.route("oders", "default", at(0))

        assert (refused.value.similar, refused.value.where) == ("orders", "cluster dittomq")


class TestPages:
    def test_pages_follow_one_another_in_the_order_of_names(self, registry: Registry) -> None:
        for number in range(5):
            registry.register(slave(f"{number:032x}", host=f"h{number}", broker_id=number + 1), f"s{number}", at(0))

        first = registry.page(3, "", "default", at(0))
        second = registry.page(3, first.next_page_token, "default", at(0))

        assert [node.broker_id for node in first.nodes + second.nodes] == [1, 2, 3, 4, 5]
        assert second.next_page_token == ""

    def test_a_token_of_a_list_that_had_a_group_which_was_forgotten_since_is_refused(self) -> None:
        openings = Openings([(name, Opening(Epoch(1), 0)) for name in ("b", "c", "d")])
        registry = Registry("dittomq", 30_000, at(0), openings)
        registry.register(master(), "s1", at(0))
        first = registry.page(2, "", "default", at(0))

        openings.forget("b")

        with pytest.raises(VersionChanged):
            registry.page(2, first.next_page_token, "default", at(0))

    def test_a_token_of_an_older_list_is_refused(self, registry: Registry) -> None:
        registry.register(master(), "s1", at(0))
        registry.register(slave(), "s2", at(0))
        token = registry.page(1, "", "default", at(0)).next_page_token
        registry.unregister("s2")

        with pytest.raises(VersionChanged):
            registry.page(1, token, "default", at(0))

    def test_a_token_outlives_heartbeats_and_repeated_registrations(self, registry: Registry) -> None:
        registry.register(master(), "s1", at(0))
        registry.register(slave(), "s2", at(0))
        token = registry.page(1, "", "default", at(0)).next_page_token
        registry.heartbeat(beat("s1"), at(1))
        registry.register(slave(), "s3", at(1))

        assert [node.name for node in registry.page(1, token, "default", at(0)).nodes] == ["a/1"]


def test_a_slave_whose_id_a_role_change_gave_to_another_node_is_not_superseded_by_it(registry: Registry) -> None:
    registry.register(slave(UUID_B, broker_id=1, epoch=7), "s1", at(0))
    moved = replace(slave(UUID_A, host="a-0", broker_id=1, epoch=9), configured_id=0)

    with pytest.raises(NodeIdTaken):
        registry.register(moved, "s2", at(1))

    assert registry.heartbeat(beat("s1"), at(2)).master == ""  # its session goes on


@pytest.mark.parametrize("opener_id", [1, None])
def test_whoever_is_refused_hears_of_the_newest_epoch_and_who_opened_it_if_that_is_known(registry: Registry, opener_id: int | None) -> None:
    registry.register(replace(master(UUID_B, epoch=9), configured_id=1, opener_id=opener_id), "s1", at(0))

    with pytest.raises(NodeIdTaken) as refused:
        registry.register(master(UUID_A, epoch=7), "s2", at(1))

    assert (refused.value.group_epoch, refused.value.opener_id) == (9, opener_id)


def test_whoever_is_refused_an_id_that_a_change_of_roles_gave_away_is_not_told_to_choose_another_one(registry: Registry) -> None:
    registry.register(replace(master(UUID_B, host="a-1", epoch=9), configured_id=1), "s1", at(0))

    with pytest.raises(NodeIdTaken) as refused:
        registry.register(master(UUID_A, epoch=7), "s2", at(1))

    assert str(refused.value) == "the id of a/0 belongs to a/1 at a-1:10911 since a change of roles, until that one stops"


def test_of_two_that_opened_one_epoch_the_refused_one_hears_of_the_holders_opening_and_what_it_was_granted(registry: Registry) -> None:
    registry.register(replace(slave(UUID_A, epoch=9), configured_id=1, opener_id=1), "s1", at(0))  # it was promoted, and is to come back
    registry.register(replace(master(UUID_B, host="a-9", epoch=9), opener_id=0, granted_epoch=Epoch(4)), "s2", at(1))

    with pytest.raises(NodeIdTaken) as refused:
        registry.register(replace(master(UUID_A, host="a-1", epoch=9), configured_id=1, opener_id=1), "s3", at(2))

    assert (refused.value.group_epoch, refused.value.opener_id, refused.value.granted_epoch) == (9, 0, 4)


def test_the_holder_of_an_id_is_told_once_why_another_one_leads_that_was_refused_it(registry: Registry) -> None:
    registry.register(replace(master(UUID_A, epoch=9), opener_id=0), "s1", at(0))
    rival = replace(master(UUID_B, host="a-9", epoch=9), configured_id=1, opener_id=1, granted_epoch=Epoch(9))

    for state in (NodeState.SERVING, NodeState.RECOVERING):  # one that recovers does not lead
        with pytest.raises(NodeIdTaken):
            registry.register(replace(rival, state=state), "s2", at(1))
        told = [registry.heartbeat(beat("s1", epoch=9), at(2)).rival for _ in range(2)]
        assert told == [Claim(Opening(Epoch(9), 1), Epoch(9)) if state is NodeState.SERVING else None, None]


@pytest.mark.parametrize(
    ("higher", "lower"),
    [
        (Claim(Opening(Epoch(3), 1), None), Claim(Opening(Epoch(2), 0), Epoch(2))),
        (Claim(Opening(Epoch(2), 1), Epoch(2)), Claim(Opening(Epoch(2), 0), None)),
        (Claim(Opening(Epoch(3), 0), Epoch(3)), Claim(Opening(Epoch(3), 1), Epoch(2))),
        (Claim(Opening(Epoch(3), 1), Epoch(3)), Claim(Opening(Epoch(3), 2), Epoch(3))),
    ],
)
def test_of_two_claims_to_one_epoch_exactly_one_is_higher_and_it_is_what_an_operator_said_last(higher: Claim, lower: Claim) -> None:
    assert higher.rank > lower.rank
