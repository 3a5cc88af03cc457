"""Streams of pulls on masters and slaves: their heartbeats, their ends, and a reader that stops to read."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc.aio
import pytest

from dittomq._pb.ditto.messaging.v1 import messaging_pb2 as pb
from dittomq._pb.ditto.messaging.v1.messaging_pb2_grpc import MessagingServiceStub
from dittomq.client import AsyncClient
from dittomq.errors import NotReady, Unavailable
from dittomq.rpc.channel import typed
from dittomq.rpc.interceptors import UNREAD_S
from tests.simulation.group import Group, play
from tests.support.virtual_time import played_by

LARGE = b"." * 30_000  # two of them fill the window of a call


async def publish(mq: AsyncClient, *bodies: bytes) -> None:
    async with mq.producer() as producer:
        for body in bodies:
            await producer.publish("orders", body, queue=0)


async def fill(mq: AsyncClient, *bodies: bytes) -> None:
    [created] = await mq.admin.create_topic("orders", 1)
    assert created.error is None
    await publish(mq, *bodies)
    await asyncio.sleep(2)


def opened(mq: AsyncClient, address: str, **wanted: Any) -> Any:
    request = pb.PullStreamRequest(topic="orders", queue=0, **{"offset": 0, "wait": {"seconds": 5}, **wanted})
    stub: Any = mq.admin._around.channels.stub(MessagingServiceStub, address)  # noqa: SLF001
    return stub.PullStream(request)


async def bodies(stream: Any) -> AsyncIterator[list[bytes]]:
    """Of each answer; raises the DittoError that the stream ends with."""
    try:
        async for answer in stream:
            yield [message.body for message in answer.messages]
    except grpc.aio.AioRpcError as ended:
        raise typed(ended, "the node") from ended


@pytest.mark.parametrize("address", ["a0:10911", "a1:10911"])
@played_by(play)
async def test_a_stream_brings_what_was_and_what_comes_and_says_when_nothing_does(group: Group, mq: AsyncClient, /, address: str) -> None:
    await fill(mq, b"1", b"2")
    stream = bodies(opened(mq, address))

    was = await anext(stream)
    began = group.now
    nothing, waited_s = await anext(stream), group.now - began
    await publish(mq, b"3")
    comes = await anext(stream)

    assert (was, nothing, comes) == ([b"1", b"2"], [], [b"3"])
    assert 4.9 < waited_s < 5.5


@pytest.mark.parametrize("address", ["a0:10911", "a1:10911"])
@played_by(play)
async def test_a_stream_ends_with_not_ready_when_its_node_changes_its_role(group: Group, mq: AsyncClient, /, address: str) -> None:
    await fill(mq, b"1")
    stream = bodies(opened(mq, address, wait={"seconds": 60}))
    await anext(stream)

    async with asyncio.TaskGroup() as tasks:
        changing = tasks.create_task(group.switch_over("a/1"))
        with pytest.raises(NotReady, match="changes its role"):
            await anext(stream)
        await changing
    again = await anext(bodies(opened(mq, address)))

    assert again == [b"1"]


@played_by(play)
async def test_a_reader_that_stops_to_read_is_sent_no_more_and_let_go(group: Group, mq: AsyncClient) -> None:
    await fill(mq, *[LARGE] * 8)
    stream = bodies(opened(mq, "a0:10911", max_messages=1))
    taken = [await anext(stream)]
    await asyncio.sleep(UNREAD_S + 1)

    with pytest.raises(Unavailable, match="no answer was read for 30 s"):
        taken += [answer async for answer in stream]

    assert len(taken) < 8


@played_by(play)
async def test_a_stream_that_is_cancelled_leaves_its_node_as_it_was(group: Group, mq: AsyncClient) -> None:
    await fill(mq, b"1")
    for _ in range(3):
        stream = opened(mq, "a0:10911")
        await anext(bodies(stream))
        stream.cancel()
    await asyncio.sleep(1)

    assert await anext(bodies(opened(mq, "a0:10911"))) == [b"1"]
