import random

import pytest

from dittomq.delays import (
    DUE,
    LEVEL_DELAYS_S,
    MAX_DELAY_MS,
    SCHEDULE_TOPIC,
    TIMER_DELAYS_MS,
    TIMER_TOPIC,
    check_wait,
    due_in,
    system_producer,
    timer_queue,
    waiting,
)
from dittomq.errors import InvalidField
from dittomq.message import Draft
from dittomq.wire.publishing import MAX_PRODUCER_ID

DRAFT = Draft("orders", 3, 0, 1, b"body", b"", 0)
NOW_MS = 1_700_000_000_000


def test_message_hops_until_less_than_the_shortest_delay_is_left() -> None:
    chance = random.Random(5)
    for _ in range(2_000):
        remaining = first = int(2 ** chance.uniform(5, 31.68))
        hops = 0
        while remaining >= TIMER_DELAYS_MS[0]:
            waits = TIMER_DELAYS_MS[timer_queue(remaining)]
            assert waits <= remaining
            remaining, hops = remaining - waits, hops + 1
        assert hops <= 9 + first // TIMER_DELAYS_MS[-1], first


def test_level_delays_lie_where_rocketmq_finds_them_and_others_in_the_timer_topic() -> None:
    assert {waiting(DRAFT, seconds * 1_000, 0, NOW_MS).topic for seconds in LEVEL_DELAYS_S} == {SCHEDULE_TOPIC}
    assert waiting(DRAFT, 1_001, 0, NOW_MS).topic == TIMER_TOPIC
    assert due_in({DUE: "12"}) == 12


@pytest.mark.parametrize(("delay_ms", "deliver_ms"), [(-1, 0), (MAX_DELAY_MS + 1, 0), (1, 1), (0, -1), (0, NOW_MS + MAX_DELAY_MS + 1)])
def test_impossible_waits_are_refused(delay_ms: int, deliver_ms: int) -> None:
    with pytest.raises(InvalidField):
        waiting(DRAFT, delay_ms, deliver_ms, NOW_MS)


def test_forty_days_are_not_too_long_and_a_time_that_has_passed_is_no_wait() -> None:
    check_wait(MAX_DELAY_MS, 0)
    assert waiting(DRAFT, 0, NOW_MS + MAX_DELAY_MS, NOW_MS).queue == len(TIMER_DELAYS_MS) - 1
    assert waiting(DRAFT, 0, NOW_MS, NOW_MS) is DRAFT


def test_ids_of_system_producers_cannot_be_asked_for_by_clients() -> None:
    assert "%" in system_producer(TIMER_TOPIC, 150)
    assert len(system_producer(TIMER_TOPIC, 150)) <= MAX_PRODUCER_ID
