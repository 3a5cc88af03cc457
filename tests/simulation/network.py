"""Machines, links and connections in virtual time.

A connection is like TCP: inside it nothing is lost, doubled or reordered, but it can stall and it can break, and then
each end learns of it in its own time. Links have a direction:

    UP        delivers after a random latency
    SILENT    delivers nothing; what was sent waits. Connections break when a keepalive of 10 to 20 s finds out,
              unless the link is healed before
    REFUSING  breaks what is connected and refuses what connects
"""

import asyncio
import contextvars
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, TypeVarTuple, Unpack

from tests.simulation.transcript import Transcript

Ts = TypeVarTuple("Ts")

KEEPALIVE_S = (10.0, 20.0)
CONNECT_TIMEOUT_S = 20.0
_LATENCY_S = (0.0001, 0.002)
_BYTES_PER_S = 200e6
_SYN_RETRIES_S = (1.0, 2.0, 4.0, 8.0, 5.0)


class LinkState(Enum):
    """What a directed link does with what is sent over it."""

    UP = "up"
    SILENT = "silent"
    REFUSING = "refusing"


@dataclass(slots=True)
class Link:
    """One direction between two machines. `changes` tells two silences apart; `slowness` multiplies the latency."""

    state: LinkState = LinkState.UP
    slowness: float = 1.0
    changes: int = 0


class ConnectFailed(Exception):
    """No connection came about; the text says why."""


class Listener(Protocol):
    """Takes connections at a port."""

    def accept(self, socket: "Socket") -> None:
        """Own this end of a new connection."""
        ...


class Machine:
    """A host: its ports, its connections, and whether it has power."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.powered = True
        self.still = False  # its process is stopped
        self.freezes = 0
        self.listeners: dict[int, Listener] = {}
        self.sockets: dict[Socket, None] = {}
        self._next_port = 40_000

    def bind(self, port: int, listener: Listener) -> int:
        """Take a port, or any free one for 0; RuntimeError when it is taken."""
        if port == 0:
            port = self._next_port
            self._next_port += 1
        if port in self.listeners:
            raise RuntimeError(f"Failed to bind to address {self.host}:{port}; address in use")
        self.listeners[port] = listener
        return port


class Socket:
    """One end of a connection. Its owner sets `receive` and `broken` before anything can arrive."""

    def __init__(self, network: "Network", host: str, peer_host: str, label: str) -> None:
        self.network = network
        self.host = host
        self.peer_host = peer_host
        self.label = label
        self.open = True
        self.peer: Socket = self
        self.receive: Callable[[object], None] = _nobody
        self.broken: Callable[[str], None] = _nobody
        self.number = network.next_number()
        self._outbox: deque[tuple[float, object]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._last_due = 0.0

    def __hash__(self) -> int:
        return self.number

    def send(self, payload: object, size: int) -> None:
        """Send in order; what is sent after the end broke is lost."""
        if not self.open:
            return
        network = self.network
        now = network.loop.time()
        due = max(self._last_due, now + network.latency(self.host, self.peer_host)) + size / _BYTES_PER_S
        self._last_due = due
        self._outbox.append((due, payload))
        if self._timer is None:
            self.resume()

    def close(self, why: str) -> None:
        """End the connection in order: the peer gets what was sent before, then the end."""
        if self.open:
            self.send(_Farewell(why), 0)
            self._leave()

    def break_here(self, why: str) -> None:
        """Break at this end now; the peer learns of it after a latency, or by keepalive over a silent link."""
        if not self.open:
            return
        self.vanish()
        network = self.network
        network.transcript.note(self.host, f"connection {self.label} breaks: {why}")
        self.peer.break_later(network.latency(self.host, self.peer_host), why)
        self.broken(why)

    def break_later(self, after_s: float, why: str) -> None:
        """Break at this end after a while, by keepalive when nothing gets here."""
        if self.network.link(self.peer_host, self.host).state is LinkState.SILENT:
            after_s = self.network.chance.uniform(*KEEPALIVE_S)
            why = "keepalive"
        self.network.later(after_s, self.break_here, why)

    def vanish(self) -> None:
        """Forget this end without telling anyone, and lose what is on its way from here."""
        self._outbox.clear()
        self._stop_timer()
        self._leave()

    def resume(self) -> None:
        """Go on delivering after a silence."""
        if self._outbox and self._timer is None:
            network = self.network
            self._timer = network.loop.call_at(max(self._outbox[0][0], network.loop.time()), self._deliver, context=network.context)

    def _deliver(self) -> None:
        self._timer = None
        link = self.network.link(self.host, self.peer_host)
        if link.state is LinkState.SILENT or self.network.machine(self.peer_host).still:
            return
        _, payload = self._outbox.popleft()
        self.resume()
        peer = self.peer
        if not peer.open:
            if self.open and self.network.machine(self.peer_host).powered:
                self.break_later(self.network.latency(self.peer_host, self.host), "reset by peer")
        elif isinstance(payload, _Farewell):
            peer.vanish()
            peer.broken(payload.why)
        else:
            self.network.tap(self, payload)
            peer.receive(payload)

    def _leave(self) -> None:
        self.open = False
        self.network.machine(self.host).sockets.pop(self, None)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Network:
    """All machines and the links between them. `tap` hears of everything that is delivered, with the socket that sent it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, chance: random.Random, transcript: Transcript) -> None:
        self.loop = loop
        self.chance = chance
        self.transcript = transcript
        self.tap: Callable[[Socket, object], None] = _deaf
        self.context = contextvars.copy_context()  # of no process: what is on its way comes, though its sender stands still
        self._machines: dict[str, Machine] = {}
        self._links: dict[tuple[str, str], Link] = {}
        self._numbers = 0

    def later(self, after_s: float, call: Callable[[Unpack[Ts]], object], *args: *Ts) -> None:
        """Let it happen after a while, whatever becomes of who asked for it."""
        self.loop.call_later(after_s, call, *args, context=self.context)

    def machine(self, host: str) -> Machine:
        """The machine of that name, made when first asked for."""
        if host not in self._machines:
            self._machines[host] = Machine(host)
        return self._machines[host]

    def link(self, source: str, target: str) -> Link:
        """The link from one machine to another."""
        key = (source, target)
        found = self._links.get(key)
        if found is None:
            found = self._links[key] = Link()
        return found

    def is_whole(self, source: str, target: str) -> bool:
        """Whether the link between them lets everything through, at its usual pace."""
        link = self.link(source, target)
        return link.state is LinkState.UP and link.slowness == 1.0

    def next_number(self) -> int:
        """Numbers connections' ends."""
        self._numbers += 1
        return self._numbers

    def latency(self, source: str, target: str) -> float:
        """How long the next packet takes, in seconds."""
        if source == target:
            return 0.00002
        low, high = _LATENCY_S
        return (low + (high - low) * self.chance.random()) * self.link(source, target).slowness

    def silence(self, source: str, target: str) -> None:
        """Deliver nothing from one machine to another until healed."""
        self._set(source, target, LinkState.SILENT)
        for socket in self._between(source, target):
            self._watch(socket)

    def cut(self, one: str, other: str) -> None:
        """Break all connections between two machines and refuse new ones until healed."""
        self._set(one, other, LinkState.REFUSING)
        self._set(other, one, LinkState.REFUSING)
        for socket in self._between(one, other):
            self.later(self.latency(one, other), socket.break_here, "cut")

    def heal(self, one: str, other: str) -> None:
        """Bring both directions up again; what waited is delivered."""
        for source, target in ((one, other), (other, one)):
            if self.link(source, target).state is not LinkState.UP:
                self._set(source, target, LinkState.UP)
            self.link(source, target).slowness = 1.0
        for socket in self._between(one, other):
            self.later(self.latency(one, other), socket.resume)

    def heal_all(self) -> None:
        """Heal every link."""
        for source, target in list(self._links):
            self.heal(source, target)

    def hang_up(self, host: str) -> None:
        """A process ended: its ports are free, and the kernel resets its connections."""
        machine = self.machine(host)
        machine.listeners.clear()
        for socket in list(machine.sockets):
            peer = socket.peer
            socket.vanish()
            peer.break_later(self.latency(host, peer.host), "reset by peer")

    def power_off(self, host: str) -> None:
        """A machine lost power: nobody tells its peers; only keepalive does, or a reset once it is back."""
        machine = self.machine(host)
        machine.powered = False
        machine.listeners.clear()
        for socket in list(machine.sockets):
            socket.vanish()
            self.later(self.chance.uniform(*KEEPALIVE_S), socket.peer.break_here, "keepalive")

    def freeze(self, host: str) -> None:
        """A process stands still: its kernel keeps what comes, and its peers find out by keepalive, unless it goes on before."""
        machine = self.machine(host)
        machine.still, machine.freezes = True, machine.freezes + 1
        for socket in machine.sockets:
            self.later(self.chance.uniform(*KEEPALIVE_S), self._miss, socket.peer, machine.freezes)

    def thaw(self, host: str) -> None:
        """It goes on, and gets what came."""
        machine = self.machine(host)
        machine.still = False
        for socket in machine.sockets:
            self.later(0.0, socket.peer.resume)

    def _miss(self, socket: Socket, freezes: int) -> None:
        """Break a connection to a process that still stands still since then."""
        machine = self.machine(socket.peer_host)
        if machine.still and machine.freezes == freezes:
            socket.break_here("keepalive")

    def power_on(self, host: str) -> None:
        """The machine boots."""
        self.machine(host).powered = True

    async def connect(self, source: str, address: str) -> Socket:
        """A new connection to "host:port", or ConnectFailed."""
        host, _, port = address.rpartition(":")
        target = source if host in ("localhost", "127.0.0.1") else host
        if target not in self._machines:
            raise ConnectFailed(f"no machine is called {host}")
        await self._handshake(source, target)
        listener = self.machine(target).listeners.get(int(port))
        back = self.latency(target, source)
        if listener is None:
            await asyncio.sleep(back)
            raise ConnectFailed(f"connection refused by {address}")
        here, there = self._pair(source, target, address)
        listener.accept(there)
        await asyncio.sleep(back)
        if not here.open:
            raise ConnectFailed(f"connection to {address} broke at once")
        return here

    async def _handshake(self, source: str, target: str) -> None:
        await asyncio.sleep(self.latency(source, target))
        for pause in _SYN_RETRIES_S:
            states = (self.link(source, target).state, self.link(target, source).state)
            if LinkState.REFUSING in states:
                await asyncio.sleep(self.latency(source, target))
                raise ConnectFailed(f"{target} is cut off")
            if LinkState.SILENT not in states and self.machine(target).powered and not self.machine(target).still:
                return
            await asyncio.sleep(pause)
        raise ConnectFailed(f"{target} did not answer for {CONNECT_TIMEOUT_S:g} s")

    def _pair(self, source: str, target: str, address: str) -> tuple[Socket, Socket]:
        label = f"{source}->{address}"
        here, there = Socket(self, source, target, label), Socket(self, target, source, label)
        here.peer, there.peer = there, here
        self.machine(source).sockets[here] = None
        self.machine(target).sockets[there] = None
        return here, there

    def _between(self, one: str, other: str) -> list[Socket]:
        return [socket for host, peer in ((one, other), (other, one)) for socket in self.machine(host).sockets if socket.peer_host == peer]

    def _set(self, source: str, target: str, state: LinkState) -> None:
        link = self.link(source, target)
        link.state = state
        link.changes += 1
        self.transcript.note(source, f"link to {target} is {state.value}")

    def _watch(self, socket: Socket) -> None:
        """Break a connection whose link is still in this same silence when its keepalive looks."""
        links = [self.link(socket.host, socket.peer_host), self.link(socket.peer_host, socket.host)]
        before = [(link.state, link.changes) for link in links]

        def look() -> None:
            if [(link.state, link.changes) for link in links] == before:
                socket.break_here("keepalive")

        self.later(self.chance.uniform(*KEEPALIVE_S), look)


@dataclass(frozen=True, slots=True)
class _Farewell:
    why: str


def _nobody(_: object) -> None:
    return


def _deaf(_: Socket, __: object) -> None:
    return
