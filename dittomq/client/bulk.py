"""Publishing of many messages: pieces of a batch's size, one wait for each piece, receipts made when somebody looks at them."""

import asyncio
from array import array
from bisect import bisect_right
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, overload

from dittomq.client.batches import FULL_BATCH_BYTES
from dittomq.client.partitioner import Partitioner, SendTarget
from dittomq.client.send_results import Failure, NotStoredResult, Outcome, PartlyRefused, Stored, Unknown
from dittomq.client.validation import MESSAGE_OVERHEAD_BYTES, checked_size, is_plain
from dittomq.doors.traces import PublishSpan
from dittomq.errors import AckLevelNotReached, DittoError, NotStored, QueueNotFound
from dittomq.message import MAX_BATCH_MESSAGES, Message, PutStatus, Receipt
from dittomq.routes import Route

_POSITION_BITS = 10  # MAX_BATCH_MESSAGES positions
_REFUSAL_AGE_S = 1.0


class BatchPublisher(Protocol):
    """What a bulk needs of its producer."""

    @property
    def chooser(self) -> Partitioner:
        """Takes turns for all of the producer's messages."""
        ...

    async def route(self, topic: str) -> Route:
        """The topic's route."""
        ...

    async def submit(
        self, target: SendTarget, messages: Sequence[Message], queues: Sequence[int], size: int, *, plain: bool
    ) -> "asyncio.Future[Outcome]":
        """Hand a send over, waiting for room."""
        ...

    async def await_outcome(self, future: "asyncio.Future[Outcome]") -> Outcome:
        """The outcome of a send."""
        ...

    def give_up(self, piece: "asyncio.Future[Outcome] | Outcome") -> None:
        """Nobody waits for the outcome of a send any more."""
        ...


class PublishTally(NamedTuple):
    """How many messages ended how; `weak` are stored too, and counted there alone."""

    stored: int
    weak: int
    not_stored: int
    unknown: int


class Whereabouts:
    """Piece and position of each message; messages that stand behind each other in their pieces too are kept as one run."""

    def __init__(self) -> None:
        self._count = 0
        self._next = -1  # the place of a message that goes on with the last run
        self._starts = array("q")  # the index of each run's first message
        self._positions = array("q")  # and its piece and position

    def __len__(self) -> int:
        return self._count

    def record(self, piece: int, position: int) -> None:
        """The next message is there."""
        place = piece << _POSITION_BITS | position
        if place != self._next:
            self._starts.append(self._count)
            self._positions.append(place)
            self._next = place
        self.go_on(1)

    def go_on(self, count: int) -> None:
        """So many more stand behind the last one."""
        self._count += count
        self._next += count

    def of(self, index: int) -> tuple[int, int]:
        """Piece and position; raises IndexError."""
        if not 0 <= index < self._count:
            raise IndexError(index)
        run = bisect_right(self._starts, index) - 1
        return divmod(self._positions[run] + index - self._starts[run], 1 << _POSITION_BITS)

    def of_pieces(self, pieces: Container[int]) -> Iterator[int]:
        """The messages of these pieces, by index, in order."""
        for start, end, place in zip(self._starts, [*self._starts[1:], self._count], self._positions, strict=True):
            yield from (index for index in range(start, end) if place + index - start >> _POSITION_BITS in pieces)


class Outcomes(Sequence[Receipt | Failure]):
    """One entry for each message, in order: its receipt, or the failure in its place. An entry is made when it is looked at."""

    def __init__(self, pieces: Sequence[Outcome], where: Whereabouts, *, weak_fails: bool) -> None:
        self._pieces = pieces
        self._where = where
        self._weak_fails = weak_fails

    def __len__(self) -> int:
        return len(self._where)

    @overload
    def __getitem__(self, index: int) -> Receipt | Failure: ...
    @overload
    def __getitem__(self, index: slice) -> list[Receipt | Failure]: ...
    def __getitem__(self, index: int | slice) -> Receipt | Failure | list[Receipt | Failure]:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        if index < 0:
            index += len(self)
        number, position = self._where.of(index)
        entry = self._pieces[number].item(position, index)
        if isinstance(entry, Receipt) and entry.status is not PutStatus.PUT_OK and self._weak_fails:
            return AckLevelNotReached(entry)
        return entry

    def tally(self) -> PublishTally:
        """Count without making a single entry."""
        stored = weak = not_stored = unknown = 0
        for piece in self._pieces:
            if isinstance(piece, PartlyRefused):
                not_stored += len(piece.refused)
            match piece.rest if isinstance(piece, PartlyRefused) else piece:
                case Stored(_, places) as together if together.weak:
                    weak += len(places)
                case Stored(_, places):
                    stored += len(places)
                case NotStoredResult(topics):
                    not_stored += len(topics)
                case Unknown(topics=topics):
                    unknown += len(topics)
        return PublishTally(stored, weak, not_stored, unknown)

    def raise_first_failure(self) -> None:
        """Raise the failure with the lowest index, if there is one."""
        failed = frozenset(number for number, piece in enumerate(self._pieces) if is_failure(piece, weak_fails=self._weak_fails))
        if not failed:
            return
        for index in self._where.of_pieces(failed):
            failure = self[index]
            if not isinstance(failure, Receipt):
                failure.add_note(f"message {index:,} of {len(self):,} that were read; all together: {self.tally()}")
                raise failure


def is_failure(outcome: Outcome, *, weak_fails: bool) -> bool:
    """The caller should hear of it as an error."""
    return not isinstance(outcome, Stored) or (outcome.weak and weak_fails)


def _is_free(message: Message) -> bool:
    """Nothing binds it to a group or a queue."""
    return message.queue is None and not message.order_key


@dataclass(slots=True)
class _GrowingSend:
    """A send that grows. `queues` of messages that are bound; all others are of one topic, for the queue of its `target`.

    `plain`: none has more than its body.
    """

    number: int
    target: SendTarget
    plain: bool
    messages: list[Message] = field(default_factory=list)
    queues: list[int] = field(default_factory=list)
    size: int = 0

    def takes(self, message: Message) -> bool:
        """Take one that goes where the others go, as most do; False when it needs a closer look."""
        messages, body = self.messages, message.body
        if self.target.bound or message.topic != messages[0].topic or message.queue is not None or message.order_key:
            return False
        plain = is_plain(message) and type(body) is bytes
        try:
            size = len(body) + MESSAGE_OVERHEAD_BYTES if plain else checked_size(message)
        except DittoError:
            return False
        if not self.has_room(size):
            return False
        messages.append(message)
        self.size += size
        self.plain = plain and self.plain
        return True

    def has_room(self, size: int) -> bool:
        return len(self.messages) < MAX_BATCH_MESSAGES and self.size + size <= FULL_BATCH_BYTES


class BulkPublish:
    """Messages of one call. Not for use by two tasks at once."""

    def __init__(self, publisher: BatchPublisher, *, weak_fails: bool, stop_at_failure: bool, span: PublishSpan | None = None) -> None:
        self._span = span
        self._publisher = publisher
        self._weak_fails = weak_fails
        self._stop_at_failure = stop_at_failure
        self._stopped = False
        self._pieces: list[asyncio.Future[Outcome] | Outcome | None] = []  # None: still open. Small: one for some 1,024 messages
        self._where = Whereabouts()
        self._last: _GrowingSend | None = None  # where the last message went
        self._counted = 0  # how many of that piece are noted in `_where`
        self._open: dict[tuple[bool, str], _GrowingSend] = {}  # by group for messages that are bound, by topic for others
        self._routes: dict[str, Route] = {}  # as they were when the last piece left
        self._refusals: dict[str, tuple[DittoError, float]] = {}  # topics without a route, why, and until when that counts

    async def add(self, messages: Iterable[Message]) -> bool:
        """Publish these behind those before; False when a failure has ended the reading."""
        for message in messages if self._span is None else map(self._span.carry, messages):
            if self._stopped:
                return False
            if self._last is None or not self._last.takes(message):
                await self._assign(message)
        return not self._stopped

    async def _assign(self, message: Message) -> None:
        """Put it into its piece, or note why it is refused."""
        self._count_last()
        try:
            size = checked_size(message)
            route = self._routes.get(message.topic) or await self._route(message.topic)
            if isinstance(route, DittoError):
                self._refuse(message, route)
                return
            piece = await self._piece_for(route, message, size)
        except DittoError as error:
            if isinstance(error, QueueNotFound):
                self._routes.pop(message.topic, None)  # it may be added while no piece leaves
            self._refuse(message, error)
            return
        self._where.record(piece.number, len(piece.messages))
        piece.messages.append(message)
        piece.size += size
        piece.plain &= is_plain(message)
        self._last, self._counted = piece, len(piece.messages)

    def _count_last(self) -> None:
        """Those that went along since the last piece was noted."""
        if self._last is not None:
            self._where.go_on(len(self._last.messages) - self._counted)
            self._last = None

    async def finish(self) -> Outcomes:
        """Send what is left and wait for all."""
        self._count_last()
        while self._open:
            await self._send(next(iter(self._open)))
            if self._open:
                await asyncio.sleep(0)  # they may be many
        outcomes: list[Outcome] = []
        for piece in self._pieces:
            assert piece is not None  # all are sent
            outcomes.append(await self._publisher.await_outcome(piece) if isinstance(piece, asyncio.Future) else piece)
        found = Outcomes(outcomes, self._where, weak_fails=self._weak_fails)
        if self._span is not None:
            tally = found.tally()
            self._span.end(str(tally) if tally.not_stored or tally.unknown else None)
        return found

    def give_up(self) -> None:
        """The caller hears nothing of what it has added. What of that was handed over and is not stored, the producer tells at its end."""
        for piece in self._pieces:
            if piece is not None:
                self._publisher.give_up(piece)
        if self._span is not None:
            self._span.end("nobody waits for the outcomes")

    async def _route(self, topic: str) -> Route | DittoError:
        """The route, or why there is none: asked for once for all messages that come within a second."""
        now = asyncio.get_running_loop().time
        refusal, until = self._refusals.get(topic, (None, 0.0))
        if refusal is not None and now() < until:
            return refusal
        try:
            route = self._routes[topic] = await self._publisher.route(topic)
        except DittoError as error:
            refusal = error.cause if isinstance(error, NotStored) else error
            self._refusals[topic] = refusal, now() + _REFUSAL_AGE_S
            return refusal
        return route

    async def _piece_for(self, route: Route, message: Message, size: int) -> _GrowingSend:
        """The piece that takes the message; its queue is noted there."""
        free = _is_free(message)
        if free:
            key = (True, message.topic)
            piece = self._open.get(key)
            target = piece.target if piece is not None else self._publisher.chooser.target(route, message)
        else:
            target = self._publisher.chooser.target(route, message)
            key = (False, target.broker)
            piece = self._open.get(key)
        if piece is not None and not piece.has_room(size):
            await self._send(key)
            await asyncio.sleep(0)  # a long iterable must not keep the stream from running
            piece = None
            target = self._publisher.chooser.target(route, message) if free else target
        if piece is None:
            piece = self._open[key] = _GrowingSend(len(self._pieces), target, plain=free)
            self._pieces.append(None)
        if not free:
            piece.queues.append(target.queue)
        return piece

    async def _send(self, key: tuple[bool, str]) -> None:
        piece = self._open.pop(key)
        self._routes.clear()
        try:
            queues = piece.queues or [piece.target.queue] * len(piece.messages)
            future = await self._publisher.submit(piece.target, piece.messages, queues, piece.size, plain=piece.plain)
        except DittoError as error:
            self._pieces[piece.number] = NotStoredResult(tuple(message.topic for message in piece.messages), error)
            self._stopped = self._stop_at_failure
            return
        self._pieces[piece.number] = future
        if self._stop_at_failure:
            future.add_done_callback(self._on_outcome)

    def _on_outcome(self, future: "asyncio.Future[Outcome]") -> None:
        if not future.cancelled() and is_failure(future.result(), weak_fails=self._weak_fails):
            self._stopped = True

    def _refuse(self, message: Message, cause: DittoError) -> None:
        self._where.record(len(self._pieces), 0)
        self._pieces.append(NotStoredResult((message.topic,), cause))
        self._stopped = self._stop_at_failure
