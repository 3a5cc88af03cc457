from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dittomq.consumer.assignment import Strategy, TopicQueue, assign

MEMBERS = ["a", "b", "c", "d", "e"]
TOPICS = ["orders", "bills"]


def queues_of(topic: str, count: int) -> list[TopicQueue]:
    return [TopicQueue(topic, queue) for queue in range(count)]


@st.composite
def groups(draw: st.DrawFn) -> tuple[dict[str, frozenset[str]], list[TopicQueue], dict[TopicQueue, str]]:
    subscribed = draw(st.dictionaries(st.sampled_from(MEMBERS), st.frozensets(st.sampled_from(TOPICS)), max_size=5))
    queues = [queue for topic in TOPICS for queue in queues_of(topic, draw(st.integers(0, 9)))]
    before = draw(st.dictionaries(st.sampled_from(queues), st.sampled_from(MEMBERS))) if queues else {}
    return subscribed, queues, before


@pytest.mark.parametrize("strategy", Strategy)
@given(group=groups())
def test_each_queue_has_exactly_one_member_of_those_that_read_its_topic(
    strategy: Strategy, group: tuple[dict[str, frozenset[str]], list[TopicQueue], dict[TopicQueue, str]]
) -> None:
    subscribed, queues, before = group

    found = assign(strategy, subscribed, queues, before=before)

    assert set(found) == set(subscribed)
    for queue in queues:
        readers = [member for member, held in found.items() if queue in held]
        may = [member for member, topics in subscribed.items() if queue.topic in topics]
        assert len(readers) == min(1, len(may))
        assert set(readers) <= set(may)
    assert sum(map(len, found.values())) == len(set().union(*found.values())) if found else True


@pytest.mark.parametrize("strategy", [Strategy.AVERAGE, Strategy.CIRCLE, Strategy.STICKY])
@given(group=groups())
def test_shares_of_a_topic_differ_by_at_most_one_queue(
    strategy: Strategy, group: tuple[dict[str, frozenset[str]], list[TopicQueue], dict[TopicQueue, str]]
) -> None:
    subscribed, queues, before = group

    found = assign(strategy, subscribed, queues, before=before)

    for topic in TOPICS:
        sizes = [sum(queue.topic == topic for queue in found[member]) for member, topics in subscribed.items() if topic in topics]
        assert not sizes or max(sizes) - min(sizes) <= 1


@given(data=st.data(), members=st.integers(1, 3), count=st.integers(0, 5))
def test_sticky_moves_as_few_queues_as_any_balanced_assignment(data: st.DataObject, members: int, count: int) -> None:
    names, queues = MEMBERS[:members], queues_of("orders", count)
    before = data.draw(st.dictionaries(st.sampled_from(queues), st.sampled_from(MEMBERS[:4]))) if queues else {}

    found = assign(Strategy.STICKY, {name: frozenset({"orders"}) for name in names}, queues, before=before)

    def moved(readers: tuple[str, ...]) -> int:
        return sum(before.get(queue) != reader for queue, reader in zip(queues, readers, strict=True))

    def is_balanced(readers: tuple[str, ...]) -> bool:
        sizes = [readers.count(name) for name in names]
        return max(sizes) - min(sizes) <= 1

    least = min(moved(readers) for readers in product(names, repeat=count) if is_balanced(readers))
    assert moved(tuple(next(name for name in names if queue in found[name]) for queue in queues)) == least


@given(count=st.integers(1, 30), leaving=st.sampled_from(MEMBERS))
def test_consistent_hash_moves_only_the_queues_of_a_member_that_leaves(count: int, leaving: str) -> None:
    subscribed = {name: frozenset({"orders"}) for name in MEMBERS}
    queues = queues_of("orders", count)

    before = assign(Strategy.CONSISTENT_HASH, subscribed, queues, before={})
    after = assign(Strategy.CONSISTENT_HASH, {n: t for n, t in subscribed.items() if n != leaving}, queues, before={})

    assert all(before[name] <= after[name] for name in after)


def test_average_and_circle_are_rocketmqs() -> None:
    subscribed = {name: frozenset({"orders"}) for name in ("a", "b", "c")}
    queues = queues_of("orders", 8)

    average = assign(Strategy.AVERAGE, subscribed, queues, before={})
    circle = assign(Strategy.CIRCLE, subscribed, queues, before={})

    assert [sorted(q.queue for q in average[name]) for name in "abc"] == [[0, 1, 2], [3, 4, 5], [6, 7]]
    assert [sorted(q.queue for q in circle[name]) for name in "abc"] == [[0, 3, 6], [1, 4, 7], [2, 5]]
