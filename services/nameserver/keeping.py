"""Has the newest epoch of each group written to the disk before anybody is told that it is kept."""

import asyncio
from typing import Final

import structlog

from dittomq.commitlog.disk.storage import Storage
from dittomq.doors.clock import Clock
from dittomq.doors.workers import Lane
from services.nameserver.openings import Openings
from services.nameserver.openings_file import keep

_WAIT_S: Final = 0.5  # a promotion waits 1 s for those that it tells
_RETRY_S: Final = 1.0

log = structlog.get_logger()


class Keeper:
    """Writes all openings at once, one write after the other: those who come during one share the next, so nothing queues up."""

    def __init__(self, openings: Openings, storage: Storage, lane: Lane, clock: Clock) -> None:
        self._openings = openings
        self._storage = storage
        self._lane = lane
        self._clock = clock
        self._wanted = asyncio.Event()
        self._round_over = asyncio.Event()
        self._failures = 0
        self._again_s = 0.0  # when it may be tried again after a failure
        self._problem = ""  # why the last try failed; empty when it did not

    async def run(self) -> None:
        """Write whenever somebody waits for it; until it is cancelled. Raises StoreFailed when a sync has failed: the process must end."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            if self._openings.unkept:
                await self._write()
            self._round_over.set()
            self._round_over = asyncio.Event()

    async def keep(self, group: str) -> bool:
        """Whether what is known of the group's epochs is on the disk, durably.

        Waits for that, half a second at most: a disk that is full or slow delays nobody for longer, and is no reason to hide who leads.
        """
        try:
            async with asyncio.timeout(_WAIT_S):
                return await self._kept(group)
        except TimeoutError:
            self._note(f"the disk has not taken them within {_WAIT_S} s")
            return False

    async def _write(self) -> None:
        rows, number = self._openings.to_keep()
        problem = await self._lane.call(lambda: keep(self._storage, rows))
        if problem:
            self._failures += 1
            self._again_s = self._clock.monotonic() + _RETRY_S
        else:
            self._openings.kept(number)
        self._note(problem)

    async def _kept(self, group: str) -> bool:
        failures = self._failures
        while not self._openings.is_kept(group):
            if self._failures > failures or self._clock.monotonic() < self._again_s:
                return False
            self._wanted.set()
            await self._round_over.wait()
        return True

    def _note(self, problem: str) -> None:
        """Log when it begins to fail, and when it has ended."""
        before, self._problem = self._problem, problem
        if problem and not before:
            log.error("openings_not_kept", groups=self._openings.unkept, reason=problem)
        elif before and not problem:
            log.info("openings_kept", groups=self._openings.unkept)
