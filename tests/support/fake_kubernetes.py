"""A server in the place of a Kubernetes API, which answers what a real one never would, and proxies do."""

import contextlib
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from aiohttp import web

from dittomq.coordination.settings import CoordinationBackend, CoordinationTable
from tests.support.waiting import PATIENCE_S


@dataclass(slots=True)
class FakeKubernetes:
    """Answers every request alike, with `code`, `body` and `headers`; `asked` are the methods of those that came,
    `sent` what was in the last one.
    """

    address: str
    settings: CoordinationTable
    code: int = 200
    body: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    sent: str = ""

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append(request.method)
        self.sent = f"{request.path} {await request.text()}"
        return web.Response(status=self.code, text=self.body, headers=self.headers)


def self_signed(folder: Path) -> Path:
    """A certificate of 127.0.0.1 with its key, one file. Skips the test where there is no openssl."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl on PATH to make a certificate with")
    made = folder / "server.pem"
    command = [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    command += ["-subj", "/CN=fake", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(made), "-out", str(folder / "public.pem")]
    subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE_S)
    made.write_bytes(made.read_bytes() + (folder / "public.pem").read_bytes())
    return made


@contextlib.asynccontextmanager
async def fake_kubernetes(certificate: Path) -> AsyncIterator[FakeKubernetes]:
    """One that runs while the block does."""
    trust = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    trust.load_cert_chain(certificate)
    token = certificate.with_name("token")
    token.write_text("token")
    settings = CoordinationTable(
        backend=CoordinationBackend.KUBERNETES, namespace="messaging", token_file=str(token), ca_file=str(certificate)
    )
    fake = FakeKubernetes("", settings)
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", fake.answer)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=trust)
        await site.start()
        host, port = runner.addresses[0]
        fake.address = f"{host}:{port}"
        yield fake
    finally:
        await runner.cleanup()
