"""The group record as one node last read it, and whether its coordination store answers."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final, NoReturn

import structlog

from dittomq.commitlog.store import Store
from dittomq.doors.clock import Clock
from dittomq.doors.coordination import CoordinationStore, GroupKey, Versioned, WriteOutcome
from dittomq.doors.workers import Executor
from dittomq.errors import DittoError, StorageFailure
from dittomq.group_record import GroupRecord

READ_EVERY_S: Final = 5.0
_BACKOFF_S: Final = 1.0

log = structlog.get_logger()


class GroupWatch:
    """Reads the record at the start, when the store hints that it changed, and every 5 s. `found` is None before, and where there is none.

    A record of another birth than the store's is not believed: `problem` says so.
    """

    def __init__(self, coordination: CoordinationStore, key: GroupKey, store: Store, files: Executor, *, clock: Clock) -> None:
        self._coordination = coordination
        self.key = key
        self._store = store
        self._files = files
        self._clock = clock
        self._changed: list[Callable[[], None]] = []
        self._wake = asyncio.Event()
        self.found: Versioned | None = None
        self.was_read = False
        self.problem = "the group record was not read yet"
        self.received_at = float("-inf")  # monotonic seconds of the last answer

    @property
    def record(self) -> GroupRecord | None:
        """The record, where there is one that this node obeys."""
        return None if self.found is None else self.found.record

    @property
    def store_name(self) -> str:
        """What operators call the coordination store."""
        return self._coordination.name

    def on_change(self, changed: Callable[[], None]) -> None:
        """Call `changed` on the loop whenever another version was read."""
        self._changed.append(changed)

    def hurry(self) -> None:
        """Read now, and not only at the next hint: somebody knows of a newer epoch."""
        self._wake.set()

    async def run(self) -> NoReturn:
        """Read and watch until cancelled. Raises StorageFailure when this node's disk fails."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._listen(), name="group record hints")
            while True:
                self._wake.clear()
                await self.read()
                await self._rest(_BACKOFF_S if self.problem else READ_EVERY_S)

    async def _rest(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()

    async def read(self) -> None:
        """Read the record now; what is wrong is in `problem`. Raises StorageFailure."""
        try:
            await self.read_as_it_is()
        except StorageFailure:
            raise
        except DittoError:
            return

    async def read_as_it_is(self) -> Versioned | None:
        """The record in the store now, also one that this node does not obey; `found` is none of those. Raises why it cannot be read."""
        known = self._store.record_revision
        try:
            found = await self._coordination.read(self.key)
        except StorageFailure:
            raise
        except DittoError as error:
            self._has_problem(str(error))
            raise
        self.received_at = self._clock.monotonic()
        is_overtaken = found is not None and known <= found.record.revision < self._store.record_revision
        if not is_overtaken:  # by a write of this node, or by another read
            await self.update(found)
        return found

    async def write(self, record: GroupRecord, expected: Versioned) -> WriteOutcome:
        """Put `record` in the place of `expected`. Raises Unavailable when nothing was sent."""
        return await self._coordination.write(self.key, record, expected)

    async def update(self, found: Versioned | None) -> None:
        """Take what was read, here or by an election. Raises StorageFailure."""
        self.was_read = True
        store = self._store
        if found is not None and (problem := self._refusal(found.record)):
            self._has_problem(problem)
            found = None
        else:
            self._has_problem("")
        if found is not None and found.record.birth == store.birth and found.record.revision > store.record_revision:
            revision = found.record.revision
            await self._files.call(lambda: store.persist_revision(revision))
        before, self.found = self.found, found
        if before != found:
            for changed in self._changed:
                changed()

    def _refusal(self, record: GroupRecord) -> str:
        """Why this node does not obey the record; "" where it does."""
        store, where = self._store, self._coordination.name
        if store.birth and record.birth != store.birth:
            remedy = "empty this node's data_dir to join that group, or delete the record to make a new one of this group's nodes"
            births = f"its birth is {record.birth}, and this store's is {store.birth}"
            return f"the record of {self.key} in {where} was made for other stores: {births}; {remedy}"
        if record.birth == store.birth and record.revision < store.record_revision:
            remedy = f"{where} was restored from a backup: delete the record, so that the nodes make a new one"
            return f"the record of {self.key} has revision {record.revision}, and this node has read {store.record_revision}; {remedy}"
        return ""

    def _has_problem(self, problem: str) -> None:
        if problem and problem != self.problem:
            log.warning("group_record_not_usable", group=str(self.key), store=self._coordination.name, problem=problem)
        self.problem = problem

    async def _listen(self) -> NoReturn:
        """Hints of the store; after a gap the record is read, and watched from there on."""
        while True:
            try:
                async for _ in self._coordination.watch(self.key):
                    self._wake.set()
            except StorageFailure:
                raise
            except DittoError:
                pass  # the next read says whether the store answers
            self._wake.set()
            await asyncio.sleep(_BACKOFF_S)
