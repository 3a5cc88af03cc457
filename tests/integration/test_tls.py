"""Encrypted connections over real sockets: who is let in, and how certificates are exchanged without a restart."""

import asyncio
import contextlib
import random
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from dittomq._pb.ditto.messaging.v1 import messaging_pb2, messaging_pb2_grpc
from dittomq._pb.ditto.naming.v1 import naming_pb2, naming_pb2_grpc
from dittomq.doors.clock import OsClock
from dittomq.doors.transport import GrpcTransport
from dittomq.errors import Unavailable
from dittomq.rpc.channel import Channels, call
from dittomq.rpc.headers import Answerer
from dittomq.rpc.health import Health
from dittomq.rpc.interceptors import CallInterceptor
from dittomq.rpc.server import Listen, Service, bind
from dittomq.security.certificate_files import CertificateFiles
from dittomq.security.tls import Certificates
from tests.support.certificates import certificate
from tests.support.loopback import MESSAGING, NAMING, Counted, Messaging, Naming
from tests.support.waiting import PATIENCE_S


def certificates(files: CertificateFiles) -> Certificates:
    return Certificates.of_client(files)


async def answered() -> naming_pb2.GetRouteResponse:
    return naming_pb2.GetRouteResponse()


@contextlib.asynccontextmanager
async def serving(shown: Certificates | None, *, callers_show_theirs: bool = True) -> AsyncIterator[str]:
    naming, messaging = Naming(), Messaging()
    naming.answer = answered
    services = [
        Service(NAMING, lambda server: naming_pb2_grpc.add_NameServerServiceServicer_to_server(naming, server)),
        Service(MESSAGING, lambda server: messaging_pb2_grpc.add_MessagingServiceServicer_to_server(messaging, server)),
    ]
    interceptor = CallInterceptor(lambda: Answerer("a/0", "test", 7, 900), OsClock(), random.Random(1), Counted())
    listen = Listen("listen.clients", "127.0.0.1:0", callers_show_theirs)
    server = await bind(GrpcTransport(shown), listen, services, [interceptor], vitals=Health())
    await server.start()
    try:
        yield f"127.0.0.1:{server.port}"
    finally:
        await server.stop(0)


async def asked(address: str, shown: Certificates | None) -> object:
    async with Channels(GrpcTransport(shown)) as channels:
        return await get_route(channels, address)


async def get_route(channels: Channels, address: str) -> object:
    stub: Any = channels.stub(naming_pb2_grpc.NameServerServiceStub, address)
    return await call(stub.GetRoute, naming_pb2.GetRouteRequest(), who=address, deadline_s=PATIENCE_S)


async def shown_by(address: str, files: CertificateFiles) -> bytes | None:
    """The certificate that a server shows at a new handshake."""
    context = ssl.create_default_context(cafile=files.ca)
    context.load_cert_chain(files.certificate, files.key)
    context.set_alpn_protocols(["h2"])
    host, _, port = address.partition(":")
    _, writer = await asyncio.open_connection(host, int(port), ssl=context)
    found: bytes | None = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return found


def test_caller_with_a_certificate_of_the_same_authority_is_answered(tmp_path: Path) -> None:
    async def story() -> None:
        node, client = certificates(certificate(tmp_path)), certificates(certificate(tmp_path, "client"))
        async with serving(node) as address:
            await asked(address, client)

    asyncio.run(story())


def test_caller_without_a_certificate_is_answered_only_where_none_is_asked_for(tmp_path: Path) -> None:
    async def story() -> None:
        files = certificate(tmp_path)
        node, nameless = certificates(files), certificates(CertificateFiles(files.ca))
        async with serving(node, callers_show_theirs=False) as address:
            await asked(address, nameless)
        async with serving(node) as address:
            with pytest.raises(Unavailable):
                await asked(address, nameless)

    asyncio.run(story())


def test_strangers_are_not_answered_and_answer_nobody(tmp_path: Path) -> None:
    async def story() -> None:
        node = certificates(certificate(tmp_path / "ours"))
        stranger = certificates(certificate(tmp_path / "theirs", "client"))
        async with serving(node) as address:
            for caller in (stranger, None):  # of another authority; in plain text
                with pytest.raises(Unavailable):
                    await asked(address, caller)
        async with serving(None) as plain:
            with pytest.raises(Unavailable):
                await asked(plain, node)

    asyncio.run(story())


def test_new_certificates_are_shown_without_a_restart_and_streams_go_on(tmp_path: Path) -> None:
    async def story() -> None:
        files, client_files = certificate(tmp_path), certificate(tmp_path, "client")
        node, client = certificates(files), certificates(client_files)
        async with serving(node) as address, Channels(GrpcTransport(client)) as channels:
            stub: Any = channels.stub(messaging_pb2_grpc.MessagingServiceStub, address)
            stream = stub.PublishStream(timeout=PATIENCE_S)
            await stream.write(messaging_pb2.PublishStreamRequest(batch_id=1))
            assert (await stream.read()).batch_id == 1
            before, channel = await shown_by(address, client_files), channels.to(address)
            certificate(tmp_path)
            certificate(tmp_path, "client")
            node.look()
            client.look()
            assert await shown_by(address, client_files) not in {before, None}
            assert channels.to(address) is not channel
            del channel, stub
            await get_route(channels, address)
            await stream.write(messaging_pb2.PublishStreamRequest(batch_id=2))
            assert (await stream.read()).batch_id == 2

    asyncio.run(story())


def test_followed_files_are_taken_over_by_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dittomq.security.followed_files.LOOK_EVERY_S", 0.01)

    async def story() -> None:
        renewed, loop = asyncio.Event(), asyncio.get_running_loop()
        files = certificate(tmp_path)

        def told() -> None:
            loop.call_soon_threadsafe(renewed.set)

        node = Certificates(files, on_renewal=told, on_problem=print)
        node.follow()
        try:
            certificate(tmp_path)
            async with asyncio.timeout(PATIENCE_S):
                await renewed.wait()
        finally:
            node.close()

    asyncio.run(story())
