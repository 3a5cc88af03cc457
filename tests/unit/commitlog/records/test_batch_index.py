"""Many records at once give what they give one by one: the same entries, the same end, the same problem."""

import random

import pytest
from zlib_ng.zlib_ng import crc32

from dittomq.commitlog.disk.scanning import scan_bytes
from dittomq.commitlog.records import format as plain
from dittomq.commitlog.records.batch_index import FEW, RecordBatch, gather, whole_end
from dittomq.commitlog.records.encoding import encode_draft
from dittomq.commitlog.records.format import CRC_BYTES, UNIT, Host, IndexEntry, scan, sealed_crc
from dittomq.message import Draft
from tests.support.log_fragments import IPV6, changed, stretch


def entries_of(batch: RecordBatch) -> list[IndexEntry]:
    """What the batch says of each of its records."""
    producers = {each.positions[at]: (each.producer_id, each.first + at) for each in batch.sequences for at in range(len(each.positions))}
    named = {each.row: (each.topic, each.properties) for each in batch.named}
    found: dict[int, IndexEntry] = {}
    for run in batch.runs:
        for at, (row, (position, size, code)) in enumerate(zip(run.rows.tolist(), UNIT.iter_unpack(run.units), strict=True)):
            assert (position, position + size) == (batch.starts[row], batch.ends[row])
            assert row not in found
            topic, keyed = named.get(row, (run.topic, b""))
            assert topic == run.topic
            producer_id, sequence = producers.get(position, ("", -1))
            store_ms = int(batch.store_ms[row])
            found[row] = IndexEntry(
                position, position + size, topic, run.queue, run.first + at, code, store_ms, producer_id, sequence, keyed
            )  # fmt: skip
    return [found[row] for row in range(len(batch))]


def check(data: bytes, base: int, segment_end: int) -> int:
    """Compare both ways; returns how many records were taken at once."""
    batches, (entries, end, problem) = scan_bytes(data, base, segment_end, sealed=True)
    gathered = [entry for batch in batches for entry in entries_of(batch)]

    assert (gathered + entries, end, problem) == tuple(scan(data, base, segment_end))
    assert whole_end(data, base, segment_end) == plain.whole_end(data, base, segment_end)
    return len(gathered)


@pytest.mark.tier("test")
@pytest.mark.parametrize("odd", [0, 0.002, 0.02])
@pytest.mark.parametrize("seed", range(120))
def test_damaged_odd_and_cut_off_stretches_read_the_same_both_ways(seed: int, odd: float) -> None:
    chance = random.Random(seed)
    base = chance.choice((0, 5_000_000_000))
    data = stretch(chance, base, chance.randrange(FEW, 4 * FEW), odd)
    segment_end = base + len(data) + chance.choice((7, 8, 400))

    check(data, base, segment_end)
    check(changed(chance, data, base, segment_end), base, segment_end)


@pytest.mark.tier("test")
@pytest.mark.parametrize("seed", range(60))
def test_ipv6_stretches_read_the_same_both_ways_and_are_taken_at_once(seed: int) -> None:
    chance = random.Random(seed)
    data = stretch(chance, 7_000, 4 * FEW, 0, usual=IPV6)
    segment_end = 7_000 + len(data) + chance.choice((8, 400))

    assert check(data, 7_000, segment_end) == 4 * FEW
    check(changed(chance, data, 7_000, segment_end), 7_000, segment_end)
    # A node of the other kind leads from there on.
    more = stretch(chance, 7_000 + len(data), 4 * FEW, 0)
    check(data + more, 7_000, segment_end + len(more))


def test_stretches_of_every_length_read_the_same_both_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    for few in (1, FEW):
        monkeypatch.setattr("dittomq.commitlog.records.batch_index.FEW", few)
        for count in range(FEW + 20):
            data = stretch(random.Random(count), 0, count, 0)

            assert check(data, 0, 1 << 30) == (count if count >= few else 0), f"seed {count}"


def test_a_window_of_more_records_than_are_taken_at_once_reads_the_same_both_ways() -> None:
    data = stretch(random.Random(3), 0, 10_000, 0)

    assert check(data, 0, 1 << 30) == 10_000


def test_a_thousand_producers_and_queues_that_take_turns_read_the_same_both_ways() -> None:
    log = b""
    for at in range(1_000):
        identity = b"PID\x01" + b"p" * (at % 40) + b"%d\x02SEQ\x01%d\x02" % (at % 97, 10 ** (at % 19))
        log += encode_draft(Draft("t" * (1 + at % 60), at % 13, 0, 1, b"body", identity, 0), at // 780, len(log), 1, host=Host(bytes(4), 1))

    assert check(log, 0, 1 << 30) == 1_000


def test_what_follows_in_the_log_is_not_taken_for_a_producers_identity() -> None:
    data = stretch(random.Random(5), 0, FEW, 0)
    last = encode_draft(Draft("t", 0, 0, 1, b"body", b"PID\x01p", 0), 0, len(data), 1, host=Host(bytes(4), 1)).replace(
        b"PID\x01p\x02", b"PID\x01pq"
    )
    data += last[:-CRC_BYTES] + sealed_crc(crc32(last[:-CRC_BYTES]))

    assert check(data + b"SEQ\x017\x02".ljust(100, b"\0"), 0, 1 << 30) == FEW + 1


def test_a_batch_keeps_nothing_of_the_bytes_that_it_was_made_of() -> None:
    data = bytearray(stretch(random.Random(4), 0, 100, 0))
    [batch], at = gather(data, 0, 1 << 30)  # type: ignore[arg-type]  # one that can be grown, when nobody looks at it
    assert at == len(data)

    data.append(0)

    assert len(entries_of(batch)) == 100
