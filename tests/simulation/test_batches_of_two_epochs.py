"""A frame that is sent again, of which an earlier master stored a part: each receipt says in which epoch its message was stored."""

import asyncio
from typing import Any

from dittomq._pb.ditto.messaging.v1.messaging_pb2_grpc import MessagingServiceStub
from dittomq.broker.doors import BrokerDoors
from dittomq.client import AsyncClient, Message
from dittomq.receipts import BatchReceipt
from dittomq.rpc.channel import Channels
from dittomq.wire.messaging import BatchRequest, RefusedBatch, batch_outcome, batch_request
from tests.simulation.group import Group, play
from tests.support.virtual_time import played_by


async def send(group: Group, *bodies: bytes) -> BatchReceipt:
    """One frame that begins with the producer's first sequence, on a stream of its own."""
    messages = [Message("orders", body) for body in bodies]
    request = batch_request(BatchRequest(1, messages, [0] * len(bodies), None, None, 5.0, "somebody", 0, 0))
    told: list[BatchReceipt | RefusedBatch] = []

    async def serve(doors: BrokerDoors, _: asyncio.Event) -> None:
        async with Channels(doors.transport) as channels:
            stream: Any = channels.stub(MessagingServiceStub, "a0:10911").PublishStream(timeout=30)
            await stream.write(request)
            told.append(batch_outcome(await stream.read()))
            stream.cancel()

    sender = group.world.node("sender", serve)
    sender.start()
    await sender.ended()
    [outcome] = told
    assert isinstance(outcome, BatchReceipt)
    return outcome


@played_by(play)
async def test_a_message_of_an_earlier_epoch_and_one_of_this_are_told_apart_in_one_batch(group: Group, mq: AsyncClient) -> None:
    [created] = await mq.admin.create_topic("orders", 1)
    assert created.error is None
    first = (await send(group, b"one", b"two")).receipt(1)
    await group.kill("a0")
    group.node("a0").start()
    await group.in_sync(mq)

    again = await send(group, b"one", b"two", b"three")

    receipts = [again.receipt(index) for index in range(3)]
    assert [(each.epoch, each.duplicate) for each in receipts] == [(1, True), (1, True), (2, False)]
    assert receipts[1].token == first.token
    reader = mq.reader("orders", queue=0)
    for each in receipts:
        page = await reader.pull(each.queue_offset, at_least=each.token)
        assert page.messages[0].physical_offset == each.physical_offset
