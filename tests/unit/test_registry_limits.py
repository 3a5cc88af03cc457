"""What a nameserver refuses, and how much it remembers at most, whoever asks."""

import sys
from dataclasses import replace

import pytest

from dittomq.errors import InvalidField, QueueFull, TopicNotFound, WrongCluster
from dittomq.offsets import Epoch
from dittomq.routes import Beat, Registration, TopicQueues
from services.nameserver import openings, whereabouts
from services.nameserver import registry as module
from services.nameserver.openings import Openings
from services.nameserver.registry import Registry
from tests.support.naming import UUID_A, at, beat, master, slave


@pytest.fixture
def registry() -> Registry:
    return Registry("dittomq", 30_000, at(0), Openings())


def test_a_broker_of_another_cluster_is_refused(registry: Registry) -> None:
    with pytest.raises(WrongCluster, match='"dittomq" here, not "other"'):
        registry.register(replace(master(), cluster="other"), "s1", at(0))


@pytest.mark.parametrize(
    ("field", "changed"),
    [
        ("broker", replace(master(), broker="../a")),
        ("broker", replace(master(), broker="")),
        ("broker_id", replace(master(), broker_id=-1)),
        ("replica_uuid", replace(master(), replica_uuid="A" * 32)),
        ("epoch", replace(master(), epoch=Epoch(-1))),
        ("permission", replace(master(), permission=8)),
        ("addresses", replace(master(), addresses={"external": "a:1"})),
        ("addresses", replace(master(), addresses={"default": "no port"})),
        ("addresses", replace(master(), addresses={"default": "a" * 300 + ":1"})),
        ("replication_addresses", replace(master(), replication_addresses={})),
        ("network", replace(master(), addresses={"default": "a:1", "Ex ternal": "a:1"})),
        ("topic", replace(master(), topics=(TopicQueues("a/../b", 1, 1, 6),))),
        ("topic", replace(master(), topics=(TopicQueues("x" * 128, 1, 1, 6),))),
        ("read_queues", replace(master(), topics=(TopicQueues("x", 1_025, 1, 6),))),
        ("registration_period_ms", replace(master(), registration_period_ms=0)),
    ],
)
def test_a_registration_beyond_its_limits_is_refused_by_field(registry: Registry, field: str, changed: Registration) -> None:
    with pytest.raises(InvalidField) as refused:
        registry.register(changed, "s1", at(0))

    assert refused.value.field == field
    assert registry.nodes == 0


def test_a_full_table_refuses_a_new_node_and_keeps_the_old_ones(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_NODES", 1)
    registry.register(master(), "s1", at(0))

    with pytest.raises(QueueFull):
        registry.register(slave(), "s2", at(0))

    registry.register(master(), "s3", at(1))
    assert registry.nodes == 1


@pytest.mark.parametrize("token", ["x", "1", "1:", "-1:2", "²:1", "9" * 5_000 + ":1", "1:" + "9" * 5_000])
def test_an_invented_token_is_refused(registry: Registry, token: str) -> None:
    with pytest.raises(InvalidField, match="page_token"):
        registry.page(1, token, "default", at(0))


@pytest.mark.parametrize("size", [-1, 1_001])
def test_a_page_size_beyond_its_limits_is_refused(registry: Registry, size: int) -> None:
    with pytest.raises(InvalidField, match="page_size"):
        registry.page(size, "", "default", at(0))


@pytest.mark.parametrize("opener_id", [-1, 2**31])
def test_a_registration_with_an_opener_that_no_node_can_be_is_refused(registry: Registry, opener_id: int) -> None:
    with pytest.raises(InvalidField, match="opener_id"):
        registry.register(replace(master(), opener_id=opener_id), "s1", at(0))


@pytest.mark.parametrize(
    ("field", "changed"),
    [
        ("epoch", replace(beat("s1"), epoch=Epoch(2**63 - 1))),
        ("epoch", replace(beat("s1"), epoch=Epoch(-1))),
        ("opener_id", replace(beat("s1"), opener_id=2**31)),
    ],
)
def test_a_heartbeat_beyond_its_limits_is_refused_and_its_epoch_is_not_the_groups(registry: Registry, field: str, changed: Beat) -> None:
    registry.register(master(epoch=7), "s1", at(0))

    with pytest.raises(InvalidField, match=field):
        registry.heartbeat(changed, at(1))

    assert registry.register(slave(), "s2", at(2)).newest.epoch == 7


def test_made_up_groups_lock_no_new_one_out_and_those_that_live_keep_their_epoch(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openings, "MAX_GROUPS", 3)
    registry.register(master(epoch=9), "living", at(0))
    for number in range(10):
        registry.register(master(f"{number:032x}", host=f"h{number}", broker=f"made-up-{number}"), f"s{number}", at(number))
        registry.unregister(f"s{number}")

    registry.register(master("c" * 32, host="c-0", broker="new"), "new", at(20))

    assert registry.register(slave(epoch=7), "slave", at(21)).newest.epoch == 9


def test_of_groups_without_members_the_one_that_was_told_of_longest_ago_is_forgotten_first(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openings, "MAX_GROUPS", 2)
    for number, broker in enumerate(("old", "gone", "old")):
        registry.register(master(f"{number:032x}", host=f"h{number}", broker=broker, epoch=number + 1), broker, at(number))
        registry.unregister(broker)

    registry.register(master("c" * 32, host="c-0", broker="new"), "new", at(20))

    assert registry.register(master("d" * 32, host="d-0", broker="old", epoch=0), "old again", at(21)).newest.epoch == 3


def test_a_replica_that_comes_from_ever_new_addresses_is_remembered_at_the_last_few(registry: Registry) -> None:
    for number in range(whereabouts.MAX_ADDRESSES + 1):
        registry.register(master(host=f"h{number}"), f"s{number}", at(number))

    registry.register(master(host="h0"), "again", at(100))  # nobody knows any more that it was there

    assert registry.nodes == 1


def test_replicas_that_take_one_anothers_place_are_remembered_up_to_a_limit(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whereabouts, "MAX_REPLICAS", 2)
    registry.register(slave(UUID_A, host="one"), "slave", at(0))
    for number in range(3):
        registry.register(master(f"{number:032x}", epoch=8 + number), f"s{number}", at(number))

    assert registry.heartbeat(beat("slave"), at(10)).master
    registry.register(slave(UUID_A, host="two"), "moved", at(11))

    assert registry.nodes == 2


def test_who_asks_for_an_unknown_topic_among_thousands_alike_holds_the_nameserver_up_for_few_steps(registry: Registry) -> None:
    topics = tuple(TopicQueues(f"customer-orders-{number:04}-events", 1, 1, 6) for number in range(2_000))
    registry.register(replace(master(), topics=topics), "s1", at(0))
    steps = 0

    def count(*_: object) -> None:
        nonlocal steps
        steps += 1

    sys.setprofile(count)
    try:
        with pytest.raises(TopicNotFound):
            registry.route("customer-orders-xxxx-events", "default", at(0))
    finally:
        sys.setprofile(None)

    assert steps < 150_000
