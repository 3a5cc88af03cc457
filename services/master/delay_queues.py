"""The queues in which messages wait, one for each delay: what of them is due, and when the next one will be.

A queue is in the order of its due times, because its delay is fixed and store times only grow. By the wall clock a message is due its
delay after it was stored. A clock that was set back holds none up for longer than twice its delay: so long after a master has seen it, it
is due by the time that has passed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dittomq.delays import TIMER_DELAYS_MS, due_in, system_producer
from dittomq.message import StoredMessage
from dittomq.offsets import QueueOffset

_NEVER_MS: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class Moment:
    """A moment: by the wall clock, and by a clock that nobody sets, in ms both."""

    wall_ms: int
    running_ms: int


@dataclass(slots=True)
class DelayQueue:
    """One queue. What lies below `next` is delivered; the messages below `seen_to` were there at `seen_ms` of the running clock.

    `wake`: when its next message is due; None: nothing waits, or nobody has looked.
    """

    topic: str
    queue: int
    delay_ms: int
    next: QueueOffset = QueueOffset(0)
    seen_to: QueueOffset = QueueOffset(0)
    seen_ms: int = 0
    wake: Moment | None = None

    @property
    def producer_id(self) -> str:
        """Under which its messages are delivered."""
        return system_producer(self.topic, self.queue)

    def see(self, low: QueueOffset, high: QueueOffset, now: Moment) -> bool:
        """The queue holds [low, high) now; returns whether its next message is to be looked at."""
        self.next = max(self.next, low)
        if self.next >= high:
            self.wake = None
            return False
        if self.next >= self.seen_to:
            self.seen_to, self.seen_ms, self.wake = high, now.running_ms, None
        return self.wake is None or now.wall_ms >= self.wake.wall_ms or now.running_ms >= self.wake.running_ms

    def due_of(self, message: StoredMessage) -> Moment:
        """When it is due here, by either clock: to be delivered, or to wait in another queue."""
        seen_ms = self.seen_ms if message.queue_offset < self.seen_to else _NEVER_MS
        hop_ms, due_ms = message.store_ms + self.delay_ms, due_in(message.properties)
        if due_ms and due_ms - hop_ms < TIMER_DELAYS_MS[0]:  # it waits for the rest here: no other queue is so short
            return Moment(due_ms, seen_ms + self.delay_ms + TIMER_DELAYS_MS[0])
        return Moment(hop_ms, seen_ms + self.delay_ms)

    def take_due(self, messages: Sequence[StoredMessage], now: Moment) -> list[StoredMessage]:
        """The leading ones that are due."""
        for index, message in enumerate(messages):
            due = self.due_of(message)
            if now.wall_ms < due.wall_ms and now.running_ms < due.running_ms:
                self.wake = due
                return list(messages[:index])
        self.wake = None
        return list(messages)

    def pass_to(self, offset: QueueOffset) -> None:
        """What lies below is delivered, or cannot be."""
        self.next, self.wake = offset, None

    def wait_ms(self, now: Moment) -> int | None:
        """How long until its next message is due; None while nothing is known to wait."""
        if self.wake is None:
            return None
        return max(0, min(self.wake.wall_ms - now.wall_ms, self.wake.running_ms - now.running_ms))


def neighbours(messages: Sequence[StoredMessage]) -> Sequence[StoredMessage]:
    """The leading messages whose offsets follow one another."""
    first = messages[0].queue_offset
    return messages[: next((index for index, each in enumerate(messages) if each.queue_offset != first + index), len(messages))]
