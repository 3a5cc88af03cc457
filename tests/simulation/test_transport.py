"""Generated stubs and servicers over the simulated network."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
import pytest

from dittomq._pb.ditto.messaging.v1 import messaging_pb2 as messaging
from dittomq._pb.ditto.messaging.v1 import messaging_pb2_grpc as messaging_grpc
from dittomq._pb.ditto.replication.v1 import replication_pb2 as pb
from dittomq._pb.ditto.replication.v1 import replication_pb2_grpc as pb_grpc
from dittomq.broker.doors import BrokerDoors
from dittomq.doors.clock import OsClock
from dittomq.rpc.headers import Answerer
from dittomq.rpc.interceptors import UNREAD_S, CallInterceptor, Unobserved
from tests.simulation.echo import PORT, EchoServer
from tests.simulation.streams import WINDOW_BYTES
from tests.simulation.world import Power, World

Story = Callable[[grpc.aio.Channel, World, EchoServer], Awaitable[Any]]


def play(story: Story, *interceptors: grpc.aio.ServerInterceptor, expect_findings: int = 0) -> Any:
    """Run a client's story against an echo server on another machine."""
    world = World(1)
    echo = EchoServer(interceptors)
    result = []

    async def client(doors: BrokerDoors, _: asyncio.Event) -> None:
        async with doors.transport.channel(f"server:{PORT}") as channel:
            result.append(await story(channel, world, echo))
        done.set()

    done = asyncio.Event()

    async def whole() -> None:
        world.node("server", echo.serve).start()
        await asyncio.sleep(0.1)
        world.node("client", client).start()
        async with asyncio.timeout(300):
            await done.wait()

    world.run(whole())
    world.close()
    assert len(world.findings) == expect_findings, world.findings
    return result[0]


def pull(topic: str = "t", offset: int = 0) -> Any:
    return messaging.PullRequest(topic=topic, offset=offset)


def ack(offset: int, answer_bytes: int = 0) -> Any:
    return pb.ReplicateRequest(ack=pb.Ack(received_offset=offset, flushed_offset=answer_bytes))


def test_a_handler_s_mistake_is_unknown_to_the_caller_and_a_finding_to_us() -> None:
    async def story(channel: grpc.aio.Channel, *_: object) -> Any:
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await messaging_grpc.MessagingServiceStub(channel).Pull(pull("mistake"))
        return raised.value.code()

    assert play(story, expect_findings=1) is grpc.StatusCode.UNKNOWN


def test_a_deadline_ends_the_call_on_both_sides_at_its_time() -> None:
    async def story(channel: grpc.aio.Channel, world: World, _: EchoServer) -> Any:
        began = world.loop.time()
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await messaging_grpc.MessagingServiceStub(channel).Pull(pull("slow"), timeout=2)
        return raised.value.code(), round(world.loop.time() - began, 6)

    assert play(story) == (grpc.StatusCode.DEADLINE_EXCEEDED, 2.0)


def test_a_deadline_also_counts_while_nobody_answers_the_dial() -> None:
    async def story(channel: grpc.aio.Channel, world: World, _: EchoServer) -> Any:
        world.network.silence("client", "server")
        began = world.loop.time()
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await messaging_grpc.MessagingServiceStub(channel).Pull(pull(), timeout=2)
        return raised.value.code(), round(world.loop.time() - began, 6)

    assert play(story) == (grpc.StatusCode.DEADLINE_EXCEEDED, 2.0)


def test_messages_before_an_abort_are_read_before_it_is_raised() -> None:
    async def story(channel: grpc.aio.Channel, *_: object) -> Any:
        request = pb.FetchRangeRequest(cluster="refused", start_offset=0, end_offset=2)
        got = []
        with pytest.raises(grpc.aio.AioRpcError) as raised:  # noqa: PT012  # what arrives before it counts too
            async for response in pb_grpc.ReplicationServiceStub(channel).FetchRange(request):
                got.append(response.offset)  # noqa: PERF401  # a comprehension would lose them
        trailing = raised.value.trailing_metadata()
        return got, raised.value.code(), trailing["where"], trailing["proof-bin"]

    assert play(story) == ([0, 1], grpc.StatusCode.DATA_LOSS, "here", b"\x00\xff")


def test_cancelling_a_call_cancels_its_handler() -> None:
    async def story(channel: grpc.aio.Channel, _: World, echo: EchoServer) -> Any:
        call: Any = pb_grpc.ReplicationServiceStub(channel).Replicate()
        await call.write(ack(1))
        await call.read()
        assert call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call.read()
        await asyncio.sleep(0.1)
        return await call.code(), call.cancelled(), echo.replication.ended

    assert play(story) == (grpc.StatusCode.CANCELLED, True, ["cancelled True"])


def test_cancelling_who_waits_for_an_answer_cancels_the_call() -> None:
    async def story(channel: grpc.aio.Channel, *_: object) -> Any:
        call = messaging_grpc.MessagingServiceStub(channel).Pull(pull("slow"))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await call
        return call.cancelled()

    assert play(story) is True


def test_a_reader_that_does_not_read_stops_its_writer() -> None:
    async def story(channel: grpc.aio.Channel, _: World, echo: EchoServer) -> Any:
        call: Any = pb_grpc.ReplicationServiceStub(channel).FetchRange(pb.FetchRangeRequest(cluster="forever"))
        await call.read()
        await asyncio.sleep(60)
        written = len(echo.replication.seen)
        await call.read()
        await asyncio.sleep(60)
        call.cancel()
        return written, len(echo.replication.seen)

    fits = WINDOW_BYTES // 10_000
    assert play(story) == (fits + 1, fits + 2)


def test_a_cut_breaks_the_call_and_loses_what_was_on_its_way() -> None:
    async def story(channel: grpc.aio.Channel, world: World, echo: EchoServer) -> Any:
        call: Any = pb_grpc.ReplicationServiceStub(channel).Replicate()
        await call.write(ack(1))
        await call.read()
        await call.write(ack(2))
        world.network.cut("client", "server")
        await asyncio.sleep(0)
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await call.read()
        await asyncio.sleep(1)
        return raised.value.code(), echo.replication.ended

    assert play(story) == (grpc.StatusCode.UNAVAILABLE, ["cancelled True"])


def test_a_silent_link_breaks_a_call_by_keepalive_on_both_sides() -> None:
    async def story(channel: grpc.aio.Channel, world: World, echo: EchoServer) -> Any:
        call: Any = pb_grpc.ReplicationServiceStub(channel).Replicate()
        await call.write(ack(1))
        await call.read()
        world.network.silence("server", "client")
        began = world.loop.time()
        await call.write(ack(2))
        with pytest.raises(grpc.aio.AioRpcError):
            await call.read()
        waited = world.loop.time() - began
        await asyncio.sleep(20)
        return 10 <= waited <= 20, echo.replication.seen, echo.replication.ended

    assert play(story) == (True, [1, 2], ["cancelled True"])


def test_what_waited_in_a_short_silence_arrives_afterwards() -> None:
    async def story(channel: grpc.aio.Channel, world: World, _: EchoServer) -> Any:
        call: Any = pb_grpc.ReplicationServiceStub(channel).Replicate()
        await call.write(ack(1))
        await call.read()
        world.network.silence("client", "server")
        await call.write(ack(2))
        await asyncio.sleep(5)
        world.network.heal_all()
        return (await call.read()).chunk.offset

    assert play(story) == 2


@pytest.mark.parametrize(("power", "least_s", "most_s"), [(Power.KILL, 0, 1), (Power.LOSS, 10, 20)])
def test_a_dead_server_is_noticed_at_once_or_by_keepalive(power: Power, least_s: float, most_s: float) -> None:
    async def story(channel: grpc.aio.Channel, world: World, _: EchoServer) -> Any:
        call: Any = pb_grpc.ReplicationServiceStub(channel).Replicate()
        await call.write(ack(1))
        await call.read()
        began = world.loop.time()
        world.nodes["server"].crash(power)
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await call.read()
        assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
        return world.loop.time() - began

    assert least_s < play(story) < most_s


def test_a_call_that_waits_for_a_connection_is_made_when_the_server_is_back() -> None:
    async def story(channel: grpc.aio.Channel, world: World, _: EchoServer) -> Any:
        stub = messaging_grpc.MessagingServiceStub(channel)
        world.nodes["server"].crash(Power.KILL)
        with pytest.raises(grpc.aio.AioRpcError):
            await stub.Pull(pull())
        state = channel.get_state()
        world.nodes["server"].start()
        await asyncio.sleep(0.1)
        answer = await stub.Pull(pull(offset=1), wait_for_ready=True, timeout=5)
        return state, answer.next_offset, channel.get_state()

    assert play(story) == (grpc.ChannelConnectivity.TRANSIENT_FAILURE, 2, grpc.ChannelConnectivity.READY)


def test_a_call_that_waits_for_a_connection_waits_no_longer_than_its_deadline() -> None:
    async def story(channel: grpc.aio.Channel, world: World, _: EchoServer) -> Any:
        world.nodes["server"].crash(Power.KILL)
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await messaging_grpc.MessagingServiceStub(channel).Pull(pull(), wait_for_ready=True, timeout=3)
        return raised.value.code()

    assert play(story) is grpc.StatusCode.DEADLINE_EXCEEDED


def test_a_stopped_server_lets_calls_end_within_its_grace_then_aborts_them() -> None:
    async def story(channel: grpc.aio.Channel, world: World, _: EchoServer) -> Any:
        stub = messaging_grpc.MessagingServiceStub(channel)
        began = world.loop.time()
        call = stub.Pull(pull("slow"))
        await asyncio.sleep(0.1)
        await world.nodes["server"].stop()
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await call
        return raised.value.code(), round(world.loop.time() - began, 1)

    assert play(story) == (grpc.StatusCode.UNAVAILABLE, 1.1)


def test_a_caller_that_reads_no_answers_of_a_stream_is_let_go_after_half_a_minute() -> None:
    async def story(channel: grpc.aio.Channel, *_: object) -> Any:
        call: Any = pb_grpc.ReplicationServiceStub(channel).Replicate()
        for number in range(20):
            await call.write(ack(number, 10_000))
        await asyncio.sleep(UNREAD_S - 1)
        held = not call.done()
        await asyncio.sleep(2)
        try:
            while True:
                await call.read()
        except grpc.aio.AioRpcError as error:
            return held, error.code(), error.details()

    interceptor = CallInterceptor(lambda: Answerer("a/0", "test", 1), OsClock(), random.Random(1), Unobserved())
    assert play(story, interceptor) == (True, grpc.StatusCode.UNAVAILABLE, "no answer was read for 30 s")
