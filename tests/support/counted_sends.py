"""How often a client sends each message: read where its bytes leave it, beside everything that the client says of itself."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import grpc
import grpc.aio

from dittomq._pb.ditto.messaging.v1 import messaging_pb2 as pb
from dittomq.client import AsyncClient
from dittomq.client.sync_bridge import OneTaskContext, SyncBridge
from dittomq.client.sync_client import SyncProducer
from dittomq.doors.transport import ChannelOptions, GrpcTransport

_STREAM = "/ditto.messaging.v1.MessagingService/PublishStream"


class CountedSends(GrpcTransport):
    """A network that counts. `times`: how often each body went into a frame that was sent."""

    def __init__(self) -> None:
        super().__init__()
        self.times: Counter[bytes] = Counter()

    def channel(self, address: str, options: ChannelOptions = (), credentials: grpc.ChannelCredentials | None = None) -> grpc.aio.Channel:
        return cast("grpc.aio.Channel", _Counting(super().channel(address, options, credentials), self.times))

    def most_retries(self) -> int:
        """Of any message."""
        return max(self.times.values()) - 1

    def retried(self) -> int:
        """How many messages were sent more than once."""
        return sum(times > 1 for times in self.times.values())


class _Counting:
    """A channel that counts what goes into the stream of a producer, as it is made into bytes."""

    def __init__(self, channel: grpc.aio.Channel, times: "Counter[bytes]") -> None:
        self._channel = channel
        self._times = times

    def __getattr__(self, name: str) -> Any:
        return getattr(self._channel, name)

    def stream_stream(self, method: str, request_serializer: Callable[[Any], bytes], **others: Any) -> Any:
        def counting(request: pb.PublishStreamRequest) -> bytes:
            self._times.update(message.body for message in request.messages)
            self._times.update(body for run in request.runs for body in run.bodies)
            return request_serializer(request)

        return self._channel.stream_stream(method, request_serializer=counting if method == _STREAM else request_serializer, **others)


@contextmanager
def counted_producer(nameserver: str) -> Iterator[tuple[SyncProducer, CountedSends]]:
    """A producer of its own client, and what it sends; both end with the block."""
    thread, sends = SyncBridge("counted"), CountedSends()
    thread.start()
    client = AsyncClient(nameserver, transport=sends)
    held = OneTaskContext(thread, client)
    held.enter()
    try:
        with SyncProducer(thread, client.producer()) as producer:
            yield producer, sends
    finally:
        held.exit(None)
        thread.stop()
