"""What a topic may be called and how one is found."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dittomq.errors import InvalidField, TopicNotFound
from dittomq.metadata.topics import (
    TopicConfig,
    TopicUpdate,
    check_new_topic,
    check_topic_name,
    find_topic,
    nearest_name,
    topics_of_queues,
    updated,
    with_held,
)


@pytest.mark.parametrize("name", ["orders", "a", "%RETRY%billing", "a|b", "0", "-", "A_b-c", "x" * 127])
def test_a_name_within_the_limits_is_accepted(name: str) -> None:
    check_topic_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "../../etc/passwd",
        "a/b",
        "a\\b",
        "a\x00b",
        "%2e%2e/x",
        "a b",
        "a\nb",
        "ördérs",
        "\u043erders",
        "a.b",
        "x" * 128,
        "a" * 10_000,
    ],
)
def test_a_hostile_name_is_refused_in_one_printable_line(name: str) -> None:
    with pytest.raises(InvalidField) as refused:
        check_topic_name(name)

    sentence = str(refused.value)
    assert sentence.startswith("topic: ")
    assert sentence.isascii()
    assert sentence.isprintable()
    assert len(sentence) < 200


@given(st.text(max_size=200))
def test_an_accepted_name_can_be_the_name_of_a_folder(name: str) -> None:
    try:
        check_topic_name(name)
    except InvalidField:
        return
    assert "/" not in name
    assert "\0" not in name
    assert name not in {"", ".", ".."}


@pytest.mark.parametrize(
    ("topic", "field"),
    [
        (TopicConfig(""), "topic.name"),
        (TopicConfig("SCHEDULE_TOPIC_XXXX"), "topic.name"),
        (TopicConfig("rmq_sys_wheel_timer"), "topic.name"),
        (TopicConfig("a", read_queues=0), "topic.read_queues"),
        (TopicConfig("a", read_queues=1_025), "topic.read_queues"),
        (TopicConfig("a", write_queues=-1), "topic.write_queues"),
        (TopicConfig("a", permission=0), "topic.permission"),
        (TopicConfig("a", permission=15), "topic.permission"),
    ],
)
def test_a_topic_outside_the_limits_is_refused_by_field(topic: TopicConfig, field: str) -> None:
    with pytest.raises(InvalidField) as refused:
        check_new_topic(topic)

    assert refused.value.field == field


@pytest.mark.parametrize("permission", [2, 4, 6])
def test_a_topic_at_the_limits_is_accepted(permission: int) -> None:
    check_new_topic(TopicConfig("a" * 127, 1, 1_024, permission))


def test_an_unknown_topic_is_reported_with_the_nearest_known_name() -> None:
    topics = {name: TopicConfig(name) for name in ("orders", "payments")}

    with pytest.raises(TopicNotFound, match='"order" does not exist in a/0; did you mean "orders"'):
        find_topic(topics, "order", "a/0")
    with pytest.raises(TopicNotFound, match=r"does not exist in a/0\. Create it: dittomq topic create zebra"):
        find_topic(topics, "zebra", "a/0")


def test_looking_for_the_nearest_name_stays_cheap_among_many() -> None:
    assert nearest_name("topic-x", (f"other-{number:06}" for number in range(100_000))) == ""


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("o" * 16 * 1024 * 1024, ["orders"]),
        ("customer-orders-xxxx-events", [f"customer-orders-{number:04}-events" for number in range(1_000)]),
        ("x" + "a" * 126, [f"{number:04}" + "a" * 123 for number in range(1_000)]),
    ],
    ids=["16 MiB", "a thousand alike", "a thousand alike and long"],
)
def test_looking_for_the_nearest_name_takes_few_steps_whatever_the_names_are(name: str, known: list[str]) -> None:
    steps = 0

    def count(*_: object) -> None:
        nonlocal steps
        steps += 1

    sys.setprofile(count)
    try:
        nearest_name(name, known)
    finally:
        sys.setprofile(None)

    assert steps < 150_000


def test_of_a_thousand_names_alike_the_nearest_one_is_found() -> None:
    names = [f"{number:03}-orders" for number in range(500)] + ["customer-orders"]

    assert nearest_name("custmer-orders", names) == "customer-orders"
    assert nearest_name("0042-orders", names) == "042-orders"


def test_the_queues_of_a_log_show_its_topics() -> None:
    assert topics_of_queues([("b", 2), ("a", 0), ("b", 0)]) == {"a": TopicConfig("a", 1, 1), "b": TopicConfig("b", 3, 3)}


def test_what_a_log_holds_beyond_the_table_can_be_read_and_what_the_table_says_stays() -> None:
    table = {"a": TopicConfig("a", 2, 2, 4), "b": TopicConfig("b", 1, 4)}

    known = with_held(table, [("a", 3), ("b", 3), ("c", 0)])

    assert known == {"a": TopicConfig("a", 4, 2, 4), "b": TopicConfig("b", 1, 4), "c": TopicConfig("c", 1, 1)}


@pytest.mark.parametrize(
    ("before", "after"),
    [((4, 4), (8, 8)), ((4, 4), (4, 2)), ((4, 8), (8, 2)), ((8, 4), (8, 8)), ((4, 8), (5, 8))],
)
def test_queues_are_added_and_taken_from_those_that_are_written(before: tuple[int, int], after: tuple[int, int]) -> None:
    update = TopicUpdate(TopicConfig("t", *after), ("read_queues", "write_queues"))

    assert updated(TopicConfig("t", *before), update) == TopicConfig("t", *after)


@pytest.mark.parametrize(
    ("before", "after", "field"),
    [
        ((4, 4), (2, 4), "topic.read_queues"),
        ((4, 4), (2, 2), "topic.read_queues"),
        ((4, 8), (4, 4), "topic.read_queues"),
        ((4, 4), (4, 0), "topic.write_queues"),
        ((4, 4), (1_025, 4), "topic.read_queues"),
    ],
)
def test_no_update_hides_a_queue_that_may_hold_messages_or_leaves_the_limits(
    before: tuple[int, int], after: tuple[int, int], field: str
) -> None:
    update = TopicUpdate(TopicConfig("t", *after), ("read_queues", "write_queues"))

    with pytest.raises(InvalidField) as refused:
        updated(TopicConfig("t", *before), update)

    assert refused.value.field == field
