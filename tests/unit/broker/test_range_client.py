"""What a node hears of another one that it asks for a range."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc.aio
import pytest

from dittomq._pb.ditto.replication.v1 import replication_pb2 as pb
from dittomq.broker.range_client import RangeClient
from dittomq.errors import CorruptRecord, DittoError, LimitReached, Unavailable
from dittomq.offsets import PhysicalOffset
from dittomq.rpc import status
from dittomq.rpc.channel import Channels
from services.slave.config import SlaveConfig


class Refusing(Channels):
    """Takes the place of a node's channels: whoever is asked for a range refuses it."""

    def __init__(self, refusal: DittoError) -> None:
        self._refusal = status.encode(refusal)

    def stub(self, kind: Callable[..., Any], address: str) -> Any:
        return self

    async def FetchRange(self, request: pb.FetchRangeRequest, timeout: float) -> AsyncIterator[pb.FetchRangeResponse]:
        trailing = grpc.aio.Metadata(*self._refusal.trailing_metadata)
        raise grpc.aio.AioRpcError(self._refusal.code, grpc.aio.Metadata(), trailing, self._refusal.details)
        yield


@pytest.mark.parametrize(
    ("refusal", "heard"),
    [(LimitReached("the number of ranges that are fetched", 32), Unavailable), (CorruptRecord("a/1", 7, ""), CorruptRecord)],
)
def test_node_at_its_limit_of_ranges_counts_as_not_answering(refusal: DittoError, heard: type[DittoError]) -> None:
    async def fetch() -> None:
        ranges = RangeClient(Refusing(refusal), "a-1:10912", SlaveConfig())
        await anext(ranges.fetch(PhysicalOffset(0), PhysicalOffset(10)))

    with pytest.raises(heard):
        asyncio.run(fetch())
