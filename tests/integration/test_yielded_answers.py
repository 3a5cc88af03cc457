"""Calls whose one answer is yielded: their handlers go on when gRPC holds it no longer."""

from typing import Any

import grpc
import grpc.aio
import pytest

from dittomq._pb.ditto.messaging.v1 import messaging_pb2, messaging_pb2_grpc
from dittomq.errors import NotMaster, Unavailable
from dittomq.rpc.channel import call
from tests.support.loopback import MESSAGING, Loopback, over_sockets
from tests.support.virtual_time import played_by
from tests.support.waiting import PATIENCE_S


@played_by(over_sockets)
async def test_handler_that_yields_one_answer_resumes_after_it_is_sent(loopback: Loopback) -> None:
    """The caller gets an answer like any other."""
    stub: Any = loopback.channels.stub(messaging_pb2_grpc.MessagingServiceStub, loopback.address)
    [message] = (await stub.Pull(messaging_pb2.PullRequest(offset=100_000), timeout=PATIENCE_S)).messages

    assert len(message.body) == 100_000
    await loopback.messaging.sent.wait()
    assert await loopback.counted.once() == [(f"{MESSAGING}/Pull", "OK")]
    with pytest.raises(NotMaster, match="a-0:10911"):
        await call(stub.Pull, messaging_pb2.PullRequest(offset=-1), who="a/0", deadline_s=PATIENCE_S)


@played_by(over_sockets)
async def test_an_answer_that_nobody_reads_is_held_until_the_callers_deadline(loopback: Loopback) -> None:
    async with grpc.aio.insecure_channel(loopback.address, [("grpc.http2.bdp_probe", 0)]) as channel:  # a small window: soon full
        pull: Any = channel.unary_stream(f"/{MESSAGING}/Pull", messaging_pb2.PullRequest.SerializeToString)
        unread = pull(messaging_pb2.PullRequest(offset=4_000_000), timeout=1)
        read: Any = loopback.channels.stub(messaging_pb2_grpc.MessagingServiceStub, loopback.address).GetPublishResult
        await loopback.messaging.asked.wait()
        with pytest.raises(Unavailable):  # unknown here; an answer behind it, to see that nothing is over yet
            await call(read, messaging_pb2.GetPublishResultRequest(), who="a/0", deadline_s=PATIENCE_S)

        assert not loopback.messaging.sent.is_set()
        await loopback.messaging.sent.wait()
        assert (f"{MESSAGING}/Pull", "CANCELLED") in loopback.counted.calls
        assert await unread.code() is grpc.StatusCode.DEADLINE_EXCEEDED
