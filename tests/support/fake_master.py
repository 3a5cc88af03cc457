"""A master that answers with the tables it is given, and a slave that pulls them."""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dittomq.broker.metadata_sync import MetadataPuller
from dittomq.metadata.formats import TOPICS, TableKind
from dittomq.metadata.tables import Ask, Page, R, Table, answer, sorted_rows
from dittomq.metadata.topics import TopicConfig
from dittomq.routes import DataVersion
from tests.support.failing_storage import CrashingStorage
from tests.support.metadata_node import FakeTopicStore, MetadataNode


class FakeMaster:
    """Answers pages as a broker does. `before` runs before each answer and may change a table or fail the call."""

    def __init__(self) -> None:
        self.tables: dict[str, Table[Any]] = {}
        self.asked: list[tuple[float, str, Ask]] = []
        self.before: Callable[[str, Ask], None] = lambda *_: None
        self.page_size = 0

    def put(self, kind: TableKind[R], rows: list[R], version: DataVersion) -> None:
        self.tables[kind.name] = Table(version, sorted_rows(rows))

    def topics(self, *names: str, counter: int, epoch: int = 1) -> None:
        self.put(TOPICS, [TopicConfig(name) for name in names], DataVersion(epoch, 1_000, counter))

    async def fetch(self, kind: TableKind[R], ask: Ask, deadline_s: float) -> Page[R]:
        self.asked.append((asyncio.get_running_loop().time(), kind.name, ask))
        await asyncio.sleep(0.001)
        self.before(kind.name, ask)
        table: Table[R] = self.tables.get(kind.name, Table())
        return answer(kind.name, table, Ask(ask.known, self.page_size, ask.page_token))


class FakeQueues:
    """The queues of a FakeTopicStore."""

    def __init__(self, store: FakeTopicStore) -> None:
        self._store = store

    async def ends(self) -> dict[str, dict[int, int]]:
        found: dict[str, dict[int, int]] = {}
        for (topic, queue), (low, high) in self._store.ranges.items():
            if low < high:
                found.setdefault(topic, {})[queue] = high
        return found

    async def empty(self, topic: str, ends: Mapping[int, int]) -> None:
        self._store.delete_topic(topic)


class Slave:
    """A slave's tables and their puller."""

    def __init__(self, folder: Path, master: FakeMaster, storage: CrashingStorage | None = None) -> None:
        self.node = MetadataNode.make(folder, "a/1", storage)
        self.store = FakeTopicStore()
        self.puller = MetadataPuller(master, self.node.metadata, self.node.clock, FakeQueues(self.store))
