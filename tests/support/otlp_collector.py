"""An OpenTelemetry collector: a gRPC server that takes spans, and keeps them."""

import contextlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.common.v1 import common_pb2
from opentelemetry.proto.trace.v1 import trace_pb2

from tests.support.waiting import PATIENCE_S, eventually


@dataclass(frozen=True, slots=True)
class CollectedSpan:
    """As it came. Ids are hexadecimal; `parent` "" for none; `links` are pairs of a trace's and a span's id. `node` sent it."""

    node: str
    name: str
    kind: str
    trace: str
    id: str
    parent: str
    links: tuple[tuple[str, str], ...]
    attributes: Mapping[str, Any]
    events: tuple[str, ...]
    failed: bool


class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    """While `answers` is not set, it takes calls and answers none."""

    def __init__(self) -> None:
        self.address = ""
        self.answers = threading.Event()
        self.answers.set()
        self.calls = 0
        self._spans: list[CollectedSpan] = []

    def Export(self, request: Any, context: grpc.ServicerContext) -> Any:
        self.calls += 1
        self.answers.wait(PATIENCE_S)
        self._spans += _spans(request)
        return trace_service_pb2.ExportTraceServiceResponse()

    def spans(self, name: str = "") -> Sequence[CollectedSpan]:
        """All that came, or those of that name."""
        return [span for span in list(self._spans) if name in ("", span.name)]

    def awaited(self, name: str, count: int = 1) -> Sequence[CollectedSpan]:
        """So many of that name, once they have come."""
        return eventually(lambda: found if len(found := self.spans(name)) >= count else [], f"{count} spans {name!r}")


@contextlib.contextmanager
def collecting() -> Iterator[Collector]:
    """A collector on a port of its own. At the end it answers whoever still waits."""
    collector = Collector()
    server = grpc.server(ThreadPoolExecutor(8))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(collector, server)  # type: ignore[no-untyped-call]  # generated
    collector.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield collector
    finally:
        collector.answers.set()
        server.stop(0).wait()


def _spans(request: Any) -> Iterator[CollectedSpan]:
    for of_resource in request.resource_spans:
        node = _values(of_resource.resource.attributes).get("service.instance.id", "")
        for of_scope in of_resource.scope_spans:
            yield from (_span(node, span) for span in of_scope.spans)


def _span(node: str, span: trace_pb2.Span) -> CollectedSpan:
    return CollectedSpan(
        node,
        span.name,
        trace_pb2.Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_"),
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
        _values(span.attributes),
        tuple(event.name for event in span.events),
        failed=span.status.code == trace_pb2.Status.STATUS_CODE_ERROR,
    )


def _values(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: common_pb2.AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(each) for each in value.array_value.values]
    return getattr(value, kind) if kind is not None else None
