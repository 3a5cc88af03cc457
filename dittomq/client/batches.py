"""Batches, which are settled as a whole, and frames, which travel as a whole."""

from bisect import insort
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import chain

from dittomq.errors import NotPermitted, QueueNotFound, Refused, TopicNotFound
from dittomq.message import MAX_BATCH_MESSAGES, Message, PlainSpan

FULL_BATCH_BYTES = 1024 * 1024
"""A frame takes no further batch beyond this; one large message makes a frame of its own."""


@dataclass(eq=False, slots=True)
class PendingSend:
    """Messages offered together, at most a full frame. `queues[i]` is the queue of `messages[i]`.

    `bound`: a queue or an order key ties some message to this group. Otherwise all are for one queue of one topic. `plain`: they are, and
    none has more than its body.
    `offered` and `deadline` are on the monotonic clock. `refused`: messages that are in the batch no more, by their place in it
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
    """Where a frame stands on the present stream."""

    TO_SEND = "to send"
    SENT = "sent"
    REFUSED = "refused"


@dataclass(eq=False, slots=True)
class ProducerBatch:
    """Batches under one run of sequences, in any order. Messages of one queue are neighbours: `place_of[i]` is the place of message i.

    `in_doubt`: a stream that carried it ended without an answer. `sent_since`: no try of it can lie below this position; None: no try yet.
    """

    frame_id: int
    producer_id: str
    first_sequence: int
    batches: list[PendingSend]
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
        """When the oldest batch must be told something."""
        return min(map(_deadline, self.batches))

    def parts(self) -> Iterator[tuple[PendingSend, Sequence[int]]]:
        """Each batch with the places of its messages."""
        start = 0
        for batch in self.batches:
            end = start + len(batch.messages)
            yield batch, self.place_of[start:end]
            start = end

    def numbered(self) -> Iterator[tuple[PendingSend, Sequence[int]]]:
        """Each batch with the sequences of its messages."""
        for batch, places in self.parts():
            yield batch, [self.first_sequence + place for place in places]

    def take_out(self, place: int, cause: Refused) -> None:
        """Take out of the batches what a refusal of the message at `place` holds for: itself, or all of its topic, or of its queue there.

        The frame is not sent again afterwards.
        """
        messages, queues = self.content()
        named, queue = messages[place], queues[place]
        whole_topic, whole_queue = isinstance(cause, TopicNotFound | NotPermitted), isinstance(cause, QueueNotFound)
        for batch in self.batches:
            taken = [
                at
                for at, message in enumerate(batch.messages)
                if message is named or (message.topic == named.topic and (whole_topic or (whole_queue and batch.queues[at] == queue)))
            ]
            if taken:
                batch.take_out(taken, cause)

    def plain_runs(self) -> list[PlainSpan] | None:
        """What it holds, in the order of places, when no message has more than its body; None otherwise."""
        if not all(batch.plain for batch in self.batches):
            return None
        runs: list[PlainSpan] = []
        for batch in self.batches:
            topic, queue = _key(batch)
            bodies = [message.body for message in batch.messages]
            if runs and runs[-1][:2] == (topic, queue):
                runs[-1].bodies.extend(bodies)
            else:
                runs.append(PlainSpan(topic, queue, "", bodies))
        return runs

    def content(self) -> tuple[list[Message], list[int]]:
        """Messages and their queues in the order of their places."""
        messages = list(chain.from_iterable(batch.messages for batch in self.batches))
        queues = list(chain.from_iterable(batch.queues for batch in self.batches))
        if isinstance(self.place_of, range):
            return messages, queues
        at_place = [0] * len(messages)
        for at, place in enumerate(self.place_of):
            at_place[place] = at
        return [messages[at] for at in at_place], [queues[at] for at in at_place]


class SendQueue:
    """Batches that wait, the oldest deadline first. The producer bounds their bytes."""

    def __init__(self) -> None:
        self._batches: deque[PendingSend] = deque()
        self._messages = 0
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._batches)

    @property
    def first(self) -> PendingSend:
        return self._batches[0]

    @property
    def full(self) -> bool:
        """Enough for a full frame."""
        return self._messages >= MAX_BATCH_MESSAGES or self._bytes >= FULL_BATCH_BYTES

    def add(self, batch: PendingSend) -> None:
        """Wait behind those that are due earlier."""
        self._count(batch, 1)
        if self._batches and batch.deadline < self._batches[-1].deadline:
            insort(self._batches, batch, key=_deadline)
        else:
            self._batches.append(batch)

    def put_back(self, batches: Sequence[PendingSend]) -> None:
        """Wait again, in front of all others. In whatever order they come, those for one queue are in the order in which they waited."""
        for batch in sorted(batches, key=_deadline)[::-1]:
            self._count(batch, 1)
            self._batches.appendleft(batch)

    def take(self) -> PendingSend:
        """Remove the first."""
        batch = self._batches.popleft()
        self._count(batch, -1)
        return batch

    def take_free(self) -> list[PendingSend]:
        """Remove all that are bound to no group."""
        free = [batch for batch in self._batches if not batch.bound]
        if free:
            self._batches = deque(batch for batch in self._batches if batch.bound)
        for batch in free:
            self._count(batch, -1)
        return free

    def take_frame(self) -> list[PendingSend]:
        """Remove the first batches that fit into a frame, at least one."""
        batches = [self.take()]
        count, size = len(batches[0].messages), batches[0].size
        while self._batches:
            count, size = count + len(self.first.messages), size + self.first.size
            if count > MAX_BATCH_MESSAGES or size > FULL_BATCH_BYTES:
                break
            batches.append(self.take())
        return batches

    def _count(self, batch: PendingSend, sign: int) -> None:
        self._messages += sign * len(batch.messages)
        self._bytes += sign * batch.size


def make_batch(frame_id: int, producer_id: str, first_sequence: int, batches: list[PendingSend]) -> ProducerBatch:
    """A frame of these batches."""
    if any(batch.bound for batch in batches):
        return ProducerBatch(frame_id, producer_id, first_sequence, batches, _places(batches))
    count = sum(len(batch.messages) for batch in batches)
    return ProducerBatch(frame_id, producer_id, first_sequence, sorted(batches, key=_key), range(count))


def _deadline(batch: PendingSend) -> float:
    return batch.deadline


def _key(batch: PendingSend) -> tuple[str, int]:
    """Topic and queue of all messages of a batch that is bound to no group."""
    return batch.messages[0].topic, batch.queues[0]


def _places(batches: list[PendingSend]) -> Sequence[int]:
    """Group by topic and queue, in the order in which they came within each."""
    keys = [(message.topic, queue) for batch in batches for message, queue in zip(batch.messages, batch.queues, strict=True)]
    if keys.count(keys[0]) == len(keys):
        return range(len(keys))
    places = [0] * len(keys)
    for place, at in enumerate(sorted(range(len(keys)), key=keys.__getitem__)):
        places[at] = place
    return places
