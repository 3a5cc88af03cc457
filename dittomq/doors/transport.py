"""The network: gRPC servers and channels. The simulator hands in objects with the same interface as `grpc.aio`'s."""

import ipaddress
import socket
from collections.abc import Callable, Sequence
from typing import Protocol

import grpc
import grpc.aio

from dittomq.errors import Unavailable

ChannelOptions = Sequence[tuple[str, int | str]]


class Transport(Protocol):
    """Makes servers and channels for one node."""

    def server(self, interceptors: Sequence[grpc.aio.ServerInterceptor], options: ChannelOptions) -> grpc.aio.Server:
        """A server that is not yet bound and not yet started."""
        ...

    def channel(self, address: str, options: ChannelOptions = (), credentials: grpc.ChannelCredentials | None = None) -> grpc.aio.Channel:
        """A channel to "host:port"; connects when first used. Without `credentials` it is encrypted as all of this node."""
        ...

    def listen(self, server: grpc.aio.Server, address: str, *, callers_show_certificate: bool) -> int:
        """Bind `server` to "host:port" and return the port. Raises RuntimeError, or returns 0, where nobody can listen."""
        ...

    @property
    def certificates_version(self) -> int:
        """Grows when the certificates were exchanged: a channel that was made before shows an old one."""
        ...

    def headers(self, address: str) -> Sequence[tuple[str, str]]:
        """What calls to this node's like at "host:port" carry to say who calls. Raises Unavailable where that would be read on the way."""
        ...

    def why_unbound(self, address: str) -> OSError | None:
        """Why nobody can listen at "host:port" now, which gRPC does not tell; None where nothing is in the way."""
        ...


class Encryption(Protocol):
    """What connections show and trust; `dittomq.security.tls.Certificates`."""

    @property
    def version(self) -> int: ...

    def of_channel(self) -> grpc.ChannelCredentials: ...

    def of_server(self, *, callers_show_theirs: bool) -> grpc.ServerCredentials: ...


class GrpcTransport:
    """gRPC over the machine's network; without `encryption` in plain text."""

    def __init__(self, encryption: Encryption | None = None, token: Callable[[], str] | None = None) -> None:
        """`token` says who this process is; it is sent over encrypted connections and to this machine itself."""
        self._encryption = encryption
        self._token = token

    @property
    def certificates_version(self) -> int:
        return self._encryption.version if self._encryption is not None else 0

    def server(self, interceptors: Sequence[grpc.aio.ServerInterceptor], options: ChannelOptions) -> grpc.aio.Server:
        server = grpc.aio.server(interceptors=list(interceptors), options=list(options))
        # For each registered method gRPC keeps a task, and looks twice at all of them in each call; generic handlers it finds as well.
        server.add_registered_method_handlers = _register_nothing  # type: ignore[method-assign,assignment]
        return server

    def channel(self, address: str, options: ChannelOptions = (), credentials: grpc.ChannelCredentials | None = None) -> grpc.aio.Channel:
        if credentials is None and self._encryption is not None:
            credentials = self._encryption.of_channel()
        if credentials is not None:
            return grpc.aio.secure_channel(address, credentials, options=list(options))
        return grpc.aio.insecure_channel(address, options=list(options))

    def headers(self, address: str) -> Sequence[tuple[str, str]]:
        if self._token is None:
            return ()
        if self._encryption is None and not is_loopback(address):
            raise Unavailable(address, "it would be sent the token in plain text, which is never done; configure certificates")
        return (("authorization", f"Bearer {self._token()}"),)

    def listen(self, server: grpc.aio.Server, address: str, *, callers_show_certificate: bool) -> int:
        if self._encryption is None:
            return server.add_insecure_port(address)
        return server.add_secure_port(address, self._encryption.of_server(callers_show_theirs=callers_show_certificate))

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


def _register_nothing(_service: str, _handlers: object) -> None:
    return


def is_loopback(address: str) -> bool:
    """Whether "host:port" is this machine itself."""
    host = address.rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
