"""One topic more among 60,000: how long its maker waits, and what it costs the master, the nameserver and a slave."""

import asyncio
import time
from pathlib import Path

from bench.ratios import Figure
from bench.scale.groups import followed, leader_first, started_with, tables_of, used_by
from dittomq.client import AsyncClient
from dittomq.metadata.formats import TOPICS, encode
from dittomq.metadata.tables import Table, sorted_rows
from dittomq.metadata.topics import TopicConfig
from dittomq.routes import DataVersion
from dittomq.testing.state import NAMESERVER

_SETTLE_S = 3.0


def measure(folder: Path, quick: bool) -> list[Figure]:
    """Without a slave, then with one. Processor time is per topic, of so many made one after the other, some seconds apart."""
    topics, made, idle_s = (50, 2, 0.5) if quick else (60_000, 10, 15.0)
    return [figure for slaves in (0, 1) for figure in asyncio.run(_measured(folder / str(slaves), slaves, (topics, made, idle_s)))]


async def _measured(folder: Path, slaves: int, sizes: tuple[int, int, float]) -> list[Figure]:
    topics, made, idle_s = sizes
    table = Table(DataVersion(1, 1_000, 1), sorted_rows(TopicConfig(f"topic-{number:06d}") for number in range(topics)))
    with started_with(folder, slaves, [(TOPICS, encode(TOPICS, table))]) as cluster:
        names = leader_first(cluster)
        pids = [cluster.pid(name) for name in (*names, NAMESERVER)]
        walls: list[float] = []
        lags: list[float] = []
        async with AsyncClient(cluster.nameserver) as mq, tables_of(cluster, names[0]) as master, tables_of(cluster, names[-1]) as slave:
            await mq.admin.create_topic("topic-000000-first")
            await followed(master, slave, TOPICS)

            async def make() -> None:
                for number in range(made):
                    began = time.perf_counter()
                    await mq.admin.create_topic(f"topic-{number * topics // made:06d}-more")
                    walls.append((time.perf_counter() - began) * 1_000)
                    lags.append(await followed(master, slave, TOPICS))
                    await asyncio.sleep(_SETTLE_S)

            used = await used_by(pids, make, idle_s)
    where = f"one topic more among {topics:,}, {'one slave' if slaves else 'no slave'}"
    roles = ("master", *["slave"] * slaves, "nameserver")
    figures = [Figure(f"{where}: create_topic", "ms", walls, at_most=200.0)]
    if slaves:
        figures.append(Figure(f"{where}: from then on until the slave has it", "s", lags))
    for role, each in zip(roles, used, strict=True):
        goal = 200.0 if role == "master" and not slaves else None
        figures.append(Figure(f"{where}: processor time, {role}", "ms", [max(0.0, each) / made * 1_000], at_most=goal))
    return figures
