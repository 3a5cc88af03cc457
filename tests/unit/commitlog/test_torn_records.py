"""A record of ours that a power loss tore, in a store that RocketMQ has opened before we do again: RocketMQ looks at its body only."""

import random

import pytest

from dittomq.commitlog.records.encoding import encode_draft
from dittomq.commitlog.records.format import mark
from dittomq.commitlog.store import AppendBatch
from dittomq.epoch_history import FOREIGN
from tests.support.foreign_records import HOST, foreign_log, put_file, put_log
from tests.support.stores import Machine, draft, frame, whole_log
from tests.unit.commitlog.foreign_logs import SEGMENT, THEIRS, stretches

SECTOR = 512
TRACE = draft(body=b"torn")._replace(properties=b"trace\x01" + b"T" * 3 * SECTOR + b"\x02")
# What is zeros of it, counted from its end: in the properties, all the end of them, digits of the seal, the seal's name.
TEARS = [(3 * SECTOR, 2 * SECTOR), (SECTOR, 0), (9, 0), (SECTOR, 12)]


@pytest.fixture(params=TEARS, ids=["a sector", "the end", "digits", "a name"])
def torn(request: pytest.FixtureRequest) -> tuple[Machine, bytes, bytes]:
    """A machine, the log that was flushed on it, and the torn record that lies behind it."""
    machine = Machine(random.Random(5))
    store = machine.lead()
    store.append([frame(b"flushed")], 5)
    store.persist_recovery_point(store.sync(), store.end)
    log = whole_log(store)
    record = bytearray(store.append([AppendBatch([TRACE])], 6).pieces[0][1])
    machine.kill()
    low, high = (len(record) - each for each in request.param)
    record[low:high] = bytes(high - low)
    put_log(machine, bytes(record), len(log))
    return machine, log, bytes(record)


@pytest.fixture(params=[b"4711", None], ids=["killed", "closed"])
def abort(request: pytest.FixtureRequest) -> bytes | None:
    """RocketMQ's mark, as it leaves it."""
    mark: bytes | None = request.param
    return mark


def test_it_is_truncated_as_ever_when_nothing_was_appended_behind_it(torn: tuple[Machine, bytes, bytes], abort: bytes | None) -> None:
    machine, log, record = torn
    put_file(machine, "abort", abort)

    store = machine.open()

    assert (store.end, stretches(store)) == (len(log), [(1, False, 0)])
    assert store.recovery_truncation is not None
    assert store.recovery_truncation.saved_bytes == len(record.rstrip(b"\0"))


@pytest.mark.parametrize("left", ["T", "TT", "TWT", "TTWWT", "TW"])
def test_torn_ones_alone_are_damaged_when_rocketmq_took_them_for_whole_and_went_on(
    torn: tuple[Machine, bytes, bytes], abort: bytes | None, left: str
) -> None:
    machine, log, record = torn
    ours = ours_left(left, record, len(log))
    behind = len(log) + len(ours)
    theirs = foreign_log(THEIRS, behind, SEGMENT, {("orders", queue): 20 for queue in range(3)})
    put_log(machine, ours + theirs, len(log))
    put_file(machine, "abort", abort)

    for _ in range(2):
        store = machine.open()
        damaged = {at for start, end in store.damaged for at in range(start, end, len(record))}
        assert damaged == {len(log) + at * len(record) for at, sort in enumerate(left) if sort == "T"}
        assert store.recovery_truncation is None
        assert stretches(store) == [(1, False, 0), (1, True, behind)]
        assert store.epoch_history[-1].master_id == FOREIGN
        assert store.end == behind + len(theirs)
        machine.kill()


@pytest.mark.parametrize("left", ["TW", "TWT"])
def test_whole_ones_behind_it_are_truncated_with_it_when_rocketmq_went_on_nowhere(
    torn: tuple[Machine, bytes, bytes], abort: bytes | None, left: str
) -> None:
    machine, log, record = torn
    put_log(machine, ours_left(left, record, len(log)), len(log))
    put_file(machine, "abort", abort)

    store = machine.open()

    assert (store.end, store.damaged, stretches(store)) == (len(log), [], [(1, False, 0)])
    assert store.recovery_truncation is not None


def test_those_that_lie_on_both_sides_of_a_segments_end_mark_are_damaged_too(torn: tuple[Machine, bytes, bytes]) -> None:
    machine, log, record = torn
    end = SEGMENT - (SEGMENT - len(log)) % len(record)
    before = ours_left("T" * ((end - len(log)) // len(record)), record, len(log))
    ours = before + mark(SEGMENT - end).ljust(SEGMENT - end, b"\0") + ours_left("T", record, SEGMENT)
    behind = len(log) + len(ours)
    theirs = foreign_log(THEIRS, behind, SEGMENT, {("orders", queue): 20 for queue in range(3)})
    put_log(machine, ours + theirs, len(log))
    put_file(machine, "abort", b"4711")

    store = machine.open()

    assert (store.recovery_truncation, store.end, stretches(store)) == (None, behind + len(theirs), [(1, False, 0), (1, True, behind)])
    assert store.damaged == [(len(log), end), (SEGMENT, behind)]


def ours_left(left: str, torn: bytes, start: int) -> bytes:
    """What a power loss left of ours from `start` on: for each T the torn record, for each W a whole one of its size."""
    data = b""
    for number, sort in enumerate(left, 1):
        at = start + len(data)
        data += encode_draft(TRACE, number, at, 6, host=HOST) if sort == "W" else torn[:28] + at.to_bytes(8, "big") + torn[36:]
    return data
