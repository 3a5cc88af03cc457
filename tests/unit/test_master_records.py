"""What a master keeps about its slaves and about degraded ranges."""

import json
import random
from pathlib import Path

import pytest

from dittomq.broker.degraded_file import PATH, Written, document, load
from dittomq.broker.degraded_file import save as save_degraded
from dittomq.commitlog.disk.storage import OsStorage, replace_file
from dittomq.errors import DiskFull, UnreadableStore
from dittomq.offsets import PhysicalOffset
from dittomq.replication.degraded import DegradedRange
from services.master.counting import MessageCount
from services.master.degraded import DegradedRanges, add_degraded, load_degraded
from services.master.turns import Turns
from tests.support.stores import Machine


def at(offset: int) -> PhysicalOffset:
    return PhysicalOffset(offset)


def no_messages(_start: PhysicalOffset, _end: PhysicalOffset) -> int | None:
    return None


def test_a_degraded_range_survives_a_restart_and_ends_where_the_log_ended(tmp_path: Path) -> None:
    storage = OsStorage(tmp_path)
    ranges = DegradedRanges()
    ranges.begin(at(100), 7, 0)
    ranges.end(at(150), 5)
    ranges.begin(at(200), 9, 5)
    save_degraded(storage, ranges.document(at(200), 5))

    loaded = load_degraded(storage, at(260), no_messages)

    assert not loaded.is_open
    assert loaded.total_bytes(at(300)) == 50 + 60


def test_an_open_range_counts_bytes_and_messages_up_to_what_is_confirmed() -> None:
    ranges = DegradedRanges()
    ranges.begin(at(100), 7, 40)

    assert ranges.is_open
    assert ranges.since_ms == 7
    assert ranges.total_bytes(at(130)) == 30
    assert ranges.messages(43) == 3


def test_a_group_that_is_still_degraded_after_a_restart_goes_on_counting_in_the_same_range(tmp_path: Path) -> None:
    storage = OsStorage(tmp_path)
    ranges = DegradedRanges()
    ranges.begin(at(100), 7, 0)
    save_degraded(storage, ranges.document(at(180), 8))

    loaded = load_degraded(storage, at(200), lambda start, end: {(180, 200): 2}[start, end])
    loaded.begin(at(190), 99, 0)  # the confirmed end that was written down last lies below the log's end

    assert (loaded.since_ms, loaded.messages(5)) == (7, 8 + 2 + 5)
    assert loaded.total_bytes(at(300)) == 200


@pytest.mark.parametrize(("counted_to", "end"), [(180, 200), (220, 200)])
def test_messages_that_cannot_be_counted_after_a_kill_are_unknown_and_stay_so(tmp_path: Path, counted_to: int, end: int) -> None:
    storage = OsStorage(tmp_path)
    ranges = DegradedRanges()
    ranges.begin(at(100), 7, 0)
    save_degraded(storage, ranges.document(at(counted_to), 8))

    loaded = load_degraded(storage, at(end), no_messages)
    loaded.begin(at(end), 99, 0)

    assert loaded.messages(5) is None
    loaded.end(at(300), 9)
    assert b"[100, 300, 7, null]" in loaded.document(at(300), 9)


def test_a_group_that_had_enough_copies_meanwhile_begins_a_new_range(tmp_path: Path) -> None:
    storage = OsStorage(tmp_path)
    ranges = DegradedRanges()
    ranges.begin(at(100), 7, 0)
    save_degraded(storage, ranges.document(at(200), 8))

    loaded = load_degraded(storage, at(200), lambda _start, _end: 0)
    loaded.enough_copies()
    loaded.begin(at(200), 99, 0)

    assert (loaded.since_ms, loaded.messages(5)) == (99, 5)


def test_a_record_of_ranges_as_first_written_is_read(tmp_path: Path) -> None:
    storage = OsStorage(tmp_path)
    replace_file(storage, PATH, b'{"closed": [[0, 10], [20, 40]], "open": 50}')

    loaded = load_degraded(storage, at(60), lambda _start, _end: 1)

    assert loaded.total_bytes(at(60)) == 10 + 20 + 10
    loaded.begin(at(60), 99, 0)
    assert (loaded.since_ms, loaded.messages(1)) == (None, None)


@pytest.mark.parametrize(
    "text",
    [
        b"{",
        b"[" * 100_000,
        b'{"closed": [[1]], "open": null}',
        b'{"open": null}',
        b'{"closed": [[1, 1e999]], "open": null}',
        b'{"closed": [], "open": 1e999}',
        b'{"closed": [], "open": 5, "messages": "7"}',
    ],
)
def test_a_damaged_record_of_ranges_is_refused_by_name(tmp_path: Path, text: bytes) -> None:
    storage = OsStorage(tmp_path)
    replace_file(storage, PATH, text)

    with pytest.raises(UnreadableStore, match="degraded ranges is damaged"):
        load_degraded(storage, at(0), no_messages)


def test_a_range_that_a_slave_was_told_of_goes_on_when_it_leads_and_the_group_still_is_degraded(tmp_path: Path) -> None:
    storage = OsStorage(tmp_path)
    save_degraded(storage, document([DegradedRange(at(10), at(20), 5, 3), DegradedRange(at(100), None, 7)], None))

    loaded = load_degraded(storage, at(160), lambda _start, _end: 9)
    loaded.begin(at(150), 99, 0)

    assert (loaded.since_ms, loaded.messages(5)) == (7, None)
    assert loaded.total_bytes(at(170)) == 10 + 70


def test_what_was_said_of_bytes_that_were_cut_is_forgotten(tmp_path: Path) -> None:
    storage = OsStorage(tmp_path)
    save_degraded(storage, document([DegradedRange(at(10), at(20)), DegradedRange(at(40), at(60)), DegradedRange(at(70), None)], None))

    assert load_degraded(storage, at(50), no_messages).total_bytes(at(500)) == 10 + 10


def test_what_another_copy_knows_is_added_durably(tmp_path: Path) -> None:
    storage = OsStorage(tmp_path)
    save_degraded(storage, document([DegradedRange(at(10), at(20), 1, 1)], None))

    add_degraded("a/0", storage, (DegradedRange(at(40), at(60), 2, 2),))

    assert load_degraded(storage, at(100), no_messages).told == (DegradedRange(at(10), at(20), 1, 1), DegradedRange(at(40), at(60), 2, 2))


def test_what_another_copy_knows_is_not_added_on_a_full_disk_which_ends_no_node() -> None:
    machine = Machine(random.Random(3))
    storage = machine.storage()
    storage.make_folder("dittomq")
    machine.disk.capacity_bytes = machine.disk.used_bytes()

    with pytest.raises(DiskFull):
        add_degraded("a/0", storage, (DegradedRange(at(40), at(60), 2, 2),))

    assert load(storage) == Written()


def test_slaves_are_told_of_a_range_when_it_is_durable_and_of_nothing_twice() -> None:
    ranges = DegradedRanges()
    ranges.begin(at(100), 7, 0)
    before = ranges.told

    ranges.tell()
    first = ranges.told
    ranges.tell()

    assert (before, first) == ((), (DegradedRange(at(100), None, 7),))
    assert ranges.told is first


def test_messages_count_when_the_whole_group_they_were_written_in_is_confirmed() -> None:
    count = MessageCount()
    for number in range(10):
        count.written(at(100 * (number + 1)), 2)

    count.confirmed_to(at(350))

    assert count.confirmed == 6


def test_however_many_groups_wait_to_be_confirmed_none_is_forgotten() -> None:
    count = MessageCount()
    for number in range(10_000):
        count.written(at(number + 1), 1)

    count.confirmed_to(at(9_999))
    assert 0 < count.confirmed <= 9_999
    count.confirmed_to(at(10_000))
    assert count.confirmed == 10_000


def test_messages_without_a_queue_go_round() -> None:
    turns = Turns()

    assert [turns.take("t", 3) for _ in range(5)] == [0, 1, 2, 0, 1]
    assert turns.take("u", 3) == 0


CLOSED = [DegradedRange(at(0x80), at(0x100), 7, 3), DegradedRange(at(0x1000), at(0x2000), None, None)]
RANGES = [*CLOSED, DegradedRange(at(0x4000), None, 9, 5)]


def test_a_record_of_degraded_ranges_is_the_one_that_was_written_or_refused_whatever_bit_rots(tmp_path: Path) -> None:
    storage = OsStorage(tmp_path)
    written = document(RANGES, at(0x5000))
    save_degraded(storage, written)
    whole = load(storage)
    assert whole.ranges == tuple(RANGES)

    for bit in range(8 * len(written)):
        rotten = bytearray(written)
        rotten[bit // 8] ^= 1 << bit % 8
        (tmp_path / PATH).write_bytes(rotten)
        try:
            found = load(storage)
        except UnreadableStore:
            continue
        assert found == whole, f"bit {bit}: {rotten.decode()}"


def test_a_record_that_an_earlier_version_did_not_seal_is_read_and_a_sealed_one_holds_what_that_version_looks_for(tmp_path: Path) -> None:
    storage = OsStorage(tmp_path)
    before = {
        "closed": [[0x80, 0x100, 7, 3], [0x1000, 0x2000, None, None]],
        "open": 0x4000,
        "since_ms": 9,
        "counted_to": 0x5000,
        "messages": 5,
    }
    save_degraded(storage, json.dumps(before).encode())

    assert load(storage) == Written(tuple(RANGES), at(0x5000))
    assert before.items() <= json.loads(document(RANGES, at(0x5000))).items()
