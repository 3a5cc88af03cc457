"""④ What one slave has said and its session has not heard yet."""

import asyncio
from collections import deque

from dittomq.replication.events import Handshake, LeafDigests, SlaveAck

SlaveMessage = Handshake | SlaveAck | LeafDigests

MAX_ACKS = 256


class Mailbox:
    """Of a bounded size: when it is full the slave waits, as nothing more is read from its stream.

    An ack is small. What may be as large as a frame waits until nothing else is waiting: one of them at a time.
    """

    def __init__(self) -> None:
        self._events: deque[SlaveMessage] = deque()
        self._room = asyncio.Event()

    def __len__(self) -> int:
        return len(self._events)

    async def put(self, event: SlaveMessage) -> None:
        """Return when there was room for it."""
        while len(self._events) >= (MAX_ACKS if isinstance(event, SlaveAck) else 1):
            self._room.clear()
            await self._room.wait()
        self._events.append(event)

    def take(self) -> SlaveMessage:
        """The oldest one; there is one."""
        self._room.set()
        return self._events.popleft()
