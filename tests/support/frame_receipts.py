"""Receipts for frames, as a broker that stores them at made-up positions would send them."""

from itertools import groupby

from dittomq.client.batches import ProducerBatch
from dittomq.message import Ack, Copy, CopyState, PutStatus
from dittomq.offsets import Epoch, PhysicalOffset, QueueOffset
from dittomq.receipts import BatchReceipt, ReceiptRun, record_ends


def receipt_for(frame: ProducerBatch, status: PutStatus = PutStatus.PUT_OK) -> BatchReceipt:
    """Stored, on one copy. The queue offset of a message is its place in the frame."""
    messages, queues = frame.content()
    runs = []
    for (topic, queue), group in groupby(range(len(messages)), key=lambda at: (messages[at].topic, queues[at])):
        places = list(group)
        runs.append(
            ReceiptRun(
                places[0],
                topic,
                queue,
                QueueOffset(places[0]),
                PhysicalOffset(100 * places[0]),
                record_ends([100] * len(places)),
                7,
                Epoch(1),
                duplicate=False,
            )
        )
    return BatchReceipt(
        status=status,
        asked=Ack.MASTER_FLUSHED,
        levels_reached=frozenset({Ack.MASTER_RECEIVED, Ack.MASTER_FLUSHED}),
        copies=(Copy("a/0", CopyState.FLUSHED),),
        broker="a",
        runs=tuple(runs),
    )
