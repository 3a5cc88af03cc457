"""One simulated run: a seed, a loop, a network, machines with disks, and the story of what happened."""

import asyncio
import gc
import random
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from enum import Enum
from functools import partial
from typing import Any, TypeVar

from dittomq.broker.doors import BrokerDoors
from dittomq.broker.role import FIRST_START, BrokerService, RoleChanged, RoleStart
from dittomq.errors import StorageFailure
from tests.simulation.clock import SimulatedClock
from tests.simulation.disk import BOUNDLESS, Disk
from tests.simulation.fibers import on_the_loop
from tests.simulation.loop import SimulatedLoop
from tests.simulation.network import Network
from tests.simulation.simulated_process import Life, SimCrashed
from tests.simulation.storage import Faults, SimulatedStorage
from tests.simulation.transcript import Transcript
from tests.simulation.transport import SimulatedTransport
from tests.simulation.workers import SimulatedWorkers

R = TypeVar("R")
Serve = Callable[[BrokerDoors, asyncio.Event], Awaitable[None]]
ServeAs = Callable[[BrokerDoors, asyncio.Event, RoleStart], Awaitable[None]]


MEMORY_BYTES = 64 * 1024  # so little that some readers are far back


class Power(Enum):
    """How a process is to end."""

    KILL = "killed"
    LOSS = "loses power"


class Node:
    """A machine that runs one process at a time: `serve(doors, stop)`. A client is one too.

    `services` are what its process may go on as; a start of the machine starts `serve`, whatever it was last.
    `crashed` is told of each crash, and in which files a hole arose.
    """

    def __init__(self, world: "World", name: str, serve: Serve, disk: Disk) -> None:
        self.name = name
        self.serve = serve
        self.services: Mapping[BrokerService, ServeAs] = {}
        self.disk = disk
        self.faults = Faults()
        self.lives = 0
        self.may_lead = False  # whether its process is, or was last, that of a master
        self.leads_at_once = False  # whether it is a master when it starts: there is no group record
        self.started_at = 0.0
        self.crashed: Callable[[Power, list[str]], None] = _nobody
        self._dies_by = Power.KILL
        self._world = world
        self._life: Life | None = None
        self._storage: SimulatedStorage | None = None
        self._stop = asyncio.Event()
        self._asked_to_end = False
        self._main: asyncio.Task[None] | None = None
        chance = world.chance(f"{name} clock")
        self.clock = SimulatedClock(world.loop, chance.randint(-2_000, 2_000), chance.uniform(0, 100_000))

    @property
    def running(self) -> bool:
        """Whether its process is there."""
        return self._life is not None

    @property
    def tasks(self) -> int:
        """Tasks of its process."""
        return 0 if self._life is None else self._life.tasks

    @property
    def open_files(self) -> int:
        """Files that its process has open."""
        return 0 if self._storage is None or self._life is None else self._storage.open_files

    def start(self, service: BrokerService | None = None, begins: RoleStart = FIRST_START) -> None:
        """Start the process, on what the disk holds; as `service` when it goes on as that."""
        assert self._life is None, f"{self.name} runs already"
        self.lives += 1
        self.started_at = self._world.loop.time()
        self._world.transcript.note(self.name, f"starts, life {self.lives}")
        self._world.network.power_on(self.name)
        life = self._life = Life(self.name)
        self._stop = asyncio.Event()
        self._asked_to_end = False
        serve = self.serve if service is None else partial(_serve_as, self.services[service], begins)
        self.may_lead = service is BrokerService.MASTER or (service is None and self.leads_at_once)
        self._main = life.spawn(self._run(life, self._stop, serve))

    async def stop(self) -> None:
        """Ask the process to end, and wait until it has."""
        if self._main is not None:
            self._world.transcript.note(self.name, "is asked to stop")
            self._asked_to_end = True
            self._stop.set()
            await asyncio.wait([self._main])

    async def ended(self) -> None:
        """Wait until the process has ended by itself."""
        if self._main is not None:
            await asyncio.wait([self._main])

    def crash(self, power: Power) -> None:
        """End the process now: a kill leaves the disk as it was written, power loss as it was synced and more or less of the rest."""
        life = self._life
        if life is None and power is Power.KILL:
            return
        self.thaw()  # what dies has nothing that waits
        self._world.transcript.note(self.name, power.value)
        self._life = None
        self.faults.operations_to_live = None
        if power is Power.LOSS:
            self._world.network.power_off(self.name)
        else:
            self._world.network.hang_up(self.name)
        if life is not None:
            life.end()
            self._world.bury(life)
        holes: list[str] = []
        if power is Power.LOSS:
            holes = self.disk.lose_power()
        else:
            self.disk.drop_cache()
        self.crashed(power, holes)

    def freeze(self) -> None:
        """Let the process stand still, as by SIGSTOP: its kernel takes what comes, and answers nothing in its name."""
        if self._life is not None:
            self._world.transcript.note(self.name, "stands still")
            self._world.loop.freeze(self._life)
            self._world.network.freeze(self.name)

    def thaw(self) -> None:
        """Let it go on, if it stands still."""
        if self._life is not None and self._world.network.machine(self.name).still:
            self._world.transcript.note(self.name, "goes on")
            self._world.network.thaw(self.name)
            self._world.loop.thaw(self._life)

    def lose_disk(self) -> None:
        """Put an empty disk in the place of what is lost; only while nothing runs."""
        assert self._life is None, f"{self.name} runs"
        self._world.transcript.note(self.name, "loses its disk")
        watch = self.disk.watch
        self.disk = Disk(self.disk.chance, self.disk.capacity_bytes)
        self.disk.watch = watch

    def crash_within(self, operations: int, power: Power) -> None:
        """Crash inside the disk operation that follows so many others."""
        self.faults.operations_to_live = operations
        self._dies_by = power

    async def _run(self, life: Life, stop: asyncio.Event, serve: Serve) -> None:
        storage = self._storage = SimulatedStorage(self.disk, life, self.faults, self._die, syncs_take_time=True)
        world = self._world
        doors = BrokerDoors(
            transport=SimulatedTransport(world.network, life, lambda where, error: world.unexpected(self.name, f"in {where}", error)),
            storage=storage,
            clock=self.clock,
            chance=world.chance(f"{self.name} {self.lives}"),
            workers=SimulatedWorkers(
                life, world.chance(f"{self.name} {self.lives} lanes"), storage, interleaved=world.is_interleaved and bool(self.services)
            ),
            memory_bytes=MEMORY_BYTES,
        )
        how = "ends"
        changed: RoleChanged | None = None
        try:
            await serve(doors, stop)
        except RoleChanged as raised:
            how = str(raised)
            changed = None if self._asked_to_end else raised
        except StorageFailure as failed:
            how = f"ends: {failed}"
        except (SimCrashed, asyncio.CancelledError):
            how = "ends: cancelled"
        except BaseException as error:  # noqa: BLE001  # whatever a process dies of is a finding
            how = self._judge(life, error)
        finally:
            if self._life is life:
                self._over(life, how)
                if changed is not None:
                    world.loop.call_soon(self._go_on, changed)

    def _die(self) -> None:
        on_the_loop(lambda: self.crash(self._dies_by))

    def _go_on(self, changed: RoleChanged) -> None:
        if self._life is None:  # else a supervisor was quicker to start the machine
            self.start(changed.service, changed.start)

    def _judge(self, life: Life, error: BaseException) -> str:
        if self._life is life and not _only(error, (StorageFailure, SimCrashed, asyncio.CancelledError)):
            self._world.unexpected(self.name, "at its top", error)
        return f"ends: {error!r}"

    def _over(self, life: Life, how: str) -> None:
        self._world.transcript.note(self.name, how)
        self._life = None
        self._world.network.hang_up(self.name)
        life.end()
        self._world.bury(life)
        self.disk.drop_cache()


class World:
    """Owns everything of one run. Use `run` once, then `close`."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.loop = SimulatedLoop()
        self.transcript = Transcript(self.loop.time)
        self.network = Network(self.loop, self.chance("network"), self.transcript)
        self.nodes: dict[str, Node] = {}
        self.findings: list[str] = []
        self.is_interleaved = False  # whether others go on in the middle of what a broker's store does
        self._graves: list[Life] = []
        self.loop.set_exception_handler(self._loop_complains)

    def chance(self, purpose: str) -> random.Random:
        """Random numbers for one purpose, independent of all others."""
        return random.Random(f"{self.seed} {purpose}")  # a seed must repeat

    def node(self, name: str, serve: Serve, *, capacity_bytes: int = BOUNDLESS) -> Node:
        """Add a machine; it does not run yet."""
        node = self.nodes[name] = Node(self, name, serve, Disk(self.chance(f"{name} disk"), capacity_bytes))
        self.network.machine(name)
        return node

    def unexpected(self, who: str, where: str, error: BaseException) -> None:
        """Note a finding: something failed that must not fail."""
        finding = f"{who} {where}: {error!r}"
        self.transcript.note(who, f"UNEXPECTED {where}: {error!r}")
        self.transcript.lines += traceback.format_exception(error)  # no part of the hash: paths differ between machines
        self.findings.append(finding)

    def bury(self, life: Life) -> None:
        """See to it that the tasks of a dead process end."""
        self._graves.append(life)

    async def buried(self) -> None:
        """Wait until nothing of dead processes moves."""
        while self._graves:
            await self._graves.pop().buried()

    def run(self, story: Coroutine[Any, Any, R]) -> R:
        """Run a story to its end, then end every process."""
        collecting = gc.isenabled()
        gc.disable()  # what the collector finalises, and when, is no part of a seed
        try:
            return self.loop.run_until_complete(self._whole(story))
        finally:
            if collecting:
                gc.enable()

    def close(self) -> None:
        """Free the loop."""
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()

    async def _whole(self, story: Coroutine[Any, Any, R]) -> R:
        try:
            return await story
        finally:
            for node in self.nodes.values():
                node.crash(Power.KILL)
            await self.buried()

    def _loop_complains(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if error is None or not _only(error, (SimCrashed,)):
            self.unexpected("loop", str(context.get("message")), error or RuntimeError("no exception"))


async def _serve_as(serve: ServeAs, begins: RoleStart, doors: BrokerDoors, stop: asyncio.Event) -> None:
    await serve(doors, stop, begins)


def _nobody(_: Power, __: list[str]) -> None:
    return


def _only(error: BaseException, kinds: tuple[type[BaseException], ...]) -> bool:
    """Whether an error, or everything in a group of errors, is of these kinds."""
    if isinstance(error, BaseExceptionGroup):
        return all(_only(inner, kinds) for inner in error.exceptions)
    return isinstance(error, kinds)
