"""Which cancellations of a log still mean something."""

import random

from dittomq.commitlog.store import AppendBatch
from dittomq.delays import CANCEL_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from services.master.cancelled_messages import cancellation_of, still_cancelled
from services.master.system_queues import stored_from
from tests.support.stores import Machine, frame


def test_only_cancellations_of_messages_that_are_not_passed_are_known() -> None:
    store = Machine(random.Random(1)).lead()
    for topic, queue in ((SCHEDULE_TOPIC, 3), (TIMER_TOPIC, 3)):
        store.append([frame(b"0", b"1", b"2", topic=topic, queue=queue)], 1_000)
    store.dispatch(store.end)
    waiting = [each for topic in (SCHEDULE_TOPIC, TIMER_TOPIC) for each in store.read_queue(topic, 3, 0, 3, 1 << 20).messages]
    for each in waiting:
        store.append([AppendBatch([cancellation_of(each.physical_offset, each, 2_000)])], 2_000)
    store.dispatch(store.end)

    known = list(still_cancelled(stored_from(store, CANCEL_TOPIC, 0), {(SCHEDULE_TOPIC, 3): 1, (TIMER_TOPIC, 3): 3}))

    assert known == [each.physical_offset for each in waiting[1:3]]
