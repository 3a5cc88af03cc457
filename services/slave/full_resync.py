"""A second store beside the own one: the master's log copied anew, because the master cannot continue what the own one holds.

    told ─▶ copying ─▶ complete ─▶ closed cleanly, the swap intended ─▶ the node comes back and swaps
             │  ▲
             └──┴ streams that break, kills: it goes on from its end

The own store serves reads all the while and keeps what the master no longer has. A copy that holds nothing is not kept between
streams, and its handshake is said only to a master that has just told to make it: a master that looks for data hears of the own store.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Final, Self

import structlog

from dittomq.broker.checkpointer import CheckpointEnds, Checkpointer
from dittomq.broker.dispatcher import Dispatcher
from dittomq.broker.doors import BrokerDoors
from dittomq.broker.segment_preallocation import prepare_segments
from dittomq.commitlog import store_swap
from dittomq.commitlog.disk.storage import speaks_of_bytes
from dittomq.commitlog.store import Store, StoreOptions
from dittomq.errors import DiskFull, DittoError, NotReady, StoreOpenFailed
from dittomq.offsets import PhysicalOffset
from dittomq.replication.slave_events import RecordCompared, StartFullResync
from dittomq.routes import DataVersion
from services.broker_lifecycle import Lanes, open_store
from services.slave.config import SlaveConfig
from services.slave.replica import Replica, ReplicaParts

_LOOK_S: Final = 0.5
_CAUGHT_UP_S: Final = 1.0
_ROOM_S: Final = 1.0
_MIB: Final = 1024**2
_GIB: Final = 1024**3

log = structlog.get_logger()


@dataclass(eq=False)
class FullResyncDone(DittoError):
    """The copy holds all that is confirmed; the stream has ended for it to take the store's place."""

    end: PhysicalOffset

    def __str__(self) -> str:
        return f"the copy holds all that is confirmed, up to {self.end:,}"


@dataclass(eq=False)
class NoSpaceForResync(DittoError):
    """Sizes in bytes."""

    free: int
    needed: int

    def __str__(self) -> str:
        room = f"a full resync keeps the old store beside the copy, and of the room for that there is {_of(self.free, self.needed)}"
        return f"{room}; make room, or empty the data_dir to give up what only the old store has"


@dataclass(frozen=True, slots=True)
class ResyncParts:
    """What a copy is made with. `own` is the store in use."""

    config: SlaveConfig
    doors: BrokerDoors
    lanes: Lanes
    own: Store


class Resync:
    """The copy, from the handshake result to the swap. Also the ears of its streams."""

    def __init__(
        self,
        parts: ResyncParts,
        received: Callable[[], None],
        ends_at: Callable[[PhysicalOffset], None],
        topics_at: Callable[[DataVersion], None],
    ) -> None:
        """`received`, `ends_at` and `topics_at` are told what does not concern this store alone."""
        self._parts = parts
        self.received = received
        self._ends_at = ends_at
        self.topics_at = topics_at
        self.replica: Replica | None = None
        self.since_ms: int | None = None  # wall time at which this process has begun the copy or taken it up; None while there is none
        self.is_leaving = False  # complete: from here on neither store is what this node stands with, until it comes back
        self.is_done = False
        self._life = contextlib.AsyncExitStack()
        self._duties: list[asyncio.Task[None]] = []
        self._tasks: asyncio.TaskGroup | None = None
        self._master_end = PhysicalOffset(0)
        self._goal: tuple[PhysicalOffset, float] | None = None
        self._caught_up = False

    # What streams tell.
    def is_fresh(self, confirmed: PhysicalOffset, silent_s: float) -> None:
        """Nobody reads a copy that is being made."""

    def confirmed(self, confirmed: PhysicalOffset, master_end: PhysicalOffset) -> None:
        """The master says what is confirmed, and where its log ends. Raises FullResyncDone."""
        replica = self._held()
        replica.update_confirmed(confirmed)
        self._update_end(master_end)
        if self._goal is None:
            self._goal = (confirmed, self._parts.doors.clock.monotonic())
        self.stored()
        if self._caught_up:
            raise FullResyncDone(replica.copy.received)

    def stored(self) -> None:
        """The copy grew. It has caught up when it soon holds what is confirmed at some moment; what came since comes after the swap."""
        replica = self._held()
        replica.parts.dispatcher.readable_to(PhysicalOffset(min(replica.copy.flushed, replica.confirmed)))
        if self._goal is not None and replica.copy.received >= self._goal[0]:
            self._caught_up = self._parts.doors.clock.monotonic() - self._goal[1] <= _CAUGHT_UP_S
            self._goal = None

    def compared(self, found: RecordCompared) -> None:
        """A range of both copies was compared."""
        self._held().compared(found)

    @property
    def applied(self) -> PhysicalOffset:
        """End of what is in the copy's queues."""
        return self._held().applied

    @property
    def progress(self) -> tuple[int, int] | None:
        """Bytes of the copy that are there, and how many there will be; None while there is no copy."""
        if self.replica is None:
            return None
        begin = self.replica.store.min_offset
        done, total = self.replica.copy.received - begin, max(self._master_end, self.replica.copy.received) - begin
        return done, total

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None) -> None:
        """The node ends: leave the copy for its next start."""
        await self._end_duties()
        await self._life.__aexit__(kind, raised, trace)

    async def take_up(self, tasks: asyncio.TaskGroup) -> None:
        """Open a copy that was begun before; from now on the duties of a copy run in `tasks`. Raises StoreOpenFailed.

        One that cannot be read any more is given up.
        """
        self._tasks = tasks
        storage, files = self._parts.doors.storage, self._parts.lanes.files
        if await files.call(lambda: store_swap.is_begun(storage)):
            try:
                await self._open()
            except StoreOpenFailed as problem:
                if _may_pass(problem.__cause__):
                    raise
                log.warning("full_resync_aborted", node=self._parts.config.name, problem=str(problem))
                await files.call(lambda: store_swap.discard(storage))
            await self.tidy()

    async def begin(self, order: StartFullResync) -> Replica:
        """Make an empty copy; one that holds something is too old by now. Raises NoSpaceForResync, DiskFull."""
        parts, own = self._parts, self._parts.own
        if self.replica is not None:
            await self.give_up(order.reason)
        free = parts.doors.storage.free_bytes()
        needed = order.end - order.start + parts.config.store.min_free_bytes
        if free < needed:
            raise NoSpaceForResync(free, needed)
        log.warning(
            "full_resync_began",
            node=parts.config.name,
            start=order.start,
            bytes=order.end - order.start,
            reason=order.reason,
            kept_until_then=f"bytes {own.min_offset:,} to {own.end:,}, which the master does not have any more",
        )
        self._update_end(order.end)
        await parts.lanes.files.call(lambda: store_swap.make(parts.doors.storage, parts.doors.chance))
        return await self._open()

    async def tidy(self) -> None:
        """A stream has ended: a copy that holds nothing goes."""
        self._goal, self._caught_up = None, False
        if self.replica is not None and self.replica.store.end == self.replica.store.min_offset:
            await self.give_up("it holds nothing")

    async def give_up(self, reason: str) -> None:
        """Throw the copy away, durably: this replica will not come back, and what it acknowledged counts as that of a lost disk."""
        log.warning("full_resync_aborted", node=self._parts.config.name, problem=reason)
        await self._close()
        await self._parts.lanes.files.call(lambda: store_swap.discard(self._parts.doors.storage))

    async def finish(self) -> None:
        """Durably decide that the copy takes the store's place when the node comes back."""
        parts, own, replica = self._parts, self._parts.own, self._held()
        self.is_leaving = True
        await self._wait_for_room()
        await self._end_duties()
        await replica.copy.settle()
        await replica.look_after()
        store, readable = replica.store, PhysicalOffset(min(replica.confirmed, replica.store.end))
        await parts.lanes.dispatch.call(lambda: store.dispatch(readable))
        with contextlib.suppress(DiskFull):  # the tables say it again
            await parts.lanes.store.call(lambda: store.hide(own.minimums()))
        await replica.keep_confirmed()
        await self._close()
        gone = store_swap.StoreSwap(own.min_offset, own.end)
        await self._wait_for_room()
        self.is_done = True
        await parts.lanes.files.call(lambda: store_swap.intend(parts.doors.storage, gone))
        goes = f"bytes {gone.start:,} to {gone.end:,}, which the master does not have any more"
        log.warning("full_resync_ended", node=parts.config.name, start=store.min_offset, end=store.end, goes=goes)

    async def _wait_for_room(self) -> None:
        """As long as others have filled the disk: the copy is whole, and stays."""
        storage, is_reported = self._parts.doors.storage, False
        while not await self._parts.lanes.files.call(lambda: store_swap.has_room(storage)):
            if not is_reported:
                log.warning(
                    "full_resync_blocked_on_space", node=self._parts.config.name, what="it takes the store's place when its disk has room"
                )
            is_reported = True
            await asyncio.sleep(_ROOM_S)

    def _update_end(self, master_end: PhysicalOffset) -> None:
        self._master_end = master_end
        self._ends_at(master_end)

    def _held(self) -> Replica:
        assert self.replica is not None, "only a copy's stream talks about it"
        return self.replica

    async def _open(self) -> Replica:
        parts, config = self._parts, self._parts.config
        doors = replace(parts.doors, storage=store_swap.copy_of(parts.doors.storage))
        options = StoreOptions(
            segment_bytes=config.store.segment_bytes,
            min_free_bytes=config.store.min_free_bytes,
            node=config.name,
            path=f"{config.node.data_dir}/{store_swap.COPY_FOLDER}",
            acks_unsynced=config.replication.acks_unsynced,
        )
        lanes = parts.lanes
        store = await self._life.enter_async_context(open_store(doors, options, lanes.store))
        replica = Replica(
            ReplicaParts(config, doors.storage, store, lanes.store, lanes.sync, lanes.reads, lanes.files, Dispatcher(store, lanes.dispatch))
        )
        await replica.load()
        self.replica, self.since_ms = replica, parts.doors.clock.wall_ms()
        self._begin_duties(replica)
        return replica

    def _begin_duties(self, replica: Replica) -> None:
        lanes = self._parts.lanes
        keeper = Checkpointer(replica.store, lanes.files, lambda: CheckpointEnds(replica.copy.flushed, replica.known_confirmed))
        assert self._tasks is not None, "a copy is opened by a node that runs"
        duties: list[Coroutine[Any, Any, None]] = [
            replica.parts.dispatcher.run(),
            keeper.run(),
            prepare_segments(replica.store.ahead, lanes.ahead),
            _look_after(replica),
        ]
        self._duties = [self._tasks.create_task(duty) for duty in duties]

    async def _end_duties(self) -> None:
        duties, self._duties = self._duties, []
        for task in duties:
            task.cancel()
        if duties:
            await asyncio.wait(duties)

    async def _close(self) -> None:
        await self._end_duties()
        self.replica = self.since_ms = None
        await self._life.aclose()


async def _look_after(replica: Replica) -> None:
    while True:
        await asyncio.sleep(_LOOK_S)
        await replica.look_after()


def _may_pass(why: BaseException | None) -> bool:
    """Whether too few descriptors, or too little room, keep a store from being opened: that says nothing of what it holds."""
    return isinstance(why, NotReady | DiskFull) or (isinstance(why, OSError) and not speaks_of_bytes(why))


def _of(part: int, whole: int) -> str:
    unit, name = (_GIB, "GiB") if whole >= _GIB else (_MIB, "MiB")
    return f"{part / unit:.1f} of {whole / unit:.1f} {name}"
