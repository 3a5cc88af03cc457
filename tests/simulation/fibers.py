"""Calls that stop in their middle and go on later, while others run: each on a thread of its own, of which one runs at a time.

The product's store knows nothing of that. It is stopped where it calls its disk, as the kernel stops a thread there; what it holds locked
stays locked. The order is that of the loop's timers, so a seed repeats.
"""

import contextlib
from collections.abc import Callable, Iterator
from threading import Lock, Thread
from types import SimpleNamespace, TracebackType

from dittomq.commitlog import locks
from dittomq.commitlog.disk import file_cache, segment_maker
from dittomq.commitlog.queues import dispatch, key_index
from dittomq.commitlog.state import replica
from tests.simulation.bugs.patches import Patches
from tests.simulation.simulated_process import Life

_LOCKING = (locks, file_cache, segment_maker, dispatch, key_index, replica)


class _Thread:
    """Runs one fiber after the other."""

    idle: "list[_Thread]" = []  # noqa: RUF012 - threads are there for all runs of this process

    def __init__(self) -> None:
        self.turn = Lock()
        self.turn.acquire()
        self.fiber: Fiber | None = None
        Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            self.turn.acquire()
            assert self.fiber is not None
            self.fiber.run_through()


class Fiber:
    """One call. `turns` counts how often it went on.

    `stopped` is called when it has paused, waits or has ended; `wake` when what it waited for may be had.
    """

    running: "Fiber | None" = None

    def __init__(
        self, work: Callable[[], None], life: Life, *, stopped: "Callable[[Fiber], None]", wake: "Callable[[Fiber], None]"
    ) -> None:
        self.ended = False
        self.turns = 0
        self.may_pause = True
        self.waits_for: FiberLock | None = None
        self.life = life
        self._stopped = stopped
        self._wake = wake
        self._work = work
        self._back = Lock()
        self._back.acquire()
        self._asked: Callable[[], None] | None = None
        self._thread = _Thread.idle.pop() if _Thread.idle else _Thread()
        self._thread.fiber = self

    def resume(self) -> None:
        """Let it go on until it pauses, waits or ends."""
        before, Fiber.running = Fiber.running, self
        self.turns += 1
        self._switch()
        while (asked := self._asked) is not None:
            self._asked = None
            asked()
            self._switch()
        Fiber.running = before
        self._stopped(self)

    def wake(self) -> None:
        """What it waited for may be had."""
        self._wake(self)

    def drive(self) -> None:
        """Let no time pass until it has gone on: first whoever has what it waits for."""
        lock = self.waits_for
        if lock is not None and lock.holder is not None:
            lock.holder.drive()
        else:
            self.resume()

    def finish(self) -> None:
        """Let it run to its end without a pause."""
        self.may_pause = False
        while not self.ended:
            self.drive()

    # On its own thread.

    def run_through(self) -> None:
        """Do the work."""
        self._work()
        self.ended = True
        _Thread.idle.append(self._thread)
        self._back.release()

    def leave(self) -> None:
        """Give the turn back until it is resumed; SimCrashed when its process is gone by then."""
        self._back.release()
        self._thread.turn.acquire()
        self.life.check()

    def ask(self, work: Callable[[], None]) -> None:
        """Let whoever resumed it do something that belongs on the loop's thread."""
        self._asked = work
        self._back.release()
        self._thread.turn.acquire()

    def _switch(self) -> None:
        self._thread.turn.release()
        self._back.acquire()


def pause() -> bool:
    """Stop here until whoever runs this fiber resumes it; whether this was a fiber that may be stopped."""
    fiber = Fiber.running
    if fiber is None or not fiber.may_pause:
        return False
    fiber.leave()
    return True


def on_the_loop(work: Callable[[], None]) -> None:
    """Do it on the thread of the loop."""
    if Fiber.running is None:
        work()
    else:
        Fiber.running.ask(work)


class FiberLock:
    """A lock that is held over pauses. Who has no fiber lets no time pass until the holder has released it."""

    def __init__(self) -> None:
        self.holder: Fiber | None = None
        self._is_held = False
        self._waiting: list[Fiber] = []

    def acquire(self) -> bool:
        fiber = Fiber.running
        while self._is_held:
            if fiber is None or not fiber.may_pause:
                assert self.holder is not None, "a step waits for itself"
                on_the_loop(self.holder.drive)
                continue
            self._waiting.append(fiber)
            fiber.waits_for = self
            try:
                fiber.leave()
            finally:
                fiber.waits_for = None
                if fiber in self._waiting:  # it was driven, or is dead
                    self._waiting.remove(fiber)
        self._is_held, self.holder = True, fiber
        return True

    def release(self) -> None:
        self._is_held, self.holder = False, None
        if self._waiting:
            self._waiting.pop(0).wake()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None) -> None:
        self.release()


@contextlib.contextmanager
def locks_of_fibers() -> Iterator[None]:
    """Let the locks that stores make be such."""
    patches = Patches()
    for module in _LOCKING:
        patches.put(module, "threading", lambda _: SimpleNamespace(Lock=FiberLock))
    try:
        yield
    finally:
        patches.undo()
