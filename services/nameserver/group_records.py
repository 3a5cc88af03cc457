"""The group records of one cluster: compare-and-set that is durable before it is answered, and hints of changes."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final, NoReturn

import structlog

from dittomq.commitlog.disk.storage import Storage
from dittomq.doors.chance import hex_id
from dittomq.doors.coordination import GroupKey
from dittomq.doors.workers import Executor
from dittomq.errors import DittoError, LimitReached, StorageFailure, WrongCluster
from services.nameserver.group_records_file import MAX_GROUPS, KeptRecord, Rows, keep

MAX_WATCHES: Final = 1_024
MAX_PENDING: Final = 1_024

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, eq=False)
class _Change:
    """A caller waits for `done`: the version now, "" after a deletion, None where the record had another version."""

    group: str
    expected: str  # "": there must be no record
    document: str  # "": delete the record
    done: "asyncio.Future[str | None]"


class GroupRecords:
    """The records by group, MAX_GROUPS at most. `run` writes them, one write of the file after the other; changes that come during one
    share the next.

    A version is random: none is used twice, also after a deletion, and after the file was lost or restored. What is read is durable.
    """

    def __init__(self, cluster: str, found: Rows, storage: Storage, lane: Executor, *, chance: random.Random) -> None:
        self._cluster = cluster
        self._rows = dict(found)
        self._storage = storage
        self._lane = lane
        self._chance = chance
        self._pending: list[_Change] = []  # MAX_PENDING at most; more are refused
        self._wanted = asyncio.Event()
        self._failed: StorageFailure | None = None
        self._watches: dict[asyncio.Event, str] = {}  # MAX_WATCHES at most; by what each waits for, the group
        self._is_over = False

    @property
    def groups(self) -> int:
        """How many groups have a record."""
        return len(self._rows)

    def read(self, key: GroupKey) -> tuple[str, str]:
        """The document and its version as they are now, both "" where there is no record. Raises WrongCluster, StorageFailure."""
        self._check(key)
        kept = self._rows.get(key.broker)
        return ("", "") if kept is None else (kept.document, kept.version)

    async def compare_and_set(self, key: GroupKey, expected: str, document: str) -> str | None:
        """Put `document` in the place of the record of version `expected`, or create it ("" there), or delete it ("" here), durably.

        The version now, "" after a deletion; None when the record has another version. Raises WrongCluster, LimitReached, DiskFull,
        NotReady: then nothing was changed. StorageFailure: that is not known.
        """
        self._check(key)
        if len(self._pending) >= MAX_PENDING:
            raise LimitReached("the queue of changes of group records", MAX_PENDING)
        change = _Change(key.broker, expected, document, asyncio.get_running_loop().create_future())
        self._pending.append(change)
        self._wanted.set()
        return await change.done

    async def watch(self, key: GroupKey) -> AsyncIterator[None]:
        """Yields at once, and whenever the record was changed since, until `end_watches`. Raises WrongCluster, LimitReached."""
        self._check(key)
        if len(self._watches) >= MAX_WATCHES:
            raise LimitReached("the list of watches of group records", MAX_WATCHES)
        changed = asyncio.Event()
        self._watches[changed] = key.broker
        try:
            while not self._is_over:
                changed.clear()
                yield
                await changed.wait()
        finally:
            del self._watches[changed]

    def end_watches(self) -> None:
        """The nameserver stops: no watch keeps it from that."""
        self._is_over = True
        for changed in self._watches:
            changed.set()

    async def run(self) -> NoReturn:
        """Write what is asked for until it is cancelled. Raises StorageFailure when the disk fails: the process must end."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            changes, self._pending = self._pending, []
            try:
                await self._change(changes)
            except StorageFailure as failed:
                self._failed = failed
                for change in [*changes, *self._pending]:
                    _refuse(change, failed)
                raise

    async def _change(self, changes: list[_Change]) -> None:
        """All of them in one write, or none. A caller that has left is left out: its outcome is unknown to it."""
        changes = [change for change in changes if not change.done.done()]
        rows, answers = dict(self._rows), list[str | DittoError | None]()
        for change in changes:
            answers.append(self._apply(change, rows))
        if rows != self._rows:
            problem = await self._lane.call(lambda: keep(self._storage, rows))
            if problem is not None:
                log.error("group_records_not_written", groups=len(rows), reason=str(problem))
                for change in changes:
                    _refuse(change, problem)
                return
        self._rows, before = rows, self._rows
        for change, answer in zip(changes, answers, strict=True):
            if isinstance(answer, DittoError):
                _refuse(change, answer)
            elif not change.done.done():
                change.done.set_result(answer)
        for changed, group in self._watches.items():
            if rows.get(group) != before.get(group):
                changed.set()

    def _apply(self, change: _Change, rows: Rows) -> str | DittoError | None:
        """What the caller gets once `rows`, in which the change is made here, are durable."""
        now = rows.get(change.group)
        if change.expected != ("" if now is None else now.version):
            return None
        if not change.document:
            rows.pop(change.group, None)
            return ""
        if now is None and len(rows) >= MAX_GROUPS:
            return LimitReached("the list of group records", MAX_GROUPS)
        version = hex_id(self._chance)
        rows[change.group] = KeptRecord(change.document, version)
        return version

    def _check(self, key: GroupKey) -> None:
        if key.cluster != self._cluster:
            raise WrongCluster("cluster", key.cluster, self._cluster)
        if self._failed is not None:
            raise self._failed


def _refuse(change: _Change, why: DittoError) -> None:
    with contextlib.suppress(asyncio.InvalidStateError):
        change.done.set_exception(why)
