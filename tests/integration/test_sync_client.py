"""The client without await, over real gRPC, from several threads."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

import grpc.aio
import pytest

from dittomq._pb.ditto.admin.v1 import admin_pb2_grpc
from dittomq._pb.ditto.messaging.v1 import messaging_pb2_grpc
from dittomq._pb.ditto.naming.v1 import naming_pb2_grpc
from dittomq.client import Client, Message, NotStored, OutcomeUnknown
from dittomq.doors.clock import OsClock
from dittomq.errors import DiskFull, DittoError, InvalidField, TopicNotFound, Unavailable
from tests.support.fake_broker import FakeBroker, FakeNameserver, Log, Refuse, Reply, interceptor, node_of
from tests.support.proxy import Proxy, Way
from tests.support.waiting import eventually


class Server:
    """A broker and its nameserver on one loopback port, in a thread of their own."""

    def __init__(self) -> None:
        self.broker = FakeBroker("a/0", Log())
        self.nameserver = FakeNameserver()
        self.nameserver.queues["orders"] = {"a": 4}
        self.address = ""
        self._ready = threading.Event()
        self._stop = asyncio.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=lambda: self._loop.run_until_complete(self._serve()))

    async def _serve(self) -> None:
        server = grpc.aio.server(interceptors=[interceptor(self.broker, OsClock())])
        messaging_pb2_grpc.add_MessagingServiceServicer_to_server(self.broker, server)
        admin_pb2_grpc.add_TopicServiceServicer_to_server(self.broker, server)
        naming_pb2_grpc.add_NameServerServiceServicer_to_server(self.nameserver, server)
        self.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        self.nameserver.nodes = [replace(node_of("a", 0), address="unreachable:1")]
        await server.start()
        self._ready.set()
        await self._stop.wait()
        await server.stop(0)

    @contextmanager
    def running(self) -> Iterator[Client]:
        """Serve, and hand out a client that reaches the broker through its address map."""
        self._thread.start()
        self._ready.wait()
        try:
            with Client(self.address, address_map={"unreachable:1": self.address}) as mq:
                yield mq
        finally:
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()
            self._loop.close()


def test_many_threads_publish_through_one_producer_and_read_it_back() -> None:
    server = Server()

    with server.running() as mq, mq.producer() as orders:
        with ThreadPoolExecutor(8) as threads:
            receipts = list(threads.map(lambda at: orders.publish("orders", f"{at}", order_key="one"), range(400)))
        queue = receipts[0].queue
        read = [message.body.decode() for message in mq.reader("orders", queue, max_messages=100).messages(until_end=True)]

    assert sorted(read, key=int) == [str(at) for at in range(400)]
    assert [read[receipt.queue_offset] for receipt in receipts] == [str(at) for at in range(400)]


def test_leaving_the_block_raises_what_a_failed_iterable_left_unstored() -> None:
    """It was handed over before the iterable failed."""
    server = Server()
    server.broker.script.append(Refuse(DiskFull("a/0", 0, 1)))

    def source() -> Iterator[Message]:
        for at in range(3_000):
            yield Message("orders", f"{at}".encode())
        raise KeyError("mine")

    with server.running() as mq, pytest.raises(NotStored), mq.producer() as orders, pytest.raises(KeyError):
        orders.publish_many(source(), on_failure="return")


def test_an_iterable_is_read_in_the_callers_thread() -> None:
    server = Server()
    threads: set[int] = set()

    def source(orders: object) -> Iterator[Message]:
        for at in range(3_000):
            threads.add(threading.get_ident())
            yield Message("orders", b"%d" % at)

    with server.running() as mq, mq.producer() as orders:
        receipts = orders.publish_many(source(orders))

    assert threads == {threading.get_ident()}
    assert [server.broker.log.placed[one.physical_offset // 100].message.body for one in receipts] == [b"%d" % at for at in range(3_000)]


def test_errors_come_out_of_the_block_as_they_are() -> None:
    server = Server()

    with server.running() as mq:
        with pytest.raises(NotStored) as raised, mq.producer() as orders:
            orders.publish("nowhere", b"")
        with pytest.raises(KeyError), mq.producer():
            raise KeyError("mine")
        with pytest.raises(TopicNotFound):
            mq.route("nowhere")
        assert mq.queues("orders") == [("a", queue) for queue in range(4)]
        [created] = mq.admin.create_topic("orders", 4)

    assert isinstance(raised.value.cause, TopicNotFound)
    assert created.value is not None


def test_an_unknown_outcome_is_resolved_without_await() -> None:
    server = Server()
    server.broker.script.extend([Reply.STORE_AND_CUT, *[Reply.CUT] * 1_000])

    with server.running() as mq, mq.producer(timeout_s=1.0, retry_s=1.0) as orders:
        with pytest.raises(OutcomeUnknown) as raised:
            orders.publish("orders", b"where")
        receipt = orders.resolve(raised.value.handle)
        again = orders.send_again(raised.value.handle, Message("orders", b"where"))

    assert receipt == again
    assert server.broker.log.bodies() == [b"where"]


def test_slow_server_is_reached_despite_a_slow_handshake() -> None:
    """It is far away or busy, and takes its time to answer a new connection."""
    server = Server()

    with server.running(), Proxy(lambda: ("127.0.0.1", int(server.address.rpartition(":")[2]))).running() as far:
        far.delay(0.3, Way.BACK)
        with Client(far.address) as mq:
            assert mq.route("orders").topic == "orders"


def test_a_client_of_nobody_says_who_does_not_answer() -> None:
    with Client("127.0.0.1:1") as mq, pytest.raises(Unavailable, match=r"127\.0\.0\.1:1"):
        mq.route("orders")


def test_a_client_that_is_used_outside_its_block_says_so() -> None:
    mq = Client("127.0.0.1:1")
    with pytest.raises(InvalidField, match="inside its block"):
        mq.admin.list_brokers()
    with mq:
        producer = mq.producer()
    with pytest.raises(InvalidField, match="inside its block"):
        mq.route("orders")
    with pytest.raises(InvalidField, match="inside its block"), producer:
        pass


def in_a_thread(mq: Client, failures: list[Exception]) -> threading.Thread:
    """Publishes one message with a producer of its own, and notes why it could not."""

    def publish() -> None:
        try:
            with mq.producer() as orders:
                orders.publish("orders", b"one")
        except Exception as failure:  # noqa: BLE001  # handed to the test
            failures.append(failure)

    thread = threading.Thread(target=publish, daemon=True)
    thread.start()
    return thread


def test_publishing_thread_learns_its_outcome_when_another_leaves_the_client() -> None:
    server = Server()
    server.broker.gate = asyncio.Event()
    failures: list[Exception] = []

    with server.running() as mq:
        thread = in_a_thread(mq, failures)
        eventually(lambda: server.broker.frames, "the message is sent")
    thread.join(20)

    assert not thread.is_alive()
    assert [type(failure) for failure in failures] == [OutcomeUnknown]


def test_waiting_thread_gets_an_error_when_another_leaves_the_client() -> None:
    """It waits for a nameserver."""
    failures: list[Exception] = []

    with Client("127.0.0.1:1") as mq:
        thread = in_a_thread(mq, failures)
        with pytest.raises(Unavailable):
            mq.route("orders")
    thread.join(20)

    assert not thread.is_alive()
    assert [isinstance(failure, DittoError) for failure in failures] == [True]
