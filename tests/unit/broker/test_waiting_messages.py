"""What waits holds retention back for as long as a master can still deliver it, and no longer."""

import random

import pytest

from dittomq.broker.waiting_messages import waiting_floors
from dittomq.commitlog.store import AppendBatch, Store
from dittomq.delays import SCHEDULE_TOPIC, system_producer
from dittomq.message import Draft
from dittomq.transactions import HALF_TOPIC, half_of
from tests.support.stores import Machine, frame, open_epoch

HOUR_MS = 3_600_000


@pytest.fixture
def store() -> Store:
    return Machine(random.Random(1)).lead()


def at(store: Store, hours: float, batch: AppendBatch | None = None) -> None:
    """That is stored then, else a message that waits for nothing."""
    store.append([frame(b"x") if batch is None else batch], int(hours * HOUR_MS))
    store.dispatch(store.end)


def delayed() -> AppendBatch:
    return frame(b"later", topic=SCHEDULE_TOPIC, queue=0)


def half() -> AppendBatch:
    return AppendBatch([half_of(Draft("orders", 0, 0, 1, b"half", b"", 0), "billing")])


def floors(store: Store) -> list[tuple[str, int]]:
    return [(each.name, each.offset) for each in waiting_floors(store)]


def test_undelivered_message_is_held_for_a_day_in_which_its_master_writes(store: Store) -> None:
    at(store, 1)
    place = int(store.end)
    at(store, 1, delayed())

    at(store, 24.9)
    assert floors(store) == [("delayed messages", place)]
    at(store, 25.1)
    assert floors(store) == []


def test_delivered_message_is_not_held(store: Store) -> None:
    at(store, 1, delayed())
    at(store, 1.1, frame(b"later", producer=system_producer(SCHEDULE_TOPIC, 0), first=0))

    assert floors(store) == []


@pytest.mark.parametrize(("batch", "hours"), [(delayed(), 24), (half(), 1)], ids=["delayed", "half"])
def test_what_waited_while_nobody_led_is_held_until_the_new_master_had_its_time(store: Store, batch: AppendBatch, hours: int) -> None:
    at(store, 1)
    place = int(store.end)
    at(store, 1, batch)

    store.sync()
    open_epoch(store)
    assert [offset for _, offset in floors(store)] == [place]
    at(store, 100)
    assert [offset for _, offset in floors(store)] == [place]
    at(store, 100 + hours - 0.1)
    assert [offset for _, offset in floors(store)] == [place]
    at(store, 100 + hours + 0.1)
    assert floors(store) == []


def test_half_messages_of_the_last_hour_are_held(store: Store) -> None:
    at(store, 1, half())
    place = int(store.end)
    at(store, 1.5, half())

    at(store, 2.1)
    assert floors(store) == [("transactions", place)]
    at(store, 2.6)
    assert floors(store) == []
    assert store.queue_range(HALF_TOPIC, 0) == (0, 2)
