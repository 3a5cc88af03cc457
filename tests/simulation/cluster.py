"""A nameserver, a master, slaves and clients in one world, put together by the product's own wiring; and the faults that hit them."""

import asyncio
import contextlib
import random
import sys
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, replace
from typing import Any, Self

import structlog

from dittomq.broker.config import StoreTable
from dittomq.broker.role import BrokerService
from services.master import config as master_config
from services.master import wiring as master
from services.nameserver import wiring as nameserver
from services.nameserver.config import NameserverConfig
from services.slave import config as slave_config
from services.slave import wiring as slave
from tests.simulation import life
from tests.simulation.checkers import check_crashed_copy
from tests.simulation.faults import Fault, FaultKind, Machines
from tests.simulation.history import Harm, History, Incident
from tests.simulation.workload import NAMESERVER, Phases, Publisher, Subscriber
from tests.simulation.world import Node, Power, Serve, World

_STORE = StoreTable(segment_bytes=65_536, reserve_bytes=0)
_NAMESERVER = "ns"
_PUBLISHERS = ("p0", "p1")
_SUBSCRIBER = "r0"
_RESTART_S = 0.5
_STOP_S = 60.0
_TOLD_S = 5.0


@dataclass(frozen=True, slots=True)
class Shape:
    """How the group is configured."""

    slaves: int
    replication: master_config.ReplicationTable
    slave_flush: slave_config.FlushMode

    @property
    def syncs_matter(self) -> bool:
        """Whether only what is flushed is confirmed."""
        return self.replication.flush_mode is master_config.FlushMode.SYNC_FLUSH

    @property
    def needs_no_operator(self) -> bool:
        """Whether what is confirmed is on more than one disk, so that nobody need ever accept its loss."""
        return (
            self.syncs_matter and self.replication.asked_copies > 1 and self.replication.release_level is master_config.ReleaseLevel.FLUSHED
        )

    @property
    def brokers(self) -> tuple[str, ...]:
        """The machines of the group, the master's first."""
        return tuple(f"a{number}" for number in range(self.slaves + 1))

    @property
    def machines(self) -> Machines:
        """Who can be hit by faults."""
        return Machines(self.brokers, _NAMESERVER, (*_PUBLISHERS, _SUBSCRIBER))

    def undegraded(self) -> Self:
        """The same, but refusing what cannot be on as many copies as asked."""
        return replace(self, replication=replace(self.replication, min_in_sync_replicas=self.replication.asked_copies))


def shape(chance: random.Random) -> Shape:
    """Mostly two slaves, all flushed; now and then something weaker or stricter."""
    slaves = chance.choice((1, 2, 2, 2))
    copies = 3 if slaves == 2 and chance.random() < 0.15 else 2
    asynchronous = chance.random() < 0.15
    lazy = chance.random() < 0.15
    replication = master_config.ReplicationTable(
        mode=master_config.Mode.ASYNC_MASTER if asynchronous else master_config.Mode.SYNC_MASTER,
        replicas_expected=slaves,
        in_sync_replicas=0 if asynchronous else copies,
        min_in_sync_replicas=chance.choice((1, 1, 1 if asynchronous else copies)),
        flush_mode=master_config.FlushMode.ASYNC_FLUSH if lazy else master_config.FlushMode.SYNC_FLUSH,
        release_level=master_config.ReleaseLevel.RECEIVED if lazy or chance.random() < 0.1 else master_config.ReleaseLevel.FLUSHED,
    )
    return Shape(slaves, replication, slave_config.FlushMode.ASYNC_FLUSH if lazy else slave_config.FlushMode.SYNC_FLUSH)


class Cluster:
    """Everything of one run. Brokers are called a0 (the master), a1, a2; a broker that exits is started again."""

    def __init__(self, world: World, shape: Shape) -> None:
        self.world = world
        self.shape = shape
        self.phases = Phases(world.loop.time)
        self.history = History(master="a/0", syncs_matter=shape.syncs_matter)
        self.problems: list[str] = []
        self.brokers = shape.brokers
        self.publishers = [Publisher(name, self.history, self.phases, world.chance(name)) for name in _PUBLISHERS]
        self.subscriber = Subscriber(_SUBSCRIBER, self.history, self.phases, world.chance(_SUBSCRIBER))
        self.subscriber.nodes = tuple(map(name_of, self.brokers))
        self._down: dict[str, int] = {}
        self._build()
        self._inhabitants = tuple(self.world.nodes)

    def start(self) -> None:
        """Start everything."""
        for node in self.world.nodes.values():
            node.start()

    async def supervise(self) -> None:
        """Start what has ended, as an init system does, unless a fault holds it down."""
        while True:
            await asyncio.sleep(_RESTART_S)
            for name in self._inhabitants:
                node = self.world.nodes[name]
                if not node.running and not self._down.get(name) and not self._is_done(name):
                    await self.world.buried()
                    node.start()

    async def suffer(self, fault: Fault) -> None:
        """Let one fault happen at its time and take it back after it has lasted."""
        await asyncio.sleep(fault.at)
        self.world.transcript.note("FAULT", str(fault))
        node = self.world.nodes[fault.machine]
        match fault.kind:
            case FaultKind.CUT | FaultKind.SILENCE | FaultKind.SILENCE_ONE_WAY | FaultKind.SLOW_LINK:
                await self._disturb_link(fault)
            case FaultKind.KILL | FaultKind.CLIENT_CRASH:
                await self._crash([node], Power.KILL, fault.lasts_s)
            case FaultKind.POWER_LOSS:
                await self._crash([node], Power.LOSS, fault.lasts_s)
            case FaultKind.POWER_LOSS_OF_ALL:
                await self._crash([self.world.nodes[name] for name in self.brokers], Power.LOSS, fault.lasts_s)
            case FaultKind.CRASH_INSIDE:
                node.crash_within(fault.amount, _power(fault))
            case FaultKind.CRASH_WHILE_STARTING:
                await self._crash([node], Power.KILL, fault.lasts_s)
                node.crash_within(fault.amount, _power(fault))
            case FaultKind.CRASH_WHEN_TOLD:
                await self._crash_when_told(node, fault)
            case FaultKind.RESTART:
                await self._restart(node, fault.lasts_s)
            case FaultKind.DISK_LOSS:
                await self._lose_disk(node, fault.lasts_s)
            case FaultKind.FAILED_SYNC:
                node.faults.failing_syncs = 1
            case FaultKind.SLOW_DISK:
                node.faults.slowness = float(fault.amount)
                await asyncio.sleep(fault.lasts_s)
                node.faults.slowness = 1.0
            case FaultKind.CLOCK_JUMP:
                node.clock.jump(fault.amount)

    def heal(self) -> None:
        """No more faults: what is left of them is taken back."""
        self.world.network.heal_all()
        for node in self.world.nodes.values():
            node.faults.slowness = 1.0
            node.faults.failing_syncs = 0
            node.faults.operations_to_live = None
        self._down.clear()
        self.world.transcript.note("FAULT", "everything is healed")

    def lose_all_power(self) -> None:
        """Every broker loses power at once; the supervisor starts them again."""
        for name in self.brokers:
            self.world.nodes[name].crash(Power.LOSS)

    def accept_loss(self) -> None:
        """The operator lets the master lead without what it lacks."""
        self._harm(self.world.nodes[self.brokers[0]], Harm.LOSS_ACCEPTED)

    async def stop(self) -> None:
        """Stop all brokers in order; a problem when one does not end."""
        for name in reversed(self.brokers):
            try:
                async with asyncio.timeout(_STOP_S):
                    await self.world.nodes[name].stop()
            except TimeoutError:
                self.problems.append(f"{name} does not end within {_STOP_S:g} s of being asked to stop")

    def files(self, name: str) -> dict[str, bytes]:
        """The log's files on a node's disk."""
        names = self.world.nodes[name].disk.names.files
        return {path: inode.read(inode.size, 0) for path, inode in names.items() if path.startswith("commitlog/")}

    async def _crash(self, nodes: list[Node], power: Power, down_s: float) -> None:
        for node in nodes:
            self._down[node.name] = self._down.get(node.name, 0) + 1
            node.crash(power)
        await asyncio.sleep(down_s)
        for node in nodes:
            self._up(node)

    async def _crash_when_told(self, node: Node, fault: Fault) -> None:
        """Crash a machine with a slow disk at the moment when a client is told that something is stored."""
        node.faults.slowness = float(fault.amount)
        await asyncio.sleep(1.0)
        self.phases.told.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_TOLD_S):
                await self.phases.told.wait()
        node.faults.slowness = 1.0
        await self._crash([node], _power(fault), fault.lasts_s)

    async def _restart(self, node: Node, down_s: float) -> None:
        self._down[node.name] = self._down.get(node.name, 0) + 1
        await node.stop()
        await asyncio.sleep(down_s)
        self._up(node)

    async def _lose_disk(self, node: Node, down_s: float) -> None:
        self._down[node.name] = self._down.get(node.name, 0) + 1
        node.crash(Power.LOSS)
        node.lose_disk()
        self._harm(node, Harm.DISK_LOST)
        await asyncio.sleep(down_s)
        self._up(node)

    def _up(self, node: Node) -> None:
        self._down[node.name] = max(0, self._down.get(node.name, 0) - 1)

    async def _disturb_link(self, fault: Fault) -> None:
        network, one, other = self.world.network, fault.machine, fault.other
        match fault.kind:
            case FaultKind.CUT:
                network.cut(one, other)
            case FaultKind.SILENCE:
                network.silence(one, other)
                network.silence(other, one)
            case FaultKind.SILENCE_ONE_WAY:
                network.silence(one, other)
            case _:
                network.link(one, other).slowness = float(fault.amount)
        await asyncio.sleep(fault.lasts_s)
        network.heal(one, other)

    def _is_done(self, name: str) -> bool:
        return self.phases.calm.is_set() and (
            name == self.subscriber.name or any(name == one.name and one.settled.is_set() for one in self.publishers)
        )

    def _harm(self, node: Node, harm: Harm) -> None:
        self.history.incidents.append(Incident(self.world.loop.time(), name_of(node.name), harm))

    def _crashed(self, node: Node, power: Power) -> None:
        if power is Power.LOSS:
            self._harm(node, Harm.POWER_LOST)
        where = f"{node.name} after a crash at {self.world.loop.time():.6f}"
        self.problems += (f"{where}: {found}" for found in check_crashed_copy(self.history, name_of(node.name), self.files(node.name)))

    def _build(self) -> None:
        self.world.node(
            _NAMESERVER, lambda doors, stop: nameserver.serve(NameserverConfig(), doors.transport, doors.clock, doors.chance, stop)
        )
        for number, name in enumerate(self.brokers):
            services = self._services(number, name)
            node = self.world.node(name, services[BrokerService.SLAVE if number else BrokerService.MASTER])
            node.services = services
            self._watch(node)
        for publisher in self.publishers:
            self.world.node(publisher.name, publisher.serve)
        self.world.node(self.subscriber.name, self.subscriber.serve)

    def _watch(self, node: Node) -> None:
        node.crashed = lambda power: self._crashed(node, power)
        node.faults.sync_failed = lambda: self._harm(node, Harm.SYNC_FAILED)

    def _services(self, number: int, name: str) -> Mapping[BrokerService, Serve]:
        """Both services of a machine, on one configuration."""
        replication = self.shape.replication if number == 0 else replace(self.shape.replication, flush_mode=self.shape.slave_flush)
        tables: dict[str, Any] = {
            "node": master_config.NodeTable(broker_id=number, nameservers=(NAMESERVER,)),
            "advertise": {"default": f"{name}:10911"},
            "advertise_replication": {"default": f"{name}:10912"},
            "store": _STORE,
            "replication": replication,
        }
        leading, following = master_config.MasterConfig(**tables), slave_config.SlaveConfig(**tables)
        return {
            BrokerService.MASTER: lambda doors, stop: master.serve(leading, doors, stop),
            BrokerService.SLAVE: lambda doors, stop: slave.serve(following, doors, stop),
        }


def name_of(machine: str) -> str:
    """The broker's name, "a/0", of the machine a0."""
    return f"{machine[0]}/{machine[1:]}"


def log_into(world: World) -> None:
    """Let the services' log lines be part of the transcript; an exception in one is a finding."""

    def write(_: object, level: str, event: MutableMapping[str, Any]) -> str:
        process = life.current.get()
        who = process.name if process is not None else "-"
        error = event.pop("exc_info", None)
        name = event.pop("event")
        world.transcript.note(who, f"{level} {name} {' '.join(f'{key}={value}' for key, value in event.items())}")
        if error:
            raised = error if isinstance(error, BaseException) else sys.exception()
            world.unexpected(who, f"logged {name}", raised or RuntimeError(f"exc_info={error}"))
        raise structlog.DropEvent

    structlog.configure(processors=[write], cache_logger_on_first_use=False)


def _power(fault: Fault) -> Power:
    return Power.LOSS if fault.power_fails else Power.KILL
