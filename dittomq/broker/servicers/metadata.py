"""MetadataService: the tables of this node, page by page."""

from typing import Any

import grpc.aio

from dittomq._pb.ditto.metadata.v1 import metadata_pb2 as pb
from dittomq._pb.ditto.metadata.v1 import metadata_pb2_grpc
from dittomq.broker.metadata import Metadata
from dittomq.metadata.formats import CONSUMER_OFFSETS, DELAY_OFFSETS, GROUPS, TOPICS
from dittomq.wire import metadata as wire

Context = grpc.aio.ServicerContext[Any, Any]


class MetadataServicer(metadata_pb2_grpc.MetadataServiceServicer):
    """Answers from the newest tables; waits for nothing."""

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata

    async def GetAllTopicConfig(self, request: pb.GetAllTopicConfigRequest, context: Context) -> pb.GetAllTopicConfigResponse:
        return wire.topics_response(self._metadata.answer(TOPICS, wire.ask(request)))

    async def GetAllConsumerOffset(self, request: pb.GetAllConsumerOffsetRequest, context: Context) -> pb.GetAllConsumerOffsetResponse:
        return wire.consumer_offsets_response(self._metadata.answer(CONSUMER_OFFSETS, wire.ask(request)))

    async def GetAllDelayOffset(self, request: pb.GetAllDelayOffsetRequest, context: Context) -> pb.GetAllDelayOffsetResponse:
        return wire.delay_offsets_response(self._metadata.answer(DELAY_OFFSETS, wire.ask(request)))

    async def GetAllSubscriptionGroupConfig(
        self, request: pb.GetAllSubscriptionGroupConfigRequest, context: Context
    ) -> pb.GetAllSubscriptionGroupConfigResponse:
        return wire.groups_response(self._metadata.answer(GROUPS, wire.ask(request)))
