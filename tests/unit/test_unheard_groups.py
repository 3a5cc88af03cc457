"""A nameserver that was just started: whose topics it cannot know yet."""

from dataclasses import replace

import pytest

from dittomq.errors import NotReady, TopicNotFound
from dittomq.offsets import Epoch
from dittomq.routes import Opening
from services.nameserver.openings import Openings
from services.nameserver.registry import Registry
from tests.support.naming import at, master, slave

EXPIRY_MS = 30_000


@pytest.fixture
def registry() -> Registry:
    return Registry("dittomq", EXPIRY_MS, at(0), Openings())


def test_a_topic_is_not_known_yet_until_somebody_has_registered_or_a_period_is_over(registry: Registry) -> None:
    with pytest.raises(NotReady, match=r'it was started 9 s ago and has not heard of topic "orders" yet, nor of anything that any'):
        registry.route("orders", "default", at(EXPIRY_MS // 3 - 1))
    with pytest.raises(NotReady, match="no broker is registered"):
        registry.route("orders", "default", at(EXPIRY_MS // 3))
    registry.register(replace(master(), topics=()), "s1", at(EXPIRY_MS // 3))
    with pytest.raises(TopicNotFound):
        registry.route("orders", "default", at(EXPIRY_MS // 3))


def test_a_topic_is_not_known_yet_until_each_group_that_was_known_before_the_start_has_registered() -> None:
    before = [("a", Opening(Epoch(7), 0)), ("b", Opening(Epoch(3), 0))]
    registry = Registry("dittomq", EXPIRY_MS, at(0), Openings(before))
    registry.register(master(), "s1", at(1))
    assert registry.route("orders", "default", at(1)).queues

    with pytest.raises(NotReady, match="nor of anything that b holds; brokers register within 10 s"):
        registry.route("payments", "default", at(1))

    registry.register(replace(slave(), broker="b"), "s2", at(2))
    with pytest.raises(TopicNotFound):
        registry.route("payments", "default", at(2))


def test_a_topic_may_exist_that_was_known_and_whose_brokers_are_all_gone(registry: Registry) -> None:
    registry.register(master(), "s1", at(0))
    registry.expire(at(EXPIRY_MS))

    with pytest.raises(NotReady, match='no broker is registered with it, so it cannot know whether topic "orders" exists, though'):
        registry.route("orders", "default", at(EXPIRY_MS))


def test_a_group_that_is_remembered_and_not_registered_is_named_wherever_it_may_hold_the_topic(registry: Registry) -> None:
    for broker, uuid in (("a", "a" * 32), ("b", "b" * 32), ("c", "c" * 32)):
        registry.register(replace(master(uuid, host=f"{broker}-0", broker=broker), opener_id=0), f"s{broker}", at(0))
    for session in ("sb", "sc"):
        registry.unregister(session)

    route = registry.route("orders", "default", at(1))
    with pytest.raises(TopicNotFound) as unknown:
        registry.route("payments", "default", at(EXPIRY_MS))
    registry.unregister("sa")
    with pytest.raises(NotReady, match="though it remembers a, b, c; start one"):
        registry.route("orders", "default", at(EXPIRY_MS))

    assert [(group.broker, group.newest) for group in route.silent] == [("b", Opening(Epoch(7), 0)), ("c", Opening(Epoch(7), 0))]
    assert unknown.value.silent == "b, c"
    assert "nobody answers for b, c, which may hold it: bring them back" in str(unknown.value)


def test_a_nameserver_that_stood_still_denies_what_it_denied_before(registry: Registry) -> None:
    registry.register(master(), "s1", at(0))
    registry.register(replace(slave(), topics=()), "s2", at(0))
    registry.unregister("s1")

    registry.stood_still(60_000, at(60_000))

    with pytest.raises(TopicNotFound):
        registry.route("orders", "default", at(60_001))
