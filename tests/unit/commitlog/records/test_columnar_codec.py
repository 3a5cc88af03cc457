"""What the columns vouch for is whole for the plain way too; what they say of a record is what stands there."""

import random
import struct

import numpy as np
import pytest

from dittomq.commitlog.records.columnar_codec import body_crcs_hold, columns_of, follow, record_crcs_hold
from dittomq.commitlog.records.decoding import decode
from dittomq.commitlog.records.format import lay_out, problem_of
from tests.support.log_fragments import IPV6, PLAIN, Kind, changed, stretch

SEEDS = range(400)


@pytest.mark.parametrize("seed", SEEDS)
def test_columns_vouch_for_no_record_in_which_the_plain_way_finds_a_problem(seed: int) -> None:
    chance = random.Random(seed)
    base = chance.choice((0, 5_000_000_000))
    data = stretch(chance, base, chance.randrange(20), odd=0.3, usual=chance.choice((PLAIN, IPV6)))
    segment_end = base + len(data) + chance.choice((7, 8, 400))
    data = changed(chance, data, base, segment_end)
    followed = follow(data)
    asked = [*followed, *(chance.randrange(-200, len(data) + 200) for _ in range(20))]

    columns = columns_of(data, base, np.array(asked, np.int64), segment_end)
    vouched = columns.plain & record_crcs_hold(columns) & body_crcs_hold(columns)

    for row, at in enumerate(asked):
        if vouched[row]:
            record = data[at : at + struct.unpack_from(">i", data, at)[0]]
            assert problem_of(record, base + at, sealed=True) == "", f"seed {seed}"
            assert base + at + len(record) <= segment_end - 8, f"seed {seed}"


@pytest.mark.parametrize("usual", [PLAIN, IPV6], ids=["IPv4", "IPv6"])
def test_columns_vouch_for_every_ordinary_record_and_tell_its_fields(usual: Kind) -> None:
    data = stretch(random.Random(1), 1_000, 300, odd=0, usual=usual)
    starts = follow(data)
    columns = columns_of(data, 1_000, np.array(starts, np.int64), 1 << 30)

    assert (columns.plain & record_crcs_hold(columns) & body_crcs_hold(columns)).all()
    assert columns.ends[-1] == len(data)
    assert columns.follows.tolist() == [False, *[True] * 299]
    for row, (start, end) in enumerate(zip(starts, columns.ends.tolist(), strict=True)):
        record = decode(data[start:end], 1_000 + start)
        layout = lay_out(data[start:end])
        assert layout is not None
        named = ("size", "queue", "flag", "queue_offset", "position", "system_flag", "born_ms", "store_ms", "prepared_offset")
        assert [int(columns.field(name)[row]) for name in named] == [
            record.size, record.queue, record.flag, record.queue_offset, record.physical_offset, record.system_flag,
            record.born_ms, record.store_ms, record.prepared_offset,
        ]  # fmt: skip
        assert (columns.topics[row], columns.properties[row]) == (start + layout.topic, start + layout.properties)
        assert columns.topic_bytes[row] == len(record.topic.encode())
        assert columns.properties_bytes[row] == end - columns.properties[row]


@pytest.mark.parametrize("count", [0, 1, 90])
def test_nothing_fits_into_too_few_bytes(count: int) -> None:
    columns = columns_of(bytes(count), 0, np.array([0, 5, -1, 1_000], np.int64), 1 << 30)

    assert not columns.fits.any()
    assert not record_crcs_hold(columns).any()
    assert not body_crcs_hold(columns).any()


def test_walking_record_sizes_stops_at_damage_or_when_enough_are_found() -> None:
    """It stops at a record that is cut off, too."""
    data = stretch(random.Random(2), 0, 10, odd=0)
    starts = follow(data)

    assert len(starts) == 10
    assert follow(data, at=starts[4]) == starts[4:]
    assert follow(data, most=3) == starts[:3]
    assert follow(data[:-1]) == starts[:-1]
    assert follow(data[: starts[3]] + bytes(4) + data[starts[3] + 4 :]) == starts[:3]


def test_a_record_crc_counts_only_when_it_is_written_in_digits() -> None:
    data = bytearray(stretch(random.Random(2), 0, 10, odd=0))
    starts = follow(bytes(data))
    for end in [*starts[1:], len(data)]:
        low, high = data[end - 11], data[end - 10]
        if high > ord("0"):
            data[end - 11 : end - 9] = low + 10, high - 1  # the same number, were it only added up
    columns = columns_of(bytes(data), 0, np.array(starts, np.int64), 1 << 30)

    assert 0 < columns.fits.sum() > columns.plain.sum()
    for row, (start, end) in enumerate(zip(starts, columns.ends.tolist(), strict=True)):
        assert columns.plain[row] == (problem_of(bytes(data[start:end]), start, sealed=True) == "")
