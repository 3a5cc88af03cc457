"""Half messages of a store of RocketMQ's: what it has dealt with is asked about by nobody here."""

from pathlib import Path

import pytest

from dittomq.metadata.formats import CONSUMER_OFFSETS, decode
from dittomq.transactions import HALF_TOPIC, ROCKETMQ_GROUP
from services.master.half_messages import HalfMessages
from tests.vectors.conftest import Vector
from tests.vectors.opened_stores import open_copy


@pytest.mark.parametrize("vector", ["plain-5.3.3/master", "plain-4.9.7/master"], indirect=True)
def test_no_half_message_that_rocketmq_has_checked_to_its_end_is_new(vector: Vector, tmp_path: Path) -> None:
    """It stored four of them anew, two up to 15 times, and marked none of the older ones as ended."""
    rows = decode(CONSUMER_OFFSETS, (vector.folder / CONSUMER_OFFSETS.path).read_bytes()).rows
    store = open_copy(vector.folder, tmp_path / "store")
    store.dispatch(store.end)
    halves = HalfMessages("a/0", store, lambda _: None)

    assert len(halves.ended(0)) < len(halves.unseen(store.end, 0.0))
    halves.ended(rows[HALF_TOPIC, ROCKETMQ_GROUP, 0].offset)
    assert halves.unseen(store.end, 0.0) == []
    store.close(clean=True)
