"""A master's memory: what a queue costs in a real process, all of it included. 100,000 queues are `make bench-store`."""

from pathlib import Path

import pytest

from bench.store.at_rest import master_at_rest

pytestmark = pytest.mark.tier("nightly")

FEW, MANY = 500, 10_500
GIB = 0.01
PROMISED_QUEUES, PROMISED_BYTES = 100_000, 300 * 1024 * 1024


def test_what_a_queue_costs_a_master_leaves_room_for_100_000_in_300_mib(tmp_path: Path) -> None:
    few, many = (master_at_rest(tmp_path / f"{queues}", queues, GIB, waits=False) for queues in (FEW, MANY))

    each = (many.memory_bytes - few.memory_bytes) / (MANY - FEW)
    assert few.memory_bytes + each * PROMISED_QUEUES < PROMISED_BYTES, f"{few.memory_bytes:,} bytes and {each:,.0f} for each queue"
    assert many.files < few.files + 64, "open files do not grow with queues"
