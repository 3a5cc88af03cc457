"""An operator who switches over, fails over and pauses by the product's own calls, as `dittomq ha` makes them."""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from dittomq.broker.doors import BrokerDoors
from dittomq.client import AsyncClient
from dittomq.errors import DittoError
from dittomq.ha_status import HaStatus
from tests.simulation.faults import Fault, FaultKind
from tests.simulation.history import History
from tests.simulation.links import part
from tests.simulation.shapes import Shape, name_of
from tests.simulation.world import Node, Power, World

_OPERATORS_APART_S = 1.5
_LOOKS_S = 5.0
_TIMEOUT_S = 20.0  # without a master, until the operator lets a node lead
_GIVES_UP_S = 60.0  # that a node may lead without a loss

Work = Callable[[AsyncClient], Awaitable[None]]


class Machines(Protocol):
    """What a client needs to know of them."""

    @property
    def world(self) -> World: ...

    @property
    def shape(self) -> Shape: ...


class Group(Machines, Protocol):
    """The machines, as an operator sees them. `leader` is the machine of the master."""

    @property
    def brokers(self) -> Sequence[str]: ...

    @property
    def leader(self) -> str: ...

    def hold_down(self, node: Node) -> None: ...

    def let_up(self, node: Node) -> None: ...

    def accept_loss(self, machine: str) -> None: ...

    @property
    def history(self) -> History: ...


class Operator:
    """Acts on one thing at a time."""

    def __init__(self, group: Group, chance: random.Random) -> None:
        self._group = group
        self._chance = chance
        self._one_thing = asyncio.Lock()

    async def act(self, fault: Fault) -> None:
        """Let another node lead, with the master's help, while it is down, or while it is cut off; or pause failover for a while."""
        async with self._one_thing:
            match fault.kind:
                case FaultKind.SWITCHOVER:
                    await self._switch_over(self._wanted(fault.machine)[0])
                case FaultKind.TWO_SWITCHOVERS:
                    await self._two_at_once(self._wanted(fault.machine)[:2], fault.lasts_s)
                case FaultKind.MASTER_DOWN:
                    await self._lose_master(fault)
                case FaultKind.PARTED:
                    await self._part(fault)
                case FaultKind.OPERATOR_FAILOVER:
                    await self._fail_over(self._wanted(fault.machine)[0])
                case _:
                    await self._pause(fault)

    async def tend(self, mq: AsyncClient, *, may_lose: bool) -> None:
        """After the faults: where there is no master for long, let a node stand; accept a loss only where the group `may_lose`."""
        alone_since = self._group.world.loop.time()
        while True:
            await asyncio.sleep(_LOOKS_S)
            now = self._group.world.loop.time()
            views = {name: await look_at(mq, name) for name in self._group.brokers}
            if any(view is not None and view.writable for view in views.values()):
                alone_since = now
            found = {name: view for name, view in views.items() if view is not None}
            if now - alone_since < _TIMEOUT_S or not found:
                continue
            best_first = sorted(found, key=lambda name: (found[name].epoch, found[name].end), reverse=True)
            if may_lose and now - alone_since > _GIVES_UP_S:
                self._group.accept_loss(best_first[0])
                await _obeyed(mq.admin.failover(name_of(best_first[0]), allow_data_loss=True))
                continue
            for name in best_first:  # one that is no member is refused
                if not await _obeyed(mq.admin.failover(name_of(name))):
                    break

    def _wanted(self, machine: str) -> list[str]:
        """Which machine may lead instead of the master's: that one first, if it does not."""
        others = [name for name in self._group.brokers if name != self._group.leader]
        return sorted(others, key=lambda name: name != machine)

    async def _switch_over(self, name: str, by: str = "operator") -> None:
        async def order(mq: AsyncClient) -> None:
            answer = await _obeyed(mq.admin.switchover(name_of(name)))
            self._group.world.transcript.note(by, f"switches over to {name}: {answer or 'done'}")

        await as_client(self._group, by, order)

    async def _fail_over(self, name: str) -> None:
        async def order(mq: AsyncClient) -> None:
            answer = await _obeyed(mq.admin.failover(name_of(name)))
            self._group.world.transcript.note("operator", f"fails over to {name}: {answer or 'done'}")

        await as_client(self._group, "operator", order)

    async def _two_at_once(self, wanted: Sequence[str], apart_s: float) -> None:
        """Two operators who do not know of each other; with two nodes in the group they want the same."""
        async with asyncio.TaskGroup() as both:
            both.create_task(self._switch_over(wanted[0]))
            await asyncio.sleep(min(apart_s, _OPERATORS_APART_S))
            both.create_task(self._switch_over(wanted[-1], by="operator2"))

    async def _lose_master(self, fault: Fault) -> None:
        """The master goes down for longer than its slaves bear; then it is back."""
        old = self._group.world.nodes[self._group.leader]
        self._group.hold_down(old)
        old.crash(Power.LOSS if fault.power_fails else Power.KILL)
        if self._group.shape.is_manual and fault.amount % 2:
            await asyncio.sleep(1.0)
            await self._fail_over(self._wanted(fault.machine)[0])
        await asyncio.sleep(4.0 + fault.lasts_s)
        self._group.let_up(old)

    async def _part(self, fault: Fault) -> None:
        """The master lives on, cut off: from slaves (bit 1 of `amount`), from the coordination store (bit 2), also from clients."""
        world, old = self._group.world, self._group.leader
        slaves = [name for name in self._group.brokers if name != old]
        cut = fault.amount & 3 or 3
        far = [*(slaves if cut & 1 else ()), *(self._group.shape.name_machines if cut & 2 else ())]
        far = [*far, *self._group.shape.machines.clients] if fault.power_fails else far
        for other in far:
            part(world.network, old, other, silent=bool(fault.amount & 4))
        await asyncio.sleep(4.0 + fault.lasts_s)
        for other in far:
            world.network.heal(old, other)

    async def _pause(self, fault: Fault) -> None:
        async def order(mq: AsyncClient, *, paused: bool) -> None:
            await _obeyed(mq.admin.set_paused("a", paused=paused))

        await as_client(self._group, "operator", lambda mq: order(mq, paused=True))
        await asyncio.sleep(fault.lasts_s)
        await as_client(self._group, "operator", lambda mq: order(mq, paused=False))


async def _obeyed(order: Awaitable[object]) -> DittoError | None:
    """None when it was obeyed, otherwise why not."""
    try:
        await order
    except DittoError as refused:
        return refused
    return None


async def look_at(mq: AsyncClient, name: str) -> HaStatus | None:
    """What a machine says of its group; None when it says nothing."""
    with contextlib.suppress(DittoError):
        return await mq.admin.ha_status(f"{name}:10911")
    return None


async def leading(mq: AsyncClient, brokers: Sequence[str]) -> HaStatus | None:
    """What the one says that takes writes; None when none does."""
    for name in brokers:
        view = await look_at(mq, name)
        if view is not None and view.writable:
            return view
    return None


async def repair(mq: AsyncClient, node: str) -> bool:
    """Whether all of a node's log is whole, after what was not has been fetched from others."""
    start = None
    with contextlib.suppress(DittoError):
        while True:
            report = await mq.admin.repair(node, start)
            if any(not outcome.source for outcome in report.ranges):
                return False
            if report.is_done:
                return True
            start = report.end
    return False


async def as_client(machines: Machines, name: str, work: Work) -> None:
    """Do something as a client on a machine of its own, and wait until it is done."""

    async def serve(doors: BrokerDoors, _: asyncio.Event) -> None:
        async with AsyncClient(machines.shape.nameservers, transport=doors.transport, clock=doors.clock, chance=doors.chance) as mq:
            await work(mq)
        done.set()

    done = asyncio.Event()
    client = machines.world.node(name, serve)
    client.start()
    try:
        await done.wait()
    finally:
        if not done.is_set():
            client.crash(Power.KILL)
