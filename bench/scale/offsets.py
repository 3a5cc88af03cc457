"""1,000,000 consumer offsets in a group's table: how soon a slave has a commit, what moves for it, what writing and loading them costs."""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.machine import resident_bytes
from bench.ratios import Figure, percentile
from bench.scale.groups import NodeTables, followed, leader_first, started_with, tables_of, used_by
from dittomq.broker.consumer_offsets import SAVE_S
from dittomq.client import AsyncClient, Message
from dittomq.consumer_progress import OffsetCommit
from dittomq.metadata.formats import CONSUMER_OFFSETS, GROUPS, TOPICS, TableKind, encode
from dittomq.metadata.offset_file import OffsetFile, decode_offsets
from dittomq.metadata.offset_table import NameOffsets, OffsetTable
from dittomq.metadata.rows import GroupConfig
from dittomq.metadata.tables import Table, sorted_rows
from dittomq.metadata.topics import TopicConfig
from dittomq.routes import DataVersion

_QUEUES = 8
_GROUPS = 100
_TOPIC, _GROUP = "topic-00000", "group-000"
_MIB = 1024 * 1024


def measure(folder: Path, quick: bool) -> list[Figure]:
    """A group of a master and a slave, all of whose tables are there at the start."""
    offsets, commits, idle_s = (4_000, 3, 1.0) if quick else (1_000_000, 30, 20.0)
    topics = [f"topic-{number:05d}" for number in range(offsets // _QUEUES // _GROUPS)]
    groups = [f"group-{number:03d}" for number in range(_GROUPS)]
    data = _file([(topic, group) for topic in topics for group in groups])
    return [*_loaded(f"{offsets:,} offsets", data), *asyncio.run(_measured(folder, (topics, groups), data, (commits, idle_s)))]


def _file(names: Sequence[tuple[str, str]]) -> bytes:
    table, file = OffsetTable(), OffsetFile()
    table.load({name: NameOffsets(0, dict.fromkeys(range(_QUEUES), 0)) for name in names}, DataVersion(1, 1_000, 1))
    while not file.take_changes(table, len(names)):
        pass
    return file.encode(file.snapshot(table))


def _loaded(where: str, data: bytes) -> list[Figure]:
    seconds = []
    for _ in range(3):
        began = time.process_time()
        OffsetTable().load(decode_offsets(data).by_name, DataVersion())
        seconds.append(time.process_time() - began)
    return [Figure(f"{where}: their file is loaded, processor time", "s", seconds)]


async def _measured(folder: Path, names: tuple[list[str], list[str]], data: bytes, sizes: tuple[int, float]) -> list[Figure]:
    topics, groups = names
    commits, idle_s = sizes
    saves = commits // 5 + 1
    version = DataVersion(1, 1_000, 1)
    topic_table = Table(version, sorted_rows(TopicConfig(topic, _QUEUES, _QUEUES) for topic in topics))
    group_table = Table(version, sorted_rows(GroupConfig(group) for group in groups))
    files: list[tuple[TableKind[Any], bytes]] = [(TOPICS, encode(TOPICS, topic_table)), (GROUPS, encode(GROUPS, group_table))]
    files.append((CONSUMER_OFFSETS, data))
    with started_with(folder, 1, files) as cluster:
        nodes = leader_first(cluster)
        pids = [cluster.pid(name) for name in nodes]
        async with AsyncClient(cluster.nameserver) as mq, tables_of(cluster, nodes[0]) as master, tables_of(cluster, nodes[1]) as slave:
            await followed(master, slave, CONSUMER_OFFSETS)
            async with mq.producer() as producer:
                await producer.publish_many([Message(_TOPIC, b"x")] * _QUEUES * (4 * commits + 4))
            run = _Commits(mq, master, slave)
            await run.one()  # the first one after a start has all names encoded
            await asyncio.sleep(2 * SAVE_S)
            walls, lags, bytes_moved = [], [], []
            for _ in range(commits):
                walls.append(await run.one())
                lags.append(await followed(master, slave, CONSUMER_OFFSETS))
                bytes_moved.append(await run.bytes_behind())
            await asyncio.sleep(2 * SAVE_S)
            calm = await run.reads(SAVE_S)
            used = await used_by(pids, lambda: run.saves(saves), idle_s)
            during = await run.reads_beside_saves(saves)
        memory = [resident_bytes(pid) / _MIB for pid in pids]
    where = f"{len(topics) * _GROUPS * _QUEUES:,} offsets"
    return [
        Figure(f"{where}: a commit", "ms", walls),
        Figure(f"{where}: from a commit on until the slave has it", "s", lags, at_most=2.0),
        Figure(f"{where}: bytes that the slave is sent for it", "bytes", bytes_moved),
        Figure(f"{where}: one write of the file, processor time of the master", "ms", [max(0.0, used[0]) / saves * 1_000]),
        Figure(f"{where}: one write of the file, processor time of the slave", "ms", [max(0.0, used[1]) / saves * 1_000]),
        Figure(f"{where}: a read of offsets while the file is written and while not, p99", "ms", *_percentiles(during, calm, 99)),
        Figure(f"{where}: the longest read of offsets while the file is written and while not", "ms", *_percentiles(during, calm, 100)),
        *(Figure(f"{where}: memory of the {role}", "MiB", [each]) for role, each in zip(("master", "slave"), memory, strict=True)),
    ]


def _percentiles(during: list[float], calm: list[float], percent: int) -> tuple[list[float], list[float]]:
    return [percentile(during, percent)], [percentile(calm, percent)]


class _Commits:
    """Commits of one queue, each one further."""

    def __init__(self, mq: AsyncClient, master: NodeTables, slave: NodeTables) -> None:
        self._mq, self._master, self._slave = mq, master, slave
        self._offset = 0
        self._before = DataVersion()

    async def one(self) -> float:
        """Milliseconds of one commit."""
        self._before, self._offset = await self._master.version(CONSUMER_OFFSETS), self._offset + 1
        began = time.perf_counter()
        [result] = await self._mq.admin.commit_offsets(_GROUP, [OffsetCommit(_TOPIC, 0, self._offset)], broker="a")
        took = (time.perf_counter() - began) * 1_000
        assert result.value is not None, result
        return took

    async def bytes_behind(self) -> int:
        """What a slave is sent that lacks the last commit."""
        return await self._master.behind(self._before)

    async def reads(self, seconds: float) -> list[float]:
        """Milliseconds of one read after the other."""
        times, until = [], time.perf_counter() + seconds
        while time.perf_counter() < until:
            began = time.perf_counter()
            await self._mq.admin.get_offsets(_GROUP, [(_TOPIC, 0)], broker="a")
            times.append((time.perf_counter() - began) * 1_000)
            await asyncio.sleep(0.002)
        return times

    async def saves(self, number: int) -> None:
        """Let the file be written so many times."""
        for _ in range(number):
            await self.one()
            await asyncio.sleep(SAVE_S)

    async def reads_beside_saves(self, number: int) -> list[float]:
        """Milliseconds of reads meanwhile."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.saves(number))
            return await self.reads(number * SAVE_S)
