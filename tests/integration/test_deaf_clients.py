"""Clients that publish and never read an answer: they are held back and let go, the server stays small, others go on."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from dittomq._pb.ditto.messaging.v1 import messaging_pb2 as pb
from dittomq.client import PutStatus
from tests.support.history import History
from tests.support.real_group import MASTER, RealGroup, real_group, shape
from tests.support.waiting import PATIENCE_S, eventually

SOME = 40
BODY = b"." * 4_000
CLIENTS = 4
MOST_GROWTH_BYTES = 96 * 1024 * 1024  # the newest bytes of the log are kept for slaves
STILL_S = 3.0  # a node or a disk that is only busy goes on sooner
FLAT_BYTES = 8 * 1024 * 1024


@pytest.fixture
def group(tmp_path: Path) -> Iterator[RealGroup]:
    settings = {"store.segment_bytes": 64 * 1024 * 1024}
    with real_group(tmp_path, shape(1, master={**settings}, slave=settings)) as running:
        yield running


class Deaf:
    """One stream that sends as much as is taken. `sent`: how many frames were."""

    def __init__(self, group: RealGroup, number: int) -> None:
        self.sent = 0
        self._number = number
        self._over = threading.Event()
        self._channel = grpc.insecure_channel(group.address(MASTER), [("grpc.http2.bdp_probe", 0)])  # a small window: soon full
        calling: Any = self._channel.stream_stream(
            "/ditto.messaging.v1.MessagingService/PublishStream",
            pb.PublishStreamRequest.SerializeToString,
            pb.PublishStreamResponse.FromString,
        )
        self.call = calling(self._frames(), timeout=120)

    def _frames(self) -> Iterator[pb.PublishStreamRequest]:
        while not self._over.is_set():
            yield pb.PublishStreamRequest(
                frame_id=self.sent,
                producer_id=f"deaf-{self._number}",
                first_sequence=self.sent,
                messages=[pb.Message(topic="unwritten", body=BODY, queue=self.sent % 4)],
            )
            self.sent += 1

    def close(self) -> None:
        self._over.set()
        self._channel.close()


@contextmanager
def deaf_clients(group: RealGroup) -> Iterator[list[Deaf]]:
    clients = [Deaf(group, number) for number in range(CLIENTS)]
    try:
        yield clients
    finally:
        for client in clients:
            client.close()


def resident_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) * 1024


def test_clients_that_never_read_are_held_back_and_let_go_while_memory_stays_and_others_go_on(group: RealGroup) -> None:
    history, pid = History(group), group.cluster.pid(MASTER)
    with group.mq.producer(timeout_s=PATIENCE_S) as producer:
        history.publish(producer, SOME)
        before = resident_bytes(pid)
        with deaf_clients(group) as clients:
            taken: list[tuple[float, int, int]] = []  # when, what was sent, and what became of it: a busy machine stands still, too

            def held_back() -> bool:
                taken.append((time.monotonic(), sum(client.sent for client in clients), group.status().end))
                still = [each for each in taken if each[1:] == taken[-1][1:]]
                return len(still) > 25 and still[-1][0] - still[0][0] > STILL_S

            eventually(held_back, "nothing more is taken from them")
            assert {receipt.status for receipt in history.publish(producer, SOME)} == {PutStatus.PUT_OK}
            held = resident_bytes(pid)
            assert held - before < MOST_GROWTH_BYTES
            eventually(lambda: len(group.events(MASTER, "client_let_go")) == CLIENTS, "they are let go")
            assert resident_bytes(pid) - held < FLAT_BYTES
            with pytest.raises(grpc.RpcError) as told:
                list(clients[0].call)
            assert told.value.code() is grpc.StatusCode.UNAVAILABLE
        assert {receipt.status for receipt in history.publish(producer, SOME)} == {PutStatus.PUT_OK}
    history.check()
