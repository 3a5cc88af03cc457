import random
from itertools import pairwise

import pytest

from dittomq.commitlog.store import Store
from dittomq.epoch_history import EpochEntry
from dittomq.errors import CorruptRecord, InvalidField, OffsetOutOfRange
from dittomq.offsets import LAST_EPOCH, Epoch, PhysicalOffset
from tests.support.stores import SMALL, Machine, whole_log
from tests.unit.commitlog.repaired_stores import follow


@pytest.fixture
def slave(machine: Machine) -> Store:
    return follow(machine.open())


def chunks(log: bytes, start: int, chance: random.Random) -> list[tuple[int, bytes]]:
    """The log from `start` on, cut anywhere, though never across a segment's end."""
    borders = {start, len(log), *range(0, len(log), SMALL.segment_bytes), *(chance.randrange(start, len(log)) for _ in range(60))}
    return [(low, log[low:high]) for low, high in pairwise(sorted(border for border in borders if border >= start))]


@pytest.mark.parametrize("seed", range(8))
def test_chunks_cut_anywhere_make_the_same_log(slave: Store, log: bytes, seed: int) -> None:
    for offset, data in chunks(log, 0, random.Random(seed)):
        assert slave.written_raw == offset
        slave.write_chunk(offset, data)
        assert slave.end <= slave.written_raw

    assert whole_log(slave) == log
    slave.dispatch(slave.end)
    assert [slave.queue_range("orders", queue) for queue in (0, 1)] == [(0, 60), (0, 60)]
    found = slave.find_sequence("p", 119)
    assert found is not None
    assert (found.queue, found.queue_offset) == (1, 59)


@pytest.mark.tier("test")
@pytest.mark.parametrize("seed", range(8))
def test_a_slave_that_is_killed_inside_a_record_goes_on_from_the_last_whole_one(machine: Machine, log: bytes, seed: int) -> None:
    chance = random.Random(seed)
    slave = follow(machine.open())
    while slave.end < len(log):
        sent = chunks(log, slave.end, chance)
        for offset, data in sent[: chance.randrange(1, len(sent) + 1)]:
            slave.write_chunk(offset, data)
            if chance.random() < 0.2:
                slave.sync()
        end = slave.end
        machine.kill()
        slave = machine.open()
        assert slave.end == slave.written_raw == slave.flushed
        assert slave.end in {end, slave.segment_of(end)[1]}, "a mark is whole with its 8 bytes: zeros are behind it already"

    assert whole_log(slave) == log


def test_end_counts_whole_records_and_a_mark_only_with_all_behind_it(slave: Store, log: bytes) -> None:
    first_end = int.from_bytes(log[:4], "big")

    assert slave.write_chunk(0, log[: first_end - 1]) == 0
    assert slave.write_chunk(first_end - 1, log[first_end - 1 : first_end + 10]) == first_end
    slave.write_chunk(first_end + 10, log[first_end + 10 : SMALL.segment_bytes - 1])
    assert slave.end < SMALL.segment_bytes - 1
    assert slave.write_chunk(SMALL.segment_bytes - 1, log[SMALL.segment_bytes - 1 : SMALL.segment_bytes]) == SMALL.segment_bytes


def test_a_chunk_with_a_damaged_record_is_refused_whole(slave: Store, log: bytes) -> None:
    bad = bytearray(log[:10_000])
    bad[9_000] ^= 1

    with pytest.raises(CorruptRecord):
        slave.write_chunk(0, bytes(bad))
    assert (slave.written_raw, slave.end) == (0, 0)

    slave.write_chunk(0, log[:10_000])
    assert slave.written_raw == 10_000


def test_a_record_at_another_position_is_refused(slave: Store, log: bytes) -> None:
    first_end = int.from_bytes(log[:4], "big")

    with pytest.raises(CorruptRecord, match="it says that it lies at"):
        slave.write_chunk(0, log[first_end : first_end + 5_000])


def test_a_chunk_behind_a_gap_or_before_the_end_is_refused(slave: Store, log: bytes) -> None:
    slave.write_chunk(0, log[:1_000])

    for offset in (0, 999, 1_001):
        with pytest.raises(OffsetOutOfRange):
            slave.write_chunk(offset, log[offset : offset + 100])


def test_an_epoch_history_never_outlives_the_bytes_before_its_newest_epoch(machine: Machine, log: bytes) -> None:
    slave = follow(machine.open())
    slave.write_chunk(0, log[: SMALL.segment_bytes])
    end = slave.end

    slave.replace_epoch_history((*slave.epoch_history, EpochEntry(Epoch(2), 0, 7_002, end)))
    machine.lose_power(all_unsynced=True)

    again = machine.open()
    assert (again.end, len(again.epoch_history)) == (end, 2)


def test_no_epoch_is_written_down_that_could_not_be_read_again(machine: Machine, slave: Store, log: bytes) -> None:
    slave.write_chunk(0, log[: SMALL.segment_bytes])
    before = slave.epoch_history

    with pytest.raises(InvalidField, match="no epoch follows 4,611,686,018,427,387,903"):
        slave.replace_epoch_history((*before, EpochEntry(Epoch(LAST_EPOCH + 1), 0, 7_002, slave.end)))

    assert slave.epoch_history == before
    slave.replace_epoch_history((*before, EpochEntry(LAST_EPOCH, 0, 7_002, slave.end)))
    slave.close(clean=True)
    assert machine.open().epoch_history[-1].epoch == LAST_EPOCH


def test_a_chunk_across_a_segments_end_is_refused(slave: Store, log: bytes) -> None:
    with pytest.raises(InvalidField, match="past the segment's end"):
        slave.write_chunk(0, log[: SMALL.segment_bytes + 1])


def test_a_truncation_takes_the_half_record_too(slave: Store, log: bytes) -> None:
    slave.write_chunk(0, log[:9_999])
    end = slave.end
    assert end < slave.written_raw

    report = slave.truncate(end)

    assert (report.saved_bytes, slave.end, slave.written_raw) == (9_999 - end, end, end)
    follow(slave).write_chunk(end, log[end : SMALL.segment_bytes])
    assert whole_log(slave) == log[: SMALL.segment_bytes]


@pytest.mark.parametrize("power_is_lost", [False, True])
def test_half_a_record_that_goes_does_not_take_the_epoch_with_it_that_begins_there(
    machine: Machine, slave: Store, log: bytes, power_is_lost: bool
) -> None:
    slave.write_chunk(PhysicalOffset(0), log[: SMALL.segment_bytes])
    epoch_history = (*slave.epoch_history, EpochEntry(Epoch(2), 0, 7_002, slave.end))
    slave.replace_epoch_history(epoch_history)
    slave.write_chunk(slave.end, log[slave.end : slave.end + 100])
    slave.sync()

    if power_is_lost:
        machine.lose_power()
        slave = machine.open()
    else:
        slave.truncate(slave.end)

    assert slave.end == slave.written_raw
    assert slave.epoch_history == epoch_history
