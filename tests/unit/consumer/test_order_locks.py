import pytest

from dittomq.consumer.assignment import TopicQueue
from dittomq.consumer.order_locks import LOCK_S, OrderLocks

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
