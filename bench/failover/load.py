"""Producers that publish all the time: what each was told, and the longest time for which one had no receipt."""

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from dittomq.client import AckLevelNotReached, AsyncClient, DittoError, Message, NotStored, OutcomeHandle, OutcomeUnknown, Producer, Receipt
from tests.support.event_log import Told
from tests.support.traffic import note

PRODUCERS = 8
BATCH = 32
BODY_BYTES = 1024
_SETTLES_S = 60.0
_LOOK_EVERY_S = 0.02

_numbers = itertools.count()


class ProducerLoad:
    """Eight producers of batches of 32. `told` is of all messages, `failures` counts what producers saw instead of receipts, by kind."""

    def __init__(self, mq: AsyncClient, topic: str) -> None:
        self.told = Told(elects=True)
        self.failures: Counter[str] = Counter()
        self.pause_s = 0.0
        self.acknowledged = 0
        self._mq = mq
        self._topic = topic
        self._newest = [0.0] * PRODUCERS  # when each had its newest receipt
        self._unknown: dict[bytes, tuple[Producer, OutcomeHandle, int]] = {}
        self._is_over = asyncio.Event()

    @asynccontextmanager
    async def running(self) -> AsyncIterator["ProducerLoad"]:
        """They publish while the block runs; then each message's outcome becomes known."""
        async with AsyncExitStack() as open_ones:
            producers = [await open_ones.enter_async_context(self._mq.producer(retry_s=30.0)) for _ in range(PRODUCERS)]
            async with asyncio.TaskGroup() as tasks:
                for number, producer in enumerate(producers):
                    tasks.create_task(self._publish(producer, number))
                try:
                    yield self
                finally:
                    self._is_over.set()
            await self._settle()

    async def passed(self, moment: float, within_s: float = 60.0) -> None:
        """Return when every producer had a receipt after that moment of `time.monotonic`. Raises TimeoutError."""
        async with asyncio.timeout(within_s):
            while min(self._newest) <= moment:  # noqa: ASYNC110  # what it waits for are the producers
                await asyncio.sleep(_LOOK_EVERY_S)

    async def _publish(self, producer: Producer, number: int) -> None:
        stream = next(self.told.moments)
        while not self._is_over.is_set():
            messages = [Message(self._topic, b"%d:" % next(_numbers) + b"." * (BODY_BYTES - 12)) for _ in range(BATCH)]
            sent = next(self.told.moments)
            outcomes = await producer.publish_many(messages, on_failure="return")
            now, had = time.monotonic(), False
            for message, outcome in zip(messages, outcomes, strict=True):
                had = self._note(producer, message.body, outcome, stream, sent=sent) or had
            if had:
                if self._newest[number]:
                    self.pause_s = max(self.pause_s, now - self._newest[number])
                self._newest[number] = now

    def _note(self, producer: Producer, body: bytes, outcome: Receipt | DittoError, stream: int, *, sent: int) -> bool:
        """Whether it is a receipt."""
        note(self.told, body, outcome, stream=stream, sent=sent, at_once=False)
        if isinstance(outcome, Receipt):
            self.acknowledged += 1
            return True
        cause = outcome.cause if isinstance(outcome, NotStored) else outcome
        self.failures[f"{type(outcome).__name__}: {cause}" if isinstance(outcome, NotStored) else type(outcome).__name__] += 1
        if isinstance(outcome, OutcomeUnknown):
            self._unknown[body] = producer, outcome.handle, stream
        return False

    async def _settle(self) -> None:
        """Ask what became of each message of unknown outcome until all is known."""
        async with asyncio.timeout(_SETTLES_S):
            while self._unknown:
                for body, (producer, handle, stream) in list(self._unknown.items()):
                    await self._resolve(body, producer, handle, stream)
                await asyncio.sleep(_LOOK_EVERY_S)

    async def _resolve(self, body: bytes, producer: Producer, handle: OutcomeHandle, stream: int) -> None:
        outcome: Receipt | DittoError
        try:
            outcome = await producer.resolve(handle)
        except OutcomeUnknown:
            return
        except (NotStored, AckLevelNotReached) as told:
            outcome = told
        del self._unknown[body]
        note(self.told, body, outcome, stream=stream, sent=next(self.told.moments), at_once=False)
