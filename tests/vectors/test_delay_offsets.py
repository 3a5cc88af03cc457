"""How far delayed messages of a store are delivered: RocketMQ's file is believed of what was there when RocketMQ wrote last."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dittomq.commitlog.store import AppendBatch, Store
from dittomq.delays import DELAY_QUEUES, SCHEDULE_TOPIC, schedule
from dittomq.epoch_history import FOREIGN, EpochEntry
from dittomq.message import Draft
from dittomq.metadata.formats import DELAY_OFFSETS, decode
from dittomq.offsets import Epoch, PhysicalOffset
from services.master.delay_queues import DelayQueue
from services.master.delayed_delivery import delivered_to
from tests.vectors.conftest import Vector
from tests.vectors.opened_stores import open_copy

QUEUES = {level + 1: DelayQueue(topic, level, delay_ms) for topic, level, delay_ms in DELAY_QUEUES if topic == SCHEDULE_TOPIC}
STORES = pytest.mark.parametrize("vector", ["plain-5.3.3/master", "plain-4.9.7/master", "plain-5.3.3/slave"], indirect=True)


@pytest.fixture
def store(vector: Vector, tmp_path: Path) -> Iterator[Store]:
    opened = open_copy(vector.folder, tmp_path / "store")
    opened.dispatch(opened.end)
    yield opened
    opened.close(clean=True)


def told_by(vector: Vector) -> dict[int, int]:
    """By level, what RocketMQ's own file says."""
    rows = decode(DELAY_OFFSETS, (vector.folder / DELAY_OFFSETS.path).read_bytes()).rows
    return {row.level: row.rocketmq_offset for row in rows.values()}


@STORES
def test_rocketmqs_store_is_delivered_as_far_as_its_file_says(vector: Vector, store: Store) -> None:
    told = told_by(vector)

    assert {level: delivered_to(store, QUEUES[level], offset) for level, offset in told.items()} == told
    assert max(told.values()) > 20


@STORES
def test_file_that_says_more_than_the_queue_holds_is_believed_to_its_end(vector: Vector, store: Store) -> None:
    high = store.queue_range(SCHEDULE_TOPIC, 0)[1]

    assert delivered_to(store, QUEUES[1], high + 1_000) == high


@STORES
def test_no_file_delivers_what_a_master_of_ours_wrote(vector: Vector, store: Store) -> None:
    store.replace_epoch_history((EpochEntry(Epoch(1), 0, 7, store.end),))
    _, theirs = store.queue_range(SCHEDULE_TOPIC, 0)
    waiting = schedule(Draft("orders", 0, 0, 1, b"ours", b"", 0), 1)
    store.append([AppendBatch([waiting, waiting])], 1)
    store.dispatch(store.end)

    assert delivered_to(store, QUEUES[1], theirs) == theirs
    assert [delivered_to(store, QUEUES[1], theirs + more) for more in (1, 2, 1_000)] == [theirs] * 3


@STORES
def test_what_waited_when_rocketmq_wrote_last_is_delivered_as_its_file_says(vector: Vector, store: Store) -> None:
    told = told_by(vector)
    visit = PhysicalOffset(store.end - 1)  # before it, so it says, a master of ours wrote all that waits
    store.replace_epoch_history((EpochEntry(Epoch(1), 0, 7, PhysicalOffset(0)), EpochEntry(Epoch(1), FOREIGN, 8, visit)))

    assert {level: delivered_to(store, QUEUES[level], offset) for level, offset in told.items()} == told
