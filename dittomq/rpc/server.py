"""A gRPC server with our limits, health and reflection, bound to one address."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import grpc.aio
from google.rpc import error_details_pb2  # type: ignore[import-untyped]  # noqa: F401  # registers the types that reflection resolves in error details
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from dittomq._pb.ditto.error.v1 import error_pb2  # noqa: F401  # the same, for details of our own
from dittomq.doors.transport import ChannelOptions, Transport
from dittomq.errors import not_bound
from dittomq.rpc.health import Health
from dittomq.rpc.limits import KEEPALIVE_MS, KEEPALIVE_OPTIONS, MAX_CONCURRENT_STREAMS, SIZE_OPTIONS

_UNREAD_BYTES: Final = 1024 * 1024  # of each stream: at a round trip of 20 ms a producer still sends 50 MB/s through one
_HEADERS_BYTES: Final = 16 * 1024  # twice the longest token
_MOST_PENDING: Final = 100_000  # calls that have come and that nobody has looked at: all consumers of a group come at once after a restart

SERVER_OPTIONS: ChannelOptions = (
    *SIZE_OPTIONS,
    *KEEPALIVE_OPTIONS,
    ("grpc.http2.min_ping_interval_without_data_ms", KEEPALIVE_MS // 2),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.max_metadata_size", _HEADERS_BYTES),  # from a lower one on some calls are refused by chance, half of those of 12 KiB
    ("grpc.absolute_max_metadata_size", _HEADERS_BYTES),
    ("grpc.max_concurrent_streams", MAX_CONCURRENT_STREAMS),
    ("grpc.server.max_pending_requests", _MOST_PENDING),  # else some of a burst are cancelled by chance, and from 3,000 on all
    ("grpc.server.max_pending_requests_hard_limit", _MOST_PENDING),
    ("grpc.http2.bdp_probe", 0),  # else a busy server takes in the more unread bytes the later it gets to read them, 20 MB of a stream
    ("grpc.http2.lookahead_bytes", _UNREAD_BYTES),
    ("grpc.so_reuseport", 0),  # a second process on the port must be refused
)


@dataclass(frozen=True, slots=True)
class Service:
    """One service of a server: its full name and the call that adds its servicer."""

    name: str
    add_to: Callable[[grpc.aio.Server], None]


class RpcServer:
    """A server of one port. It is bound when made and answers between `start` and `stop`."""

    def __init__(self, server: grpc.aio.Server, port: int) -> None:
        self._server = server
        self.port = port

    async def start(self) -> None:
        """Answer calls."""
        await self._server.start()

    async def stop(self, grace_s: float) -> None:
        """Take no new calls, let running ones end for `grace_s`, then cancel them."""
        await self._server.stop(grace_s)


async def bind(
    transport: Transport,
    listen: "Listen",
    services: Sequence[Service],
    interceptors: Sequence[grpc.aio.ServerInterceptor],
    *,
    vitals: Health,
) -> RpcServer:
    """A server of `services`, with health and reflection, that holds its port; raises PortInUse or CannotListen."""
    server = transport.server(interceptors, SERVER_OPTIONS)
    for service in services:
        service.add_to(server)
    names = [service.name for service in services]
    health_pb2_grpc.add_HealthServicer_to_server(vitals.health, server)
    health_name = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name
    reflection.enable_server_reflection([*names, health_name, reflection.SERVICE_NAME], server)
    await vitals.cover(names)
    try:
        port = transport.listen(server, listen.address, callers_show_certificate=listen.callers_show_certificate)
    except RuntimeError as refused:
        raise not_bound(listen.setting, listen.address, transport.why_unbound(listen.address)) from refused
    if port == 0:
        raise not_bound(listen.setting, listen.address, transport.why_unbound(listen.address))
    return RpcServer(server, port)


@dataclass(frozen=True, slots=True)
class Listen:
    """Where a server listens, and the setting that says so. Where connections are encrypted, callers need a certificate too, or not."""

    setting: str
    address: str
    callers_show_certificate: bool = True
