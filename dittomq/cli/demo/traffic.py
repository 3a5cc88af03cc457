"""What the demo sends and reads through the client."""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Self

from dittomq.cli.demo.flights import Flight
from dittomq.cli.demo.judge import DemoMessageId, MessageLocation, Unreceipted, body_of
from dittomq.cli.tally import Outcome, Tally
from dittomq.errors import AckLevelNotReached, DittoError, NotStored, OutcomeHandle, OutcomeUnknown
from dittomq.message import Message, Receipt, StoredMessage

if TYPE_CHECKING:  # the client brings gRPC, which `--help` must not wait for
    from dittomq.client import AsyncClient, Producer

TOPIC = "flights"
QUEUES = 8
_PAGE_MESSAGES = 4_096
_PAGE_BYTES = 4 * 1024 * 1024
_ASKING_AT_ONCE = 64
_READING_AT_ONCE = 2
_PULSE = "pulse"
_PULSE_EVERY_S = 0.01
_PULSE_RETRY_S = 30.0


@dataclass(slots=True)
class Sent:
    """One publish of the whole data set: the answer to each line, how to ask again where there was none, why lines were refused."""

    run: int
    outcomes: list[MessageLocation | Unreceipted] = field(default_factory=list)
    handles: dict[int, OutcomeHandle] = field(default_factory=dict)
    causes: list[DittoError] = field(default_factory=list)
    tally: Tally = field(default_factory=Tally)

    def record(self, line: int, outcome: Outcome) -> None:
        """Keep the answer to a line, the first one or in place of an earlier one."""
        while len(self.outcomes) <= line:
            self.outcomes.append(Unreceipted.NOT_STORED)
        receipt = outcome.receipt if isinstance(outcome, AckLevelNotReached) else outcome
        self.handles.pop(line, None)
        if isinstance(receipt, Receipt):
            self.outcomes[line] = MessageLocation(receipt.queue, receipt.queue_offset)
        elif isinstance(receipt, OutcomeUnknown):
            self.outcomes[line] = Unreceipted.UNKNOWN
            self.handles[line] = receipt.handle
        else:
            self.outcomes[line] = Unreceipted.NOT_STORED
            self.causes.append(receipt.cause if isinstance(receipt, NotStored) else receipt)

    def lines(self, outcome: Unreceipted) -> list[int]:
        """Lines of which that was told, in order."""
        return [line for line, told in enumerate(self.outcomes) if told is outcome]


async def publish(producer: "Producer", sent: Sent, flights: Sequence[Flight], at: Callable[[int], None] = lambda _line: None) -> None:
    """Send every flight in order; `at` is called with each line before it is handed over."""

    def messages() -> Iterator[Message]:
        for line, flight in enumerate(flights):
            at(line)
            yield message(DemoMessageId(sent.run, line), flight)

    outcomes = await producer.publish_many(messages(), on_failure="return")
    for line, outcome in enumerate(outcomes):
        sent.record(line, outcome)
        sent.tally.add(outcome)


async def resolve(producer: "Producer", sent: Sent) -> None:
    """Ask what became of every message of unknown outcome."""
    room = asyncio.Semaphore(_ASKING_AT_ONCE)

    async def ask(line: int, handle: OutcomeHandle) -> None:
        async with room:
            try:
                sent.record(line, await producer.resolve(handle))
            except (NotStored, OutcomeUnknown) as told:
                sent.record(line, told)

    async with asyncio.TaskGroup() as tasks:
        for line, handle in list(sent.handles.items()):
            tasks.create_task(ask(line, handle))


class Pulse:
    """Publishes one small message after the other to a topic of its own: how long is there no receipt at most? Use it by `async with`."""

    def __init__(self, mq: "AsyncClient") -> None:
        self._mq = mq
        self._task: asyncio.Task[None] | None = None
        self.longest_s = 0.0

    async def __aenter__(self) -> Self:
        await self._mq.admin.create_topic(_PULSE, 1)
        self._tasks = asyncio.TaskGroup()
        await self._tasks.__aenter__()
        self._task = self._tasks.create_task(self._beat())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._task is not None, "it was entered"
        self._task.cancel()
        await self._tasks.__aexit__(kind, error, trace)

    async def _beat(self) -> None:
        loop = asyncio.get_running_loop()
        async with self._mq.producer(retry_s=_PULSE_RETRY_S, on_weak="return") as producer:
            last = loop.time()
            while True:
                with contextlib.suppress(DittoError):
                    await producer.publish(_PULSE, b"beat")
                    now = loop.time()
                    self.longest_s, last = max(self.longest_s, now - last), now
                await asyncio.sleep(_PULSE_EVERY_S)


async def read_all(mq: "AsyncClient", node: str, on_message: Callable[[MessageLocation, bytes], None]) -> None:
    """Every message of the topic as that node has it, each queue in its order; the node looks for one page while another is heard."""
    room = asyncio.Semaphore(_READING_AT_ONCE)

    async def read(queue: int) -> None:
        async with room:
            reader = mq.reader(TOPIC, queue, node=node, max_messages=_PAGE_MESSAGES, max_bytes=_PAGE_BYTES)
            offset = 0
            while True:
                page = await reader.pull(offset)
                _report(page.messages, on_message)
                if page.next_offset >= page.max_offset:
                    break
                offset = page.next_offset

    async with asyncio.TaskGroup() as tasks:
        for queue in range(QUEUES):
            tasks.create_task(read(queue))


def message(identity: DemoMessageId, flight: Flight) -> Message:
    """The message of a flight: flights of one aircraft stay in order."""
    return Message(TOPIC, body_of(identity, flight.line), order_key=flight.tail_number)


def _report(messages: Iterable[StoredMessage], on_message: Callable[[MessageLocation, bytes], None]) -> None:
    for stored in messages:
        on_message(MessageLocation(stored.queue, stored.queue_offset), stored.body)
