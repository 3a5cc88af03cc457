"""The network: gRPC servers and channels. The simulator hands in objects with the same interface as `grpc.aio`'s."""

import socket
from collections.abc import Sequence
from typing import Protocol

import grpc
import grpc.aio

ChannelOptions = Sequence[tuple[str, int | str]]


class Transport(Protocol):
    """Makes servers and channels for one node."""

    def server(self, interceptors: Sequence[grpc.aio.ServerInterceptor], options: ChannelOptions) -> grpc.aio.Server:
        """A server that is not yet bound and not yet started."""
        ...

    def channel(self, address: str, options: ChannelOptions = (), credentials: grpc.ChannelCredentials | None = None) -> grpc.aio.Channel:
        """A channel to "host:port"; connects when first used. In plain text without `credentials`."""
        ...

    def why_unbound(self, address: str) -> OSError | None:
        """Why nobody can listen at "host:port" now, which gRPC does not tell; None where nothing is in the way."""
        ...


class GrpcTransport:
    """gRPC over the machine's network; what it serves is in plain text."""

    def server(self, interceptors: Sequence[grpc.aio.ServerInterceptor], options: ChannelOptions) -> grpc.aio.Server:
        return grpc.aio.server(interceptors=list(interceptors), options=list(options))

    def channel(self, address: str, options: ChannelOptions = (), credentials: grpc.ChannelCredentials | None = None) -> grpc.aio.Channel:
        if credentials is not None:
            return grpc.aio.secure_channel(address, credentials, options=list(options))
        return grpc.aio.insecure_channel(address, options=list(options))

    def why_unbound(self, address: str) -> OSError | None:
        host, _, port = address.rpartition(":")
        try:
            kind, _, _, _, place = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)[0]
            with socket.socket(kind, socket.SOCK_STREAM) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(place)
        except OSError as problem:
            return problem
        return None
