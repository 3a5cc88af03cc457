"""What a broker process of either role does around its work: lanes, the store's life, news for nameservers, errands, and its end."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, Protocol, Self, TypeVar

import structlog

from dittomq.broker.config import BrokerConfig
from dittomq.broker.doors import BrokerDoors
from dittomq.broker.registration import record_host
from dittomq.broker.role import FIRST_START, BrokerService, RoleChanged, RoleStart
from dittomq.broker.store_owner import StoreOwner, check_cluster, settle
from dittomq.commitlog.store import Store, StoreOptions
from dittomq.doors.coordination import CoordinationStore
from dittomq.doors.workers import Executor, Workers
from dittomq.errors import ConfigError, NotReady, PermissionDenied, Refused, StorageFailure, Unavailable, leaves
from dittomq.metadata.formats import TableKind
from dittomq.metadata.tables import Row, Table
from dittomq.naming.registrar import Registrar
from dittomq.rpc.server import RpcServer

_READ_THREADS: Final = 4
_GRACE_S: Final = 2.0
_SHORT_GRACE_S: Final = 0.02
_SHORT_GOODBYE_S: Final = 0.25
_SHOW_AGAIN_S: Final = 2.0

Answer = TypeVar("Answer")

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Lanes:
    """The threads of one broker. `store` is the only lane that writes the log, `sync` syncs it meanwhile.

    `files` writes the side files and tables, `retention` drops what is too old, `ahead` makes segments before they are needed.
    """

    store: Executor
    sync: Executor
    reads: Executor
    dispatch: Executor
    audit: Executor
    files: Executor
    retention: Executor
    ahead: Executor

    @classmethod
    def of(cls, workers: Workers) -> Self:
        """Make them."""
        return cls(
            workers.lane("store"),
            workers.lane("sync"),
            workers.lane("reads", _READ_THREADS),
            workers.lane("dispatch"),
            workers.lane("audit"),
            workers.lane("files"),
            workers.lane("retention"),
            workers.lane("ahead"),
        )


@contextlib.asynccontextmanager
async def open_node(doors: BrokerDoors, config: BrokerConfig, service: BrokerService, lane: Executor) -> AsyncIterator[Store]:
    """An open store, which is closed as `open_store` does. Raises StoreOpenFailed for a disk of another group."""
    home = StoreOwner(config.node.cluster, config.node.broker)
    await lane.call(lambda: check_cluster(doors.storage, home, config.node.data_dir))
    options = StoreOptions(
        segment_bytes=config.store.segment_bytes,
        min_free_bytes=config.store.min_free_bytes,
        host=record_host(config.advertise, config.listen.clients),
        node=config.name,
        path=config.node.data_dir,
        refills=service is BrokerService.SLAVE or config.replication.replicas_expected > 0,
        acks_unsynced=config.replication.acks_unsynced,
    )
    async with open_store(doors, options, lane) as store:
        await lane.call(lambda: settle(doors.storage, home))
        yield store


@contextlib.asynccontextmanager
async def open_store(doors: BrokerDoors, options: StoreOptions, lane: Executor) -> AsyncIterator[Store]:
    """An open store. It is closed as clean only when nothing was raised; after a StorageFailure it says so on disk, if it still can."""
    store = await lane.call(lambda: Store.open(doors.storage, options, chance=doors.chance, wall_ms=doors.clock.wall_ms()))
    _report(options, store)
    clean = False
    try:
        yield store
        clean = True
    except BaseException as raised:
        if any(isinstance(failure, StorageFailure) for failure in leaves(raised)):
            with contextlib.suppress(StorageFailure):  # a disk that takes nothing more keeps the stamp of a dead process
                await lane.call(store.clear_boot_stamp)
        raise
    finally:
        await lane.call(lambda: store.close(clean))


Duty = Callable[[], Coroutine[Any, Any, None]]
"""Something that a node does all the time, until it is cancelled."""


async def work(duties: Sequence[Duty], servers: Sequence[RpcServer], stop: asyncio.Event, drain: Callable[[], Awaitable[None]]) -> None:
    """Serve, with all duties under way, until `stop` is set; then drain. A duty that fails ends the node."""
    try:
        for server in servers:
            await server.start()
        async with asyncio.TaskGroup() as tasks:
            background = [tasks.create_task(duty()) for duty in duties]
            await stop.wait()
            await drain()
            for task in background:
                task.cancel()
    finally:
        for server in servers:
            await server.stop(0)


async def show_role(coordination: CoordinationStore | None, role: BrokerService) -> None:
    """Have it shown, as often as that takes. What keeps it from being shown is logged when it is new, and changes nothing here."""
    problem = ""
    while coordination is not None:
        try:
            await coordination.show_role(role)
        except (ConfigError, PermissionDenied, Unavailable) as refused:
            if str(refused) != problem:
                log.warning("role_not_shown", role=role, reason=str(refused))
            problem = str(refused)
            await asyncio.sleep(_SHOW_AGAIN_S)
        else:
            return


class RegistrationChanges:
    """Tells the nameservers when what is registered with them has changed."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()

    def table_changed(self, kind: TableKind[Row], table: Table[Row]) -> None:
        """A table has a new version."""
        self._changed.set()

    def changed(self) -> None:
        """Something else has changed."""
        self._changed.set()

    async def forward(self, registrar: Registrar) -> None:
        """Tell, until cancelled; changes that come together are told once."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            registrar.changed()


class Validated(Protocol):
    """An order that may be meant to be checked only."""

    @property
    def validate_only(self) -> bool: ...


Order = TypeVar("Order", bound=Validated)


class SerialTask(Generic[Order, Answer]):
    """An order that is carried out by a duty of the node, one at a time: what fails there ends the node.

    A caller that leaves does not stop it, and may give the same order again to hear what became of it. One that is to be validated only
    is looked at by its caller, and is in nobody's way.
    """

    def __init__(self, node: str, carry_out: Callable[[Order], Awaitable[Answer]]) -> None:
        self._node = node
        self._carry_out = carry_out
        self._orders: asyncio.Queue[tuple[Order, asyncio.Future[Answer]]] = asyncio.Queue(1)
        self._under_way: tuple[Order, asyncio.Future[Answer]] | None = None

    @property
    def is_under_way(self) -> bool:
        """Whether an order was given that has no answer yet."""
        return self._under_way is not None

    async def ask(self, order: Order) -> Answer:
        """The answer, or the Refused that it ended with; NotReady while another one is under way."""
        if self._under_way is None and order.validate_only:
            return await self._carry_out(order)
        if self._under_way is None:
            self._under_way = order, asyncio.get_running_loop().create_future()
            self._orders.put_nowait(self._under_way)
        given, answer = self._under_way
        if order != given:
            raise NotReady(self._node, "another election changes its role; wait for its end")
        return await asyncio.shield(answer)

    async def run(self) -> None:
        """Carry orders out, until cancelled; raises what is no refusal."""
        while True:
            order, answer = await self._orders.get()
            try:
                answer.set_result(await self._carry_out(order))
            except (Refused, Unavailable) as refused:
                answer.set_exception(refused)
            except StorageFailure as failed:
                answer.set_exception(failed)
                raise
            finally:
                self._under_way = None
                if answer.done():
                    answer.exception()  # looked at, though the caller may have left
                else:
                    answer.cancel()


class NodeContext:
    """What a node is in its group, and whether it must go on as something else."""

    def __init__(self, config: BrokerConfig, stop: asyncio.Event) -> None:
        self._node = config.name
        self._stop = stop
        self._changed: RoleChanged | None = None

    @property
    def is_left(self) -> bool:
        """Whether the process goes on as another service, or as the same one again."""
        return self._changed is not None

    def change_role(self, service: BrokerService, why: str, start: RoleStart = FIRST_START) -> None:
        """Stop this service, and let `service` begin on the store when this one has drained and closed it. The first call counts."""
        if self._changed is None and not self._stop.is_set():
            self._changed = RoleChanged(service, why, replace(start, served=True))
            log.info("role_change_began", node=self._node, service=service, why=why)
        self._stop.set()

    async def leave(self, registrar: Registrar) -> None:
        """Take leave of the nameservers; a process that goes on is registered again in a moment, and waits for no answer."""
        if self._changed is None:
            await registrar.goodbye()
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_SHORT_GOODBYE_S):
                await registrar.goodbye()

    async def close(self, servers: Sequence[RpcServer]) -> None:
        """Take no new calls; those under way get a moment to end, a shorter one where the process goes on."""
        grace_s = _GRACE_S if self._changed is None else _SHORT_GRACE_S
        async with asyncio.TaskGroup() as tasks:
            for server in servers:
                tasks.create_task(server.stop(grace_s))

    def check(self) -> None:
        """Raise RoleChanged where the process goes on. For the end, when the node has drained and closed."""
        if self._changed is not None:
            raise self._changed


def _report(options: StoreOptions, store: Store) -> None:
    """Log what opening the store has found."""
    log.info("store_opened", node=options.node, stopped=store.stopped, end=store.end, generation=store.generation)
    for note in store.notes:
        log.warning("store_reported", node=options.node, note=note)
    for start, end in store.damaged:
        log.error("store_damaged", node=options.node, start=start, end=end)
    if store.recovery_truncation is not None:
        cut = store.recovery_truncation
        log.warning("tail_truncated", node=options.node, to=cut.to, saved_bytes=cut.saved_bytes, side_file=cut.side_file)
