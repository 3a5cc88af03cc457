"""Somebody who changes roles by the product's own calls, as `dittomq role` makes them, and says only what is true."""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from dittomq.broker.doors import BrokerDoors
from dittomq.client import AsyncClient
from dittomq.errors import DittoError, NotPermitted, OutOfReach
from dittomq.ha_status import HaStatus
from dittomq.routes import Role
from tests.simulation.faults import Fault, FaultKind
from tests.simulation.history import Apart, Harm, History
from tests.simulation.links import part
from tests.simulation.shapes import NAMESERVER, Shape, machine_of, name_of
from tests.simulation.world import Node, Power, World

_PATIENCE_S = 15.0  # until the operator acts, where nobody leads
_PROMOTES_FOR_S = 12.0
_OPERATORS_APART_S = 1.5
_ASKS_EVERY_S = 1.0
_UNKNOWN_S = 20.0  # longer than a node works at a command whose answer was lost
_LOOKS_S = 5.0
_HOPES_S = 19.0  # that nothing need be lost
_GIVES_UP_S = 60.0  # that a slave may lead without a loss

_MEETS_S = 8.0
_LACKS_NOTHING = "lacks nothing confirmed"
_DOUBT = "may still be writing"
_HEAD_BYTES = 22  # of a side file

Work = Callable[[AsyncClient], Awaitable[None]]


class Machines(Protocol):
    """What a client needs to know of them."""

    @property
    def world(self) -> World: ...

    @property
    def shape(self) -> Shape: ...


class Group(Machines, Protocol):
    """The machines, as an operator sees them. `leader` is who leads, or was promoted to lead."""

    @property
    def brokers(self) -> Sequence[str]: ...

    @property
    def leader(self) -> str: ...

    def hold_down(self, node: Node) -> None: ...

    def let_up(self, node: Node) -> None: ...

    def replaced(self, machine: str, since: float) -> None: ...

    def accept_loss(self, machine: str) -> None: ...

    def lose_disk(self, node: Node) -> None: ...

    @property
    def history(self) -> History: ...


class Operator:
    """Acts on one thing at a time."""

    def __init__(self, group: Group, chance: random.Random) -> None:
        self._group = group
        self._chance = chance
        self._one_thing = asyncio.Lock()
        self._has_changed_roles = False
        self._newest_epoch = 0
        self._apart: Apart | None = None

    async def act(self, fault: Fault) -> None:
        """Let another node lead: with the consent of the one that does, while it is down, or while it is cut off."""
        async with self._one_thing:
            self._has_changed_roles = True
            match fault.kind:
                case FaultKind.CHANGE_OF_PLACES:
                    await self._command(self._wanted(fault.machine)[0])
                case FaultKind.TWO_CHANGES:
                    await self._two_at_once(self._wanted(fault.machine)[:2], fault.lasts_s)
                case FaultKind.PROMOTION:
                    await self._promote(fault)
                case _:
                    await self._pass_over(fault)

    def leads(self, machine: str, epoch: int) -> None:
        """A machine leads, or was promoted to lead, that did not before."""
        if epoch <= self._newest_epoch and self._cannot_know(machine, self._group.leader):
            apart = Apart(name_of(machine), self._group.world.loop.time(), replaced=True)
            self._group.history.aparts.append(apart)
        self._newest_epoch = max(self._newest_epoch, epoch)
        if self._apart is not None and name_of(machine) != self._apart.node:
            self._has_replaced()

    def _cannot_know(self, machine: str, leader: str) -> bool:
        """Whether no node of the group can tell it who leads, and a nameserver answers it that the leader does not reach either."""
        world, group = self._group.world, self._group
        others = [name for name in group.brokers if name != machine and world.nodes[name].running]
        names = [name for name in group.shape.name_machines if not world.network.talk(leader, name)]
        return any(world.network.talk(machine, name) for name in names) and not any(world.network.talk(machine, other) for other in others)

    def _has_replaced(self) -> None:
        """Another one leads, or may come to lead, instead of the master that is cut off."""
        if self._apart is not None:
            self._apart.replaced = True
            self._group.replaced(machine_of(self._apart.node), self._group.world.loop.time())

    async def _two_at_once(self, wanted: Sequence[str], apart_s: float) -> None:
        """Two operators who do not know of each other; with two nodes in the group they want the same."""
        async with asyncio.TaskGroup() as both:
            both.create_task(self._command(wanted[0]))
            await asyncio.sleep(min(apart_s, _OPERATORS_APART_S))
            both.create_task(self._command(wanted[-1], by="operator2"))

    async def _promote(self, fault: Fault) -> None:
        """The master goes down; another takes its place if it may; later the old one comes back."""
        world, old = self._group.world, self._group.world.nodes[self._group.leader]
        self._group.hold_down(old)
        fell_at = world.loop.time()
        old.crash(Power.LOSS if fault.power_fails else Power.KILL)
        until = fell_at + _PROMOTES_FOR_S
        wanted = self._wanted(fault.machine)
        while world.loop.time() < until and not await self._promote_one(wanted, old.name, fell_at):  # noqa: ASYNC110  # an operator asks again
            await asyncio.sleep(_ASKS_EVERY_S)
        await asyncio.sleep(fault.lasts_s)
        self._group.let_up(old)

    async def _pass_over(self, fault: Fault) -> None:
        """The master lives on, cut off; another takes its place if that lacks nothing confirmed; later the old one hears of it.

        Nobody says that it is stopped. `amount` - 1 is two bits. 1: what is sent to it waits, where otherwise connections break; 2: before
        all others it meets one of its slaves again, which knows of its successor by then.
        """
        world, old = self._group.world, self._group.leader
        apart = self._apart = Apart(name_of(old), world.loop.time())
        self._group.history.aparts.append(apart)
        name_machine, *names = self._group.shape.name_machines  # a second one is where the old master is
        others = [*(name for name in self._group.brokers if name != old), name_machine]
        far = [*others, *self._group.shape.machines.clients] if fault.power_fails else others
        walls = [(one, other) for one in (old, *names) for other in far]
        is_silent, meets = (fault.amount - 1) & 1, (fault.amount - 1) & 2
        for one, other in walls:
            part(world.network, one, other, silent=bool(is_silent))
        until = world.loop.time() + _PROMOTES_FOR_S
        wanted = self._wanted(fault.machine)
        while world.loop.time() < until and not await self._promote_past(wanted, old):  # noqa: ASYNC110  # an operator asks again
            await asyncio.sleep(_ASKS_EVERY_S)
        if meets:
            await self._meet(old)
        await asyncio.sleep(fault.lasts_s)
        for one, other in walls:
            world.network.heal(one, other)
        apart.over(world.nodes[old].lives, world.loop.time())
        self._apart = None

    async def tend(self, mq: AsyncClient, *, may_lose: bool) -> None:
        """After the faults: where nobody leads, say again who is to, and accept a loss where the group `may_lose`.

        A disk is emptied instead where the node asks for that. A loss is accepted too where the disk of one that was promoted is gone: then
        all are slaves, and none has its epoch.
        """
        began = alone_since = self._group.world.loop.time()
        while True:
            await asyncio.sleep(_LOOKS_S)
            patient = self._group.world.loop.time() - began < _HOPES_S
            views = [await look_at(mq, name) for name in self._group.brokers]
            if any(view is not None and view.writable for view in views):
                alone_since = self._group.world.loop.time()
            for name, view in zip(self._group.brokers, views, strict=True):
                if not may_lose or patient or view is None or not _waits_for_an_operator(view):
                    continue
                if f"empty the data_dir of {name_of(name)} to copy" in view.waiting_for:
                    await self._empty(self._group.world.nodes[name])
                else:
                    self._group.accept_loss(name)
                    await _ordered(mq, name, accept_loss=True)
            if self._has_changed_roles and self._group.world.loop.time() - alone_since > _PATIENCE_S:
                await _ordered(mq, self._chance.choice(self._group.brokers))
            heir = _longest_of_slaves(self._group.brokers, views)
            if heir and self._group.history.has_seen(Harm.DISK_LOST) and self._group.world.loop.time() - alone_since > _GIVES_UP_S:
                self._group.accept_loss(heir)
                await _ordered(mq, heir, accept_loss=True)

    async def _empty(self, node: Node) -> None:
        """Its `data_dir`."""
        self._group.hold_down(node)
        await node.stop()
        self._group.lose_disk(node)
        self._group.let_up(node)

    def _wanted(self, machine: str) -> list[str]:
        """Who may lead instead of the one that does: that machine first, if it does not."""
        others = [name for name in self._group.brokers if name != self._group.leader]
        return sorted(others, key=lambda name: name != machine)

    async def _promote_one(self, wanted: Sequence[str], old: str, fell_at: float) -> bool:
        """Whether one of them is promoted now, or may be. The word that the old master is stopped stays true until that is known."""
        for name in wanted:
            answer = await self._command(name, old_master_is_stopped=True)
            if answer is None or isinstance(answer, OutOfReach):
                self._group.replaced(old, fell_at)
            if answer is None:
                return True
            if isinstance(answer, OutOfReach) and self._group.world.nodes[name].running:
                await asyncio.sleep(_UNKNOWN_S)
                if self._group.leader != old:
                    return True
        return False

    async def _promote_past(self, wanted: Sequence[str], old: str) -> bool:
        """Whether one of them is promoted. A loss is accepted only where it is said that nothing confirmed is lost."""
        for name in wanted:
            answer = await self._command(name)
            if isinstance(answer, NotPermitted) and _LACKS_NOTHING in str(answer):
                self._group.accept_loss(name)
                answer = await self._command(name, accept_loss=True)
                if isinstance(answer, OutOfReach):  # it may have its grant, and nobody heard of it
                    self._has_replaced()
            if isinstance(answer, OutOfReach) and self._group.world.nodes[name].running and self._group.leader == old:
                await asyncio.sleep(_UNKNOWN_S)
            if self._group.leader != old:
                return True
        return False

    async def _meet(self, old: str) -> None:
        """One slave that knows of the newer epoch is with the old master, and with nobody else."""
        group, network = self._group, self._group.world.network
        knows = next((name for name in group.brokers if name not in (old, group.leader) and self._knows(name)), None)
        if knows is None or group.leader == old:
            return
        far = [*(name for name in group.brokers if name not in (old, knows)), NAMESERVER.partition(":")[0]]
        for other in far:
            network.cut(knows, other)
        for one in (old, *group.shape.name_machines[1:]):
            network.heal(one, knows)
        await asyncio.sleep(_MEETS_S)
        for other in far:
            network.heal(knows, other)

    def _knows(self, name: str) -> bool:
        """Whether a machine has the newest epoch on its disk."""
        heard = self._group.world.nodes[name].disk.durable("dittomq/heard", 64, _HEAD_BYTES)
        return int(heard.partition(b" ")[0].strip(b"\0") or b"0") >= self._newest_epoch

    async def _command(
        self, name: str, *, accept_loss: bool = False, old_master_is_stopped: bool = False, by: str = "operator"
    ) -> DittoError | None:
        """None when it was obeyed, otherwise why not."""
        answers: list[DittoError | None] = []

        async def order(mq: AsyncClient) -> None:
            answers.append(await _ordered(mq, name, accept_loss=accept_loss, old_master_is_stopped=old_master_is_stopped))

        await as_client(self._group, by, order)
        self._group.world.transcript.note(by, f"lets {name} lead: {answers[0] or 'done'}")
        return answers[0]


async def _ordered(mq: AsyncClient, name: str, *, accept_loss: bool = False, old_master_is_stopped: bool = False) -> DittoError | None:
    try:
        await mq.admin.change_role(name_of(name), accept_loss=accept_loss, old_master_is_stopped=old_master_is_stopped)
    except DittoError as refused:
        return refused
    return None


def is_a_doubt(may_be_lost: str) -> bool:
    """Whether nothing else may be lost than what a master that is cut off may write."""
    return may_be_lost.endswith(_DOUBT) and ";" not in may_be_lost


def _waits_for_an_operator(view: HaStatus) -> bool:
    """Whether this node itself is to lead with what it has; a slave, which repeats what its master waits for, is not."""
    return view.role != Role.SLAVE and any(words in view.waiting_for for words in ("operator", "--accept-loss"))


def _longest_of_slaves(machines: Sequence[str], views: Sequence[HaStatus | None]) -> str:
    """Where all of them are slaves: the machine with the best log."""
    found = {name: view for name, view in zip(machines, views, strict=True) if view is not None and view.role == Role.SLAVE}
    return max(found, key=lambda name: (found[name].epoch, found[name].end)) if len(found) == len(machines) else ""


async def look_at(mq: AsyncClient, name: str) -> HaStatus | None:
    """What a machine says of its group; None when it says nothing."""
    with contextlib.suppress(DittoError):
        return await mq.admin.ha_status(f"{name}:10911")
    return None


async def leading(mq: AsyncClient, brokers: Sequence[str]) -> HaStatus | None:
    """What the one says that takes writes; None when nobody does."""
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
