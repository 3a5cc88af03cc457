"""What clients do in a run about consumer groups, and what they were told: members come, go, die and acknowledge late, others lease."""

import asyncio
import contextlib
import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.duration_pb2 import Duration

from dittomq._pb.ditto.messaging.v1 import consumer_leases_pb2 as pb
from dittomq.broker.doors import BrokerDoors
from dittomq.client import AsyncClient, CancelOutcome, ConsumedMessage, Consumer, Producer
from dittomq.consumer.assignment import Strategy
from dittomq.errors import DittoError
from dittomq.message import Ack, Message, Receipt, StoredMessage
from tests.simulation.shapes import Shape
from tests.simulation.workload import QUEUES, Phases
from tests.support.hand_held_member import asked

SESSIONS, LEASES = "billing", "lessees"
SHARED, LEASED = "orders", "bills"
MEMBERS = ("m0", "m1", "m2")
LESSEES = ("l0", "l1")
WRITER = "w0"
_DELAYS_S = (1.0, 5.0, 10.0, 2.3, 7.7, 17.5)
_LATE_S = 7.0  # longer than a member that gives a queue back waits
_LEASE_S = 2


@dataclass(frozen=True, slots=True)
class HandedOut:
    """A message that a member got, at some time; `retries`: so many tries came before."""

    at: float
    life: str
    queue: int
    offset: int
    body: bytes
    retries: int


@dataclass(slots=True)
class Waiting:
    """A message that waits for its time, or for the end of its transaction.

    `is_due`: it must come, False: it must not, None: nobody knows. `not_before_ms`: by the clock of whoever stored it.
    """

    body: bytes
    not_before_ms: float
    is_due: bool | None = None


@dataclass(slots=True)
class GroupHistory:
    """What clients were told. `acknowledged`: when a message was last dealt with, by its body. `resets`: of offsets to the earliest."""

    handed: list[HandedOut] = field(default_factory=list)
    acknowledged: dict[bytes, float] = field(default_factory=dict)
    waiting: list[Waiting] = field(default_factory=list)
    resets: list[float] = field(default_factory=list)
    sent: int = 0


class Writer:
    """Publishes to both topics: messages at once, delayed ones, some of which it cancels, and transactions."""

    def __init__(self, history: GroupHistory, phases: Phases, chance: random.Random, shape: Shape) -> None:
        self.settled = asyncio.Event()
        self._history = history
        self._phases = phases
        self._chance = chance
        self._nameservers = shape.nameservers

    async def serve(self, doors: BrokerDoors, _: asyncio.Event) -> None:
        """Publish until the run is calm."""
        async with (
            AsyncClient(self._nameservers, transport=doors.transport, clock=doors.clock, chance=doors.chance) as mq,
            mq.producer(ack=Ack.REPLICA_FLUSHED, timeout_s=2.0, retry_s=8.0, on_weak="return") as producer,
        ):
            while not self._phases.calm.is_set():
                with contextlib.suppress(DittoError):
                    await self._act(mq, producer)
                await asyncio.sleep(self._chance.choice((0.0, 0.1, 0.4, 0.9)))
        self.settled.set()

    async def _act(self, mq: AsyncClient, producer: Producer) -> None:
        drawn = self._chance.random()
        if drawn < 0.5:
            await producer.publish_many([self._message(SHARED) for _ in range(self._chance.choice((1, 1, 4)))], on_failure="return")
        elif drawn < 0.7:
            await producer.publish_many([self._message(LEASED)], on_failure="return")
        elif drawn < 0.9:
            await self._delay(mq, producer)
        else:
            await self._transact(producer)

    def _message(self, topic: str, delay_ms: int = 0) -> Message:
        self._history.sent += 1
        number = self._history.sent
        return Message(topic, b"%d" % number, number % QUEUES, delay_ms=delay_ms)

    async def _delay(self, mq: AsyncClient, producer: Producer) -> None:
        delay_s = self._chance.choice(_DELAYS_S)
        message = self._message(SHARED, int(delay_s * 1_000))
        waiting = Waiting(message.body, 0.0)
        self._history.waiting.append(waiting)
        [outcome] = await producer.publish_many([message], on_failure="return")
        if not isinstance(outcome, Receipt):
            return
        waiting.not_before_ms = outcome.store_ms + delay_s * 1_000
        is_safe = Ack.REPLICA_FLUSHED in outcome.levels_reached
        if self._chance.random() < 0.7:
            waiting.is_due = True if is_safe else None
            return
        await asyncio.sleep(self._chance.uniform(0.0, 2.0))
        cancelled = await mq.messages.cancel(outcome.token)
        waiting.is_due = {CancelOutcome.CANCELLED: False, CancelOutcome.ALREADY_DELIVERED: True}.get(cancelled)

    async def _transact(self, producer: Producer) -> None:
        message, commits = self._message(SHARED), self._chance.random() < 0.6
        waiting = Waiting(message.body, 0.0)
        self._history.waiting.append(waiting)
        transaction = await producer.transaction(message, "writers")
        await transaction.__aenter__()
        await asyncio.sleep(self._chance.choice((0.0, 0.5, 3.0)))
        for _ in range(4):
            with contextlib.suppress(DittoError):
                await (transaction.commit() if commits else transaction.rollback())
                waiting.is_due = commits
                return
            await asyncio.sleep(1.0)


class SessionMember:
    """A member with a session: mostly quick, sometimes late, and sometimes it lets a message be tried again."""

    def __init__(
        self, name: str, history: GroupHistory, phases: Phases, chance: random.Random, *, shape: Shape, strategy: Strategy
    ) -> None:
        self.name = name
        self.problems: list[DittoError] = []
        self._lives = 0
        self._history = history
        self._phases = phases
        self._chance = chance
        self._nameservers = shape.nameservers
        self._strategy = strategy

    async def serve(self, doors: BrokerDoors, stop: asyncio.Event) -> None:
        """Be a member until asked to stop, or until something is wrong that only a person can put right."""
        self._lives += 1
        life = f"{self.name}.{self._lives}"
        prefetch = self._chance.choice((1, 4, 256))
        async with (
            AsyncClient(self._nameservers, transport=doors.transport, clock=doors.clock, chance=doors.chance) as mq,
            mq.consumer(SESSIONS, [SHARED], member=self.name, strategy=self._strategy, prefetch=prefetch) as messages,
        ):
            tasks = [asyncio.create_task(self._read(life, messages)), asyncio.create_task(stop.wait())]
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()

    async def _read(self, life: str, messages: Consumer) -> None:
        try:
            async for message in messages:
                await self._handle(life, message)
        except DittoError as problem:
            self.problems.append(problem)

    async def _handle(self, life: str, message: ConsumedMessage) -> None:
        now = self._phases.now
        self._history.handed.append(HandedOut(now(), life, message.queue, message.queue_offset, message.body, message.retries))
        is_calm, drawn = self._phases.calm.is_set(), self._chance.random()
        if not is_calm:
            await asyncio.sleep(_LATE_S if drawn > 0.99 else self._chance.choice((0.0, 0.0, 0.05, 0.3)))
        if not is_calm and drawn < 0.06:
            with contextlib.suppress(DittoError):
                await message.retry(after_s=self._chance.choice((1, 5)))
            return
        await message.ack()
        self._history.acknowledged[message.body] = now()


class Lessee:
    """A caller without a session, at whichever node: some messages it forgets, so that their leases end."""

    def __init__(self, history: GroupHistory, phases: Phases, chance: random.Random, *, shape: Shape) -> None:
        self._history = history
        self._phases = phases
        self._chance = chance
        self._shape = shape

    async def serve(self, doors: BrokerDoors, stop: asyncio.Event) -> None:
        """Lease and acknowledge until asked to stop."""
        async with AsyncClient(self._shape.nameservers, transport=doors.transport, clock=doors.clock, chance=doors.chance) as mq:
            for name in itertools.cycle(self._shape.brokers):
                if stop.is_set():
                    return
                with contextlib.suppress(DittoError):
                    await self._lease(mq, f"{name}:10911")
                await asyncio.sleep(self._chance.choice((0.1, 0.3)))

    async def _lease(self, mq: AsyncClient, address: str) -> None:
        request = pb.ReceiveRequest(group=LEASES, topic=LEASED, max_messages=4, lease=Duration(seconds=_LEASE_S))
        for leased in list((await asked(mq, address, "Receive", request)).messages):
            if not self._phases.calm.is_set() and self._chance.random() < 0.2:
                continue
            answer: Any = await asked(mq, address, "Acknowledge", pb.AcknowledgeRequest(group=LEASES, lease_tokens=[leased.lease_token]))
            if answer.results[0].acknowledged:
                self._history.acknowledged[leased.message.body] = self._phases.now()


async def stored(mq: AsyncClient, node: str) -> dict[tuple[str, int], Sequence[StoredMessage]]:
    """All that a node serves of both topics, by topic and queue."""
    found: dict[tuple[str, int], Sequence[StoredMessage]] = {}
    for topic, queue in itertools.product((SHARED, LEASED), range(QUEUES)):
        messages: list[StoredMessage] = []
        reader, offset = mq.reader(topic, queue, broker="a", node=node, max_messages=500), 0
        while (page := await reader.pull(offset)).messages:
            messages += page.messages
            offset = page.next_offset
        found[topic, queue] = messages
    return found
