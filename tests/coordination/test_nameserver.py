"""What a nameserver refuses as a coordination store, and what it leaves unknown."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from dittomq._pb.ditto.coordination.v1 import coordination_pb2_grpc
from dittomq.coordination.settings import CoordinationTable
from dittomq.doors.coordination import CoordinationStore, GroupKey, Versioned, WriteUnknown
from dittomq.errors import DiskFull, DittoError, LimitReached, NotReady, StorageFailure, Unavailable, WrongCluster
from dittomq.rpc import status
from tests.coordination.backends import CLUSTER, NameserverProcess, door_of
from tests.support.group_records import group_record
from tests.support.waiting import PATIENCE_S

KEY = GroupKey(CLUSTER, "a")
FIRST = group_record("a", "first")


class Refusing(coordination_pb2_grpc.CoordinationServiceServicer):
    """Refuses every call."""

    def __init__(self, error: DittoError) -> None:
        self._error = error

    async def Get(self, request: object, context: Any) -> Any:
        await context.abort_with_status(status.encode(self._error))

    CompareAndSet = Get

    async def Watch(self, request: object, context: Any) -> Any:
        await context.abort_with_status(status.encode(self._error))


async def answering(door: CoordinationStore) -> Versioned | None:
    """The record, once the nameserver is up."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                return await door.read(KEY)
            except Unavailable:
                await asyncio.sleep(0.05)


def refused_by(error: DittoError, story: Callable[[CoordinationStore], Awaitable[None]]) -> None:
    async def played() -> None:
        server = grpc.aio.server()
        coordination_pb2_grpc.add_CoordinationServiceServicer_to_server(Refusing(error), server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        door = door_of(CoordinationTable(), f"127.0.0.1:{port}")
        try:
            await story(door)
        finally:
            await door.close()
            await server.stop(0)

    asyncio.run(played())


@pytest.mark.parametrize(
    "error",
    [
        DiskFull("the nameserver", 1_000, 70_000),
        LimitReached("the list of group records", 10_000),
        NotReady("the nameserver", "its disk is read-only"),
        WrongCluster("cluster", "test", "other"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_refusal_says_that_nothing_was_written(error: DittoError) -> None:
    async def story(door: CoordinationStore) -> None:
        for use in (door.read(KEY), door.write(KEY, FIRST, None), door.delete(KEY, Versioned(FIRST, "v1")), anext(door.watch(KEY))):
            with pytest.raises(type(error)) as raised:
                await use
            assert str(raised.value) == str(error)

    refused_by(error, story)


def test_a_nameserver_whose_sync_failed_leaves_a_write_unknown_and_ends_no_caller() -> None:
    async def story(door: CoordinationStore) -> None:
        outcome = await door.write(KEY, FIRST, None)
        assert isinstance(outcome, WriteUnknown)
        assert "fsync of /data failed" in outcome.problem
        for use in (door.read(KEY), anext(door.watch(KEY))):
            with pytest.raises(Unavailable, match="fsync of /data failed"):
                await use

    refused_by(StorageFailure("fsync", "/data", "Input/output error"), story)


def test_a_nameserver_that_is_stopped_waits_for_no_watch(tmp_path: Path) -> None:
    async def story(process: NameserverProcess) -> None:
        door = door_of(CoordinationTable(), process.address)
        await answering(door)
        hints = door.watch(KEY)
        await anext(hints)
        began = time.monotonic()
        process.terminate()
        with contextlib.suppress(Unavailable):
            async for _ in hints:
                pass
        assert time.monotonic() - began < 1.5  # calls that run then get 2 s
        await door.close()

    with NameserverProcess(tmp_path / "data").running() as process:
        asyncio.run(story(process))
