"""MetadataService: the tables of this node, page by page."""

from collections.abc import AsyncIterator
from typing import Any

import grpc.aio

from dittomq._pb.ditto.metadata.v1 import metadata_pb2 as pb
from dittomq._pb.ditto.metadata.v1 import metadata_pb2_grpc
from dittomq.broker.metadata import Metadata
from dittomq.broker.unreturned_offsets import ReturnOffsets
from dittomq.broker.version_watch import VersionWatches
from dittomq.metadata.formats import DELAY_OFFSETS, GROUPS, TOPICS
from dittomq.rpc.admission import AdmissionControl
from dittomq.wire import metadata as wire

Context = grpc.aio.ServicerContext[Any, Any]


class MetadataServicer(metadata_pb2_grpc.MetadataServiceServicer):
    """Answers from the newest tables; waits for room for the answer only. Each answer is yielded, see CallInterceptor."""

    def __init__(self, metadata: Metadata, room: AdmissionControl, watches: VersionWatches, take_offsets: ReturnOffsets) -> None:
        self._metadata = metadata
        self._room = room
        self._watches = watches
        self._take_offsets = take_offsets

    async def GetAllTopicConfig(  # type: ignore[override]
        self, request: pb.GetAllTopicConfigRequest, context: Context
    ) -> AsyncIterator[pb.GetAllTopicConfigResponse]:
        async with self._room.page(context.peer()) as share:
            page = self._metadata.answer(TOPICS, wire.ask(request), takes_changes=request.takes_changes)
            yield share.of(wire.topics_response(page))

    async def GetAllConsumerOffset(  # type: ignore[override]
        self, request: pb.GetAllConsumerOffsetRequest, context: Context
    ) -> AsyncIterator[pb.GetAllConsumerOffsetResponse]:
        async with self._room.page(context.peer()) as share:
            page = self._metadata.offsets.answer(wire.ask(request), takes_changes=request.takes_changes)
            yield share.of(wire.consumer_offsets_response(page))

    async def GetAllDelayOffset(  # type: ignore[override]
        self, request: pb.GetAllDelayOffsetRequest, context: Context
    ) -> AsyncIterator[pb.GetAllDelayOffsetResponse]:
        async with self._room.page(context.peer()) as share:
            yield share.of(wire.delay_offsets_response(self._metadata.answer(DELAY_OFFSETS, wire.ask(request))))

    async def GetAllSubscriptionGroupConfig(  # type: ignore[override]
        self, request: pb.GetAllSubscriptionGroupConfigRequest, context: Context
    ) -> AsyncIterator[pb.GetAllSubscriptionGroupConfigResponse]:
        async with self._room.page(context.peer()) as share:
            page = self._metadata.answer(GROUPS, wire.ask(request), takes_changes=request.takes_changes)
            yield share.of(wire.groups_response(page))

    async def WatchVersions(self, request: pb.WatchVersionsRequest, context: Context) -> None:
        await self._watches.watch(wire.watched_responses(request), lambda versions: context.write(wire.versions_response(versions)))

    async def ReturnConsumerOffsets(self, request: pb.ReturnConsumerOffsetsRequest, context: Context) -> pb.ReturnConsumerOffsetsResponse:
        taken, dropped = await self._take_offsets(wire.returned_offsets(request))
        return pb.ReturnConsumerOffsetsResponse(taken=taken, dropped=dropped)
