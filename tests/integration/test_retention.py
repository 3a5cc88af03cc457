"""Retention with real processes: files go, readers go on behind them, and a killed slave is waited for."""

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from dittomq.client.replica_reader import NodeAddress, ReplicaReader
from dittomq.doors.transport import GrpcTransport
from dittomq.errors import OffsetOutOfRange
from dittomq.rpc.channel import Channels
from tests.support.mounts import small_tmpfs
from tests.support.real_group import MASTER, SEGMENT_BYTES, TOPIC, RealGroup, real_group, shape
from tests.support.traffic import Publishing, messages
from tests.support.waiting import PATIENCE_S, eventually

pytestmark = pytest.mark.tier("nightly")

RULES = {"retention.max_age_ms": 1_000, "retention.check_period_ms": 200}
HOLD_BYTES = 6 * SEGMENT_BYTES
R = TypeVar("R")


@pytest.fixture
def group(tmp_path: Path) -> Iterator[RealGroup]:
    with real_group(
        tmp_path,
        shape(1, master={**RULES, "replication.max_slot_bytes": HOLD_BYTES}, slave=RULES, nameserver={"registry.broker_expiry_ms": 5_000}),
    ) as running:
        yield running


def segments(group: RealGroup, name: str) -> list[str]:
    return sorted(path.name for path in (group.cluster.data_dir(name) / "commitlog").iterdir())


def held_for(group: RealGroup) -> list[str]:
    """The metrics that say what the master holds for whom."""
    return [f"{sample} {held}" for sample, held in group.metrics(MASTER).items() if sample.startswith("dittomq_retention_held_bytes{")]


class Auditor:
    """Asks for pins as the audit does."""

    def __init__(self, group: RealGroup) -> None:
        self._group = group

    def ask(self, name: str, call: Callable[[ReplicaReader, NodeAddress], Coroutine[Any, Any, R]]) -> R:
        """One call to that node."""

        async def ask() -> R:
            async with Channels(GrpcTransport()) as channels:
                return await call(ReplicaReader(channels, PATIENCE_S), NodeAddress("a", int(name[-1]), "test", self._group.address(name)))

        return asyncio.run(ask())


def test_pinned_files_stay_on_master_and_slave_over_a_kill_until_the_pin_is_given_up(group: RealGroup) -> None:
    auditor = Auditor(group)
    pins = {name: auditor.ask(name, lambda reader, node: reader.pin(node, "night", 300.0)) for name in group.copies}
    with group.mq.producer(on_weak="return", timeout_s=0.5) as producer:
        Publishing(producer).publish(messages(0, 600, size=10_000))
    newest = group.wait_equal() // SEGMENT_BYTES * SEGMENT_BYTES
    [held] = eventually(lambda: held_for(group), "the master says that it holds files for the audit")
    assert held.startswith(f'dittomq_retention_held_bytes{{holder="audit night {pins[MASTER].pin_id}"}} ')

    for name in group.copies:
        group.cluster.kill(name)
        group.cluster.start_node(name)
    group.cluster.wait_in_sync()  # both answer
    eventually(lambda: held_for(group), "the master still holds files for the audit")
    for name in group.copies:
        assert segments(group, name)[0] == f"{0:020d}"
        auditor.ask(name, lambda reader, node, name=name: reader.renew(node, pins[name], 300.0))  # type: ignore[misc]
        assert auditor.ask(name, lambda reader, node, name=name: reader.unpin(node, pins[name]))  # type: ignore[misc]
        eventually(lambda name=name: segments(group, name)[0] == f"{newest:020d}", f"{name} has dropped what is old")  # type: ignore[misc]


def test_old_segments_are_removed_except_those_a_killed_slave_needs(group: RealGroup) -> None:
    """Master and slave remove them."""
    with group.mq.producer(on_weak="return", timeout_s=0.5) as producer:
        publishing = Publishing(producer)
        publishing.publish(messages(0, 600, size=10_000))
        end = group.wait_equal()
        newest = end // SEGMENT_BYTES * SEGMENT_BYTES
        for name in group.copies:
            eventually(lambda name=name: segments(group, name)[0] == f"{newest:020d}", f"{name} has dropped what is old")  # type: ignore[misc]
            assert group.status(name).min_offset == newest
        with pytest.raises(OffsetOutOfRange):
            group.mq.reader(TOPIC, 0, node=MASTER).pull(0)

        group.cluster.kill("a/1")
        publishing.publish(messages(600, 300, size=10_000))
        [held] = eventually(lambda: held_for(group), "the master says that it keeps files for a/1")
        assert held.startswith('dittomq_retention_held_bytes{holder="a/1"} ')
        assert group.status().min_offset == newest
        group.cluster.kill(MASTER)
        group.cluster.start_node(MASTER)
        eventually(group.writable, "the master takes writes")
        assert group.status().min_offset == newest

        group.cluster.start_node("a/1")
        eventually(lambda: group.status().min_offset > newest, "nobody needs the old files any more")
        group.wait_equal()


DISK_BYTES = 48 * 1024 * 1024
USED_PERCENT = 50


def test_only_the_oldest_segments_are_removed_above_the_disk_limit(tmp_path: Path) -> None:
    rules = {"retention.max_used_percent": USED_PERCENT, "retention.check_period_ms": 200, "store.min_free_bytes": 4 * SEGMENT_BYTES}
    with small_tmpfs(tmp_path / "cluster" / "a-0", DISK_BYTES), real_group(tmp_path, shape(0, master=rules)) as group:

        def used() -> float:
            stat = os.statvfs(group.cluster.data_dir(MASTER))
            return 1 - stat.f_bavail / stat.f_blocks

        with group.mq.producer() as producer:
            publishing = Publishing(producer)
            for first in range(0, 8_000, 1_000):  # 80 MB
                publishing.publish(messages(first, 1_000, size=10_000))
                eventually(lambda: used() <= USED_PERCENT / 100, "the disk is no fuller than it may be")

        eventually(lambda: group.status().min_offset == int(segments(group, MASTER)[0]) > 0, "what the log begins behind is gone")
        assert used() > (USED_PERCENT / 100) - 4 * SEGMENT_BYTES / DISK_BYTES, "no more went than had to"
