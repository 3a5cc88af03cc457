"""The network: gRPC servers and channels. The simulator hands in objects with the same interface as `grpc.aio`'s."""

from collections.abc import Sequence
from typing import Protocol

import grpc.aio

ChannelOptions = Sequence[tuple[str, int | str]]


class Transport(Protocol):
    """Makes servers and channels for one node."""

    def server(self, interceptors: Sequence[grpc.aio.ServerInterceptor], options: ChannelOptions) -> grpc.aio.Server:
        """A server that is not yet bound and not yet started."""
        ...

    def channel(self, address: str, options: ChannelOptions = ()) -> grpc.aio.Channel:
        """A channel to "host:port"; connects when first used."""
        ...


class GrpcTransport:
    """gRPC over the machine's network, in plain text."""

    def server(self, interceptors: Sequence[grpc.aio.ServerInterceptor], options: ChannelOptions) -> grpc.aio.Server:
        return grpc.aio.server(interceptors=list(interceptors), options=list(options))

    def channel(self, address: str, options: ChannelOptions = ()) -> grpc.aio.Channel:
        return grpc.aio.insecure_channel(address, options=list(options))
