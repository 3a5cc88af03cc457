import pytest

from dittomq.consumer.assignment import TopicQueue
from dittomq.consumer.order_locks import LOCK_S, MAX_LOCKS, MAX_LOCKS_OF_GROUP, OrderLocks
from dittomq.errors import LimitReached

FIRST, SECOND = TopicQueue("orders", 0), TopicQueue("orders", 1)


def test_a_queue_is_locked_for_one_member_of_a_group_at_a_time() -> None:
    locks = OrderLocks(free_at=0.0)

    assert locks.lock("billing", "a", [FIRST], 1.0) == {FIRST}
    assert locks.lock("billing", "b", [FIRST, SECOND], 2.0) == {SECOND}
    assert locks.lock("mailing", "b", [FIRST], 2.0) == {FIRST}


@pytest.mark.parametrize(("later_s", "is_free"), [(LOCK_S - 0.1, False), (LOCK_S, True)])
def test_a_lock_ends_unless_it_is_taken_again(later_s: float, is_free: bool) -> None:
    locks = OrderLocks(free_at=0.0)
    locks.lock("billing", "a", [FIRST], 0.0)
    locks.lock("billing", "a", [FIRST], 10.0)

    assert locks.lock("billing", "b", [FIRST], 10.0 + later_s) == ({FIRST} if is_free else set())


def test_only_the_holder_unlocks() -> None:
    locks = OrderLocks(free_at=0.0)
    locks.lock("billing", "a", [FIRST], 0.0)

    locks.unlock("billing", "b", [FIRST])
    assert locks.lock("billing", "b", [FIRST], 1.0) == set()
    locks.unlock("billing", "a", [FIRST])

    assert locks.lock("billing", "b", [FIRST], 1.0) == {FIRST}


def test_nothing_is_locked_while_locks_of_the_master_before_may_hold() -> None:
    locks = OrderLocks(free_at=LOCK_S)

    assert locks.lock("billing", "a", [FIRST], LOCK_S - 1) == set()
    assert locks.lock("billing", "a", [FIRST], LOCK_S) == {FIRST}


def test_locks_of_one_group_leave_room_for_others_and_old_ones_go() -> None:
    locks = OrderLocks(free_at=0.0)
    many = [TopicQueue("orders", queue) for queue in range(MAX_LOCKS_OF_GROUP)]
    locks.lock("billing", "a", many, 1.0)

    with pytest.raises(LimitReached):
        locks.lock("billing", "a", [TopicQueue("other", 0)], 2.0)
    assert locks.lock("billing", "a", many[:2], 2.0) == set(many[:2])
    assert locks.lock("mailing", "b", many[:2], 2.0) == set(many[:2])
    assert locks.lock("billing", "b", [TopicQueue("other", 0)], LOCK_S + 1.5) == {TopicQueue("other", 0)}


def test_locks_of_all_groups_are_bounded() -> None:
    locks = OrderLocks(free_at=0.0)
    many = [TopicQueue("orders", queue) for queue in range(MAX_LOCKS_OF_GROUP)]
    for group in range(MAX_LOCKS // MAX_LOCKS_OF_GROUP):
        locks.lock(f"group {group}", "a", many, 1.0)

    with pytest.raises(LimitReached):
        locks.lock("billing", "a", [FIRST], 2.0)
    assert locks.lock("billing", "a", [FIRST], LOCK_S + 1.5) == {FIRST}


def test_a_group_that_wants_too_many_locks_at_once_gets_none() -> None:
    locks = OrderLocks(free_at=0.0)

    with pytest.raises(LimitReached):
        locks.lock("billing", "a", [TopicQueue("orders", queue) for queue in range(MAX_LOCKS_OF_GROUP + 1)], 1.0)
    assert locks.lock("billing", "b", [FIRST], 1.0) == {FIRST}
