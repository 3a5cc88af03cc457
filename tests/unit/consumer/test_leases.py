import pytest
from hypothesis import given
from hypothesis import strategies as st

from dittomq.consumer.assignment import TopicQueue
from dittomq.consumer.leases import MAX_WINDOW, AcknowledgedLeases, LeasedQueue, LeaseToken, decode_lease_token
from dittomq.errors import InvalidField, SessionExpired

QUEUE = TopicQueue("orders", 3)


def leased(count: int, until: float = 30.0) -> tuple[LeasedQueue, list[LeaseToken]]:
    queue = LeasedQueue(QUEUE, 10, (), epoch=2)
    return queue, [queue.lease(10 + number, number, until) for number in range(count)]


def acknowledge(queue: LeasedQueue, token: LeaseToken, now: float = 0.0) -> bool:
    return queue.acknowledge(token, now)


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


def test_the_last_acknowledged_leases_are_remembered_for_their_group() -> None:
    _, tokens = leased(3)
    remembered = AcknowledgedLeases(most=2)

    for token in tokens:
        remembered.add("billing", token)

    assert [remembered.has("billing", token) for token in tokens] == [False, True, True]
    assert not remembered.has("shipping", tokens[2])
    assert not remembered.has("billing", LeaseToken(2, tokens[2].number, QUEUE, 99))


def test_an_acknowledgement_of_an_ended_lease_is_refused() -> None:
    """Before its message has another try and after that."""
    queue, [token] = leased(1, until=30.0)
    with pytest.raises(SessionExpired):
        queue.acknowledge(token, now=30.0)

    [ended] = queue.take_ended(30.0)
    queue.settled(ended)

    assert ended == token
    assert queue.committed == 11
    with pytest.raises(SessionExpired):
        queue.acknowledge(token, now=31.0)


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


def test_a_token_of_a_master_before_does_not_end_another_callers_lease() -> None:
    _, [old] = leased(1)
    queue = LeasedQueue(QUEUE, 10, (), epoch=3)
    now_held = queue.lease(10, 0, 30.0)

    with pytest.raises(SessionExpired):
        queue.acknowledge(old, 0.0)

    assert queue.committed == 10
    assert acknowledge(queue, now_held)


def test_a_token_of_a_master_before_is_bounded_by_the_window() -> None:
    queue = LeasedQueue(QUEUE, 10, (), epoch=3)

    with pytest.raises(SessionExpired):
        queue.acknowledge(LeaseToken(2, 0, QUEUE, 10 + MAX_WINDOW), 0.0)

    assert acknowledge(queue, LeaseToken(2, 0, QUEUE, 9 + MAX_WINDOW))


def test_a_queue_that_holds_an_acknowledgement_is_not_idle() -> None:
    queue = LeasedQueue(QUEUE, 10, (), epoch=3)
    assert queue.is_idle

    acknowledge(queue, LeaseToken(2, 0, QUEUE, 11))
    assert not queue.is_idle

    acknowledge(queue, LeaseToken(2, 0, QUEUE, 10))
    assert queue.is_idle


def test_what_retention_took_is_passed_over_in_one_step() -> None:
    queue = LeasedQueue(QUEUE, 10, [11, 1 << 40], epoch=1)

    assert queue.fits(1 << 40)
    token = queue.lease((1 << 40) + 1, 0, 30.0)

    assert queue.committed == token.offset
    assert not queue.fits(token.offset + MAX_WINDOW)
    assert acknowledge(queue, token)
    assert queue.is_idle
