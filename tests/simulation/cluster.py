"""A nameserver, a master, slaves and clients in one world, put together by the product's own wiring; and the faults that hit them."""

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from dittomq._pb.ditto.messaging.v1.messaging_pb2 import PublishStreamResponse
from dittomq._pb.ditto.replication.v1.replication_pb2 import ReplicateRequest, ReplicateResponse
from dittomq.broker.config import BrokerConfig
from dittomq.broker.doors import BrokerDoors
from dittomq.broker.role import FIRST_START, BrokerService, RoleStart
from dittomq.client import Page
from dittomq.coordination.made import make_coordination
from dittomq.doors.coordination import CoordinationStore
from dittomq.errors import OutcomeHandle
from dittomq.group_record import decode
from services.master import wiring as master
from services.nameserver import wiring as nameserver
from services.nameserver.config import NameserverConfig
from services.slave import wiring as slave
from tests.simulation import bit_rot, links
from tests.simulation.availability import Availability
from tests.simulation.checkers import check_crashed_copy, check_given_up
from tests.simulation.coverage import SAVED_TAIL, Witness
from tests.simulation.disk import BOUNDLESS, Operation
from tests.simulation.disk_snapshots import ANEW, LOG, Copy, Files
from tests.simulation.faults import OF_LEADERSHIP, Fault, FaultKind
from tests.simulation.history import Absence, Harm, History, Incident, Publish, Read, Reign, Reservation
from tests.simulation.invariants import Broken, Invariant
from tests.simulation.named_nodes import NamedNodes
from tests.simulation.online_checkers import RunningChecks
from tests.simulation.operator import Operator
from tests.simulation.shapes import PUBLISHERS, SUBSCRIBER, Shape, machine_of, name_of
from tests.simulation.wiretap import Wiretap
from tests.simulation.workload import Phases, Publisher, Subscriber
from tests.simulation.world import Node, Power, ServeAs, World

_GROUPS = "dittomq/groups"
_HEAD_BYTES = 22  # of a side file
_RESTART_S = 0.5
_STOP_S = 60.0
_TOLD_S = 5.0
_SENT_S = 0.02
_PIECE_S = 10.0
_SLOW_CUT = 1_000.0  # so that clients publish while slaves cut what they had more than their master
_STALLS_S = 3.0  # longer than the pause between two watermarks and the sync of one
_AT_REST_S = 5.0
_ALONE_S = 6.0  # longer than a recovering master waits for those that it need not hear


class Cluster:
    """Everything of one run. Brokers are called a0 (the master), a1, a2; a broker that exits is started again."""

    def __init__(self, world: World, shape: Shape) -> None:
        self.world = world
        self.shape = shape
        self.phases = Phases(world.loop.time)
        self._may_lose: set[str] = set()
        self._left_out: Counter[str] = Counter()  # offsets of each queue, by machine, until the epoch that goes on behind them
        self.history = History([Reign(0.0, "a/0")], syncs_matter=shape.syncs_matter, copies=shape.replication.asked_copies)
        self.brokers = shape.brokers
        self.checks = RunningChecks(world, shape, self.history, self.copy)
        self.problems = self.checks.problems
        self.witness = Witness(shape, lambda machine: self.copy(machine).end)
        self.publishers = [Publisher(name, self.history, self.phases, world.chance(name), ears=self, shape=shape) for name in PUBLISHERS]
        self.subscriber = Subscriber(SUBSCRIBER, self.history, self.phases, world.chance(SUBSCRIBER), ears=self, shape=shape)
        self._got_a_piece = asyncio.Event()  # a chunk that is not the last one of a frame, as likely as not
        self._down: dict[str, int] = {}
        self._to_die_in_a_cut: dict[str, Fault] = {}
        self._to_die_cutting: dict[str, Fault] = {}
        self._to_die_copying: dict[str, Fault] = {}
        self.operator = Operator(self, world.chance("operator"))
        self._names = NamedNodes(world, shape)
        self._availability = Availability(world, shape, self.history, self.publishers)
        Wiretap(world.network, self)
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
            self.checks.look_at_processes()
            self._names.look()
            if not self.phases.calm.is_set():
                found = self._availability.look(self.checks.record)
                self.problems += (Broken(Invariant.I9, what) for what in found)
            await self.revive(name for name in self._inhabitants if not self._is_done(name))

    async def revive(self, names: Iterable[str]) -> None:
        """Start those of them that have ended, unless a fault holds them down."""
        for name in names:
            node = self.world.nodes[name]
            if not node.running and not self.is_held_down(name):
                await self.world.buried()
                node.start()

    async def suffer(self, fault: Fault) -> None:
        """Let one fault happen at its time and take it back after it has lasted."""
        await asyncio.sleep(fault.at)
        self.world.transcript.note("FAULT", str(fault))
        node = self.world.nodes[fault.machine]
        match fault.kind:
            case FaultKind.CUT | FaultKind.SILENCE | FaultKind.SILENCE_ONE_WAY | FaultKind.SLOW_LINK:
                await links.disturb(self.world.network, fault)
            case FaultKind.KILL | FaultKind.CLIENT_CRASH:
                await self._crash([node], Power.KILL, fault.lasts_s)
            case FaultKind.POWER_LOSS | FaultKind.POWER_LOSS_OF_ALL:
                all_of_them = fault.kind is FaultKind.POWER_LOSS_OF_ALL
                await self._crash([self.world.nodes[name] for name in self.brokers] if all_of_them else [node], Power.LOSS, fault.lasts_s)
            case FaultKind.CRASH_INSIDE:
                node.crash_within(fault.amount, _power(fault))
            case FaultKind.CRASH_IN_A_CUT:
                self._to_die_in_a_cut[node.name] = fault
            case FaultKind.CRASH_WHILE_STARTING:
                await self._crash([node], Power.KILL, fault.lasts_s)
                node.crash_within(fault.amount, _power(fault))
            case FaultKind.CRASH_WHEN_TOLD:
                await self._crash_when_told(node, fault)
            case FaultKind.LEFT_BEHIND:
                await self._leave_behind(node, fault)
            case FaultKind.RESTART:
                await self._restart(node, fault.lasts_s)
            case FaultKind.DISK_LOSS:
                await self._lose_disk(node, fault)
            case FaultKind.FAILED_SYNC:
                node.faults.failing_syncs = 1
            case FaultKind.FULL_DISK:
                await self._fill_disk(node, fault)
            case FaultKind.SLOW_DISK | FaultKind.HANG:
                node.faults.slowness = float(fault.amount)
                await asyncio.sleep(fault.lasts_s)
                node.faults.slowness = 1.0
            case FaultKind.CLOCK_JUMP:
                node.clock.jump(fault.amount)
            case _:
                await self._suffer_what_is_special(fault, node)

    async def _suffer_what_is_special(self, fault: Fault, node: Node) -> None:
        """What only some runs have."""
        match fault.kind:
            case FaultKind.LEFT_FAR_BEHIND:
                self._to_die_copying[node.name] = fault
                await self._crash([node], _power(fault), fault.lasts_s)
            case FaultKind.CRASH_IN_A_FRAME:
                await self._crash_in_a_frame(fault)
            case FaultKind.STORE_DOWN:
                await self._crash([node], Power.KILL, fault.lasts_s)
            case kind if kind in OF_LEADERSHIP:
                await self.operator.act(fault)
            case FaultKind.ROT | FaultKind.REMOVED:
                self._spoil(node, bit_rot.remove if fault.kind is FaultKind.REMOVED else bit_rot.fail if fault.amount > 1 else bit_rot.flip)
            case FaultKind.STALL:
                await self._stall(fault)
            case FaultKind.FREEZE:
                node.freeze()
                await asyncio.sleep(fault.lasts_s)
                node.thaw()

    def heal(self) -> None:
        """No more faults: what is left of them is taken back."""
        self.world.network.heal_all()
        for node in self.world.nodes.values():
            node.thaw()
            node.faults.slowness = 1.0
            node.faults.failing_syncs = 0
            node.disk.capacity_bytes = BOUNDLESS
            node.faults.operations_to_live = None
        for doomed in (self._to_die_in_a_cut, self._to_die_cutting, self._to_die_copying):
            doomed.clear()
        self._down.clear()
        self.world.transcript.note("FAULT", "everything is healed")

    @property
    def leader(self) -> str:
        """The machine that leads, or was promoted to lead."""
        return machine_of(self.history.master)

    def hold_down(self, node: Node) -> None:
        """Let nobody start a machine."""
        self._down[node.name] = self._down.get(node.name, 0) + 1
        if self._down[node.name] == 1 and node.name in self.brokers:
            self.history.absences.append(Absence(name_of(node.name), self.world.loop.time()))

    def is_held_down(self, machine: str) -> bool:
        """Whether a fault keeps it from being started."""
        return bool(self._down.get(machine))

    def let_up(self, node: Node) -> None:
        """Let the supervisor start it, unless somebody else holds it down."""
        self._down[node.name] = max(0, self._down.get(node.name, 0) - 1)
        if not self._down[node.name]:
            self.history.is_back(name_of(node.name), self.world.loop.time())

    def accept_loss(self, machine: str) -> None:
        """The operator lets a node lead without what it lacks: that is looked at when it does, it may have copied much by then."""
        self._may_lose.add(machine)

    async def stop(self) -> None:
        """Stop all brokers in order; a problem when one does not end."""
        for name in reversed(self.brokers):
            try:
                async with asyncio.timeout(_STOP_S):
                    await self.world.nodes[name].stop()
            except TimeoutError:
                self.problems.append(Broken(Invariant.I9, f"{name} does not end within {_STOP_S:g} s of being asked to stop"))

    def copy(self, name: str) -> Copy:
        """The log on a machine's disk, as it is now."""
        return Copy(self.world.nodes[name].disk, self.shape.segment_bytes)

    def copy_of(self, node: str) -> Copy:
        """The log of a node, "broker/id"."""
        return self.copy(machine_of(node))

    def files(self, name: str) -> Files:
        """The log's files on a machine's disk."""
        return Files(self.world.nodes[name].disk)

    # What the world tells, to those who judge and to those who write down what happened.

    def receipt(self, publish: Publish) -> None:
        """A client got a receipt."""
        self.checks.receipt(publish)
        self.witness.receipt(publish)

    def expired(self, sent_again: OutcomeHandle) -> None:
        """A client sent a message again, and its producer is forgotten."""
        self.witness.expired(sent_again)

    def page(self, reads: Sequence[Read], page: Page, asked: int) -> None:
        """A client that asked from some offset on got a page."""
        self.checks.page(reads, page, asked)

    def listed(self, asked_at: float, nodes: Collection[str]) -> None:
        """A client that asked at some time was told which nodes there are."""
        self.problems += (Broken(Invariant.I15, what) for what in self._names.listed(asked_at, nodes))

    def frame_answered(self, answer: PublishStreamResponse) -> None:
        """A client got an outcome of a frame."""
        self.witness.frame_answered(answer)

    def slave_said(self, slave: str, master: str, said: ReplicateRequest) -> None:
        """A slave said something to its master."""
        self.checks.slave_said(slave, master, said)
        self.witness.slave_said(slave, master, said)

    def master_said(self, master: str, slave: str, said: ReplicateResponse) -> None:
        """A master said something to a slave."""
        if said.WhichOneof("event") == "chunk" and len(said.chunk.data) >= self.shape.limits.chunk_bytes // 2:
            self._got_a_piece.set()
        self.checks.master_said(master, slave, said)
        self.witness.master_said(master, slave, said)

    def logged(self, machine: str, name: str, fields: Mapping[str, Any]) -> None:
        """A service wrote a line into its log."""
        if name == "queue_offsets_left_out":
            self._left_out[machine] += fields["offsets_of_each_queue"]
        if name == "epoch_opened" and (offsets := self._left_out.pop(machine, 0)):
            self.history.reservations.append(Reservation(fields["start"], offsets))
        if name == "epoch_opened" and fields["node"] != self.history.master:
            self.history.reigns.append(Reign(self.world.loop.time(), fields["node"]))
        if name == "elected" and fields["data_loss"] and machine in self._may_lose:
            self._may_lose.discard(machine)
            self.problems += check_given_up(self.history, name_of(machine), self.copy(machine))
            self._harm(self.world.nodes[machine], Harm.LOSS_ACCEPTED)
        self.witness.logged(machine, name, fields)

    async def _crash(self, nodes: list[Node], power: Power, down_s: float) -> None:
        for node in nodes:
            self.hold_down(node)
            node.crash(power)
        await asyncio.sleep(down_s)
        for node in nodes:
            self.let_up(node)

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

    async def _crash_in_a_frame(self, fault: Fault) -> None:
        """The master crashes, and what is on its way to its slaves is lost, when one of them got a large piece of its log."""
        self._got_a_piece.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PIECE_S):
                await self._got_a_piece.wait()
        leader = self.leader
        others = [name for name in self.brokers if name != leader]
        for other in others:
            self.world.network.cut(leader, other)
        await self._crash([self.world.nodes[leader]], _power(fault), fault.lasts_s)
        for other in others:
            self.world.network.heal(leader, other)

    async def _caught_writing(self, node: Node, fault: Fault) -> None:
        """Return when a slow disk has something in its cache that others may have got."""
        node.faults.slowness = float(fault.amount)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_TOLD_S):
                while not node.disk.has_unsynced("commitlog"):  # noqa: ASYNC110  # a disk tells nobody
                    await asyncio.sleep(0.01)
        await asyncio.sleep(_SENT_S)
        node.faults.slowness = 1.0

    async def _leave_behind(self, node: Node, fault: Fault) -> None:
        """Others may have got what this machine loses, and cannot tell it for a while."""
        await self._caught_writing(node, fault)
        others = [name for name in self.brokers if name != node.name]
        for other in others:
            self.world.network.cut(node.name, other)
        await self._crash([node], Power.LOSS, 0.5)
        await asyncio.sleep(_ALONE_S + fault.lasts_s)
        for other in others:
            self.world.network.heal(node.name, other)
            self.world.nodes[other].faults.slowness = _SLOW_CUT
        await asyncio.sleep(_TOLD_S)
        for other in others:
            self.world.nodes[other].faults.slowness = 1.0

    async def _stall(self, fault: Fault) -> None:
        """Clients publish into slow disks until everybody loses power: what nobody has synced is lost, here more, there less."""
        nodes = [self.world.nodes[name] for name in self.brokers]
        for node in nodes:
            node.faults.slowness = float(fault.amount)
        await asyncio.sleep(_STALLS_S)
        for node in nodes:
            node.faults.slowness = 1.0
        await self._crash(nodes, Power.LOSS, fault.lasts_s)

    async def _restart(self, node: Node, down_s: float) -> None:
        self.hold_down(node)
        await node.stop()
        await asyncio.sleep(down_s)
        self.let_up(node)

    async def _lose_disk(self, node: Node, fault: Fault) -> None:
        await self._caught_writing(node, fault)
        self.hold_down(node)
        node.crash(Power.LOSS)
        self.lose_disk(node)
        node.disk.capacity_bytes = BOUNDLESS
        await asyncio.sleep(fault.lasts_s)
        self.let_up(node)

    def lose_disk(self, node: Node) -> None:
        """Nothing is on it any more."""
        node.lose_disk()
        self.checks.disk_lost(node.name)
        self._harm(node, Harm.DISK_LOST)

    async def _fill_disk(self, node: Node, fault: Fault) -> None:
        """Leave so many KiB, which may be less than the reserve."""
        node.disk.capacity_bytes = node.disk.used_bytes() + fault.amount * 1024
        await asyncio.sleep(fault.lasts_s)
        node.disk.capacity_bytes = BOUNDLESS

    def _spoil(self, node: Node, spoil: bit_rot.Spoil) -> None:
        """Of what recovery must keep, that is: below the watermark."""
        now = self.world.loop.time()
        spoiled = ""
        if node.running and node.faults.slowness == 1.0 and now - node.started_at > _AT_REST_S:
            nodes = [name_of(name) for name in sorted(self.brokers, key=lambda name: name != node.name)]
            spoiled = spoil(self.history, nodes, self.copy_of, self.world.chance(f"rot {now}"), now=now)
        if spoiled:
            self.witness.rotted()
        self.world.transcript.note(node.name, f"is spoiled: {spoiled or 'nothing'}")

    def _is_done(self, name: str) -> bool:
        done = {self.subscriber.name, *(one.name for one in self.publishers if one.settled.is_set())}
        return self.phases.calm.is_set() and name in done

    def _harm(self, node: Node, harm: Harm) -> None:
        self.history.incidents.append(Incident(self.world.loop.time(), name_of(node.name), harm))

    def _crashed(self, node: Node, power: Power, holes: list[str]) -> None:
        self._to_die_cutting.pop(node.name, None)
        self.witness.crashed(node.name, holes)
        if power is Power.LOSS:
            self._harm(node, Harm.POWER_LOST)
        where = f"{node.name} after a crash at {self.world.loop.time():.6f}"
        found = check_crashed_copy(self.history, name_of(node.name), self.copy(node.name))
        self.problems += (Broken(each.invariant, f"{where}: {each.what}") for each in found)

    def _build(self) -> None:
        for name in self.shape.name_machines:
            node = self.world.node(name, lambda doors, stop: nameserver.serve(NameserverConfig(registry=self.shape.names), doors, stop))
            node.disk.watch = self._group_written
        for number, name in enumerate(self.brokers):
            services = self._services(number, name)
            first = services[BrokerService.SLAVE if number else BrokerService.MASTER]
            node = self.world.node(name, partial(serve_first, first))
            node.services = services
            node.leads_at_once = not self.shape.slaves
            self._watch(node)
        for publisher in self.publishers:
            self.world.node(publisher.name, publisher.serve)
        self.world.node(self.subscriber.name, self.subscriber.serve)

    def _group_written(self, operation: Operation) -> None:
        """The coordination store has the record that its file names."""
        if operation.inode is not None and operation.target == _GROUPS:
            [[_, _, document]] = json.loads(operation.inode.read(operation.inode.size, _HEAD_BYTES))
            self.checks.record = decode(document.encode(), _GROUPS)

    def _watch(self, node: Node) -> None:
        def failed() -> None:
            self._harm(node, Harm.SYNC_FAILED)
            self.witness.sync_failed()

        def renamed(operation: Operation) -> None:
            if operation.path.startswith(SAVED_TAIL) and (fault := self._to_die_in_a_cut.pop(node.name, None)):
                self._to_die_cutting[node.name] = fault
                node.crash_within(fault.amount, _power(fault))
            if operation.new_name.startswith(ANEW) and (fault := self._to_die_copying.pop(node.name, None)):
                node.crash_within(fault.amount, _power(fault))
            self.checks.renamed(node.name, operation)
            self.witness.renamed(node.name, operation)

        def shortened(path: str) -> None:
            fault = self._to_die_cutting.pop(node.name, None) if path.startswith(LOG) else None
            if fault is not None and fault.amount % 2:
                node.crash_within(0, _power(fault))

        node.crashed = lambda power, holes: self._crashed(node, power, holes)
        node.faults.shortened = shortened
        node.faults.sync_failed = failed
        node.faults.synced = lambda path, seconds: self.witness.synced(node.name, path, seconds)
        node.disk.watch = renamed

    def _services(self, number: int, name: str) -> Mapping[BrokerService, ServeAs]:
        """Both services of a machine, on one configuration."""
        leading, following = self.shape.leading(name, number), self.shape.following(name, number)

        async def lead(doors: BrokerDoors, stop: asyncio.Event, start: RoleStart) -> None:
            await master.serve(leading, doors, stop, start=start, coordination=coordination(leading, doors))

        async def follow(doors: BrokerDoors, stop: asyncio.Event, start: RoleStart) -> None:
            await slave.serve(following, doors, stop, start=start, coordination=coordination(following, doors))

        return {BrokerService.MASTER: lead, BrokerService.SLAVE: follow}


def coordination(config: BrokerConfig, doors: BrokerDoors) -> CoordinationStore | None:
    """The coordination store as one process reaches it."""
    return make_coordination(
        config.coordination,
        config.coordination_endpoints,
        transport=doors.transport,
        clock=doors.clock,
        workers=doors.workers,
        environment={},
    )


async def serve_first(serve: ServeAs, doors: BrokerDoors, stop: asyncio.Event) -> None:
    """Serve as a process that has just started."""
    await serve(doors, stop, FIRST_START)


def _power(fault: Fault) -> Power:
    return Power.LOSS if fault.power_fails else Power.KILL
