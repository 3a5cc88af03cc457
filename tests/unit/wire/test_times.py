"""A store's times cross the wire as they are: one that rotted in a record of RocketMQ's lies behind every calendar."""

import pytest

from dittomq._pb.ditto.messaging.v1 import messaging_pb2 as pb
from dittomq.epoch_history import EpochEntry
from dittomq.message import Ack, PutStatus
from dittomq.offsets import Epoch, PhysicalOffset, QueueOffset
from dittomq.places import AppendResult
from dittomq.wire.messaging import receipt
from dittomq.wire.publishing import StoredBatch, stored_message_to_pb

TIMES = [0, 1_700_000_000_123, -1, 253_402_300_800_000, (1 << 63) - 1, -(1 << 63)]


@pytest.mark.parametrize("store_ms", TIMES)
def test_a_receipt_tells_a_store_time_that_no_calendar_has(store_ms: int) -> None:
    placed = AppendResult("orders", 0, QueueOffset(7), PhysicalOffset(1_000), [120], store_ms)
    frame = StoredBatch(
        PutStatus.PUT_OK, Ack.MASTER_FLUSHED, (), (), [EpochEntry(Epoch(1), 0, 11, PhysicalOffset(0))], "a", [placed], duplicate=False
    )

    sent = stored_message_to_pb(frame).SerializeToString()

    assert receipt(pb.PublishResponse.FromString(sent).receipt).store_ms == store_ms
