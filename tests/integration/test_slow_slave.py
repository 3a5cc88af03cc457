"""A slave that takes its time: what it costs its master in memory, and how fast it catches up under a limit."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dittomq.client import Ack, Message
from tests.support.event_log import wrong_copies
from tests.support.real_group import MASTER, TOPIC, RealGroup, real_group, shape
from tests.support.waiting import PATIENCE_S, eventually

pytestmark = pytest.mark.tier("nightly")

MIB = 1024 * 1024
LIMIT = 16 * MIB
WINDOW = 4 * MIB
SEGMENTS = {"store.segment_bytes": 8 * MIB}
LIMITS = {"replication.max_bytes_per_s_per_slave": LIMIT, "replication.max_inflight_bytes": WINDOW}


@pytest.fixture
def group(tmp_path: Path) -> Iterator[RealGroup]:
    with real_group(tmp_path, shape(2, master={**SEGMENTS, **LIMITS}, slave=SEGMENTS)) as running:
        yield running


def publish(group: RealGroup, mib: int) -> None:
    with group.mq.producer(Ack.MASTER_FLUSHED, timeout_s=PATIENCE_S) as producer:
        for _ in range(mib):
            producer.publish_many(Message(TOPIC, bytes(4_096)) for _ in range(256))


def memory_bytes(group: RealGroup, name: str) -> int:
    lines = Path(f"/proc/{group.cluster.pid(name)}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) * 1024


def held(group: RealGroup, name: str) -> int:
    """What the master knows that a slave has flushed."""
    return next(view.flushed or 0 for view in group.status().nodes if view.node == name)


def test_suspended_slave_costs_its_master_no_memory_and_catches_up_throttled(group: RealGroup) -> None:
    publish(group, 48)  # the tail of the log that is kept in memory is full
    group.wait_equal()
    before = memory_bytes(group, MASTER)

    with group.frozen("a/1"):
        publish(group, 96)
        behind = group.status().end - held(group, "a/1")
        grown = memory_bytes(group, MASTER) - before
    assert behind > 90 * MIB
    assert grown < behind / 3, f"{grown:,} bytes more for {behind:,} that a slave lacks"

    began, at_first = time.monotonic(), held(group, "a/1")
    end = group.status().end
    eventually(lambda: held(group, "a/1") == end, "a/1 has all")
    took = time.monotonic() - began
    assert end - at_first - WINDOW - MIB <= took * LIMIT + MIB, f"{end - at_first:,} bytes in {took:.1f} s"
    assert list(wrong_copies(group.logs(), group.wait_equal())) == []
