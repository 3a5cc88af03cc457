"""The outbox against a model broker that stores what is next, with streams that break, answers that are lost, and batches that arrive
after their stream has ended for the producer."""

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dittomq.client.accumulator import AccumulatorOptions, RecordAccumulator
from dittomq.client.accumulator_events import (
    Abandoned,
    Appended,
    BatchRefused,
    BatchStored,
    EndStream,
    Event,
    Reroute,
    ResolveNotStored,
    ResolveStored,
    ResolveUnknown,
    SendBatch,
    StreamEnded,
    StreamOpened,
    Ticked,
    TurnEnded,
)
from dittomq.client.batches import PendingSend, ProducerBatch
from dittomq.commitlog.queues.producer_state import Producers
from dittomq.errors import InvalidField, NotReady, Refused, TopicNotFound, Unavailable
from dittomq.message import Message
from tests.support.frame_receipts import receipt_for

BROKEN = Unavailable("a/0", "it broke")


class Sent(NamedTuple):
    """A batch as it was sent: what it says of its tries may be another thing when it is sent again."""

    batch: ProducerBatch
    since: int | None


class ModelBroker:
    """Stores a batch when its sequence is next, answers what it has, refuses gaps and what it does not remember."""

    def __init__(self) -> None:
        self.log: list[bytes] = []
        self.table = Producers()

    def take(self, sent: Sent, refusal: Refused | None, culprit: int | None = None) -> Event:
        batch = sent.batch
        messages, _ = batch.content()
        known = self.table.known(batch.producer_id, batch.first_sequence, len(messages), sent.since)
        if isinstance(known, list) and known:
            assert len(known) == len(messages), "a frame was cut differently when it was sent again"
            return BatchStored(batch.batch_id, receipt_for(batch))
        refusal = refusal or (known if isinstance(known, Refused) else None)
        if refusal is not None:
            return BatchRefused(batch.batch_id, refusal, None if culprit is None else culprit % len(messages))
        positions = range(len(self.log), len(self.log) + len(messages))
        self.log += [message.body for message in messages]
        self.table.record(batch.producer_id, batch.first_sequence, positions, 0)
        return BatchStored(batch.batch_id, receipt_for(batch))

    def forget(self) -> None:
        """Every producer, as others push them out."""
        self.table.mark_unsure(len(self.log))


@dataclass
class Wire:
    """One stream: batches on their way out, answers on their way back."""

    out: deque[Sent] = field(default_factory=deque)
    back: deque[Event] = field(default_factory=deque)


class Run:
    """Drives an outbox through the choices of one example."""

    def __init__(self, linger_s: float = 0.0) -> None:
        self.outbox = RecordAccumulator("a", "p", AccumulatorOptions(timeout_s=3, retry_s=10, grace_s=2, linger_s=linger_s, max_batches=3))
        self.broker = ModelBroker()
        self.now = 0.0
        self.stream: Wire | None = None
        self.ended: list[Wire] = []  # old streams whose batches may still arrive
        self.offered = 0
        self.stored: list[bytes] = []
        self.absent: list[bytes] = []
        self.unknown: list[bytes] = []

    def feed(self, event: Event) -> None:
        for command in self.outbox.handle(event, self.now):
            match command:
                case SendBatch(batch):
                    assert self.stream is not None
                    self.stream.out.append(Sent(batch, batch.sent_since))
                case EndStream(problem):
                    self.break_stream(problem)
                case ResolveStored(send, receipt, places):
                    assert [receipt.receipt(place).queue for place in places] == list(send.queues)
                    self.stored += self.settled(send)
                case ResolveNotStored(send):
                    self.absent += self.settled(send)
                case ResolveUnknown(send):
                    self.unknown += self.settled(send)
                case Reroute(send, None):
                    self.feed(Appended([send]))
                case Reroute(send):
                    self.absent += self.settled(send)

    def settled(self, send: PendingSend) -> list[bytes]:
        """Bodies of what is settled together; what was refused by name before is surely not stored."""
        self.absent += [message.body for message, _ in (send.refused or {}).values()]
        return [message.body for message in send.messages]

    def offer(self, count: int, *, bound: bool) -> None:
        messages = [Message("t", b"%d" % (self.offered + at)) for at in range(count)]
        self.offered += count
        queues = [(at if bound else self.offered) % 2 for at in range(count)]
        plain = not bound and self.offered % 3 > 0
        self.feed(Appended([PendingSend(messages, queues, count * 400_000, bound, plain, self.now, self.now + 13)]))

    def open(self) -> None:
        if self.stream is None and self.outbox.wants_stream:
            self.stream = Wire()
            self.feed(StreamOpened(len(self.broker.log)))

    def fail_to_open(self) -> None:
        if self.stream is None and self.outbox.wants_stream:
            self.feed(StreamEnded(BROKEN))

    def break_stream(self, problem: Exception = BROKEN) -> None:
        if self.stream is not None:
            self.ended.append(self.stream)
            self.stream = None
            self.feed(StreamEnded(problem))  # type: ignore[arg-type]

    def deliver(self, refusal: Refused | None, culprit: int | None = None) -> None:
        if self.stream is not None and self.stream.out:
            self.stream.back.append(self.broker.take(self.stream.out.popleft(), refusal, culprit))

    def deliver_late(self, which: int) -> None:
        late = [wire for wire in self.ended if wire.out]
        if late:
            self.broker.take(late[which % len(late)].out.popleft(), None)

    def forget(self) -> None:
        self.broker.forget()

    def answer(self, which: int) -> None:
        if self.stream is not None and self.stream.back:
            at = which % len(self.stream.back)
            event = self.stream.back[at]
            del self.stream.back[at]
            self.feed(event)

    def end_turn(self) -> None:
        self.feed(TurnEnded())

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.feed(Ticked())


REFUSALS = st.sampled_from([None, None, None, NotReady("a/0", "it drains"), TopicNotFound("t", "a"), InvalidField("keys", "bad")])
STEPS = st.one_of(
    st.tuples(st.just("offer"), st.integers(1, 4), st.booleans()),
    st.tuples(st.just("deliver"), REFUSALS, st.one_of(st.none(), st.integers(0, 3))),
    st.tuples(st.just("answer"), st.integers(0, 3)),
    st.tuples(st.just("end_turn")),
    st.tuples(st.just("open")),
    st.tuples(st.just("forget")),
    st.tuples(st.just("break_stream")),
    st.tuples(st.just("fail_to_open")),
    st.tuples(st.just("deliver_late"), st.integers(0, 3)),
    st.tuples(st.just("wait"), st.sampled_from([0.5, 4.0, 12.0])),
)


def play(run: Run, steps: list[tuple[object, ...]]) -> None:
    for name, *arguments in steps:
        match name:
            case "offer":
                run.offer(arguments[0], bound=arguments[1])  # type: ignore[arg-type]
            case "deliver":
                run.deliver(*arguments)  # type: ignore[arg-type]
            case "answer":
                run.answer(arguments[0])  # type: ignore[arg-type]
            case "deliver_late":
                run.deliver_late(arguments[0])  # type: ignore[arg-type]
            case "wait":
                run.wait(arguments[0])  # type: ignore[arg-type]
            case _:
                getattr(run, str(name))()


@settings(max_examples=400, deadline=None)
@given(st.lists(STEPS, max_size=60))
def test_what_the_producer_is_told_is_true_and_nothing_is_stored_twice(steps: list[tuple[object, ...]]) -> None:
    run = Run()

    play(run, steps)
    run.feed(Abandoned())
    for wire in [*run.ended, *([run.stream] if run.stream else [])]:
        for sent in wire.out:
            run.broker.take(sent, None)

    assert len(set(run.broker.log)) == len(run.broker.log)
    assert set(run.stored) <= set(run.broker.log)
    assert not set(run.absent) & set(run.broker.log)
    assert sorted(run.stored + run.absent + run.unknown) == sorted(b"%d" % at for at in range(run.offered))


@settings(max_examples=200, deadline=None)
@given(st.lists(STEPS, max_size=60))
def test_once_the_broker_answers_again_everything_is_settled(steps: list[tuple[object, ...]]) -> None:
    run = Run()

    play(run, steps)
    for _ in range(200):
        run.open()
        run.deliver(None)
        run.answer(0)
        run.wait(0.1)

    assert not run.outbox.wants_stream
    assert len(run.stored) + len(run.absent) + len(run.unknown) == run.offered


@settings(max_examples=200, deadline=None)
@given(st.lists(STEPS, max_size=60))
def test_once_a_tick_was_handled_when_it_was_due_the_next_one_is_due_later(steps: list[tuple[object, ...]]) -> None:
    run = Run(linger_s=1.0)

    for step in steps:
        play(run, [step])
        due = run.outbox.next_due()
        if due is not None:
            run.wait(max(0.0, due - run.now))
            later = run.outbox.next_due()
            assert later is None or later > run.now


@pytest.mark.parametrize(
    "steps",
    [
        [("offer", 1, True), ("open",), ("wait", 1.0), ("offer", 1, True)],  # one batch in flight
        [("offer", 1, True)],  # no stream
    ],
)
def test_a_batch_that_has_lingered_and_cannot_leave_wakes_nobody_until_it_fails(steps: list[tuple[object, ...]]) -> None:
    run = Run(linger_s=1.0)
    play(run, steps)
    offered = run.now

    due = run.outbox.next_due()

    assert due is not None
    assert due - offered > 4, "the answer or the batch's own end comes next"


def test_stored_message_of_a_forgotten_producer_is_never_stored_again() -> None:
    """It is unknown."""
    run = Run()

    play(run, [("offer", 1, False), ("open",), ("deliver", None), ("break_stream",), ("forget",), ("open",), ("deliver", None)])
    play(run, [("offer", 1, False), ("answer", 0), ("end_turn",), ("deliver", None), ("answer", 0)])

    assert run.broker.log == [b"0", b"1"]
    assert (run.unknown, run.stored) == ([b"0"], [b"1"])


def test_what_never_arrived_is_stored_though_others_were_forgotten_before() -> None:
    run = Run()
    run.broker.log.append(b"of another producer")
    run.broker.forget()

    play(run, [("offer", 1, False), ("open",), ("break_stream",), ("open",), ("deliver", None), ("answer", 0)])

    assert run.stored == [b"0"]


def test_a_first_try_that_arrives_when_its_producer_is_forgotten_stores_nothing() -> None:
    run = Run()

    play(run, [("offer", 1, False), ("open",), ("break_stream",), ("open",), ("deliver", None), ("answer", 0), ("forget",)])
    play(run, [("deliver_late", 0)])

    assert run.stored == run.broker.log == [b"0"]


def test_a_producer_that_was_forgotten_while_it_was_idle_goes_on_under_another_id() -> None:
    run = Run()

    play(run, [("offer", 1, False), ("open",), ("deliver", None), ("answer", 0), ("end_turn",), ("forget",)])
    play(run, [("offer", 1, False), ("end_turn",), ("deliver", None), ("answer", 0), ("end_turn",), ("deliver", None), ("answer", 0)])

    assert run.stored == run.broker.log == [b"0", b"1"]


def test_refused_message_fails_alone_and_the_rest_keep_their_order() -> None:
    """They stay in front of what came later."""
    run = Run()

    play(
        run,
        [
            ("offer", 4, True),
            ("offer", 2, True),
            ("open",),
            ("deliver", InvalidField("keys", "bad"), 2),  # by queue: 0 2 1 3
            ("deliver", None),
            ("answer", 0),
            ("answer", 0),
            ("end_turn",),
            ("deliver", None),
            ("answer", 0),
            ("end_turn",),
            ("deliver", None),
            ("answer", 0),
        ],
    )

    assert run.absent == [b"1"]
    assert run.stored == [b"0", b"2", b"3", b"4", b"5"]
    assert run.broker.log == [b"0", b"2", b"3", b"4", b"5"]


def test_sends_that_are_offered_in_one_turn_leave_in_one_batch() -> None:
    run = Run()
    play(run, [("offer", 1, False), ("open",), ("deliver", None), ("answer", 0)])
    assert run.stream is not None

    play(run, [("offer", 1, False), ("offer", 1, False), ("end_turn",)])

    assert [len(sent.batch.content()[0]) for sent in run.stream.out] == [2]


def test_an_answer_lets_the_next_batch_go_and_not_before_the_turn_has_ended() -> None:
    run = Run()
    play(run, [("offer", 1, False), ("open",), ("offer", 1, False), ("end_turn",), ("deliver", None), ("answer", 0)])
    assert run.stream is not None
    assert not run.stream.out

    play(run, [("offer", 1, False), ("end_turn",)])

    assert [len(sent.batch.content()[0]) for sent in run.stream.out] == [2]


def test_late_batch_behind_a_refused_one_is_not_stored_twice() -> None:
    run = Run()
    gone = TopicNotFound("t", "a")

    play(
        run,
        [
            ("offer", 3, True),
            ("offer", 3, True),
            ("open",),
            ("deliver", gone),
            ("answer", 0),  # the first batch is refused, the second one is still on its way
            ("break_stream",),
            ("open",),
            ("deliver", None),  # the second batch again, under numbers of its own
            ("deliver_late", 0),
            ("answer", 0),
        ],
    )

    assert run.absent == [b"0", b"1", b"2"]
    assert run.stored == [b"3", b"4", b"5"]
    assert run.broker.log == [b"3", b"5", b"4"]  # by queue
