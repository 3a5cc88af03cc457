"""A heartbeat brings what has changed of a node's topics: then the nameserver knows what a whole registration would have told it."""

from dataclasses import replace

import pytest

from dittomq.errors import InvalidField, TopicNotFound
from dittomq.routes import ChangedTopics, DataVersion, TopicQueues
from services.nameserver.registry import Registry
from tests.support.naming import at, beat, beat_with, master, orders, slave
from tests.support.replayable_chance import replayable

FIRST, SECOND = DataVersion(1, 2, 3), DataVersion(1, 2, 4)


@pytest.fixture
def registry() -> Registry:
    registry = Registry("dittomq", 30_000, at(0))
    registry.register(master(), "s1", at(0))
    return registry


def queues_of(registry: Registry, topic: str) -> int | None:
    try:
        [queues] = registry.route(topic, "default", at(29_999)).queues
    except TopicNotFound:
        return None
    return queues.read_queues


def test_changes_of_the_known_version_are_taken(registry: Registry) -> None:
    changes = ChangedTopics(FIRST, (TopicQueues("bills", 2, 2, 6),), ("orders", "never there"))

    answer = registry.heartbeat(beat_with(changes, SECOND), at(1))

    assert not answer.must_reregister
    assert (queues_of(registry, "orders"), queues_of(registry, "bills")) == (None, 2)
    assert not registry.heartbeat(beat("s1", version=SECOND), at(2)).must_reregister


def test_changes_of_another_version_change_nothing_and_the_node_is_to_register(registry: Registry) -> None:
    changes = ChangedTopics(SECOND, (orders(9),), ())

    answer = registry.heartbeat(beat_with(changes, DataVersion(1, 2, 5)), at(1))

    assert answer.must_reregister
    assert queues_of(registry, "orders") == 8


def test_changes_with_one_illegal_topic_are_refused_and_change_nothing(registry: Registry) -> None:
    changes = ChangedTopics(FIRST, (orders(9), TopicQueues("a/../b", 1, 1, 6)), ())

    with pytest.raises(InvalidField, match="topic"):
        registry.heartbeat(beat_with(changes, SECOND), at(1))

    assert queues_of(registry, "orders") == 8
    assert not registry.heartbeat(beat("s1", version=FIRST), at(2)).must_reregister


def test_topic_that_a_slave_still_holds_stays_in_routes(registry: Registry) -> None:
    registry.register(slave(), "s2", at(0))

    registry.heartbeat(beat_with(ChangedTopics(FIRST, (), ("orders",)), SECOND), at(1))

    assert queues_of(registry, "orders") == 8


def test_nameserver_that_hears_changes_answers_as_one_that_hears_all() -> None:
    chance, names = replayable(), [f"t{number}" for number in range(8)]
    follows, whole = (Registry("dittomq", 30_000, at(0)) for _ in range(2))
    held: dict[str, TopicQueues] = {}
    follows.register(replace(master(), topics=()), "s1", at(0))
    for number in range(300):
        changed = {name: TopicQueues(name, count, count, 6) for name in chance.sample(names, 2) for count in (chance.randrange(1, 4),)}
        removed = tuple(name for name in chance.sample(names, 2) if name not in changed)
        held = {name: queues for name, queues in {**held, **changed}.items() if name not in removed}
        before, after = DataVersion(1, 2, 3 + number), DataVersion(1, 2, 4 + number)

        assert not follows.heartbeat(beat_with(ChangedTopics(before, tuple(changed.values()), removed), after), at(0)).must_reregister
        whole.register(replace(master(), topics=tuple(held.values()), data_version=after), "s1", at(0))

        assert [queues_of(follows, name) for name in names] == [queues_of(whole, name) for name in names]
