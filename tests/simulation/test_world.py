import asyncio
import functools
import os
import subprocess
import sys

import grpc.aio
import pytest

from dittomq._pb.ditto.replication.v1 import replication_pb2 as pb
from dittomq._pb.ditto.replication.v1 import replication_pb2_grpc as pb_grpc
from dittomq.broker.doors import BrokerDoors
from dittomq.commitlog.disk.storage import File
from dittomq.doors.workers import Executor
from dittomq.errors import StorageFailure
from tests.simulation.echo import PORT, EchoServer, idle
from tests.simulation.simulated_process import SimCrashed
from tests.simulation.world import Power, World


def busy_run(seed: int) -> str:
    """Three nodes that talk, write and crash; the hash of all they did."""
    world = World(seed)
    tags = {f"tag {number}" for number in range(5)}

    async def client(doors: BrokerDoors, _: asyncio.Event) -> None:
        lane = doors.workers.lane("writer")
        file = doors.storage.open("f", create=True)
        async with doors.transport.channel(f"server:{PORT}") as channel, asyncio.TaskGroup() as tasks:
            for start in range(len(tags)):
                tasks.create_task(fetch(channel, start, lane, file))

    async def fetch(channel: grpc.aio.Channel, start: int, lane: Executor, file: File) -> None:
        request = pb.FetchRangeRequest(start_offset=start, end_offset=start + 20)
        async for response in pb_grpc.ReplicationServiceStub(channel).FetchRange(request):
            await lane.call(functools.partial(file.pwrite, b"x", response.offset))

    async def story() -> None:
        server = world.node("server", EchoServer().serve)
        server.start()
        await asyncio.sleep(0.1)
        for name in ("one", "two"):
            world.node(name, client).start()
        await asyncio.sleep(0.01)
        world.nodes["two"].crash(Power.LOSS)
        world.network.cut("one", "server")
        await asyncio.sleep(60)

    world.run(story())
    world.close()
    return world.transcript.hash()


def test_a_seed_gives_one_transcript_under_any_hash_seed() -> None:
    def in_a_process(seed: int, hash_seed: str) -> str:
        code = f"from tests.simulation.test_world import busy_run; print(busy_run({seed}))"
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}  # for a process of its own
        return subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True).stdout

    assert in_a_process(5, "1") == in_a_process(5, "2")
    assert busy_run(5) + "\n" == in_a_process(5, "3")
    assert busy_run(5) != busy_run(6)


def test_a_crashed_process_reaches_nothing_any_more() -> None:
    world = World(1)
    reached: list[str] = []

    async def serve(doors: BrokerDoors, stop: asyncio.Event) -> None:
        try:
            await stop.wait()
        finally:
            for name, act in (
                ("disk", lambda: doors.storage.open("f", create=True)),
                ("network", lambda: doors.transport.channel("x:1")),
                ("lanes", lambda: doors.workers.lane("l")),
            ):
                try:
                    act()
                    reached.append(name)
                except SimCrashed:
                    pass

    async def story() -> None:
        node = world.node("n", serve)
        node.start()
        await asyncio.sleep(1)
        node.crash(Power.KILL)
        await world.buried()
        node.start()
        await asyncio.sleep(1)

    world.run(story())
    world.close()
    assert reached == []
    assert world.findings == []


def test_a_failed_store_is_a_way_to_end_and_anything_else_is_a_finding() -> None:
    world = World(1)

    async def fails(_: BrokerDoors, __: asyncio.Event) -> None:
        raise ExceptionGroup("several", [StorageFailure("fdatasync", "f", "EIO")])

    async def errs(_: BrokerDoors, __: asyncio.Event) -> None:
        raise KeyError("a mistake")

    async def story() -> None:
        for name, serve in (("fails", fails), ("errs", errs)):
            world.node(name, serve).start()
        await asyncio.sleep(1)

    world.run(story())
    world.close()
    assert len(world.findings) == 1
    assert world.findings[0].startswith("errs at its top: KeyError")


def test_a_task_that_survives_its_process_is_found() -> None:
    world = World(1)

    async def immortal() -> None:
        while True:
            try:
                await asyncio.sleep(1)
            except asyncio.CancelledError:
                continue

    async def serve(_: BrokerDoors, stop: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(immortal())
            await stop.wait()

    async def story() -> None:
        node = world.node("n", serve)
        node.start()
        await asyncio.sleep(1)
        node.crash(Power.KILL)
        await world.buried()

    with pytest.raises(AssertionError, match="go on after its crash"):
        world.run(story())


def test_a_crash_can_fall_inside_a_disk_operation() -> None:
    world = World(1)
    done: list[int] = []

    async def serve(doors: BrokerDoors, stop: asyncio.Event) -> None:
        def write() -> None:
            for number in range(10):
                doors.storage.make_folder(f"f{number}")
                done.append(number)

        await doors.workers.lane("writer").call(write)
        await stop.wait()

    async def story() -> None:
        node = world.node("n", serve)
        node.crash_within(4, Power.KILL)
        node.start()
        await asyncio.sleep(1)
        assert not node.running
        await world.buried()

    world.run(story())
    world.close()
    assert done == [0, 1, 2, 3]
    assert world.findings == []


def test_clocks_differ_between_nodes_and_the_monotonic_one_ignores_jumps() -> None:
    world = World(1)
    one, two = world.node("one", idle).clock, world.node("two", idle).clock
    monotonic, wall = one.monotonic(), one.wall_ms()

    one.jump(-3_600_000)

    assert one.monotonic() == monotonic
    assert one.wall_ms() == wall - 3_600_000
    assert one.wall_ms() != two.wall_ms()
    world.close()
