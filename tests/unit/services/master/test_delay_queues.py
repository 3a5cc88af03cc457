from dittomq.message import StoredMessage
from dittomq.offsets import PhysicalOffset, QueueOffset
from services.master.delay_queues import DelayQueue, Moment, neighbours

HOUR_MS = 3_600_000


def waiting(offset: int, store_ms: int) -> StoredMessage:
    return StoredMessage("t", 0, QueueOffset(offset), PhysicalOffset(offset), 1, b"", (), "", {}, 0, 0, store_ms)


def see(queue: DelayQueue, high: int, now: Moment) -> bool:
    return queue.see(QueueOffset(0), QueueOffset(high), now)


def test_queue_gives_its_leading_messages_that_are_due_and_waits_for_the_next() -> None:
    queue = DelayQueue("t", 0, 5_000)
    messages = [waiting(0, 1_000), waiting(1, 1_100), waiting(2, 2_000)]
    assert see(queue, 3, Moment(6_500, 0))

    assert queue.take_due(messages, Moment(6_500, 0)) == messages[:2]
    assert queue.wait_ms(Moment(6_500, 0)) == 500
    assert not see(queue, 3, Moment(6_999, 499))
    assert see(queue, 3, Moment(7_000, 500))


def test_clock_that_was_set_back_delays_a_message_by_its_delay_once_more_at_most() -> None:
    queue = DelayQueue("t", 0, 5_000)
    stored_ms = 2 * HOUR_MS
    assert see(queue, 1, Moment(stored_ms - HOUR_MS, 100))

    assert queue.take_due([waiting(0, stored_ms)], Moment(stored_ms - HOUR_MS, 100)) == []
    assert queue.wait_ms(Moment(stored_ms - HOUR_MS, 100)) == 5_000
    assert queue.take_due([waiting(0, stored_ms)], Moment(stored_ms - HOUR_MS, 5_100)) == [waiting(0, stored_ms)]


def test_message_that_was_not_seen_yet_is_not_due_before_its_delay() -> None:
    queue = DelayQueue("t", 0, 5_000)
    assert see(queue, 1, Moment(0, 0))

    assert queue.take_due([waiting(0, HOUR_MS), waiting(1, HOUR_MS)], Moment(0, 6_000)) == [waiting(0, HOUR_MS)]
    queue.pass_to(QueueOffset(1))
    assert see(queue, 2, Moment(0, 6_000))
    assert queue.take_due([waiting(1, HOUR_MS)], Moment(0, 10_999)) == []
    assert queue.take_due([waiting(1, HOUR_MS)], Moment(0, 11_000)) == [waiting(1, HOUR_MS)]


def test_queue_whose_beginning_was_dropped_goes_on_at_its_new_one() -> None:
    queue = DelayQueue("t", 0, 5_000, next=QueueOffset(3))

    assert queue.see(QueueOffset(7), QueueOffset(9), Moment(0, 0))
    assert queue.next == 7
    assert not queue.see(QueueOffset(9), QueueOffset(9), Moment(0, 0))
    assert queue.wait_ms(Moment(0, 0)) is None


def test_neighbours_end_where_an_offset_is_left_out() -> None:
    messages = [waiting(3, 0), waiting(4, 0), waiting(6, 0)]

    assert neighbours(messages) == messages[:2]
