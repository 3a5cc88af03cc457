import pytest
from hypothesis import given
from hypothesis import strategies as st

from dittomq.consumer.assignment import TopicQueue
from dittomq.consumer.leases import LeasedQueue, LeaseToken, decode_lease_token
from dittomq.errors import InvalidField, SessionExpired

QUEUE = TopicQueue("orders", 3)


def leased(count: int, until: float = 30.0) -> tuple[LeasedQueue, list[LeaseToken]]:
    queue = LeasedQueue(QUEUE, 10, (), epoch=2)
    return queue, [queue.lease(10 + number, number, until) for number in range(count)]


def acknowledge(queue: LeasedQueue, token: LeaseToken, now: float = 0.0) -> bool:
    must = queue.begin_settling(token, now)
    if must:
        queue.settled(token)
    return must


def test_a_token_comes_back_as_it_was() -> None:
    token = LeaseToken(7, 12, TopicQueue("%RETRY%bill|ing.eu", 0), 1 << 40)

    assert decode_lease_token(token.encode()) == token


@pytest.mark.parametrize("text", ["", "x", "1.2.3.4.", "1.2.3.4", "1.2.3.4.a b", "-1.2.3.4.a", "1" * 30 + ".2.3.4.a"])
def test_what_is_no_token_is_refused(text: str) -> None:
    with pytest.raises(InvalidField):
        decode_lease_token(text)


@given(st.permutations(range(6)))
def test_the_lowest_offset_that_is_not_acknowledged_is_committed(order: list[int]) -> None:
    queue, tokens = leased(6)
    left = set(range(10, 16))

    for number in order:
        acknowledge(queue, tokens[number])
        left.discard(10 + number)
        assert queue.committed == min(left, default=16)


def test_a_repeated_acknowledgement_is_answered_again() -> None:
    queue, tokens = leased(1)

    assert acknowledge(queue, tokens[0])
    assert not acknowledge(queue, tokens[0])
    assert not acknowledge(queue, tokens[0], now=1000.0)


def test_an_acknowledgement_of_an_ended_lease_is_refused() -> None:
    """Before its message has another try and after that."""
    queue, [token] = leased(1, until=30.0)
    with pytest.raises(SessionExpired):
        queue.begin_settling(token, now=30.0)

    [ended] = queue.take_ended(30.0)
    queue.settled(ended, acknowledged=False)

    assert ended == token
    assert queue.committed == 11
    with pytest.raises(SessionExpired):
        queue.begin_settling(token, now=31.0)


def test_an_extended_lease_ends_later_and_an_ended_one_is_not_extended() -> None:
    queue, [token] = leased(1, until=30.0)

    queue.extend(token, 60.0, now=29.0)
    assert queue.take_ended(59.0) == []
    assert queue.take_ended(60.0) == [token]

    with pytest.raises(SessionExpired):
        queue.extend(token, 90.0, now=60.0)


def test_a_lease_whose_other_try_could_not_be_stored_ends_again() -> None:
    queue, [token] = leased(1, until=30.0)
    assert queue.take_ended(30.0) == [token]
    assert queue.take_ended(30.0) == []

    queue.not_settled(token)

    assert queue.take_ended(31.0) == [token]


def test_a_new_master_gives_no_acknowledged_message_again_and_takes_old_tokens() -> None:
    _, [first, second, third] = leased(3)
    queue = LeasedQueue(QUEUE, 10, [11], epoch=3)

    assert (queue.committed, queue.next_offset) == (10, 10)
    assert queue.is_done(11)
    assert not acknowledge(queue, second)
    assert acknowledge(queue, first)
    assert queue.committed == 12
    assert acknowledge(queue, third)
    assert queue.next_offset == 13


def test_what_is_not_wanted_is_done() -> None:
    queue = LeasedQueue(QUEUE, 10, (), epoch=1)
    token = queue.lease(14, 0, 30.0)
    queue.pass_over(20)

    assert queue.committed == 14
    acknowledge(queue, token)

    assert queue.committed == queue.next_offset == 20
