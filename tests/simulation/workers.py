"""The workers door: the steps that threads run in production, with virtual time passing between them.

A crash can fall between any two steps, and into the time that a sync takes. What a step costs is what its disk says, plus a little.
In runs that are `interleaved` the steps of those lanes that change a store are fibers: the disk stops them in the middle of a call.
"""

import asyncio
import contextlib
import functools
import random
from collections import deque
from collections.abc import Callable, Generator
from typing import Any, Protocol, TypeVar

from dittomq.doors.workers import Executor
from tests.simulation.fibers import Fiber
from tests.simulation.simulated_process import Life, Phase, SimCrashed

P = TypeVar("P")
R = TypeVar("R")

_STEP_S = (0.000_005, 0.000_3)
_OF_STORES = ("store", "sync", "dispatch", "files", "retention")


def _nothing() -> None:
    return


class _Job:
    """Steps on their way. `outcome` is what the last step brought and nobody was told yet."""

    def __init__(self, steps: Generator[Any, None, Any], progress: Callable[[Any], None] | None, waiter: asyncio.Future[Any]) -> None:
        self.ended = False
        self.fiber: Fiber | None = None
        self._steps = steps
        self._progress = progress
        self._waiter = waiter
        self._outcome: Callable[[], None] | None = None

    def step(self) -> None:
        """Run one step."""
        try:
            value = next(self._steps)
        except StopIteration as end:
            self.ended = True
            self._outcome = functools.partial(self._tell, self._waiter.set_result, end.value)
        except BaseException as error:  # noqa: BLE001  # as a thread pool does: whoever waits gets it
            self.ended = True
            self._outcome = functools.partial(self._tell, self._waiter.set_exception, error)
        else:
            if self._progress is not None:
                self._outcome = functools.partial(self._progress, value)

    def report(self) -> None:
        """Tell what the last step brought."""
        outcome, self._outcome = self._outcome, None
        if outcome is not None:
            outcome()

    def finish(self) -> None:
        """Run a step to its end that was stopped in its middle."""
        if self.fiber is not None and not self.fiber.ended:
            self.fiber.finish()

    def drop(self) -> None:
        """The process is gone."""
        self.finish()
        with contextlib.suppress(SimCrashed):
            self._steps.close()

    def _tell(self, setter: Callable[[Any], None], value: object) -> None:
        if not self._waiter.done():
            setter(value)


class SimulatedLane:
    """Runs up to `width` generators of steps at a time, in the order of the calls, also those whose callers have left, as threads do."""

    def __init__(self, workers: "SimulatedWorkers", width: int, *, is_interleaved: bool) -> None:
        self._workers = workers
        self._width = width
        self._is_interleaved = is_interleaved
        self._waiting: deque[_Job] = deque()
        self._running: list[_Job] = []

    async def run(self, steps: Generator[P, None, R], progress: Callable[[P], None] | None = None) -> R:
        self._workers.life.check()
        if self._workers.closed:
            raise RuntimeError("cannot schedule new work after the workers were closed")
        waiter: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        job = _Job(steps, progress, waiter)
        self._waiting.append(job)
        if len(self._running) < self._width:
            self._start_next()
        return await waiter

    async def call(self, work: Callable[[], R]) -> R:
        def one_step() -> Generator[None, None, R]:
            return work()
            yield

        return await self.run(one_step())

    def finish_now(self) -> None:
        """Run everything to its end without letting time pass, as a thread pool does that is waited for."""
        for job in [*self._running, *self._waiting]:
            job.finish()
            job.report()
            while not job.ended:
                job.step()
                job.report()
        self._running.clear()
        self._waiting.clear()

    def drop(self) -> None:
        """The process is gone: nothing of what had begun goes on."""
        for job in self._running:
            job.drop()
        self._running.clear()

    def _start_next(self) -> None:
        if self._waiting:
            job = self._waiting.popleft()
            self._running.append(job)
            self._workers.pause(functools.partial(self._step, job))

    def _step(self, job: _Job) -> None:
        if job not in self._running:
            return
        if self._is_interleaved:
            step = functools.partial(self._workers.life.new_context().run, job.step)
            job.fiber = Fiber(
                step, self._workers.life, stopped=functools.partial(self._stopped, job), wake=functools.partial(self._wake, job)
            )
            job.fiber.resume()
        else:
            job.step()
            self._workers.pause(functools.partial(self._go_on, job))

    def _stopped(self, job: _Job, fiber: Fiber) -> None:
        if fiber.ended:
            self._workers.pause(functools.partial(self._go_on, job))
        elif fiber.waits_for is None:
            self._workers.pause(functools.partial(self._resume, job, fiber, fiber.turns))

    def _wake(self, job: _Job, fiber: Fiber) -> None:
        self._workers.soon(functools.partial(self._resume, job, fiber, fiber.turns))

    def _resume(self, job: _Job, fiber: Fiber, turn: int) -> None:
        """Let a step that stopped in its middle go on, unless it has done so meanwhile."""
        if job in self._running and not fiber.ended and fiber.turns == turn:
            fiber.resume()

    def _go_on(self, job: _Job) -> None:
        job.report()
        if job in self._running and not job.ended:
            self._step(job)
        elif job in self._running:
            self._running.remove(job)
            self._start_next()


class Disk(Protocol):
    """What lanes need of their process's disk."""

    def take_cost(self) -> float:
        """Seconds that the last steps spent on it."""
        ...

    def take_effect(self) -> Callable[[], None]:
        """To be called when they have passed."""
        ...


class SimulatedWorkers:
    """Lanes of one process."""

    def __init__(self, life: Life, chance: random.Random, disk: Disk, *, interleaved: bool = False) -> None:
        self.life = life
        self._interleaved = interleaved
        self.closed = False
        self._chance = chance
        self._disk = disk
        self._lanes: list[SimulatedLane] = []
        self._loop = asyncio.get_running_loop()
        self._context = life.new_context()
        life.at_end(self._end)

    def lane(self, name: str, width: int = 1) -> Executor:
        self.life.check()
        lane = SimulatedLane(self, width, is_interleaved=self._interleaved and name in _OF_STORES)
        self._lanes.append(lane)
        return lane

    def close(self) -> None:
        self.life.check()
        self.closed = True
        for lane in reversed(self._lanes):
            lane.finish_now()

    def pause(self, then: Callable[[], None]) -> None:
        """Let the time of a step pass, then go on, unless the process is gone."""
        low, high = _STEP_S
        cost_s = self._disk.take_cost()
        self._loop.call_later(
            low + (high - low) * self._chance.random() + cost_s, self._passed, self._disk.take_effect(), then, context=self._context
        )

    def soon(self, then: Callable[[], None]) -> None:
        """Go on in a moment."""
        low, high = _STEP_S
        self._loop.call_later(low + (high - low) * self._chance.random(), self._passed, _nothing, then, context=self._context)

    def _passed(self, effect: Callable[[], None], then: Callable[[], None]) -> None:
        if self.life.phase is Phase.RUNNING:
            effect()
            then()

    def _end(self) -> None:
        self._loop.call_soon(self._drop)  # the process may die inside a step

    def _drop(self) -> None:
        for lane in self._lanes:
            lane.drop()
