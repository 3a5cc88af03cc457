"""What consume queues say lies ahead: in order, from where it is asked, in memory that does not depend on the number of queues."""

import numpy as np
import pytest

from dittomq.commitlog.offline import expected_units
from dittomq.commitlog.offline.expected_units import NO_QUEUE, Expected
from dittomq.commitlog.queues.index_checkpoint import QueueKey
from dittomq.commitlog.records.format import UNIT, UNIT_BYTES

QUEUES = 1_000


def interleaved(key: QueueKey, offset: int, most: int) -> bytes:
    """Units of queues that take turns in the log, records of 100 bytes, without end."""
    return b"".join(UNIT.pack((key[1] + QUEUES * at) * 100, 100, 0) for at in range(offset, offset + most // UNIT_BYTES))


def test_units_of_all_queues_come_in_the_order_of_the_log() -> None:
    expected = Expected(interleaved)
    expected.expect({("t", queue): 0 for queue in reversed(range(QUEUES))})

    for low in range(0, 5_000_000, 700_000):
        units = expected.between(low, low + 700_000)

        assert units.positions.tolist() == list(range(low, low + 700_000, 100))
        assert [expected.keys[number][1] for number in units.queues[:20]] == [at // 100 % QUEUES for at in units.positions[:20]]
        assert units.offsets.tolist() == [at // 100 // QUEUES for at in units.positions]


def test_memory_is_bounded_whatever_the_number_of_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expected_units, "_STRIDE_BYTES", 100_000)
    monkeypatch.setattr(expected_units, "_ALL_READ_UNITS", 8 * QUEUES)
    monkeypatch.setattr(expected_units, "_READ_UNITS", (1, 4_096))
    expected = Expected(interleaved)
    expected.expect({("t", queue): 0 for queue in range(QUEUES)})

    most = 0
    for low in range(0, 10_000_000, 100_000):
        expected.between(low, low + 100_000)
        most = max(most, expected.held)

    assert most < 2 * 8 * QUEUES + 2 * 100_000 // 100 * 2


def test_a_queue_that_goes_on_elsewhere_is_read_from_there() -> None:
    expected = Expected(interleaved)
    expected.expect({("t", 0): 0, ("t", 1): 0})
    expected.expect({("t", 0): 3})

    units = expected.of(np.arange(0, 400_000, 100))

    assert [expected.keys[number] for number in units.queues.tolist() if number != NO_QUEUE] == [("t", 1)] * 3 + [("t", 0), ("t", 1)]
