"""What clients do in a run: publish, ask what became of unknown ones, read; and write down what they were told."""

import asyncio
import contextlib
import itertools
import random
from collections.abc import Callable, Collection, Sequence
from contextlib import AsyncExitStack
from typing import Any, Protocol

from dittomq.broker.doors import BrokerDoors
from dittomq.client import AsyncClient, GroupResult, NotStored, OutcomeUnknown, Page, Producer, Reader
from dittomq.errors import (
    CorruptRecord,
    DittoError,
    OffsetOutOfRange,
    OutcomeHandle,
    OutOfOrderSequence,
    QueueNotFound,
    TopicExists,
    TopicNotFound,
    UnknownProducerId,
)
from dittomq.message import Ack, Message, Receipt
from tests.simulation.history import Filtered, History, Publish, Read
from tests.simulation.shapes import Shape, name_of

TOPICS = ("orders", "bills")
REMADE = "notes"  # of runs in which somebody deletes it and makes it again
QUEUES = 2
TAGS = ("", "red", "blue")

_LEVELS = (Ack.REPLICA_FLUSHED, Ack.REPLICA_FLUSHED, Ack.REPLICA_FLUSHED, Ack.REPLICA_RECEIVED, Ack.MASTER_FLUSHED, Ack.MASTER_RECEIVED)
_ASKS_FOR_NODES = 0.05
_FIRST_MESSAGES = 60
_MESSAGES_A_SECOND = 4
_MOST_MESSAGES = 300


class Phases:
    """Where the run is. `calm`: faults are over, clients settle what is unknown and end. `told`: a client got a receipt."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self.calm = asyncio.Event()
        self.told = asyncio.Event()


class Ears(Protocol):
    """Who hears what clients are told, the moment they are told."""

    def receipt(self, publish: Publish) -> None: ...

    def expired(self, sent_again: OutcomeHandle) -> None: ...

    def page(self, reads: Sequence[Read], page: Page, asked: int) -> None: ...

    def listed(self, asked_at: float, nodes: Collection[str]) -> None: ...


class Publisher:
    """One publishing client; its messages are numbered through all its lives."""

    def __init__(self, name: str, history: History, phases: Phases, chance: random.Random, *, ears: Ears, shape: Shape) -> None:
        self.name = name
        self.settled = asyncio.Event()
        self._nameservers = shape.nameservers
        self._publishing = shape.publishing
        self._retries_s = (15.0,) if shape.sends_in_pieces else (0.3, 4.0)  # longer than an election: frames are sent again as they were
        self._topics = topics_of(shape)
        self._history = history
        self._phases = phases
        self._chance = chance
        self._ears = ears
        self._number = 0
        self._unknown: list[tuple[Producer, Publish, OutcomeUnknown, Message]] = []

    async def serve(self, doors: BrokerDoors, _: asyncio.Event) -> None:
        """Publish until the run is calm, then settle."""
        self._unknown.clear()
        async with (
            AsyncClient(self._nameservers, transport=doors.transport, clock=doors.clock, chance=doors.chance) as mq,
            AsyncExitStack() as stack,
        ):
            retry_s = self._chance.choice(self._retries_s)  # the shorter, the more outcomes are unknown
            producers = [
                await stack.enter_async_context(mq.producer(ack=level, timeout_s=2.0, retry_s=retry_s, on_weak="return"))
                for level in _LEVELS
            ]
            await self._create_topics(mq)
            while not self._phases.calm.is_set():
                producer = self._chance.choice(producers)
                if self._unknown and self._chance.random() < 0.3:
                    await self._settle_first()
                elif self.wants_more:
                    await self._publish(producer)
                await asyncio.sleep(self._chance.choice((0.0, 0.01, 0.3, 1.5)))
            await self._settle_all(producers[0])
        self.settled.set()

    @property
    def wants_more(self) -> bool:
        """Whether it has something to publish."""
        return self._number < self._allowed()

    def _allowed(self) -> float:
        """How many messages it may have sent by now: what a run costs goes with them, and faults are to meet writes to the last."""
        return min(_MOST_MESSAGES, _FIRST_MESSAGES + _MESSAGES_A_SECOND * self._phases.now())

    async def _create_topics(self, mq: AsyncClient) -> None:
        for topic in TOPICS:
            created = False
            while not created:
                self._history.topics[topic] = self._phases.now()
                with contextlib.suppress(DittoError):
                    created = await _make_topic(mq, topic)
                if not created:
                    await asyncio.sleep(self._chance.uniform(0.05, 1.0))

    async def _publish(self, producer: Producer) -> None:
        topic = self._chance.choice(self._topics)
        count = self._chance.choice(self._publishing.frames)
        alike = self._labels() if self._chance.random() < 0.5 else None  # neighbours that have all in common are kept as one run
        messages = [self._message(topic, *(alike or self._labels())) for _ in range(count)]
        first = self._number - count + 1
        tried = [self._try(message, first + at) for at, message in enumerate(messages)]
        self._history.publishes += tried
        outcomes = await producer.publish_many(messages, on_failure="return")
        unknown = []
        for publish, message, outcome in zip(tried, messages, outcomes, strict=True):
            match outcome:
                case Receipt():
                    self._told(publish, outcome)
                case NotStored():
                    publish.not_stored()
                case OutcomeUnknown():
                    publish.late = True
                    unknown.append((producer, publish, outcome, message))
                case _:
                    raise AssertionError(f"publishing is not answered with {outcome!r}")
        self._unknown += sorted(unknown, key=lambda one: one[2].handle.sequence)  # a broker refuses to skip one

    async def _settle_first(self) -> bool:
        """Ask what became of the oldest unknown message, or send it again; whether it is known now, or never will be.

        Behind a message that was acknowledged weakly and then lost, a broker refuses for good what follows it, and its client cannot tell
        whether an earlier try is still on its way: that one stays unknown, which is the truth. So does one whose sequence the broker no
        longer remembers.
        """
        producer, publish, unknown, message = self._unknown[0]
        asks = self._chance.random() < 0.5
        try:
            receipt = await (producer.resolve(unknown.handle) if asks else producer.send_again(unknown.handle, message))
        except OutcomeUnknown as still:
            if isinstance(still.__cause__, UnknownProducerId):
                self._ears.expired(unknown.handle)
            if not (self._phases.calm.is_set() and isinstance(still.__cause__, OutOfOrderSequence | UnknownProducerId)):
                return False
        except NotStored:
            publish.not_stored()
        else:
            self._told(publish, receipt)
        self._unknown.pop(0)
        return True

    async def _settle_all(self, producer: Producer) -> None:
        """After the faults: nothing stays unknown, and a message is stored as safely as asked."""
        while self._unknown:
            if not await self._settle_first():
                await asyncio.sleep(1.0)
        while True:
            self._number += 1
            message = Message(TOPICS[0], f"{self.name}.{self._number}. probe".encode(), 0)
            publish = self._try(message, self._number)
            self._history.publishes.append(publish)
            try:
                self._told(publish, await producer.publish_message(message))
            except NotStored:
                publish.not_stored()
            except OutcomeUnknown as unknown:
                publish.late = True
                self._unknown.append((producer, publish, unknown, message))
                await self._settle_all(producer)
                return
            if publish.receipt is not None and Ack.REPLICA_FLUSHED in publish.receipt.levels_reached:
                return
            await asyncio.sleep(1.0)

    def _told(self, publish: Publish, receipt: Receipt) -> None:
        publish.stored(receipt, self._phases.now())
        self._ears.receipt(publish)
        self._phases.told.set()

    def _try(self, message: Message, number: int) -> Publish:
        labels = (message.tag, message.keys)
        return Publish(self._phases.now(), self.name, number, message.topic, message.body, ordered=message.queue is not None, labels=labels)

    def _labels(self) -> tuple[int | None, str]:
        """Queue and tag."""
        return self._chance.choice((None, 0, 1)), self._chance.choice(TAGS) if self._publishing.is_tagged else ""

    def _message(self, topic: str, queue: int | None, tag: str) -> Message:
        self._number += 1
        head = f"{self.name}.{self._number}.".encode()
        padding = self._chance.choice(self._publishing.paddings)
        is_keyed = self._publishing.is_tagged and self._chance.random() < 0.3
        keys = (f"{self.name}-{self._number}", f"k{self._number % 7}") if is_keyed else ()
        return Message(topic, head + self._chance.randbytes(padding), queue, keys=keys, tag=tag)


class Subscriber:
    """One reading client: reads queues forward, from any copy or from one, and now and then from some offset again."""

    def __init__(self, name: str, history: History, phases: Phases, chance: random.Random, *, ears: Ears, shape: Shape) -> None:
        self.name = name
        self._nodes = tuple(map(name_of, shape.brokers))
        self._nameservers = shape.nameservers
        self._topics = topics_of(shape)
        self._tags = TAGS if shape.publishing.is_tagged else ("",)
        self._history = history
        self._phases = phases
        self._chance = chance
        self._ears = ears

    async def serve(self, doors: BrokerDoors, _: asyncio.Event) -> None:
        """Read until the run is calm."""
        positions: dict[tuple[str, int], int] = {}
        async with AsyncClient(self._nameservers, transport=doors.transport, clock=doors.clock, chance=doors.chance) as mq:
            while not self._phases.calm.is_set():
                pause_s = await self._read(mq, positions)
                await asyncio.sleep(pause_s)

    async def _read(self, mq: AsyncClient, positions: dict[tuple[str, int], int]) -> float:
        """Read one page from where one of the queues was left; seconds until the next."""
        topic, queue, tag = self._chance.choice(self._topics), self._chance.randrange(QUEUES), self._chance.choice(self._tags)
        node = self._chance.choice((None, *self._nodes))
        offset = positions.get((topic, queue), 0)
        if self._chance.random() < 0.1:
            offset = self._chance.randint(0, offset)
        asked_at = self._phases.now()
        if self._chance.random() < _ASKS_FOR_NODES:
            with contextlib.suppress(DittoError):
                self._ears.listed(asked_at, [node.name for node in await mq.admin.list_brokers()])
            return 0.2
        try:
            page = await mq.reader(topic, queue, broker="a", node=node, tag=tag).pull(offset, wait_s=self._chance.choice((0.0, 2.0)))
        except DittoError as problem:
            if isinstance(problem, OffsetOutOfRange) and offset < problem.start:
                positions[topic, queue] = problem.start  # what was there is dropped by now
            return 0.5
        reads = reads_of(page, asked_at)
        self._history.reads += reads
        if tag:
            self._history.filtered.append(filtered(page, topic, queue, tag, asked=offset))
            return 0.2
        self._ears.page(reads, page, offset)
        positions[topic, queue] = page.next_offset if page.messages else min(offset, page.max_offset)
        return self._chance.choice((0.01, 0.2, 1.0))


def reads_of(page: Page, asked_at: float) -> list[Read]:
    """What a page told its reader."""
    undone_from = page.unconfirmed_from
    return [
        Read(
            at=asked_at,
            node=page.node,
            topic=message.topic,
            queue=message.queue,
            queue_offset=message.queue_offset,
            physical_offset=message.physical_offset,
            record_bytes=message.record_bytes,
            body=message.body,
            may_be_undone=undone_from is not None and message.queue_offset >= undone_from,
            labels=(message.tag, message.keys),
        )
        for message in page.messages
    ]


def filtered(page: Page, topic: str, queue: int, tag: str, *, asked: int) -> Filtered:
    """What of a queue such a page tells for good."""
    end = page.next_offset if page.unconfirmed_from is None else min(page.next_offset, page.unconfirmed_from)
    offsets = frozenset(message.queue_offset for message in page.messages)
    return Filtered(page.node, topic, queue, tag, range(max(asked, page.min_offset), end), offsets)


def topics_of(shape: Shape) -> tuple[str, ...]:
    """To which clients publish."""
    return (*TOPICS, REMADE) if shape.publishing.remakes else TOPICS


async def make_topics(mq: AsyncClient, topics: Sequence[str] = TOPICS) -> bool:
    """Those that are not there; whether all are now."""
    are_made = []
    for topic in topics:
        with contextlib.suppress(DittoError):
            are_made.append(await _make_topic(mq, topic))
    return len(are_made) == len(topics) and all(are_made)


async def _make_topic(mq: AsyncClient, topic: str) -> bool:
    """Whether it is there. One that has come back from the log alone has the queues that hold something, and is given the others."""
    made: Sequence[GroupResult[Any]] = await mq.admin.create_topic(topic, QUEUES)
    if any(isinstance(result.error, TopicExists) for result in made):
        made = await mq.admin.update_topic(topic, read_queues=QUEUES, write_queues=QUEUES)
    return bool(made) and all(result.error is None for result in made)


async def read_everything(mq: AsyncClient, node: str, topics: Sequence[str] = TOPICS, *, missing_queues: bool = False) -> list[Read]:
    """All messages of all queues as one node serves them, up to one that it cannot.

    `missing_queues`: a topic may have come back from the log alone, with the queues that hold something.
    """
    reads: list[Read] = []
    for topic, queue in itertools.product(topics, range(QUEUES)):
        may_fail: tuple[type[DittoError], ...] = (CorruptRecord, QueueNotFound) if missing_queues else (CorruptRecord,)
        may_fail = (*may_fail, QueueNotFound, TopicNotFound) if topic == REMADE else may_fail
        reader = mq.reader(topic, queue, broker="a", node=node, max_messages=500)
        offset = 0
        with contextlib.suppress(*may_fail):
            while (page := await _page(reader, offset)).messages:
                reads += reads_of(page, 0.0)
                offset = page.next_offset
    return reads


async def _page(reader: Reader, offset: int) -> Page:
    """The first page from an offset on, of what is not dropped."""
    while True:
        try:
            return await reader.pull(offset)
        except OffsetOutOfRange as dropped:
            if offset >= dropped.start:
                raise
            offset = dropped.start
