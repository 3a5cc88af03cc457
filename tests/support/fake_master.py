"""A master that answers with the tables it is given, and a slave that pulls them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from dittomq.broker.consumer_offsets import ConsumerOffsets
from dittomq.broker.metadata_sync import MetadataPuller
from dittomq.errors import Unavailable
from dittomq.metadata.formats import CONSUMER_OFFSETS, TOPICS, TableKind
from dittomq.metadata.offset_table import OffsetPage
from dittomq.metadata.tables import Ask, QueueMinimums, R, Table, TablePage, answer, sorted_rows
from dittomq.metadata.topics import TopicConfig
from dittomq.offsets import NO_EPOCH
from dittomq.routes import DataVersion
from tests.support.failing_storage import CrashingStorage
from tests.support.inline_lane import InlineLane
from tests.support.metadata_node import FakeTopicStore, MetadataNode


class FakeMaster:
    """Answers pages as a broker does. `before` runs before each answer and may change a table or fail the call.

    While it is `silent_about` a table, calls for it end at their deadline. `told` are its pages.
    """

    def __init__(self) -> None:
        self.tables: dict[str, Table[Any]] = {}
        self.asked: list[tuple[float, str, Ask]] = []
        self.before: Callable[[str, Ask], None] = lambda *_: None
        self.page_size = 0
        self.silent_about: set[str] = set()
        self.led = NO_EPOCH
        self.tells_changes = False
        self.told: list[TablePage[Any]] = []

    def put(self, kind: TableKind[R], rows: list[R], version: DataVersion) -> None:
        self.tables[kind.name] = Table(version, sorted_rows(rows))

    def topics(self, *names: str, counter: int, epoch: int = 1, minimums: QueueMinimums | None = None) -> None:
        self.put(TOPICS, [TopicConfig(name) for name in names], DataVersion(epoch, 1_000, counter))
        self.tables[TOPICS.name] = self.tables[TOPICS.name].hiding(minimums or {})

    async def fetch(self, kind: TableKind[R], ask: Ask, deadline_s: float) -> TablePage[R]:
        self.asked.append((asyncio.get_running_loop().time(), kind.name, ask))
        is_silent = kind.name in self.silent_about
        await asyncio.sleep(deadline_s if is_silent else 0.001)
        if is_silent:
            raise Unavailable("a/0", "no answer")
        self.before(kind.name, ask)
        table: Table[R] = self.tables.get(kind.name, Table())
        page = answer(kind.name, table, Ask(ask.known, self.page_size, ask.page_token), takes_changes=self.tells_changes)
        self.told.append(page)
        return replace(page, led=self.led)

    async def fetch_offsets(self, ask: Ask, deadline_s: float) -> OffsetPage:
        """As `fetch`; of changes it knows nothing."""
        page = await self.fetch(CONSUMER_OFFSETS, ask, deadline_s)
        return OffsetPage(page.version, page.rows, page.next_token, page.not_modified, led=page.led)

    async def watch_versions(self) -> AsyncIterator[Mapping[str, DataVersion]]:
        """It has no watch stream."""
        raise Unavailable("a/0", "it knows no watch")
        yield {}


class Slave:
    """A slave's tables and their puller."""

    def __init__(self, folder: Path, master: FakeMaster, storage: CrashingStorage | None = None) -> None:
        self.node = MetadataNode.make(folder, "a/1", storage)
        self.store = FakeTopicStore()
        node = self.node
        self.offsets = ConsumerOffsets(node.metadata, self.store, InlineLane(), node.clock, files=node.files, file_lane=InlineLane())
        self.puller = MetadataPuller(master, self.node.metadata, self.node.clock, self.hide)

        self.before_hiding: Callable[[], None] = lambda: None

    async def hide(self, minimums: QueueMinimums) -> None:
        self.before_hiding()
        self.store.hide(minimums)


@contextlib.asynccontextmanager
async def running(slave: Slave) -> AsyncIterator[None]:
    """The slave's puller pulls while the block runs."""
    task = asyncio.create_task(slave.puller.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait((task,))
