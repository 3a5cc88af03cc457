"""Spans that are kept where they were made."""

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider

from dittomq.doors.traces import Traces


class Recorded(SpanProcessor):
    """Traces, how many spans were started, and those that were ended."""

    def __init__(self) -> None:
        provider = TracerProvider()
        provider.add_span_processor(self)
        self.traces = Traces(provider)
        self.started = 0
        self.spans: list[ReadableSpan] = []

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        self.started += 1

    def on_end(self, span: ReadableSpan) -> None:
        self.spans.append(span)

    @property
    def parents(self) -> list[int]:
        """Of the spans that were ended."""
        return [span.parent.span_id for span in self.spans if span.parent is not None]


def traceparent(span: int, *, sampled: bool = True) -> str:
    """What a producer with that span puts into its message."""
    return f"00-{7:032x}-{span:016x}-{int(sampled):02x}"
