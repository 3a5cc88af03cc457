"""Retention with real processes: files go, readers go on behind them, and a killed slave is waited for."""

import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from dittomq.errors import OffsetOutOfRange
from tests.support.real_group import MASTER, SEGMENT_BYTES, TOPIC, RealGroup, real_group, shape
from tests.support.traffic import Publishing, messages
from tests.support.waiting import eventually

RULES = {"retention.max_age_ms": 1_000, "retention.check_period_ms": 200}
HOLD_BYTES = 6 * SEGMENT_BYTES


@pytest.fixture
def group(tmp_path: Path) -> Iterator[RealGroup]:
    with real_group(tmp_path, shape(1, master={**RULES, "replication.hold_max_bytes": HOLD_BYTES}, slave=RULES)) as running:
        yield running


def segments(group: RealGroup, name: str) -> list[str]:
    return sorted(path.name for path in (group.cluster.data_dir(name) / "commitlog").iterdir())


def held_for(group: RealGroup) -> list[str]:
    """The metrics that say what the master keeps for whom."""
    with urllib.request.urlopen(f"http://127.0.0.1:{group.cluster.node(MASTER).ports.ops}/metrics", timeout=5) as page:
        return [line for line in page.read().decode().splitlines() if line.startswith("dittomq_retention_held_bytes{")]


def test_old_files_go_on_master_and_slave_but_not_those_that_a_killed_slave_still_needs(group: RealGroup) -> None:
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
