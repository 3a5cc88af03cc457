"""The ops port: plain HTTP in a thread of its own, so that probes and metrics answer whatever the data ports demand."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import TimeoutError as FutureTimeoutError
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import AF_INET, AF_INET6, SHUT_RDWR, socket
from types import TracebackType
from typing import Any, Self

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from dittomq.errors import not_bound
from dittomq.rpc.health import Health, Phase

MAX_CONNECTIONS = 256
"""So many callers at a time, each on a thread; the next one's connection is closed at once."""
PAUSE_S = 0.1
"""Between two tries to take a connection for which this process has no descriptor."""
_LOOP_ANSWERS_S = 2.0
_TEXT = "text/plain; charset=utf-8"

_Request = socket | tuple[bytes, socket]
Answer = tuple[HTTPStatus, str, bytes]


class OpsServer:
    """Serves /metrics, /startupz, /readyz and /livez between entering and leaving; raises PortInUse or CannotListen when made."""

    def __init__(self, address: str, vitals: Health, registry: CollectorRegistry, loop: asyncio.AbstractEventLoop) -> None:
        host, _, port = address.rpartition(":")
        host = host.strip("[]")
        self._vitals = vitals
        self._registry = registry
        self._loop = loop
        pages = {"/metrics": self._metrics, "/startupz": self._startup, "/readyz": self._ready, "/livez": self._live}
        server_class = type("_Server", (_Server,), {"address_family": AF_INET6 if ":" in host else AF_INET})
        try:
            self._server: _Server = server_class((host, int(port)), _handler(pages))
        except OSError as refused:
            raise not_bound("listen.ops", address, refused) from refused
        self._thread = threading.Thread(target=self._server.serve_until_closed, name="ops", daemon=True)

    @property
    def port(self) -> int:
        """The port that is bound."""
        return int(self._server.server_address[1])

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._server.hang_up()
        self._thread.join()
        self._server.server_close()

    def _metrics(self) -> Answer:
        return HTTPStatus.OK, CONTENT_TYPE_LATEST, generate_latest(self._registry)

    def _startup(self) -> Answer:
        phase, why = self._vitals.state
        return _verdict(phase is not Phase.STARTING, why)

    def _ready(self) -> Answer:
        phase, why = self._vitals.state
        return _verdict(phase is Phase.READY, why or phase.value)

    def _live(self) -> Answer:
        """Whether the event loop turns; no peer is asked."""
        turned = asyncio.run_coroutine_threadsafe(asyncio.sleep(0), self._loop)
        try:
            turned.result(_LOOP_ANSWERS_S)
        except FutureTimeoutError:
            return _verdict(False, f"the event loop has not answered for {_LOOP_ANSWERS_S:g} s")
        return _verdict(True, "")


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True  # SO_REUSEADDR: past connections in TIME_WAIT do not hold the port; a living listener does

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(address, handler)
        self._closing = threading.Event()
        self._seats = threading.BoundedSemaphore(MAX_CONNECTIONS)

    def serve_until_closed(self) -> None:
        """Take connections until `hang_up`; it wakes for nothing else, and nobody waits for a look that comes now and then."""
        while not self._closing.is_set():
            self.handle_request()

    def hang_up(self) -> None:
        """Take no more connections. Who waits for one is woken: Linux ends the waiting on a socket that is shut down."""
        self._closing.set()
        self.socket.shutdown(SHUT_RDWR)

    def get_request(self) -> tuple[socket, Any]:
        """The next connection. Where there is no descriptor for it, it stays the next one, and asking at once again is of no use."""
        try:
            return super().get_request()
        except OSError:
            self._closing.wait(PAUSE_S)
            raise

    def process_request(self, request: _Request, client_address: Any) -> None:
        """On a thread of its own, if one is left."""
        if not self._seats.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # the system gives no thread
            self._seats.release()
            raise

    def process_request_thread(self, request: _Request, client_address: Any) -> None:
        """There."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._seats.release()


def _handler(pages: dict[str, Callable[[], Answer]]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 5  # seconds a silent caller may hold a thread

        def do_GET(self) -> None:
            page = pages.get(self.path.partition("?")[0])
            status, kind, body = page() if page else (HTTPStatus.NOT_FOUND, _TEXT, f"here are {' '.join(pages)}\n".encode())
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the inherited name
            """Probes come every second: not logged."""

    return Handler


def _verdict(good: bool, why: str) -> Answer:
    return (HTTPStatus.OK, _TEXT, b"ok\n") if good else (HTTPStatus.SERVICE_UNAVAILABLE, _TEXT, f"{why}\n".encode())
