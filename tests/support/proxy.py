"""A TCP proxy of a test's own on loopback: it delays, holds, swallows, dribbles, cuts in mid-frame and hides that a peer has left.

It keeps to what TCP can do: bytes come late, come cut off, or never come; they never come twice, and never past a gap. So a connection of
which some bytes were swallowed carries nothing more in that direction, also when the proxy has healed; new ones do.
"""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from tests.support.waiting import PATIENCE_S

_PIECE_BYTES: Final = 64 * 1024


class Way(Enum):
    """A direction; who dials is the caller."""

    THERE = "from the caller"
    BACK = "to the caller"


@dataclass(slots=True)
class _Rules:
    """What becomes of the bytes of one direction. `cut_after`: so many more go through, then every connection breaks."""

    delay_s: float = 0.0
    piece_bytes: int = _PIECE_BYTES
    swallows: bool = False
    cut_after: int | None = None
    flows: asyncio.Event = field(default_factory=asyncio.Event)


class Proxy:
    """One listening port and what it does to the connections that come in. Its methods may be called from any thread, inside `running`."""

    def __init__(self, upstream: Callable[[], tuple[str, int]]) -> None:
        """`upstream` is asked anew for each connection, and may be replaced; ConnectionError when there is nothing."""
        self.upstream = upstream
        self._loop = asyncio.new_event_loop()
        self._rules: dict[Way, _Rules] = {}
        self._hides_ends = self._refuses = False
        self._dialled: list[float] = []
        self._carried = dict.fromkeys(Way, 0)
        self._flaps = 0
        self._open: set[_Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"

    @contextlib.contextmanager
    def running(self) -> Iterator["Proxy"]:
        """It works while the block runs."""
        thread = threading.Thread(target=self._loop.run_forever, name=f"proxy {self.address}", daemon=True)
        thread.start()
        self._do(self._heal)
        server = asyncio.run_coroutine_threadsafe(asyncio.start_server(self._serve, sock=self._listener), self._loop).result(PATIENCE_S)
        try:
            yield self
        finally:
            self._do(server.close)
            asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(PATIENCE_S)
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join(PATIENCE_S)
            self._loop.close()

    @property
    def dialled(self) -> list[float]:
        """When each connection came in, on the loop's clock."""
        return list(self._dialled)

    @property
    def flaps(self) -> int:
        """How often it went down since it was told to flap."""
        return self._flaps

    def carried(self, way: Way) -> int:
        """How many bytes came through in that direction so far."""
        return self._carried[way]

    def hold(self, *ways: Way) -> None:
        """Let nothing through; it comes when the proxy is healed. As a network that is cut for a while."""

        def stop() -> None:
            for way in ways:
                self._rules[way].flows.clear()

        self._do(stop)

    def swallow(self, *ways: Way) -> None:
        """Read and drop everything; the connections stay open."""
        for way in ways:
            self._rules[way].swallows = True

    def delay(self, seconds: float, *ways: Way) -> None:
        """Each piece arrives so much later; pieces wait for each other."""
        for way in ways:
            self._rules[way].delay_s = seconds

    def dribble(self, size: int, every_s: float, *ways: Way) -> None:
        """So many bytes at a time."""
        for way in ways:
            self._rules[way].piece_bytes, self._rules[way].delay_s = size, every_s

    def cut_after(self, size: int, way: Way) -> None:
        """Let so many more bytes through in that direction, over all connections, and then break every connection."""
        self._rules[way].cut_after = size

    def sever(self) -> None:
        """Break every connection now, with a reset to both sides."""
        self._do(self._abort_all)

    @contextlib.contextmanager
    def flapping(self, up_s: float, down_s: float) -> Iterator[None]:
        """During the block it is up and down in turns, and whenever it goes down every connection breaks and none is taken."""
        flapping = asyncio.run_coroutine_threadsafe(self._flap(up_s, down_s), self._loop)
        try:
            yield
        finally:
            flapping.cancel()
            self.heal()

    def hide_ends(self) -> None:
        """From now on nobody is told that the other side has left: half-open connections."""
        self._hides_ends = True

    def heal(self) -> None:
        """Let everything through again, and what was held. A connection that has lost bytes or an end is broken."""
        self._do(self._heal)

    def _heal(self) -> None:
        self._rules, before = {way: _Rules() for way in Way}, self._rules
        self._hides_ends = self._refuses = False
        for rules in (*self._rules.values(), *before.values()):
            rules.flows.set()
        for connection in list(self._open):
            if connection.has_lost:
                connection.abort()

    def _abort_all(self) -> None:
        for connection in list(self._open):
            connection.abort()

    async def _flap(self, up_s: float, down_s: float) -> None:
        while True:
            self._heal()
            await asyncio.sleep(up_s)
            self._refuses = True
            self._abort_all()
            self._flaps += 1
            await asyncio.sleep(down_s)

    def _do(self, act: Callable[[], object]) -> None:
        async def acting() -> None:
            act()

        asyncio.run_coroutine_threadsafe(acting(), self._loop).result(PATIENCE_S)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._dialled.append(self._loop.time())
        connection = _Connection([writer])
        self._open.add(connection)
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            if self._refuses:
                return
            await self._rules[Way.THERE].flows.wait()
            host, port = self.upstream()
            far_reader, far_writer = await asyncio.open_connection(host, port)
            connection.writers.append(far_writer)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._carry(Way.THERE, connection, reader, far_writer))
                tasks.create_task(self._carry(Way.BACK, connection, far_reader, writer))
        except (OSError, ExceptionGroup):
            pass  # one side has broken it; so does the other now
        finally:
            connection.abort()
            self._open.discard(connection)
            self._tasks.discard(task)

    async def _carry(self, way: Way, connection: "_Connection", reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while piece := await self._piece(way, connection, reader):
            await self._rules[way].flows.wait()
            if self._rules[way].swallows or way in connection.lost:
                connection.lost.add(way)
                continue
            await asyncio.sleep(self._rules[way].delay_s)
            rules = self._rules[way]
            if rules.cut_after is not None and len(piece) >= rules.cut_after:
                writer.write(piece[: rules.cut_after])
                rules.cut_after = None
                for other in list(self._open):
                    other.end()
                return
            if rules.cut_after is not None:
                rules.cut_after -= len(piece)
            writer.write(piece)
            self._carried[way] += len(piece)
            try:
                await writer.drain()
            except OSError:
                if not self._hides_ends:
                    raise
                connection.lost.add(way)
        if not connection.lost:
            writer.write_eof()

    async def _piece(self, way: Way, connection: "_Connection", reader: asyncio.StreamReader) -> bytes:
        """The next bytes; none when that side has left and the other may know it."""
        try:
            piece = await reader.read(self._rules[way].piece_bytes)
        except OSError:
            if not self._hides_ends:
                raise
            piece = b""
        if not piece and self._hides_ends:
            connection.lost.update(Way)
            await connection.over.wait()
        return piece

    async def _end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@dataclass(eq=False, slots=True)
class _Connection:
    """Both sides of one; `lost`: directions in which something did not come through and never will."""

    writers: list[asyncio.StreamWriter]
    lost: set[Way] = field(default_factory=set)
    over: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def has_lost(self) -> bool:
        return bool(self.lost)

    def end(self) -> None:
        """Close both sides when what was written is out."""
        self.over.set()
        for writer in self.writers:
            writer.close()

    def abort(self) -> None:
        """Break both sides."""
        self.over.set()
        for writer in self.writers:
            writer.transport.abort()
