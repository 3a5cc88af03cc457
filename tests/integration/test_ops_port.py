import asyncio
import errno
import socket
import threading
import time
from collections.abc import Callable
from http.client import HTTPConnection
from http.server import ThreadingHTTPServer
from socketserver import TCPServer

import pytest
from prometheus_client import CollectorRegistry

from dittomq.doors.workers import ThreadLane
from dittomq.rpc.health import Health, Phase
from services import ops
from services.ops import OpsServer
from tests.support.virtual_time import under


def page(port: int, path: str) -> tuple[int, str]:
    connection = HTTPConnection("127.0.0.1", port, timeout=5)
    connection.request("GET", path)
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


@under(asyncio.run)
async def test_probes_follow_the_vitals_and_say_what_is_waited_for() -> None:
    vitals, lane = Health(), ThreadLane("probe", 1)

    async def probes() -> list[tuple[int, str]]:
        return [await lane.call(lambda path=path: page(server.port, path)) for path in ("/startupz", "/readyz", "/livez")]  # type: ignore[misc]

    with OpsServer("127.0.0.1:0", vitals, CollectorRegistry(), asyncio.get_running_loop()) as server:
        assert await probes() == [(503, "starting\n"), (503, "starting\n"), (200, "ok\n")]
        await vitals.become(Phase.WAITING, "waits for 1 of 2 slaves")
        assert await probes() == [(200, "ok\n"), (503, "waits for 1 of 2 slaves\n"), (200, "ok\n")]
        await vitals.become(Phase.READY)
        assert await probes() == [(200, "ok\n")] * 3
        await vitals.become(Phase.DRAINING)
        assert await probes() == [(200, "ok\n"), (503, "draining\n"), (200, "ok\n")]
    lane.close()


@under(asyncio.run)
async def test_stopping_service_stays_not_ready_when_its_recovery_ends() -> None:
    vitals = Health()
    await vitals.become(Phase.WAITING, "recovering")
    await vitals.become(Phase.DRAINING, "shutting down")
    await vitals.become(Phase.READY)

    assert vitals.state == (Phase.DRAINING, "shutting down")


def test_a_process_whose_loop_is_stuck_is_not_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ops, "_LOOP_ANSWERS_S", 0.1)

    async def story(stuck: Callable[[int], tuple[int, str]]) -> tuple[int, str]:
        with OpsServer("127.0.0.1:0", Health(), CollectorRegistry(), asyncio.get_running_loop()) as server:
            return stuck(server.port)  # blocks the loop while the probe asks

    assert asyncio.run(story(lambda port: page(port, "/livez"))) == (503, "the event loop has not answered for 0.1 s\n")


def test_silent_callers_of_the_ops_port_take_a_bounded_number_of_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Later callers are served."""
    monkeypatch.setattr(ops, "MAX_CONNECTIONS", 3)

    def ask(port: int) -> tuple[int, int, int]:
        before = set(threading.enumerate())
        idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(5)]
        turned_away = sum(each.recv(1) == b"" for each in idle[3:])
        threads = set(threading.enumerate()) - before
        for each in idle[:3]:
            each.close()
        for thread in threads:
            thread.join()
        return turned_away, len(threads), page(port, "/metrics")[0]

    async def story() -> tuple[int, int, int]:
        with OpsServer("127.0.0.1:0", Health(), CollectorRegistry(), asyncio.get_running_loop()) as server:
            return ask(server.port)

    assert asyncio.run(story()) == (2, 3, 200)


def test_process_out_of_descriptors_retries_accept_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[None] = []
    served = threading.Event()

    def accept(server: ThreadingHTTPServer) -> tuple[socket.socket, tuple[str, int]]:
        tries.append(None)
        if not served.is_set():
            if len(tries) > 2:
                served.set()
            raise OSError(errno.EMFILE, "Too many open files")
        return TCPServer.get_request(server)

    monkeypatch.setattr(ThreadingHTTPServer, "get_request", accept)
    began = time.monotonic()

    async def story() -> tuple[int, str]:
        with OpsServer("127.0.0.1:0", Health(), CollectorRegistry(), asyncio.get_running_loop()) as server:
            return await asyncio.to_thread(page, server.port, "/startupz")

    assert asyncio.run(story()) == (503, "starting\n")
    assert (time.monotonic() - began) / len(tries) >= ops.PAUSE_S / 2
