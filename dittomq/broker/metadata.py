"""The four tables as one node holds them: readers see one whole version, and only what is on the disk.

Consumer offsets are the exception: they change with every commit, and `dittomq.broker.consumer_offsets` writes them now and then.
"""

import asyncio
from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Any, NoReturn, Protocol

from dittomq.broker.config_files import ConfigFiles
from dittomq.doors.clock import Clock
from dittomq.doors.workers import Executor
from dittomq.errors import StorageFailure
from dittomq.metadata.formats import CONSUMER_OFFSETS, GROUPS, KINDS, TOPICS, WHOLE_KINDS, TableKind
from dittomq.metadata.offset_file import decode_offsets
from dittomq.metadata.offset_table import OffsetTable
from dittomq.metadata.rows import GroupConfig
from dittomq.metadata.tables import Ask, QueueMinimums, R, Table, TablePage, answer
from dittomq.offsets import NO_EPOCH, Epoch
from dittomq.routes import DataVersion


class MetadataListener(Protocol):
    """Hears on the loop of every change, after it is durable."""

    def __call__(self, kind: TableKind[Any], table: Table[Any]) -> None: ...


class Metadata:
    """The tables of one node. `table` and `answer` are plain reads and never wait.

    `lane` has width 1: it puts the changes in order. When the disk fails, the change stays unseen, all later ones raise the same
    StorageFailure, and so does `watch`, for which the node stops. `offsets` is changed on the loop only.
    """

    def __init__(self, files: ConfigFiles, lane: Executor, clock: Clock, listener: MetadataListener) -> None:
        self._files = files
        self._lane = lane
        self._clock = clock
        self._listener = listener
        self._tables: dict[str, Table[Any]] = {kind.name: Table() for kind in WHOLE_KINDS}
        self.offsets = OffsetTable()
        self.topics_before = DataVersion()  # of the topics, as they were when this node began to lead
        self._led = NO_EPOCH
        self._failure: StorageFailure | None = None
        self._failed = asyncio.Event()

    async def load(self) -> list[str]:
        """Take the tables from the disk; tells in a sentence each which came from their `.bak`, and may lack their last change.

        Raises StoreOpenFailed when a table has no whole file.
        """
        return await self._lane.run(self._load_steps())

    async def watch(self) -> NoReturn:
        """Wait until a change fails on the disk, and raise its StorageFailure."""
        await self._failed.wait()
        assert self._failure is not None
        raise self._failure

    def table(self, kind: TableKind[R]) -> Table[R]:
        """The table's newest version."""
        return self._tables[kind.name]

    def group(self, name: str) -> GroupConfig | None:
        """A consumer group's settings in the newest version; None for one that is not there, or not yet."""
        return self.table(GROUPS).rows.get(name)

    @property
    def versions(self) -> tuple[DataVersion, ...]:
        """Of its tables, in the order of KINDS."""
        return tuple([self.version(kind) for kind in KINDS])

    def version(self, kind: TableKind[Any]) -> DataVersion:
        """Of one of the four tables."""
        return self.offsets.version if kind is CONSUMER_OFFSETS else self._tables[kind.name].version

    def answer(self, kind: TableKind[R], ask: Ask, *, takes_changes: bool = False) -> TablePage[R]:
        """The page asked for, what has changed, or that nothing has; VersionConflict for a token of another version."""
        return replace(answer(kind.name, self.table(kind), ask, takes_changes=takes_changes), led=self._led)

    async def change(self, kind: TableKind[R], next_table: Callable[[Table[R]], Table[R]]) -> Table[R]:
        """Replace a table by what `next_table` makes of its newest version, durably before anyone sees it; tells what is newest then.

        `next_table` runs on the lane, so that no other change falls between. It refuses by raising, and changes nothing by returning
        what it got. A caller that is cancelled does not stop a change that has begun.
        """
        return await self._lane.run(self._change_steps(kind, next_table), lambda news: self._apply(kind, news))

    async def settled(self) -> None:
        """Return when all changes that have begun are durable, or have failed: those of callers that were cancelled too."""
        await self._lane.call(lambda: None)

    async def lead(self, epoch: Epoch, minimums: QueueMinimums) -> None:
        """Durably give every table a version of this epoch: a new master's tables are newer than all that slaves applied before.

        A table that never held anything keeps its version: it must not take the place of one that a slave has. `minimums` are those
        of this node's store, for the topics: a table that an older version or RocketMQ has written does not hold them.
        """

        def led(table: Table[Any]) -> Table[Any]:
            return table if table == Table() else table.renewed(epoch, self._clock.wall_ms())

        if (before := self.version(TOPICS)).state_version != epoch:  # a full disk has this tried again
            self.topics_before = before
        await self.change(TOPICS, lambda table: led(table) if table == Table() else led(table).hiding(minimums))
        for kind in WHOLE_KINDS:
            if kind is not TOPICS:
                await self.change(kind, led)
        self.offsets.lead(epoch, self._clock.wall_ms())
        self._led = epoch

    def _load_steps(self) -> Generator[None, None, list[str]]:
        restored: list[str] = []
        for kind in KINDS:
            problem = self._load_offsets() if kind is CONSUMER_OFFSETS else self._load_table(kind)
            if problem:
                restored.append(f"{kind.path} {problem}; its .bak is taken, which may lack the last change")
            yield
        return restored

    def _load_table(self, kind: TableKind[Any]) -> str:
        self._tables[kind.name], problem = self._files.load(kind)
        return problem

    def _load_offsets(self) -> str:
        found, problem = self._files.load_as(CONSUMER_OFFSETS, decode_offsets)
        if found is not None:
            self.offsets.load(found.by_name, found.version)
            self.offsets.other_fields = found.other_fields
        return problem

    def _apply(self, kind: TableKind[Any], news: Table[Any] | StorageFailure | None) -> None:
        match news:
            case Table():
                self._listener(kind, news)
            case StorageFailure():
                self._failed.set()

    def _change_steps(
        self, kind: TableKind[R], next_table: Callable[[Table[R]], Table[R]]
    ) -> Generator[Table[R] | StorageFailure | None, None, Table[R]]:
        """Yields None between steps on the disk, and what the loop must hear: the new table once it is durable, or the failure."""
        if self._failure is not None:
            raise self._failure
        old = self.table(kind)
        new = next_table(old)
        if new is old:
            return old
        try:
            yield from self._files.save(kind, new)
        except StorageFailure as failure:
            self._failure = failure
            yield failure
            raise
        self._tables[kind.name] = new
        yield new
        return new
