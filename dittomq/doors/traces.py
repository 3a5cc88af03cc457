"""OpenTelemetry's spans of a message's way, where somebody asks for them: who has no Traces pays for one look at None.

    publish (producer) ▶ append (master), copy (each slave): its children     process (consumer): a trace of its own that links to it

The context of the publish span goes along as the message's property `traceparent` (W3C), into the log and to every reader. Only messages
whose context is sampled get spans anywhere, so the sampler of the producer decides for all. Names and attributes are those of
OpenTelemetry's semantic conventions for messaging; what begins with `dittomq.` is ours.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from dittomq.message import MAX_PROPERTIES_BYTES, Copy, Draft, DraftRuns, Message, Receipt, StoredMessage
from dittomq.offsets import PhysicalOffset
from dittomq.places import AppendResult
from dittomq.version import VERSION

if TYPE_CHECKING:  # an extra, which who asks for no traces need not have
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, SpanContext, TracerProvider

TRACEPARENT: Final = "traceparent"
_PROPERTY: Final = f"{TRACEPARENT}\x01".encode()
_VALUE_BYTES: Final = 55
_MOST_OWN_BYTES: Final = MAX_PROPERTIES_BYTES - 1_024
_MOST_SPANS: Final = 32
"""So many contexts of one batch, or of one chunk, get a span, others none: a producer that samples all must not slow down others."""
_MOST_OPEN: Final = 1_024
"""So many messages may wait for a slave's sync with an open span."""


class Traces:
    """Makes spans with one provider; it decides where they go."""

    def __init__(self, provider: "TracerProvider") -> None:
        from opentelemetry import trace  # noqa: PLC0415  # an extra
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # noqa: PLC0415

        self._api = trace
        self._tracer = provider.get_tracer("dittomq", VERSION)
        self._w3c = TraceContextTextMapPropagator()

    def publishing(self) -> "PublishSpan":
        """A producer has been given messages. Its caller's span, if there is one, is the parent."""
        attributes = {"messaging.system": "dittomq", "messaging.operation.name": "publish", "messaging.operation.type": "send"}
        span = self._tracer.start_span("publish", kind=self._api.SpanKind.PRODUCER, attributes=attributes)
        headers: dict[str, str] = {}
        if span.get_span_context().trace_flags.sampled:
            self._w3c.inject(headers, self._api.set_span_in_context(span))
        return PublishSpan(self, span, headers)

    def appending(self, drafts: Sequence[Draft]) -> "AppendSpans | None":
        """A master has been given a batch; None where no message of it is sampled. Runs of messages have no properties of their own."""
        if isinstance(drafts, DraftRuns):
            return None
        found: dict[bytes, int] = {}
        for index, draft in enumerate(drafts):
            at = draft.properties.find(_PROPERTY)
            if at >= 0 and len(found) < _MOST_SPANS:
                found.setdefault(_value_at(draft.properties, at), index)
        spans: dict[int, Span] = {}
        for value, index in found.items():
            if (context := self.sampled(value)) is not None:
                attributes = {"messaging.system": "dittomq", "messaging.destination.name": drafts[index].topic}
                kind, name = self._api.SpanKind.SERVER, f"append {drafts[index].topic}"
                spans[index] = self._tracer.start_span(name, context, kind, attributes)
        return AppendSpans(self, spans) if spans else None

    def copying(self, data: bytes, most: int = _MOST_SPANS) -> "list[Span]":
        """A slave has received these bytes of the log: one for each sampled context of messages among them, at most so many.

        Bodies are not told from properties: one that looks like a property is good for a span too many. A property that a chunk's end cuts
        is not found.
        """
        found: dict[bytes, None] = {}
        at = data.find(_PROPERTY)
        while at >= 0 and len(found) < most:
            found[_value_at(data, at)] = None
            at = data.find(_PROPERTY, at + len(_PROPERTY))
        contexts = filter(None, map(self.sampled, found))
        return [self._tracer.start_span("copy", context, attributes={"messaging.system": "dittomq"}) for context in contexts]

    def processing(self, message: StoredMessage, topic: str, group: str) -> "OpenSpan | None":
        """A member of a group has handed that message out, which was published to `topic`; None where it is not sampled.

        The span is a child of its caller's, if there is one, and links to the span that published the message.
        """
        context = self.sampled(message.properties[TRACEPARENT].encode()) if TRACEPARENT in message.properties else None
        if context is None:
            return None
        attributes: dict[str, str | int] = {
            "messaging.system": "dittomq",
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.destination.name": topic,
            "messaging.destination.partition.id": str(message.queue),
            "messaging.consumer.group.name": group,
            "messaging.message.body.size": len(message.body),
            "dittomq.queue_offset": message.queue_offset,
        }
        links = [self._api.Link(self._named_by(context))]
        span = self._tracer.start_span(f"process {topic}", kind=self._api.SpanKind.CONSUMER, attributes=attributes, links=links)
        return OpenSpan(self, span)

    def sampled(self, traceparent: bytes) -> "Context | None":
        """The context that the property names; None where it names none, or one that is not sampled."""
        context = self._w3c.extract({TRACEPARENT: traceparent.decode("latin-1")})
        known = self._named_by(context)
        return context if known.is_valid and known.trace_flags.sampled else None

    def add_link(self, span: "Span", traceparent: str) -> None:
        """Let the span link to the context that the property names."""
        if (context := self.sampled(traceparent.encode())) is not None:
            span.add_link(self._named_by(context))

    def _named_by(self, context: "Context") -> "SpanContext":
        return self._api.get_current_span(context).get_span_context()

    def end(self, span: "Span", failure: BaseException | str | None = None) -> None:
        """End it, as a failure where there is one."""
        if failure is not None:
            span.set_attribute("error.type", "refused" if isinstance(failure, str) else type(failure).__name__)
            span.set_status(self._api.StatusCode.ERROR, str(failure))
        span.end()


class OpenSpan:
    """Ends once, or with its block, as a failure where there is one. A consumer's: from the hand-out of a message to its ack."""

    def __init__(self, traces: Traces, *spans: "Span") -> None:
        self._traces = traces
        self._spans = spans

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.end(error)

    def end(self, failure: BaseException | str | None = None) -> None:
        """It is over, as it was said first."""
        spans, self._spans = self._spans, ()
        for span in spans:
            self._traces.end(span, failure)


class PublishSpan(OpenSpan):
    """A producer's: from the offer of one message, or of many, to what became of them."""

    def __init__(self, traces: Traces, span: "Span", headers: Mapping[str, str]) -> None:
        super().__init__(traces, span)
        self._span = span
        self._headers = headers
        self._count = 0
        self._topic: str | None = None  # of all that were carried; "": of several, None: nothing was

    def carry(self, message: Message) -> Message:
        """The message with this span's context among its properties. One that brings a context keeps it, and is linked to.

        If its own properties might leave no room for that, here or where it waits or is tried again, it goes without.
        """
        self._count += 1
        self._topic = message.topic if self._topic in (None, message.topic) else ""
        if not self._headers:
            return message
        if TRACEPARENT in message.properties:
            self._traces.add_link(self._span, message.properties[TRACEPARENT])
            return message
        own = (*message.keys, message.tag, *message.properties, *message.properties.values())
        if sum(len(text.encode(errors="surrogatepass")) + 1 for text in own) > _MOST_OWN_BYTES:
            return message
        return replace(message, properties={**message.properties, **self._headers})

    def stored(self, receipt: Receipt) -> None:
        """Where the message lies."""
        self._span.set_attributes(
            {
                "messaging.destination.partition.id": str(receipt.queue),
                "dittomq.broker": receipt.broker,
                "dittomq.queue_offset": receipt.queue_offset,
                "dittomq.put_status": receipt.status,
            }
        )

    def end(self, failure: BaseException | str | None = None) -> None:
        """All is settled."""
        if self._topic:
            self._span.update_name(f"publish {self._topic}")
            self._span.set_attribute("messaging.destination.name", self._topic)
        if self._count != 1:
            self._span.set_attribute("messaging.batch.message_count", self._count)
        super().end(failure)


class AppendSpans(OpenSpan):
    """A master's of one batch: from its arrival to the answer. Each is a child of the span that published the message."""

    def __init__(self, traces: Traces, spans: "Mapping[int, Span]") -> None:
        """`spans` by the index of their message in the batch, ascending."""
        super().__init__(traces, *spans.values())
        self._indexes = spans

    def written(self, placed: Sequence[AppendResult]) -> None:
        """The messages are in the log, there."""
        runs, start = iter(placed), 0
        run = next(runs)
        for index, span in self._indexes.items():
            while index >= start + len(run.sizes):
                start += len(run.sizes)
                run = next(runs)
            offset = run.queue_offset + index - start
            span.add_event("written")
            span.set_attributes({"messaging.destination.partition.id": str(run.queue), "dittomq.queue_offset": offset})

    def reached(self, level: str, status: str, copies: Sequence[Copy]) -> None:
        """The level was waited for, and that many copies hold them."""
        attributes = {"dittomq.ack_level": level, "dittomq.put_status": status, "dittomq.copies": [str(copy) for copy in copies]}
        for span in self._spans:
            span.add_event("confirmed" if status == "PUT_OK" else "not confirmed in time")
            span.set_attributes(attributes)


class CopySpans:
    """A slave's: from the arrival of a message's bytes to their sync. Each is a child of the span that published the message.

    What its master held before the stream gets none: a slave that catches up would tell of messages of yesterday.
    """

    def __init__(self, traces: Traces) -> None:
        self._traces = traces
        self._arrived: deque[tuple[PhysicalOffset, Span]] = deque()  # with the end of what came with them, ascending
        self._written: deque[tuple[PhysicalOffset, Span]] = deque()
        self._old: PhysicalOffset | None = None  # where the master's log ended when the stream began; None: it is not known yet

    def master_ended_at(self, end: PhysicalOffset) -> None:
        """The master has named its end; the first that it names on a stream counts."""
        if self._old is None:
            self._old = end

    def arrived(self, start: PhysicalOffset, data: bytes) -> None:
        """These bytes of the log are to be written."""
        end, room = PhysicalOffset(start + len(data)), _MOST_OPEN - len(self._arrived) - len(self._written)
        if self._old is not None and self._old < end and room > 0:
            new = data[max(self._old - start, 0) :]
            self._arrived.extend((end, span) for span in self._traces.copying(new, min(room, _MOST_SPANS)))

    def written(self, end: PhysicalOffset) -> None:
        """What lies before `end` is in the log."""
        while self._arrived and self._arrived[0][0] <= end:
            self._arrived[0][1].add_event("written")
            self._written.append(self._arrived.popleft())

    def flushed(self, end: PhysicalOffset) -> None:
        """What lies before `end` survives a power loss."""
        while self._written and self._written[0][0] <= end:
            self._traces.end(self._written.popleft()[1])

    def dropped(self) -> None:
        """Of what is not flushed nobody knows what becomes of it: the stream has ended."""
        for _, span in (*self._arrived, *self._written):
            self._traces.end(span, "the stream ended before it was synced")
        self._arrived.clear()
        self._written.clear()
        self._old = None


def _value_at(properties: bytes, at: int) -> bytes:
    start = at + len(_PROPERTY)
    return properties[start : start + _VALUE_BYTES]
