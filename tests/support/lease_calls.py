"""Topic "orders" and group "billing", and what callers without a session ask of them."""

from typing import Any

from google.protobuf.duration_pb2 import Duration

from dittomq._pb.ditto.messaging.v1 import consumer_leases_pb2 as pb
from dittomq.client import AsyncClient, Message
from dittomq.metadata.rows import GroupConfig
from tests.support.hand_held_member import asked

MASTER = "a0:10911"


async def fill(mq: AsyncClient, messages: int = 3, *, retries: int = 16) -> None:
    """Topic "orders" of one queue with so many messages, and group "billing"."""
    await mq.admin.create_topic("orders", 1)
    await mq.admin.create_group(GroupConfig("billing", retry_max_times=retries))
    async with mq.producer() as producer:
        for number in range(messages):
            await producer.publish_message(Message("orders", b"%d" % number, 0))


async def received(mq: AsyncClient, most: int = 10, *, wait_s: int = 0, lease_s: int = 30, at: str = MASTER, **other: Any) -> list[Any]:
    """Lease messages of queue 0."""
    request = pb.ReceiveRequest(group="billing", topic="orders", max_messages=most)
    request.MergeFrom(pb.ReceiveRequest(wait=Duration(seconds=wait_s), lease=Duration(seconds=lease_s), **other))
    return list((await asked(mq, at, "Receive", request)).messages)


async def acknowledged(mq: AsyncClient, messages: list[Any], *, at: str = MASTER) -> list[bool]:
    """What became of each."""
    request = pb.AcknowledgeRequest(group="billing", lease_tokens=[each.lease_token for each in messages])
    return [each.acknowledged for each in (await asked(mq, at, "Acknowledge", request)).results]
