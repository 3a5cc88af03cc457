"""One RPC as frames on a connection: what both its ends share. Flow control counts bytes, as HTTP/2 does.

A sender may have WINDOW_BYTES on their way that the receiver's code has not yet taken (one message always fits), so a
reader that does not read stops its writer.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import grpc

WINDOW_BYTES = 65_536
_HEADER_BYTES = 9

Metadata: TypeAlias = tuple[tuple[str, str | bytes], ...]


@dataclass(frozen=True, slots=True)
class Opened:
    """Client to server: a call begins. `timeout_s` None: no deadline."""

    method: str
    metadata: Metadata
    timeout_s: float | None


@dataclass(frozen=True, slots=True)
class Data:
    """Either way: one message."""

    content: bytes


@dataclass(frozen=True, slots=True)
class Ended:
    """Client to server: no further messages."""


@dataclass(frozen=True, slots=True)
class Reset:
    """Client to server: the call is cancelled."""


@dataclass(frozen=True, slots=True)
class Headers:
    """Server to client: initial metadata."""

    metadata: Metadata


@dataclass(frozen=True, slots=True)
class Status:
    """Server to client, or made locally: how the call ended."""

    code: grpc.StatusCode
    details: str
    trailing: Metadata


@dataclass(frozen=True, slots=True)
class Credit:
    """Either way: so many bytes were taken by the reader."""

    size: int


Frame: TypeAlias = Opened | Data | Ended | Reset | Headers | Status | Credit


def size_of(frame: Frame) -> int:
    """Bytes on the wire, roughly."""
    return _HEADER_BYTES + (len(frame.content) if isinstance(frame, Data) else 0)


def as_metadata(given: object) -> Metadata:
    """Metadata in any shape that gRPC takes."""
    if given is None:
        return ()
    if not isinstance(given, Sequence | grpc.aio.Metadata):
        raise TypeError(f"metadata is a sequence of pairs, not {type(given).__name__}")
    pairs = tuple((str(key), value) for key, value in given)
    for key, value in pairs:
        if key != key.lower() or not isinstance(value, bytes if key.endswith("-bin") else str):
            raise TypeError(f"metadata {key!r}: keys are lower case; values are str, bytes only for keys that end in -bin")
    return pairs


class StreamOver(Exception):
    """Raised to readers and writers of a call that has ended."""


class MessageFlow:
    """The messages of one end of a call: an inbox, and an outbox with a window."""

    def __init__(self, loop: asyncio.AbstractEventLoop, send: Callable[[Frame], None]) -> None:
        self._loop = loop
        self._send = send
        self._inbox: deque[bytes] = deque()
        self._peer_ended = False
        self._over = False
        self._on_their_way = 0
        self._sleepers: deque[asyncio.Future[None]] = deque()

    @property
    def drained(self) -> bool:
        """Whether every message that arrived was taken."""
        return not self._inbox

    async def write(self, content: bytes) -> None:
        """Send one message when the window allows; StreamOver when the call ends first."""
        while not self._over and self._on_their_way and self._on_their_way + len(content) > WINDOW_BYTES:
            await self._sleep()
        if self._over:
            raise StreamOver
        self._on_their_way += len(content)
        self._send(Data(content))

    async def read(self) -> bytes | None:
        """The next message; None when the peer sends no more; StreamOver when the call ended without saying so."""
        while not self._inbox:
            if self._peer_ended:
                return None
            if self._over:
                raise StreamOver
            await self._sleep()
        content = self._inbox.popleft()
        if not self._over:
            self._send(Credit(len(content)))
        return content

    def arrived(self, frame: Data | Credit | Ended) -> None:
        """Take a frame from the peer."""
        match frame:
            case Data(content):
                self._inbox.append(content)
            case Credit(size):
                self._on_their_way -= size
            case Ended():
                self._peer_ended = True
        self._wake()

    def finish(self) -> None:
        """The call ended in order: what arrived can still be read."""
        self._peer_ended = True
        self.abandon(keep=True)

    def abandon(self, *, keep: bool = False) -> None:
        """The call broke: what was not read is lost, unless kept."""
        if not keep:
            self._inbox.clear()
        self._over = True
        self._wake()

    async def _sleep(self) -> None:
        sleeper = self._loop.create_future()
        self._sleepers.append(sleeper)
        await sleeper

    def _wake(self) -> None:
        while self._sleepers:
            sleeper = self._sleepers.popleft()
            if not sleeper.done():
                sleeper.set_result(None)
