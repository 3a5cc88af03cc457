"""Which messages get spans, and what these say."""

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

from dittomq.client.validation import checked_size
from dittomq.delays import MAX_WAITING_PROPERTIES_BYTES, waiting
from dittomq.doors.traces import TRACEPARENT, CopySpans, Traces
from dittomq.errors import MessageTooLarge, NotReady
from dittomq.message import MAX_PROPERTIES_BYTES, Draft, DraftBatch, DraftRuns, Message
from dittomq.offsets import PhysicalOffset, QueueOffset
from dittomq.places import AppendResult
from dittomq.properties import encode_properties
from tests.support.recorded_traces import Recorded, traceparent


@pytest.fixture
def recorded() -> Recorded:
    return Recorded()


def draft(context: str = "") -> Draft:
    properties = encode_properties(("o-17",), "paid", {TRACEPARENT: context} if context else {})
    return Draft("orders", 3, 0, 0, b"body", properties, 0)


def run(queue: int, offset: int, count: int) -> AppendResult:
    return AppendResult("orders", queue, QueueOffset(offset), PhysicalOffset(0), [100] * count, 0)


def test_each_context_of_a_batch_gets_one_span_where_its_first_message_lies(recorded: Recorded) -> None:
    drafts = [draft(), draft(traceparent(1)), draft(), draft(traceparent(2)), draft(traceparent(2)), draft(traceparent(3))]
    spans = recorded.traces.appending(drafts)
    assert spans is not None
    with spans:
        spans.written([run(4, 40, 2), run(5, 50, 1), run(6, 60, 3)])

    where = [
        (dict(span.attributes or {})["messaging.destination.partition.id"], dict(span.attributes or {})["dittomq.queue_offset"])
        for span in recorded.spans
    ]
    assert recorded.parents == [1, 2, 3]
    assert where == [("4", 41), ("6", 60), ("6", 62)]


@pytest.mark.parametrize("context", ["", traceparent(1, sampled=False), "00-abc", traceparent(0), f"{traceparent(1)[:-1]}x", "ÿ" * 55])
def test_a_message_without_a_sampled_context_gets_no_span(recorded: Recorded, context: str) -> None:
    assert recorded.traces.appending([draft(context)]) is None
    assert recorded.traces.copying(b"head" + draft(context).properties) == []


def test_runs_of_plain_messages_are_not_looked_at(recorded: Recorded) -> None:
    batch = DraftBatch("orders", 0, 0, [b"body"], [draft(traceparent(1)).properties], 0)
    assert recorded.traces.appending(DraftRuns([batch])) is None


def test_a_batch_of_many_contexts_gets_a_bounded_number_of_spans(recorded: Recorded) -> None:
    spans = recorded.traces.appending([draft(traceparent(number)) for number in range(1, 1_025)])
    assert spans is not None
    spans.end()
    assert recorded.parents == list(range(1, 33))


def test_a_batch_that_is_refused_ends_its_spans_as_failed(recorded: Recorded) -> None:
    spans = recorded.traces.appending([draft(traceparent(1))])
    assert spans is not None
    with pytest.raises(NotReady), spans:
        raise NotReady("a/0", "it recovers")

    [span] = recorded.spans
    assert not span.status.is_ok
    assert (span.attributes or {})["error.type"] == "NotReady"


def test_a_slave_s_span_ends_when_its_bytes_are_synced(recorded: Recorded) -> None:
    copied = CopySpans(recorded.traces)
    copied.master_ended_at(PhysicalOffset(1_000))
    first, second = (b"record" + draft(traceparent(number)).properties for number in (1, 2))
    copied.arrived(PhysicalOffset(1_000), first)
    copied.arrived(PhysicalOffset(1_000 + len(first)), second)
    end = PhysicalOffset(1_000 + len(first))

    copied.flushed(end)
    assert not recorded.spans, "it is not written yet"
    copied.written(end)
    copied.flushed(end)
    assert recorded.parents == [1]

    copied.dropped()
    assert [span.status.is_ok for span in recorded.spans] == [True, False]


def test_a_slave_keeps_a_bounded_number_of_open_spans(recorded: Recorded) -> None:
    copied = CopySpans(recorded.traces)
    copied.master_ended_at(PhysicalOffset(0))
    copied.arrived(PhysicalOffset(0), draft(traceparent(1)).properties)
    for at in range(1, 100):
        copied.arrived(PhysicalOffset(at), b"".join(draft(traceparent(number)).properties for number in range(1, 33)))
    copied.dropped()
    assert recorded.started == len(recorded.spans) == 1_024


def test_a_slave_makes_no_span_of_what_was_there_before_its_stream(recorded: Recorded) -> None:
    old, new = (draft(traceparent(number)).properties for number in (1, 2))
    copied = CopySpans(recorded.traces)
    for stream in range(2):
        start, end = PhysicalOffset(stream * 10_000), PhysicalOffset(stream * 10_000 + len(old))
        copied.arrived(start, old)  # before the master has named its end
        copied.master_ended_at(end)
        copied.master_ended_at(PhysicalOffset(end + 5_000))
        copied.arrived(start, old)
        copied.arrived(start, old + new)
        copied.dropped()
    assert recorded.parents == [2, 2]


def test_a_published_message_carries_the_span_s_context(recorded: Recorded) -> None:
    with recorded.traces.publishing() as span:
        carried = span.carry(Message("orders", b"paid", properties={"app": "shop"}))
    [ended] = recorded.spans
    context = ended.get_span_context()
    assert context is not None
    assert carried.properties["app"] == "shop"
    assert carried.properties[TRACEPARENT].startswith(f"00-{context.trace_id:032x}-{context.span_id:016x}-")
    assert ended.name == "publish orders"


def test_a_message_that_brings_a_context_keeps_it_and_is_linked_to(recorded: Recorded) -> None:
    message = Message("orders", b"paid", properties={TRACEPARENT: traceparent(9)})
    with recorded.traces.publishing() as span:
        assert span.carry(message) == message
    [ended] = recorded.spans
    assert [link.context.span_id for link in ended.links] == [9]


@pytest.mark.parametrize("delay_ms", [0, 5_000])
def test_a_message_that_fits_its_limits_fits_with_its_context_too(recorded: Recorded, delay_ms: int) -> None:
    def fits(message: Message) -> bool:
        try:
            checked_size(message)
        except MessageTooLarge:
            return False
        plain = draft()._replace(properties=encode_properties(message.keys, message.tag, message.properties))
        return not delay_ms or len(waiting(plain, delay_ms, 0, 0).properties) <= MAX_WAITING_PROPERTIES_BYTES

    sizes = range(MAX_PROPERTIES_BYTES - 2_000, MAX_PROPERTIES_BYTES, 20)
    messages = [Message("orders", b"", keys=("ö",), properties={"k": "v" * size}, delay_ms=delay_ms) for size in sizes]
    with recorded.traces.publishing() as span:
        carried = [span.carry(message) for message in messages if fits(message)]
    assert all(map(fits, carried))
    assert len(carried) < len(messages), "the limit is among them"
    assert TRACEPARENT in carried[0].properties


def test_a_message_that_is_not_sampled_is_published_as_it_is() -> None:
    message = Message("orders", b"paid")
    with Traces(TracerProvider(sampler=ALWAYS_OFF)).publishing() as span:
        assert span.carry(message) is message


def test_messages_of_several_topics_are_published_under_no_topic_s_name(recorded: Recorded) -> None:
    with recorded.traces.publishing() as span:
        for topic in ("orders", "bills"):
            span.carry(Message(topic, b"paid"))
    [ended] = recorded.spans
    assert ended.name == "publish"
    assert (ended.attributes or {})["messaging.batch.message_count"] == 2
