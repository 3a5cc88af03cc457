"""Ends a process whose disk hangs: a call that never returns is told to nobody, and whoever waits for it would wait for ever."""

import contextlib
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Final, NoReturn

import structlog

from dittomq.broker.doors import BrokerDoors
from dittomq.commitlog.disk.io_watch import IoWatch
from dittomq.commitlog.state import shutdown_marker
from services.process import EXIT_INTERNAL

_LOOK_EVERY_S: Final = 0.5
_MARK_WITHIN_S: Final = 2.0

Call = tuple[str, str]

log = structlog.get_logger()


class DiskWatchdog:
    """How long each call has been under way. Time in which no look came, because the process stood still, hardly counts."""

    def __init__(self, limit_s: float, look_every_s: float) -> None:
        self._limit_s = limit_s
        self._most_s = 2 * look_every_s
        self._waited: list[tuple[Call, float]] = []

    def look(self, under_way: Sequence[Call], elapsed_s: float) -> Call | None:
        """The first call that was under way for the limit, None when there is none; `elapsed_s` since the last look.

        Two calls are the same when they are the same object.
        """
        counted_s = min(elapsed_s, self._most_s)
        before = {id(call): waited_s + counted_s for call, waited_s in self._waited}
        self._waited = [(call, before.get(id(call), 0.0)) for call in under_way]
        return next((call for call, waited_s in self._waited if waited_s >= self._limit_s), None)


@contextlib.contextmanager
def disk_watched(program: str, limit_s: float, under_way: IoWatch, doors: BrokerDoors) -> Iterator[None]:
    """During the block, end the process with status 128 when a write or sync has not returned for so long.

    As after a failed sync nobody is answered any more, and the next start is told of it if the disk takes that within 2 s: what
    becomes of the call is unknown. Threads that wait for the disk cannot be ended, so nothing is drained or closed.
    """
    over = threading.Event()
    watching = threading.Thread(
        target=_watch, args=(program, limit_s, under_way, doors), kwargs={"over": over}, name="disk watch", daemon=True
    )
    watching.start()
    try:
        yield
    finally:
        over.set()
        watching.join()


def _watch(program: str, limit_s: float, under_way: IoWatch, doors: BrokerDoors, *, over: threading.Event) -> None:
    patience = DiskWatchdog(limit_s, _LOOK_EVERY_S)
    looked = doors.clock.monotonic()
    while not over.wait(_LOOK_EVERY_S):
        now = doors.clock.monotonic()
        hung = patience.look(under_way.now(), now - looked)
        looked = now
        if hung is not None:
            _end(program, limit_s, hung, doors)


def _end(program: str, limit_s: float, hung: Call, doors: BrokerDoors) -> NoReturn:
    operation, path = hung
    marking = threading.Thread(target=shutdown_marker.mark_failed, args=(doors.storage,), name="disk mark", daemon=True)
    marking.start()
    marking.join(_MARK_WITHIN_S)
    log.error("disk_io_stalled", operation=operation, path=path, seconds=limit_s)
    sys.stderr.write(
        f"{program}: {operation} of {path} has not returned for {limit_s:g} s; the node ends, check its disk and start it again\n"
    )
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(EXIT_INTERNAL)
