"""Another broker's tables through its MetadataService."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any, Final, NamedTuple, cast

import grpc.aio

from dittomq._pb.ditto.metadata.v1 import metadata_pb2 as pb
from dittomq._pb.ditto.metadata.v1 import metadata_pb2_grpc
from dittomq.errors import Unavailable
from dittomq.metadata.formats import DELAY_OFFSETS, GROUPS, TOPICS, TableKind
from dittomq.metadata.offset_table import OffsetPage
from dittomq.metadata.tables import Ask, R, TablePage
from dittomq.routes import DataVersion
from dittomq.rpc.channel import Channels, breaking, call, peers_disk
from dittomq.rpc.headers import GroupTarget, meant_for
from dittomq.wire import metadata as wire

_SILENCE_S: Final = 15.0


class _TableRpc(NamedTuple):
    """One of the three RPCs of whole tables: the stub's method and both codecs."""

    method: str
    request: Callable[[Ask], object]
    page: Callable[[Any], TablePage[Any]]


_CALLS: Mapping[str, _TableRpc] = {
    TOPICS.name: _TableRpc("GetAllTopicConfig", wire.topics_request, wire.topics_page),
    GROUPS.name: _TableRpc("GetAllSubscriptionGroupConfig", wire.groups_request, wire.groups_page),
    DELAY_OFFSETS.name: _TableRpc("GetAllDelayOffset", wire.delay_offsets_request, wire.delay_offsets_page),
}


class MetadataClient:
    """The tables of a node of that group at an address that may change; `address` tells "host:port", empty while unknown.

    Somebody else may have that address by now, with tables that look newer: such a one is not asked for any.
    """

    def __init__(self, channels: Channels, group: GroupTarget, address: Callable[[], str]) -> None:
        self._channels = channels
        self._group = group
        self._address = address

    async def fetch(self, kind: TableKind[R], ask: Ask, deadline_s: float) -> TablePage[R]:
        """One page, or the typed error of the other side; Unavailable without an answer in time."""
        rpc = _CALLS[kind.name]
        return cast(TablePage[R], rpc.page(await self._call(rpc.method, rpc.request(ask), deadline_s)))

    async def fetch_offsets(self, ask: Ask, deadline_s: float) -> OffsetPage:
        """The same of the consumer offsets: what has changed since the known version, or a page."""
        request = wire.consumer_offsets_request(ask, takes_changes=True)
        return wire.consumer_offsets_page(await self._call("GetAllConsumerOffset", request, deadline_s))

    async def watch_versions(self) -> AsyncGenerator[Mapping[str, DataVersion], None]:
        """Versions by the name of the table's kind, at once and at each change; Unavailable after 15 s of silence, or when it ends."""
        address = self._address()
        if not address:
            raise Unavailable("the master", "its address is not known now")
        stub: Any = self._channels.stub(metadata_pb2_grpc.MetadataServiceStub, address)
        stream = stub.WatchVersions(pb.WatchVersionsRequest(), metadata=meant_for(self._group))
        try:
            while (response := await _next(stream, address, self._group)) is not grpc.aio.EOF:
                yield wire.versions(response)
        finally:
            stream.cancel()

    async def _call(self, method: str, request: object, deadline_s: float) -> Any:
        address = self._address()
        if not address:
            raise Unavailable("the master", "its address is not known now")
        stub = metadata_pb2_grpc.MetadataServiceStub(self._channels.to(address))
        with peers_disk(address):
            return await call(getattr(stub, method), request, who=address, deadline_s=deadline_s, node=self._group)


async def _next(stream: Any, who: str, group: GroupTarget) -> Any:
    try:
        with peers_disk(who), breaking(who, group):
            async with asyncio.timeout(_SILENCE_S):
                return await stream.read()
    except TimeoutError as silence:
        raise Unavailable(who, f"silent for {_SILENCE_S:g} s") from silence
