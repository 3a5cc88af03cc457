"""A service as a process: flags, logging, signals, ops port, exit status."""

import asyncio
import contextlib
import gc
import os
import resource
import signal
import sys
from collections.abc import Callable, Iterable
from typing import Final, Protocol, TypeVar

import structlog
from prometheus_client import CollectorRegistry

from dittomq.broker.role import RoleChanged
from dittomq.errors import ConfigError, DittoError, DuplicateBrokerId, StartError, leaves
from dittomq.rpc.buffers import keep_buffers
from dittomq.rpc.health import Health
from dittomq.settings import Loaded, configured, settings_of
from services import logs
from services.ops import OpsServer

_SETTLES_AFTER_S: Final = 5.0
_ENDING: Final = (signal.SIGTERM, signal.SIGINT)
_GC_THRESHOLDS: Final = (50_000, 20, 50)  # a group of frames makes some 10,000 objects that live as long as it does

EXIT_REFUSED: Final = 1
EXIT_USAGE: Final = 64
EXIT_INTERNAL: Final = 128

log = structlog.get_logger()


class OpsListen(Protocol):
    """The part of a service's [listen] table that this module reads."""

    @property
    def ops(self) -> str:
        """ "host:port"."""
        ...


class ServiceConfig(Protocol):
    """What every service's configuration has."""

    @property
    def listen(self) -> OpsListen:
        """Where it listens."""
        ...

    def problems(self) -> Iterable[tuple[str, str]]:
        """Broken rules between keys."""
        ...


class RunnableService(Protocol):
    """A service's composition, ready to run."""

    @property
    def vitals(self) -> Health:
        """What probes are told."""
        ...

    @property
    def registry(self) -> CollectorRegistry:
        """The node's metrics."""
        ...

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set, drain, and return."""
        ...


C = TypeVar("C", bound=ServiceConfig)


def main(program: str, config_class: type[C], compose: Callable[[Loaded[C]], RunnableService]) -> int:
    """Run a service, as its command line and the environment configure it, until SIGTERM or SIGINT; returns the exit status."""
    environment = os.environ  # noqa: TID251  # every service's composition root passes here
    return run(program, lambda: configured(config_class, program, sys.argv[1:], environment), compose, asked_to_end=asyncio.Event())


def run(
    program: str, load: Callable[[], Loaded[C]], compose: Callable[[Loaded[C]], RunnableService], *, asked_to_end: asyncio.Event
) -> int:
    """Run a service with the configuration that `load` gives, until SIGTERM or SIGINT; returns the exit status.

    0 after a clean drain, 1 when the start was refused, 64 for wrong flags or configuration, 128 when something broke. Raises RoleChanged,
    unless it was asked to end. A signal that comes after that sets `asked_to_end` as well: the next service, called with it, ends.
    """
    try:
        loaded = load()
        logs.configure()
        _allow_many_files()
        log.info("configured", **{key: f"{value} ({origin})" for key, value, origin in settings_of(loaded)})
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(_serve(compose(loaded), loaded.value.listen.ops, asked_to_end))
    except Exception as raised:  # noqa: BLE001  # the last stop before the exit status
        root = _root(raised)
        if not isinstance(root, RoleChanged):
            return _exit_status(program, raised)
        log.info("service_resumed", service=root.service, why=root.why)
        if not asked_to_end.is_set():
            raise root from None
    return 0


def hurry() -> None:
    """Until `settle_memory` look for no garbage: of 65,000 objects that imports make 800 are, and looking takes a tenth of a start."""
    gc.disable()


def settle_memory() -> None:
    """Spare the path of a message needless work: what the start made is never garbage, and buffers are used again.

    Otherwise a collection of all objects, some 20 ms, falls into that path about once a second under load. What an earlier life of this
    process kept so is given back.
    """
    if gc.get_freeze_count():
        gc.unfreeze()
        gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)
    gc.enable()
    keep_buffers()


def _allow_many_files() -> None:
    """As many as the hard limit allows: a store keeps 512 open, each caller is one more, and the soft limit is often 1,024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # not on every platform
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def _serve(node: RunnableService, ops: str, asked_to_end: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    if gc.get_freeze_count():  # it is not the first life of this process, and the group waits for it
        loop.call_later(_SETTLES_AFTER_S, settle_memory)
    else:
        settle_memory()
    stop = asyncio.Event()

    def end() -> None:
        asked_to_end.set()
        stop.set()

    for number in _ENDING:
        loop.add_signal_handler(number, end)
    if asked_to_end.is_set():
        stop.set()
    try:
        with OpsServer(ops, node.vitals, node.registry, loop):
            await node.run(stop)
    finally:
        for number in _ENDING:  # a signal that comes later finds no loop: uvloop would swallow it
            loop.remove_signal_handler(number)
            signal.signal(number, lambda *_: asked_to_end.set())


def _exit_status(program: str, raised: BaseException) -> int:
    """Say in one sentence why the process ends. What is not ours is a defect: its traceback is logged."""
    if not all(isinstance(failure, DittoError) for failure in leaves(raised)):  # also where one of ours is the reason that is told
        log.error("service_failed", exc_info=raised)
    error = _reason(raised)
    sys.stderr.write(f"{program}: {str(error) or type(error).__name__}\n")
    match error:
        case ConfigError():
            return EXIT_USAGE
        case StartError() | DuplicateBrokerId():
            return EXIT_REFUSED
        case _:
            return EXIT_INTERNAL


def _reason(raised: BaseException) -> BaseException:
    """The failure of ours on whose way out others came, if there is one: without descriptors not even the event loop can be closed."""
    cause: BaseException | None = raised
    while cause is not None:
        if isinstance(_root(cause), DittoError):
            return _root(cause)
        cause = cause.__context__
    return _root(raised)


def _root(raised: BaseException) -> BaseException:
    """The first of a task group's failures, one of ours if there is one."""
    roots = list(leaves(raised))
    return next((root for root in roots if isinstance(root, DittoError)), roots[0])


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop  # noqa: PLC0415  # not on every platform
    except ImportError:
        return None
    return uvloop.new_event_loop
