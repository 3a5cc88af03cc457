"""When a nameserver may say that a topic does not exist: not before its brokers had time to register."""

import pytest

from dittomq.errors import NotReady, TopicNotFound
from services.nameserver.registry import Registry
from tests.support.naming import at, master

EXPIRY_MS = 30_000
PERIOD_MS = 10_000


@pytest.fixture
def registry() -> Registry:
    return Registry("dittomq", EXPIRY_MS, at(0))


def test_a_topic_is_not_denied_before_every_broker_had_a_period_to_register(registry: Registry) -> None:
    registry.register(master(), "s1", at(0))

    with pytest.raises(NotReady, match='it was started 9 s ago, and no broker has registered topic "payments" since'):
        registry.route("payments", "default", at(PERIOD_MS - 1))
    with pytest.raises(TopicNotFound):
        registry.route("payments", "default", at(PERIOD_MS))


def test_a_topic_that_was_registered_is_routed_to_at_once(registry: Registry) -> None:
    registry.register(master(), "s1", at(0))

    route = registry.route("orders", "default", at(0))

    assert (len(route.queues), route.warming_up) == (1, True)


def test_a_route_is_settled_after_the_expiry(registry: Registry) -> None:
    registry.register(master(), "s1", at(EXPIRY_MS - 1))

    assert registry.route("orders", "default", at(EXPIRY_MS - 1)).warming_up
    assert not registry.route("orders", "default", at(EXPIRY_MS)).warming_up


def test_a_topic_may_exist_while_no_broker_is_registered(registry: Registry) -> None:
    registry.register(master(), "s1", at(0))
    registry.expire(at(EXPIRY_MS))

    with pytest.raises(NotReady, match='no broker is registered with it, so it cannot know whether topic "orders" exists; start one'):
        registry.route("orders", "default", at(EXPIRY_MS))


def test_a_nameserver_that_was_suspended_denies_what_it_denied_before(registry: Registry) -> None:
    registry.register(master(), "s1", at(0))

    registry.add_suspension(60_000, at(60_000))

    with pytest.raises(TopicNotFound):
        registry.route("payments", "default", at(60_001))
    assert registry.route("orders", "default", at(60_001)).warming_up
