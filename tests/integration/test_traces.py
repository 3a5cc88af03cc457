"""Spans of real processes, as a real collector gets them."""

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

from dittomq.client import Client, Message
from dittomq.testing import LocalCluster
from tests.support.documents import blocks
from tests.support.otlp_collector import Collector, collecting
from tests.support.real_group import MASTER, RealGroup, shape

SAMPLED = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    with collecting() as running:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://{running.address}")
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
        yield running


@contextlib.contextmanager
def spans_of(application: str) -> Iterator[TracerProvider]:
    provider = TracerProvider(resource=Resource({"service.instance.id": application}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    try:
        yield provider
    finally:
        provider.shutdown()


def group_of(folder: Path, *, slaves: int, traces: bool) -> LocalCluster:
    settings = {"traces.enabled": True} if traces else {}
    return LocalCluster(folder, shape(slaves, master=settings, slave=settings))


def consume(mq: Client, count: int) -> None:
    mq.admin.create_group("billing")
    with mq.consumer("billing", ["orders"]) as messages:
        for handled, message in enumerate(messages, 1):
            message.ack()
            if handled == count:
                return


def test_one_trace_goes_with_a_message_to_every_copy_and_links_its_consumer(collector: Collector, tmp_path: Path) -> None:
    with group_of(tmp_path, slaves=2, traces=True) as cluster, spans_of("shop") as shop:
        unsampled = TracerProvider(sampler=ALWAYS_OFF)
        with Client(cluster.nameserver, traces=shop) as mq, Client(cluster.nameserver, traces=unsampled) as quiet:
            mq.admin.create_topic("orders", queues=1)
            with quiet.producer() as orders:
                orders.publish("orders", b"nobody traces this one")
            with shop.get_tracer("shop").start_as_current_span("checkout"), mq.producer() as orders:
                receipt = orders.publish("orders", b"paid", keys=["o-17"])
            consume(mq, 2)

            [checkout] = collector.awaited("checkout")
            [publish] = collector.awaited("publish orders")
            [append] = collector.awaited("append orders")
            copies = collector.awaited("copy", 2)
            [process] = collector.awaited("process orders")

    assert (publish.parent, publish.trace, publish.kind) == (checkout.id, checkout.trace, "PRODUCER")
    assert publish.attributes["dittomq.put_status"] == "PUT_OK"
    where = {"messaging.system": "dittomq", "messaging.destination.name": "orders", "messaging.destination.partition.id": "0"}
    for span in (publish, append, process):
        assert where.items() <= span.attributes.items()
        assert span.attributes["dittomq.queue_offset"] == receipt.queue_offset

    assert (append.parent, append.trace, append.kind, append.node) == (publish.id, publish.trace, "SERVER", "a/0")
    assert append.events == ("written", "confirmed")
    assert append.attributes["dittomq.ack_level"] == "REPLICA_FLUSHED"
    assert "a/0 flushed" in append.attributes["dittomq.copies"]

    assert {copy.node for copy in copies} == {"a/1", "a/2"}
    assert {(copy.parent, copy.trace, copy.events) for copy in copies} == {(publish.id, publish.trace, ("written",))}

    assert (process.links, process.kind) == (((publish.trace, publish.id),), "CONSUMER")
    assert process.attributes["messaging.consumer.group.name"] == "billing"
    assert not [span for span in collector.spans() if span.failed]
    assert len(collector.spans()) == 6, "of the message that is not sampled nobody made a span"


@pytest.mark.tier("nightly")
def test_publishing_many_makes_one_span_for_all_of_them(collector: Collector, tmp_path: Path) -> None:
    with group_of(tmp_path, slaves=0, traces=True) as cluster, spans_of("shop") as shop, Client(cluster.nameserver, traces=shop) as mq:
        mq.admin.create_topic("orders", queues=1)
        with mq.producer() as orders:
            orders.publish_many(Message("orders", b"%d" % number) for number in range(100))
        [publish] = collector.awaited("publish orders")
        appends = collector.awaited("append orders")
    assert publish.attributes["messaging.batch.message_count"] == 100
    assert {append.parent for append in appends} == {publish.id}
    assert len(appends) < 100, "one for each batch"


@pytest.mark.tier("nightly")
def test_the_guide_s_application_sends_the_spans_it_speaks_of(collector: Collector, tmp_path: Path) -> None:
    [block] = blocks("docs/operations.md", "python")
    code = block.replace("localhost:9876", "%s").replace("(0.01)", "(1.0)")
    with group_of(tmp_path, slaves=0, traces=True) as cluster:
        with Client(cluster.nameserver) as mq:
            mq.admin.create_topic("orders")
        exec(code % cluster.nameserver, {})
        [publish] = collector.awaited("publish orders")
        [append] = collector.awaited("append orders")
    assert append.parent == publish.id


def test_no_span_is_sent_where_nobody_asked_for_traces(collector: Collector, tmp_path: Path) -> None:
    with group_of(tmp_path, slaves=1, traces=False) as cluster, Client(cluster.nameserver) as mq:
        mq.admin.create_topic("orders")
        with mq.producer() as orders:
            orders.publish("orders", b"paid", properties={"traceparent": SAMPLED})
    assert collector.calls == 0, "and all processes have ended"


def test_a_collector_that_never_answers_delays_no_publish_and_no_stop(
    collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "16")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "8")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "300")
    collector.answers.clear()
    with group_of(tmp_path, slaves=1, traces=True) as cluster, Client(cluster.nameserver, traces=TracerProvider()) as mq:
        mq.admin.create_topic("orders")
        with mq.producer() as orders:
            for number in range(100):
                orders.publish("orders", b"%d" % number)
        assert collector.calls, "it was asked"
        assert not collector.spans(), "and has answered nothing"
        master = RealGroup(cluster, mq)
        master.signal(MASTER, signal.SIGTERM)
        assert master.exit_status(MASTER) == 0
        assert not collector.spans(), "nor has it until the end"
        collector.answers.set()
    assert len(collector.awaited("append orders")) <= 8 + 16, "what the queue cannot hold is dropped"
