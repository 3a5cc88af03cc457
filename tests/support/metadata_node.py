"""One node's tables on a real folder, without threads, with a clock that counts."""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from dittomq.broker.config_files import ConfigFiles
from dittomq.broker.metadata import Metadata
from dittomq.commitlog.disk.storage import OsStorage, Storage
from dittomq.errors import LogTruncated
from dittomq.metadata.formats import CONSUMER_OFFSETS, TOPICS, TableKind
from dittomq.metadata.tables import QueueMinimums, Table, sorted_rows
from dittomq.routes import DataVersion
from tests.simulation.loop import SimulatedLoop
from tests.support.inline_lane import InlineLane

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run under virtual time."""
    loop = SimulatedLoop()
    try:
        return loop.run_until_complete(work)
    finally:
        loop.close()


class LoopClock:
    """The running loop's time, also as wall time."""

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def wall_ms(self) -> int:
        return 1_700_000_000_000 + int(self.monotonic() * 1_000)


async def nothing_under_way() -> None:
    """A master whose writer has written all that it was given."""


@dataclass
class Heard:
    """Remembers what a listener is told."""

    changes: list[tuple[str, DataVersion]] = field(default_factory=list)

    def __call__(self, kind: TableKind[Any], table: Table[Any]) -> None:
        self.changes.append((kind.name, table.version))


@dataclass
class MetadataNode:
    """Tables in `folder`; `make` must run on the loop."""

    metadata: Metadata
    heard: Heard
    clock: LoopClock
    files: ConfigFiles

    @classmethod
    def make(cls, folder: Path, node: str = "a/0", storage: Storage | None = None) -> "MetadataNode":
        heard, clock = Heard(), LoopClock()
        files = ConfigFiles(storage or OsStorage(folder), node)
        return cls(Metadata(files, InlineLane(), clock, heard), heard, clock, files)

    @property
    def topics(self) -> list[str]:
        """Names in the topic table."""
        return list(self.metadata.table(TOPICS).rows)


def whole_table(metadata: Metadata, kind: TableKind[Any]) -> Table[Any]:
    """Any of the four tables."""
    if kind is not CONSUMER_OFFSETS:
        return metadata.table(kind)
    return Table(metadata.offsets.version, sorted_rows(metadata.offsets.rows()), metadata.offsets.other_fields)


class FakeTopicStore:
    """Queues in memory; `hidden` is every minimum that was ever asked for. From `rewritten_from` on epoch 3 wrote each queue."""

    def __init__(self) -> None:
        self.ranges: dict[tuple[str, int], tuple[int, int]] = {}
        self.hidden: dict[tuple[str, int], int] = {}
        self.rewritten_from: int | None = None

    def queue_range(self, topic: str, queue: int) -> tuple[int, int]:
        return self.ranges.get((topic, queue), (0, 0))

    def next_offsets(self, topic: str) -> dict[tuple[str, int], int]:
        return {key: end for key, (_, end) in self.ranges.items() if key[0] == topic}

    def hide(self, minimums: QueueMinimums) -> None:
        self.hidden |= minimums
        for key, low in minimums.items():
            begin, end = self.ranges.get(key, (0, 0))
            self.ranges[key] = (max(begin, low), max(end, low))

    def queue_range_below(self, topic: str, queue: int, end: int) -> tuple[int, int]:
        return self.queue_range(topic, queue)

    def check_not_rewritten(self, topic: str, queue: int, offset: int, epoch: int) -> None:
        if self.rewritten_from is not None and epoch < 3 and offset > self.rewritten_from:
            raise LogTruncated(topic, queue, offset, self.rewritten_from)

    def queue_ends(self) -> dict[tuple[str, int], int]:
        return {key: end for key, (_, end) in self.ranges.items()}

    def minimums(self) -> QueueMinimums:
        return dict(self.hidden)
