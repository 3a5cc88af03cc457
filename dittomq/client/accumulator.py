"""① What one producer has in hand for one broker group, and what to do next. Pure: the driver owns the stream and the clock.

A producer numbers its messages: sequences are dense, in the order of sending, under one producer id per session. A broker stores
what is next, answers what it has already with the original receipt, and refuses whatever skips a number. From that follows:

- A refused batch is surely not stored and its sequences are free again. The batches behind it come back with a gap. So after a
  refusal nothing new is sent until all batches of the stream are answered; what survived is then sent again under the next numbers.
- A batch whose stream ended without its answer is *in doubt*: stored or not. It is sent again unchanged, before anything else: the
  broker stores it now or answers with the first receipt. It never gets another number, and it never goes to another group.
- Every batch says how long the log was, at least, when it was first sent: so a broker that has forgotten its producer since does not take
  it for a new one, and one that has forgotten nobody since does.
- A refusal of a batch in doubt speaks of that try only. When the refusal may pass, the batch is tried again unchanged. When it will
  not pass, the batch stays in doubt for good, and its messages are reported as unknown.
- Batches in doubt are the oldest: numbers are given in the order of sending, and behind a batch that was refused without doubt nothing
  of the same stream can have been stored. When the stream ends before those behind it are answered, they may still be on their way, and
  would fit as soon as somebody filled the hole. So nobody does: the session is sealed, and they are sent in the next one.
- Once a batch is reported as unknown, its numbers are neither free nor taken, so nothing can follow them: the session ends, and a new
  one begins at 0. The old producer id is used for asking and for sending that very message again, nothing else.
- A gap without a refusal before it, or an expired producer, means that the broker has lost what it had stored (acknowledged at a weak
  level). The session ends too; what was never in doubt is sent in the new one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import assert_never

from dittomq.client.accumulator_events import (
    Abandoned,
    Appended,
    BatchRefused,
    BatchStored,
    Command,
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
from dittomq.client.batches import BatchState, PendingSend, ProducerBatch, SendQueue, make_batch
from dittomq.errors import (
    DittoError,
    LimitReached,
    NotEnoughReplicas,
    NotMaster,
    NotReady,
    OutOfOrderSequence,
    Refused,
    Unavailable,
    UnknownProducerId,
)
from dittomq.receipts import BatchReceipt

MAY_PASS = (NotMaster, NotReady, NotEnoughReplicas, LimitReached)
"""Refusals that are worth another try within a message's time."""


@dataclass(frozen=True, slots=True)
class AccumulatorOptions:
    """`timeout_s`: how long the broker may wait for the level. `retry_s`: how long a message is tried beyond that.

    `grace_s`: how much longer than `timeout_s` an answer may take before the stream counts as dead.
    """

    timeout_s: float = 3.0
    retry_s: float = 10.0
    grace_s: float = 2.0
    linger_s: float = 0.0
    max_batches: int = 4


class _StreamState(Enum):
    CLOSED = "closed"  # none, or one being opened
    OPEN = "open"
    DRAINING = "draining"  # a batch was refused: nothing is sent until all are answered
    ENDING = "ending"  # told to end, not over yet


@dataclass(slots=True)
class _Session:
    """Numbers given under one producer id. `settled` is one past the last number that is stored or in doubt."""

    base_id: str
    generation: int = 0
    resolved: int = 0
    next: int = 0
    sealed: bool = False  # takes no new batches; ends when those in doubt are settled

    @property
    def producer_id(self) -> str:
        return f"{self.base_id}-{self.generation}"

    def renew(self) -> None:
        self.generation, self.resolved, self.next, self.sealed = self.generation + 1, 0, 0, False


class RecordAccumulator:
    """Sends in, batches out. One lives as long as its producer."""

    def __init__(self, broker: str, base_id: str, options: AccumulatorOptions) -> None:
        self._broker = broker
        self._options = options
        self._session = _Session(base_id)
        self._stream = _StreamState.CLOSED
        self._log_end = 0  # the log of the stream's master has at least this end
        self._waiting = SendQueue()
        self._batches: list[ProducerBatch] = []  # in the order of their sequences; those in doubt first
        self._batch_count = 0
        self._spoiled: DittoError | None = None  # why the session must end once the stream is drained
        self._gap: OutOfOrderSequence | None = None  # some batch of this stream was refused for a gap
        self._caused = False  # some batch of this stream was refused for another reason, which explains gaps
        self._passing_refusal: DittoError | None = None  # a refusal that may pass
        self._problem: DittoError | None = None  # the last thing that went wrong; None after a batch was stored
        self._down_since: float | None = None  # first failure since the last stored batch
        self._failed_at = 0.0
        self._slot_freed = False  # an answer came since the last new batch
        self._commands: list[Command] = []

    @property
    def wants_stream(self) -> bool:
        """There is something to send."""
        return bool(self._waiting or self._batches)

    @property
    def wants_turn(self) -> bool:
        """A batch may leave when `TurnEnded` says that nobody else is about to join it; asked after an offer or an answer."""
        return bool(self._waiting) and self._has_slot()

    @property
    def unanswered(self) -> set[str]:
        """Producer ids of the batches that the present stream carried and has not answered."""
        return {batch.producer_id for batch in self._batches if batch.state is BatchState.SENT}

    def waits_s(self, now: float) -> float:
        """For so long the present stream has owed an answer; 0 where it owes none."""
        due = min((batch.answer_due for batch in self._batches if batch.state is BatchState.SENT), default=None)
        return 0.0 if due is None else now - (due - self._options.timeout_s - self._options.grace_s)

    def topics(self, batch_id: int) -> set[str]:
        """Those of the messages in the batch, while it is not settled."""
        batch = self._batch(batch_id)
        return {message.topic for send in batch.sends for message in send.messages} if batch is not None else set()

    def next_due(self) -> float | None:
        """When `Ticked` is due, on the monotonic clock; None: not at all. Once it was handled at that time, a later one is due."""
        due: list[float] = []
        if self._stream in (_StreamState.OPEN, _StreamState.DRAINING):
            due += [batch.answer_due for batch in self._batches if batch.state is BatchState.SENT]
        elif self._stream is _StreamState.CLOSED:
            due += [batch.deadline for batch in self._batches]
        if self._waiting:
            due.append(self._send_by(self._waiting.first))
            if self._lingers() and self._has_slot():
                due.append(self._waiting.first.offered + self._options.linger_s)
        return min(due, default=None)

    def handle(self, event: Event, now: float) -> list[Command]:
        """Take one fact; return what to do, in order."""
        match event:
            case Appended(sends):
                self._offered(sends, now)
            case StreamOpened(log_end):
                self._stream, self._log_end = _StreamState.OPEN, log_end
            case BatchStored(batch_id, receipt):
                self._stored(batch_id, receipt)
            case BatchRefused(batch_id, error, index):
                self._refused(batch_id, error, index)
            case StreamEnded(problem):
                self._ended(problem, now)
            case Ticked():
                self._expire(now)
            case TurnEnded():
                pass
            case Abandoned():
                self._abandon()
            case _:
                assert_never(event)
        if self._stream is _StreamState.DRAINING and all(batch.state is not BatchState.SENT for batch in self._batches):
            self._regroup()
        if self._stream is _StreamState.OPEN:
            self._slot_freed |= isinstance(event, BatchStored | BatchRefused)
            self._send(now, turn_ended=not isinstance(event, Appended | BatchStored | BatchRefused))
        commands, self._commands = self._commands, []
        return commands

    def _offered(self, sends: Sequence[PendingSend], now: float) -> None:
        if self._down_since is not None and now - self._failed_at > self._options.retry_s:
            self._down_since = None  # long ago: these get their full time
        for send in sends:
            self._waiting.add(send)

    def _stored(self, batch_id: int, receipt: BatchReceipt) -> None:
        batch = self._batch(batch_id)
        if batch is None:
            return
        if len(receipt) != len(batch.place_of):
            problem = f"sent receipts for {len(receipt)} of {len(batch.place_of)} messages"
            self._end_stream(Unavailable(f"the master of {self._broker}", problem))
            return
        self._batches.remove(batch)
        self._session.resolved = max(self._session.resolved, batch.end_sequence)
        self._problem = self._down_since = None
        self._commands += [ResolveStored(send, receipt, places) for send, places in batch.parts()]

    def _refused(self, batch_id: int, error: Refused, index: int | None) -> None:
        batch = self._batch(batch_id)
        if batch is None or batch.state is not BatchState.SENT:
            return
        batch.state = BatchState.REFUSED
        if self._stream is _StreamState.OPEN:
            self._stream = _StreamState.DRAINING
        match error:
            case OutOfOrderSequence():
                self._gap = error
            case UnknownProducerId():
                self._spoiled = error
                self._log_end = max(self._log_end, error.log_end)
            case NotMaster() | NotReady() | NotEnoughReplicas() | LimitReached():
                self._caused, self._passing_refusal = True, error
            case _ if batch.in_doubt:
                self._caused, self._spoiled = True, error
            case _:
                self._caused = True
                self._drop(batch, error, index)

    def _drop(self, batch: ProducerBatch, cause: Refused, index: int | None) -> None:
        """Fail what the refusal names: some messages, or the batch."""
        failed = batch.sends
        if index is not None and index < len(batch.place_of):
            batch.take_out(index, cause)
            failed = [send for send in batch.sends if not send.messages]
        self._commands += [ResolveNotStored(send, cause) for send in failed]
        batch.sends = [send for send in batch.sends if send not in failed]

    def _regroup(self) -> None:
        """All batches of the stream are answered: take back what was refused, and go on or pause."""
        self._take_back([batch for batch in self._batches if not batch.in_doubt])
        for batch in self._batches:
            batch.state = BatchState.TO_SEND
        if self._gap is not None and not self._caused:
            self._spoiled = self._gap
        pause = self._passing_refusal
        self._clear_refusals()
        self._stream = _StreamState.OPEN
        if pause is not None:
            self._problem = pause
            self._end_stream(pause)

    def _clear_refusals(self) -> None:
        """The next stream, or the next round of this one, begins with a clean slate."""
        if self._spoiled is not None:
            self._end_session(self._spoiled)
        self._gap, self._caused, self._passing_refusal = None, False, None

    def _take_back(self, batches: list[ProducerBatch]) -> None:
        """These are surely not stored: their messages wait again, first in line, and their numbers are free."""
        for batch in reversed(batches):
            self._waiting.put_back(batch.sends)
            self._batches.remove(batch)
        self._session.next = self._session.resolved

    def _end_session(self, problem: DittoError) -> None:
        for batch in self._batches:
            for send, sequences in batch.numbered():
                self._commands.append(ResolveUnknown(send, batch.producer_id, sequences, problem))
        self._batches.clear()
        self._session.renew()
        self._spoiled = None

    def _ended(self, problem: DittoError, now: float) -> None:
        self._stream = _StreamState.CLOSED
        self._problem = problem
        self._failed_at = now
        if self._down_since is None:
            self._down_since = now
        self._judge_unanswered()
        self._take_back([batch for batch in self._batches if not batch.in_doubt])
        self._clear_refusals()
        self._expire(now)
        lasts = now - self._down_since >= self._options.retry_s
        self._commands += [Reroute(send, problem if lasts else None) for send in self._waiting.take_free()]
        if lasts:
            self._fail_waiting(now, all_of_them=True)

    def _abandon(self) -> None:
        problem = Unavailable(f"the master of {self._broker}", "the producer was closed before it answered")
        self._judge_unanswered()
        self._take_back([batch for batch in self._batches if not batch.in_doubt])
        self._end_session(problem)
        while self._waiting:
            self._commands.append(ResolveNotStored(self._waiting.take(), problem))

    def _judge_unanswered(self) -> None:
        """Without an answer a batch is in doubt, except behind one that was refused without doubt: there it would have been a gap."""
        hole = False
        for batch in self._batches:
            if batch.state is BatchState.SENT and not hole:
                batch.in_doubt = True
                self._session.resolved = max(self._session.resolved, batch.end_sequence)
            elif batch.state is BatchState.SENT:
                self._session.sealed = True
            elif batch.state is BatchState.REFUSED and not batch.in_doubt:
                hole = True
            batch.state = BatchState.TO_SEND

    def _expire(self, now: float) -> None:
        self._fail_waiting(now, all_of_them=False)
        if self._stream is _StreamState.CLOSED and any(batch.deadline <= now for batch in self._batches):
            self._end_session(self._problem or self._silence())
        sent = [batch for batch in self._batches if batch.state is BatchState.SENT]
        if self._stream in (_StreamState.OPEN, _StreamState.DRAINING) and any(batch.answer_due <= now for batch in sent):
            self._end_stream(self._silence())

    def _end_stream(self, problem: DittoError) -> None:
        self._stream = _StreamState.ENDING
        self._commands.append(EndStream(problem))

    def _fail_waiting(self, now: float, *, all_of_them: bool) -> None:
        while self._waiting and (all_of_them or self._send_by(self._waiting.first) <= now):
            self._commands.append(ResolveNotStored(self._waiting.take(), self._problem or self._unsent()))

    def _send(self, now: float, *, turn_ended: bool) -> None:
        for batch in self._batches:
            if batch.state is BatchState.TO_SEND:
                self._send_batch(batch, now)
        if self._session.sealed:
            if self._batches:
                return
            self._session.renew()
        while self._waiting and len(self._batches) < self._options.max_batches and self._may_leave(now, turn_ended=turn_ended):
            batch = make_batch(self._batch_count, self._session.producer_id, self._session.next, self._waiting.take_batch())
            self._batch_count += 1
            self._session.next = batch.end_sequence
            self._batches.append(batch)
            self._send_batch(batch, now)
            self._slot_freed = False
        self._slot_freed = self._slot_freed and not turn_ended

    def _may_leave(self, now: float, *, turn_ended: bool) -> bool:
        """A batch leaves when it is full, or, at the end of a turn, when none is in flight or an answer freed a slot; linger delays that.

        Callers who were answered together offer their next sends in one turn: these go in one batch, not the first of them alone.
        """
        if self._lingers() and self._waiting.first.offered + self._options.linger_s > now:
            return False
        return self._waiting.full or (turn_ended and self._has_slot())

    def _has_slot(self) -> bool:
        """A new batch may leave at the end of a turn, full or not. Without one it waits for an answer or a stream, whatever the time."""
        if self._stream is not _StreamState.OPEN or (self._batches and self._session.sealed):
            return False
        return not self._batches or (self._slot_freed and len(self._batches) < self._options.max_batches)

    def _lingers(self) -> bool:
        return self._options.linger_s > 0 and not self._waiting.full

    def _send_batch(self, batch: ProducerBatch, now: float) -> None:
        batch.state = BatchState.SENT
        batch.sent_since = self._log_end if batch.sent_since is None else min(batch.sent_since, self._log_end)
        batch.answer_due = now + self._options.timeout_s + self._options.grace_s
        self._commands.append(SendBatch(batch))

    def _send_by(self, send: PendingSend) -> float:
        """Sent later than this, a send could not be answered by its deadline."""
        return send.deadline - self._options.timeout_s

    def _batch(self, batch_id: int) -> ProducerBatch | None:
        return next((batch for batch in self._batches if batch.batch_id == batch_id), None)

    def _unsent(self) -> DittoError:
        """Why a send was never sent in its time, though nothing went wrong."""
        master, time = f"the master of {self._broker}", f"{self._options.retry_s:g} s"
        if self._stream is _StreamState.CLOSED:
            return Unavailable(master, f"no stream to it was opened within {time}, so nothing was sent")
        return LimitReached(f"its turn to be sent did not come in {time}: the stream to {master}", self._options.max_batches)

    def _silence(self) -> Unavailable:
        waited = self._options.timeout_s + self._options.grace_s
        return Unavailable(f"the master of {self._broker}", f"no answer within {waited:g} s")
