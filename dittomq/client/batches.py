"""Sends, which are settled as a whole, and batches, which travel as a whole."""

from bisect import insort
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import chain

from dittomq.errors import PermissionDenied, QueueNotFound, Refused, TopicNotFound
from dittomq.message import MAX_BATCH_MESSAGES, Message, PlainSpan

FULL_BATCH_BYTES = 1024 * 1024
"""A batch takes no further send beyond this; one large message makes a batch of its own."""


@dataclass(eq=False, slots=True)
class PendingSend:
    """Messages offered together, at most a full batch. `queues[i]` is the queue of `messages[i]`.

    `bound`: a queue or an order key ties some message to this group. Otherwise all are for one queue of one topic. `plain`: they are, and
    none has more than its body.
    `offered` and `deadline` are on the monotonic clock. `refused`: messages that are in the send no more, by their place in it
    when it was offered, and why; None: none.
    """

    messages: Sequence[Message]
    queues: Sequence[int]
    size: int
    bound: bool
    plain: bool
    offered: float
    deadline: float
    refused: dict[int, tuple[Message, Refused]] | None = None

    def take_out(self, taken: Sequence[int], cause: Refused) -> None:
        """The messages at these indexes were refused for good; the others keep their order and are settled together."""
        refused = self.refused or {}
        left = [place for place in range(len(self.messages) + len(refused)) if place not in refused]
        self.refused = refused | {left[at]: (self.messages[at], cause) for at in taken}
        kept = [at for at in range(len(self.messages)) if at not in set(taken)]
        self.messages, self.queues = [self.messages[at] for at in kept], [self.queues[at] for at in kept]


class BatchState(Enum):
    """Where a batch stands on the present stream."""

    TO_SEND = "to send"
    SENT = "sent"
    REFUSED = "refused"


@dataclass(eq=False, slots=True)
class ProducerBatch:
    """Sends under one run of sequences, in any order. Messages of one queue are neighbours: `place_of[i]` is the place of message i.

    `in_doubt`: a stream that carried it ended without an answer. `sent_since`: no try of it can lie below this position; None: no try yet.
    """

    batch_id: int
    producer_id: str
    first_sequence: int
    sends: list[PendingSend]
    place_of: Sequence[int]
    state: BatchState = BatchState.TO_SEND
    in_doubt: bool = False
    sent_since: int | None = None
    answer_due: float = 0.0

    @property
    def end_sequence(self) -> int:
        """One past its last sequence."""
        return self.first_sequence + len(self.place_of)

    @property
    def deadline(self) -> float:
        """When the oldest send must be told something."""
        return min(map(_deadline, self.sends))

    def parts(self) -> Iterator[tuple[PendingSend, Sequence[int]]]:
        """Each send with the places of its messages."""
        start = 0
        for send in self.sends:
            end = start + len(send.messages)
            yield send, self.place_of[start:end]
            start = end

    def numbered(self) -> Iterator[tuple[PendingSend, Sequence[int]]]:
        """Each send with the sequences of its messages."""
        for send, places in self.parts():
            yield send, [self.first_sequence + place for place in places]

    def take_out(self, place: int, cause: Refused) -> None:
        """Take out of the sends what a refusal of the message at `place` holds for: itself, or all of its topic, or of its queue there.

        The batch is not sent again afterwards.
        """
        messages, queues = self.content()
        named, queue = messages[place], queues[place]
        whole_topic, whole_queue = isinstance(cause, TopicNotFound | PermissionDenied), isinstance(cause, QueueNotFound)
        for send in self.sends:
            taken = [
                at
                for at, message in enumerate(send.messages)
                if message is named or (message.topic == named.topic and (whole_topic or (whole_queue and send.queues[at] == queue)))
            ]
            if taken:
                send.take_out(taken, cause)

    def plain_runs(self) -> list[PlainSpan] | None:
        """What it holds, in the order of places, when no message has more than its body; None otherwise."""
        if not all(send.plain for send in self.sends):
            return None
        runs: list[PlainSpan] = []
        for send in self.sends:
            topic, queue = _key(send)
            bodies = [message.body for message in send.messages]
            if runs and runs[-1][:2] == (topic, queue):
                runs[-1].bodies.extend(bodies)
            else:
                runs.append(PlainSpan(topic, queue, "", bodies))
        return runs

    def content(self) -> tuple[list[Message], list[int]]:
        """Messages and their queues in the order of their places."""
        messages = list(chain.from_iterable(send.messages for send in self.sends))
        queues = list(chain.from_iterable(send.queues for send in self.sends))
        if isinstance(self.place_of, range):
            return messages, queues
        at_place = [0] * len(messages)
        for at, place in enumerate(self.place_of):
            at_place[place] = at
        return [messages[at] for at in at_place], [queues[at] for at in at_place]


class SendQueue:
    """Sends that wait, the oldest deadline first. The producer bounds their bytes."""

    def __init__(self) -> None:
        self._sends: deque[PendingSend] = deque()
        self._messages = 0
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._sends)

    @property
    def first(self) -> PendingSend:
        return self._sends[0]

    @property
    def full(self) -> bool:
        """Enough for a full batch."""
        return self._messages >= MAX_BATCH_MESSAGES or self._bytes >= FULL_BATCH_BYTES

    def add(self, send: PendingSend) -> None:
        """Wait behind those that are due earlier."""
        self._count(send, 1)
        if self._sends and send.deadline < self._sends[-1].deadline:
            insort(self._sends, send, key=_deadline)
        else:
            self._sends.append(send)

    def put_back(self, sends: Sequence[PendingSend]) -> None:
        """Wait again, in front of all others. In whatever order they come, those for one queue are in the order in which they waited."""
        for send in sorted(sends, key=_deadline)[::-1]:
            self._count(send, 1)
            self._sends.appendleft(send)

    def take(self) -> PendingSend:
        """Remove the first."""
        send = self._sends.popleft()
        self._count(send, -1)
        return send

    def take_free(self) -> list[PendingSend]:
        """Remove all that are bound to no group."""
        free = [send for send in self._sends if not send.bound]
        if free:
            self._sends = deque(send for send in self._sends if send.bound)
        for send in free:
            self._count(send, -1)
        return free

    def take_batch(self) -> list[PendingSend]:
        """Remove the first sends that fit into a batch, at least one."""
        waiting, sends, count, size = self._sends, list[PendingSend](), 0, 0
        while waiting:
            send = waiting[0]
            more, larger = count + len(send.messages), size + send.size
            if sends and (more > MAX_BATCH_MESSAGES or larger > FULL_BATCH_BYTES):
                break
            count, size = more, larger
            sends.append(waiting.popleft())
        self._messages -= count
        self._bytes -= size
        return sends

    def _count(self, send: PendingSend, sign: int) -> None:
        self._messages += sign * len(send.messages)
        self._bytes += sign * send.size


def make_batch(batch_id: int, producer_id: str, first_sequence: int, sends: list[PendingSend]) -> ProducerBatch:
    """A batch of these sends."""
    if any(send.bound for send in sends):
        return ProducerBatch(batch_id, producer_id, first_sequence, sends, _places(sends))
    count = sum(len(send.messages) for send in sends)
    return ProducerBatch(batch_id, producer_id, first_sequence, sorted(sends, key=_key), range(count))


def _deadline(send: PendingSend) -> float:
    return send.deadline


def _key(send: PendingSend) -> tuple[str, int]:
    """Topic and queue of all messages of a send that is bound to no group."""
    return send.messages[0].topic, send.queues[0]


def _places(sends: list[PendingSend]) -> Sequence[int]:
    """Group by topic and queue, in the order in which they came within each."""
    keys = [(message.topic, queue) for send in sends for message, queue in zip(send.messages, send.queues, strict=True)]
    if keys.count(keys[0]) == len(keys):
        return range(len(keys))
    places = [0] * len(keys)
    for place, at in enumerate(sorted(range(len(keys)), key=keys.__getitem__)):
        places[at] = place
    return places
