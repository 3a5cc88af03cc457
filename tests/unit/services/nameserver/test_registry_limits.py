"""What a nameserver refuses, and how much it keeps at most."""

import sys
from dataclasses import replace

import pytest

from dittomq.errors import InvalidField, LimitReached, TopicNotFound, WrongCluster
from dittomq.offsets import Epoch
from dittomq.routes import Registration, TopicQueues
from services.nameserver import registry as module
from services.nameserver.registry import Registry
from tests.support.naming import at, beat, master, slave


@pytest.fixture
def registry() -> Registry:
    return Registry("dittomq", 30_000, at(0))


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

    with pytest.raises(LimitReached):
        registry.register(slave(), "s2", at(0))

    registry.register(master(), "s3", at(1))
    assert registry.nodes == 1


@pytest.mark.parametrize("token", ["x", "1", "1:", "-1:2", "²:1", "9" * 5_000 + ":1", "1:" + "9" * 5_000])
def test_an_invented_token_is_refused(registry: Registry, token: str) -> None:
    with pytest.raises(InvalidField, match="page_token"):
        registry.page(1, token, "default")


@pytest.mark.parametrize("size", [-1, 1_001])
def test_a_page_size_beyond_its_limits_is_refused(registry: Registry, size: int) -> None:
    with pytest.raises(InvalidField, match="page_size"):
        registry.page(size, "", "default")


@pytest.mark.parametrize("epoch", [-1, 2**63 - 1])
def test_a_heartbeat_with_an_impossible_epoch_is_refused_and_changes_nothing(registry: Registry, epoch: int) -> None:
    registry.register(master(epoch=7), "s1", at(0))

    with pytest.raises(InvalidField, match="epoch"):
        registry.heartbeat(beat("s1", epoch=epoch), at(1))

    assert [node.epoch for node in registry.page(0, "", "default").nodes] == [7]


def test_request_for_an_unknown_topic_takes_few_steps_among_thousands(registry: Registry) -> None:
    """The other topics are alike."""
    topics = tuple(TopicQueues(f"customer-orders-{number:04}-events", 1, 1, 6) for number in range(2_000))
    registry.register(replace(master(), topics=topics), "s1", at(0))
    steps = 0

    def count(*_: object) -> None:
        nonlocal steps
        steps += 1

    sys.setprofile(count)
    try:
        with pytest.raises(TopicNotFound):
            registry.route("customer-orders-xxxx-events", "default", at(10_000))
    finally:
        sys.setprofile(None)

    assert steps < 150_000
