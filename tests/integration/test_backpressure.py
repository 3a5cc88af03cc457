"""Clients that publish or pull and never read an answer: they are held back, the server stays small, others go on."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from dittomq._pb.ditto.messaging.v1 import messaging_pb2 as pb
from dittomq.broker.writer import WriterLimits
from dittomq.client import Message, PutStatus
from dittomq.reads import MAX_PULL_BYTES, MAX_PULL_MESSAGES
from dittomq.rpc.admission import CONNECTION_BYTES
from tests.support.history import History
from tests.support.real_group import MASTER, TOPIC, RealGroup, real_group, shape
from tests.support.waiting import PATIENCE_S, eventually

pytestmark = pytest.mark.tier("nightly")

SOME = 40
BODY = b"." * 4_000
CLIENTS = 4
PULLS = 50
MOST_GROWTH_BYTES = 64 * 1024 * 1024  # of what comes, each stream holds 1 MiB unread; the newest bytes of the log are kept for slaves
STILL_S = 3.0  # a node or a disk that is only busy goes on sooner
FLAT_BYTES = 8 * 1024 * 1024
AT_ONCE = 150
LARGE_BYTES = 4_000_000
WINDOW_BYTES = 1024 * 1024  # so much of each call may wait unread
QUEUE_BYTES = 6 * WriterLimits().queue_bytes  # and what the allocator keeps of it; taken in whole, the messages were 1.7 GB


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
                batch_id=self.sent,
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


def test_clients_that_never_read_are_throttled_in_bounded_memory(group: RealGroup) -> None:
    """They are let go in the end, and others go on."""
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
            eventually(lambda: len(group.events(MASTER, "client_disconnected")) == CLIENTS, "they are let go")
            assert resident_bytes(pid) - held < FLAT_BYTES
            with pytest.raises(grpc.RpcError) as told:
                list(clients[0].call)
            assert told.value.code() is grpc.StatusCode.UNAVAILABLE
        assert {receipt.status for receipt in history.publish(producer, SOME)} == {PutStatus.PUT_OK}
    history.check()


def unread_pulls(channel: grpc.Channel, method: str) -> list[Any]:
    """Pulls, or streams of pulls, of the largest answers, which are not read."""
    pull: Any = channel.unary_stream(f"/ditto.messaging.v1.MessagingService/{method}", pb.PullRequest.SerializeToString)
    request = pb.PullRequest(topic=TOPIC, queue=0, offset=0, max_messages=MAX_PULL_MESSAGES, max_bytes=MAX_PULL_BYTES)
    return [pull(request, timeout=120) for _ in range(PULLS)]


@pytest.mark.parametrize("method", ["Pull", "PullStream"])
def test_pulls_that_nobody_reads_take_a_bounded_part_of_memory_and_others_read_on(group: RealGroup, method: str) -> None:
    count, pid = 2 * MAX_PULL_BYTES // len(BODY), group.cluster.pid(MASTER)
    with group.mq.producer(timeout_s=PATIENCE_S) as producer:
        producer.publish_many([Message(TOPIC, BODY, queue=0) for _ in range(count)])
    before = resident_bytes(pid)
    channels = [grpc.insecure_channel(group.address(MASTER), [("grpc.http2.bdp_probe", 0)]) for _ in range(CLIENTS)]  # small windows
    try:
        pulls = [call for channel in channels for call in unread_pulls(channel, method)]
        have_room = CLIENTS * CONNECTION_BYTES // MAX_PULL_BYTES
        eventually(lambda: 0 < sum(not call.done() for call in pulls) <= have_room, "all but those that have room are refused")

        assert {call.code() for call in pulls if call.done()} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
        assert resident_bytes(pid) - before < 4 * CLIENTS * CONNECTION_BYTES
        reader = group.mq.reader(TOPIC, 0, node=MASTER)
        assert sum(1 for _ in reader.messages(until_end=True)) == count
    finally:
        for channel in channels:
            channel.close()


def test_large_messages_that_arrive_at_once_take_bounded_memory(group: RealGroup) -> None:
    """There are hundreds, and all are stored."""
    pid, body = group.cluster.pid(MASTER), b"." * LARGE_BYTES
    before, most = resident_bytes(pid), 0
    with grpc.insecure_channel(group.address(MASTER)) as channel:
        publish: Any = channel.unary_unary(
            "/ditto.messaging.v1.MessagingService/Publish", pb.PublishRequest.SerializeToString, pb.PublishResponse.FromString
        )
        request = pb.PublishRequest(message=pb.Message(topic=TOPIC, body=body, queue=0))
        calls = [publish.future(request, timeout=PATIENCE_S) for _ in range(AT_ONCE)]
        while not all(call.done() for call in calls):
            most = max(most, resident_bytes(pid) - before)
            time.sleep(0.01)

        assert {call.code() for call in calls} == {grpc.StatusCode.OK}
    assert most < AT_ONCE * 2 * WINDOW_BYTES + 4 * CONNECTION_BYTES + QUEUE_BYTES
