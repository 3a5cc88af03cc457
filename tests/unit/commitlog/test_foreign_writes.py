"""Stores of ours that RocketMQ opened, appended to, and left again."""

import random
from dataclasses import replace

import pytest

from dittomq.commitlog.offline.open_store import items, open_on_disk
from dittomq.commitlog.offline.verify import verify
from dittomq.commitlog.records.decoding import decode
from dittomq.commitlog.records.encoding import encode
from dittomq.commitlog.records.format import CRC_BYTES, FIXED_BYTES, Host, sealed_crc
from dittomq.commitlog.store import AppendBatch, StopKind, Store
from dittomq.errors import CorruptRecord
from tests.simulation.simulated_process import SimCrashed
from tests.support.foreign_records import foreign_log, foreign_record, put_file, put_log, sealed_by_rocketmq
from tests.support.stores import SMALL, Machine, draft, filled, frame, open_epoch, whole_log
from tests.unit.commitlog.foreign_logs import SEGMENT, THEIRS, stretches
from tests.unit.commitlog.message_bodies import bodies


def left(machine: Machine, *, clean: bool, frames: int = 30) -> tuple[int, bytes]:
    """A store of ours, closed or killed: where its log ends, and the log."""
    store = filled(machine, frames)
    end, log = store.end, whole_log(store)
    if clean:
        store.close(clean=True)
    machine.kill()
    return end, log


def straddling(machine: Machine) -> tuple[int, int]:
    """A killed store with one flushed record, a long one that is nearly all properties, and a third: where the long one lies.

    It ends 10 bytes behind a border between sectors.
    """
    store = machine.lead()
    start, end = store.append([frame(b"before")], 5).end, 2 * 4_096 + 10
    store.persist_recovery_point(store.sync(), start)
    without = start + FIXED_BYTES + len("orders") + len("body") + len("trace\x01\x02") + CRC_BYTES
    traced = draft()._replace(properties=b"trace\x01" + b"T" * (end - without) + b"\x02")
    assert store.append([AppendBatch([traced])], 6).end == end
    store.append([frame(b"behind")], 7)
    machine.kill()
    return start, end


def append(machine: Machine, end: int) -> bytes:
    """What RocketMQ appends at the end of the log."""
    data = foreign_log(THEIRS, end, SEGMENT, {("orders", queue): 20 for queue in range(3)})
    put_log(machine, data, end)
    return data


@pytest.mark.parametrize("clean", [True, False], ids=["closed", "killed"])
def test_what_rocketmq_appended_is_kept_and_has_a_stretch_of_its_own(machine: Machine, clean: bool) -> None:
    end, log = left(machine, clean=clean)
    theirs = append(machine, end)

    store = machine.open()

    assert store.recovery_truncation is None
    assert stretches(store) == [(1, False, 0), (1, True, end)]
    assert whole_log(store) == log + theirs
    assert bodies(store)[-40:] == [each.body for each in THEIRS]
    open_epoch(store)
    store.append([frame(b"ours again")], 99)
    assert stretches(store) == [(1, False, 0), (1, True, end), (2, False, end + len(theirs))]
    assert bodies(store)[-1] == b"ours again"


def test_sealed_records_are_told_from_ours_by_our_clean_stop(machine: Machine) -> None:
    """They carry RocketMQ's record CRC."""
    end, _ = left(machine, clean=True)
    store = machine.lead()
    group = store.append([frame(b"copied with its seal", producer="p", first=60)], 99)
    machine.kill()
    record = group.pieces[0][1]
    machine = Machine(random.Random(5))
    assert left(machine, clean=True)[0] == end
    put_log(machine, record[:-20] + sealed_crc(1), end)

    again = machine.open()

    assert stretches(again) == [(1, False, 0), (1, True, end)]
    assert bodies(again)[-1] == b"copied with its seal"
    assert again.find_sequence("p", 60) is None, "a producer's sequence in a copy of RocketMQ is not believed"


def test_a_torn_record_of_ours_is_still_truncated_after_a_kill(machine: Machine) -> None:
    store = filled(machine)
    end = store.end
    group = store.append([frame(b"torn" * 50)], 99)
    machine.kill()
    record = group.pieces[0][1]
    put_log(machine, record[:150].ljust(len(record) - 20, b"\0") + record[-20:], group.start)

    again = machine.open()

    assert again.end == end
    assert again.recovery_truncation is not None
    assert stretches(again) == [(1, False, 0)]


@pytest.mark.parametrize("sector", [512, 4_096])
def test_record_of_ours_that_lost_a_sector_is_never_taken_for_rocketmqs(sector: int) -> None:
    """It ends the log."""
    at = 0
    while True:
        machine = Machine(random.Random(5))
        start, end = straddling(machine)
        lost = max(start, at), at + sector
        at += sector
        if lost[1] <= start:
            continue
        if end <= lost[0]:
            return
        put_log(machine, bytes(lost[1] - lost[0]), lost[0])
        seen = open_on_disk(machine.storage(), "store")
        problems = [item.problem for item in items(seen) if start <= item.start < end]

        store = machine.open()

        assert (store.end, stretches(store)) == (start, [(1, False, 0)]), lost
        assert all(problems), lost
        assert seen.seals.at(end).sealed, lost


def test_a_zero_byte_in_a_property_of_rocketmqs_is_no_tear(machine: Machine) -> None:
    end, _ = left(machine, clean=False)
    sealed = decode(sealed_by_rocketmq(draft()._replace(properties=b"trace\x01a\0b\x02"), 20, end), end)
    record = encode(replace(sealed, property_bytes=sealed.property_bytes[:-CRC_BYTES]))
    put_log(machine, record, end)

    assert verify(open_on_disk(machine.storage(), "store")).whole
    store = machine.open()

    assert stretches(store) == [(1, False, 0), (1, True, end)]
    assert store.end == end + len(record)


def test_records_sealed_behind_our_kill_are_told_by_their_born_host(machine: Machine) -> None:
    end, log = left(machine, clean=False)
    theirs = b""
    for at in range(10):
        theirs += sealed_by_rocketmq(draft(body=b"theirs %d" % at, identity=("p", 60 + at)), 20 + at, end + len(theirs))
    put_log(machine, theirs, end)
    assert machine.files()["abort"] == b"dittomq\n"
    report = verify(open_on_disk(machine.storage(), "store"))

    store = machine.open()

    assert (report.whole, report.end) == (True, end + len(theirs))
    assert whole_log(store) == log + theirs
    assert stretches(store) == [(1, False, 0), (1, True, end)]
    assert store.find_sequence("p", 60) is None, "a producer's sequence in a copy of RocketMQ is not believed"
    assert bodies(machine.open())[-10:] == [b"theirs %d" % at for at in range(10)]


def test_what_we_wrote_behind_the_recovery_point_stays_ours(machine: Machine) -> None:
    store = filled(machine)
    flushed = store.flushed
    store.append([frame(b"ours", producer="q", first=0)], 99)
    machine.kill()

    again = machine.open()

    assert again.end > flushed
    assert stretches(again) == [(1, False, 0)]
    assert again.find_sequence("q", 0) is not None


def test_a_redelivery_with_a_stale_seal_behind_a_kill_of_ours_is_kept(machine: Machine) -> None:
    end, _ = left(machine, clean=False)
    record = sealed_by_rocketmq(draft(body=b"a redelivery"), 20, end)
    stale = record[:-20] + sealed_crc(1)
    put_log(machine, stale, end)

    store = machine.open()

    assert (store.end, store.recovery_truncation) == (end + len(stale), None)
    assert stretches(store) == [(1, False, 0), (1, True, end)]


def test_where_rocketmqs_own_mark_is_a_copied_seal_is_no_sign_of_ours(machine: Machine) -> None:
    end, _ = left(machine, clean=False)
    stale = foreign_record(draft(body=b"a redelivery")._replace(properties=sealed_crc(1)), 20, end)
    put_log(machine, stale, end)

    put_file(machine, "abort", b"4711")
    store = machine.open()

    assert (store.end, store.recovery_truncation) == (end + len(stale), None)
    assert stretches(store) == [(1, False, 0), (1, True, end)]


@pytest.mark.parametrize("host", [SMALL.host, Host(bytes(15) + b"\1", 10_911)], ids=["IPv4", "IPv6"])
def test_torn_record_that_rocketmq_kept_does_not_take_later_ones_with_it(host: Host) -> None:
    """It is a record of ours, and RocketMQ appended behind it."""
    machine = Machine(random.Random(5), replace(SMALL, host=host))
    store = filled(machine)
    end, log = store.end, whole_log(store)
    record = store.append([frame(b"torn in its last bytes")], 99).pieces[0][1]
    machine.kill()
    torn = record[:-12] + bytes(12)
    behind = end + len(torn)
    theirs = foreign_log(THEIRS, behind, SEGMENT, {("orders", queue): 20 + (queue == 0) for queue in range(3)})
    put_log(machine, torn + theirs, end)
    put_file(machine, "abort", None)

    for _ in range(2):
        store = machine.open()
        assert (store.recovery_truncation, store.damaged) == (None, [(end, behind)])
        assert stretches(store) == [(1, False, 0), (1, True, behind)]
        assert whole_log(store) == log + torn + theirs
        store.dispatch(store.end)
        assert [store.queue_range("orders", queue)[1] for queue in range(3)] == [20 + 1 + 14, 20 + 13, 20 + 13]
        assert store.read_queue("orders", 0, 21, 100, 1 << 20).messages[-1].body == THEIRS[39].body
        machine.kill()


def test_torn_record_of_a_killed_rocketmq_is_damaged_alone(machine: Machine) -> None:
    """The next RocketMQ took it for whole."""
    end, log = left(machine, clean=True)
    offsets = {("orders", queue): 20 for queue in range(3)}
    before = foreign_log(THEIRS[:20], end, SEGMENT, offsets)
    begun = end + len(before)
    torn = foreign_log(THEIRS[20:21], begun, SEGMENT, offsets)
    torn = torn[:-6] + bytes(6)
    behind = begun + len(torn)
    theirs = foreign_log(THEIRS[21:], behind, SEGMENT, offsets)
    put_log(machine, before + torn + theirs, end)

    for _ in range(2):
        store = machine.open()
        assert (store.recovery_truncation, store.damaged) == (None, [(begun, behind)])
        assert stretches(store) == [(1, False, 0), (1, True, end)]
        assert whole_log(store) == log + before + torn + theirs
        store.dispatch(store.end)
        assert [store.queue_range("orders", queue)[1] for queue in range(3)] == [20 + 14, 20 + 13, 20 + 13]
        for queue, first in ((0, 20), (1, 20), (2, 20 + 7)):  # message 26 of queue 2 is the torn one
            found = [message.body for message in store.read_queue("orders", queue, first, 100, 1 << 20).messages]
            assert found == [each.body for each in THEIRS if each.queue == queue][first - 20 :]
        machine.kill()


def test_a_second_visit_begins_a_second_stretch(machine: Machine) -> None:
    end, _ = left(machine, clean=True)
    first = append(machine, end)
    store = machine.open()
    store.close(clean=True)
    machine.kill()
    second = foreign_record(draft(topic="more"), 0, end + len(first))
    put_log(machine, second, end + len(first))

    again = machine.open()

    assert again.end == end + len(first) + len(second)
    assert stretches(again) == [(1, False, 0), (1, True, end), (1, True, end + len(first))]


def test_an_epoch_without_bytes_gives_way_to_what_rocketmq_wrote_there(machine: Machine) -> None:
    end, _ = left(machine, clean=True)
    store = machine.lead()
    store.close(clean=True)
    machine.kill()
    append(machine, end)

    assert stretches(machine.open()) == [(1, False, 0), (2, True, end)]


def test_rocketmq_that_only_ended_a_segment_and_went_on_in_the_next_is_recognised(machine: Machine) -> None:
    end, _ = left(machine, clean=True)
    large = foreign_log([draft(body=b"x" * (SEGMENT - 1_000))], end, SEGMENT)
    put_log(machine, large, end)

    store = machine.open()

    assert store.end == end + len(large)
    assert stretches(store) == [(1, False, 0), (1, True, end)]


def test_a_torn_end_of_rocketmqs_is_truncated_and_the_rest_of_its_records_kept(machine: Machine) -> None:
    end, _ = left(machine, clean=True)
    theirs = append(machine, end)
    put_log(machine, bytes(10), end + len(theirs) - 10)

    store = machine.open()

    assert bodies(store)[-39:] == [each.body for each in THEIRS[:-1]]
    assert store.recovery_truncation is not None


def test_garbage_behind_our_clean_stop_is_truncated_as_ever(machine: Machine) -> None:
    end, log = left(machine, clean=True)
    put_log(machine, b"\xda\xa3\x20\xa7" * 50, end)

    store = machine.open()

    assert whole_log(store) == log
    assert stretches(store) == [(1, False, 0)]
    assert store.stopped is StopKind.CLEAN


@pytest.mark.tier("test")
@pytest.mark.parametrize("clean", [True, False], ids=["closed", "killed"])
def test_dying_anywhere_while_a_visit_is_taken_in_changes_nothing(clean: bool) -> None:
    for operations in range(300):
        machine = Machine(random.Random(5))
        end, log = left(machine, clean=clean, frames=6)
        theirs = append(machine, end)
        storage = machine.storage()
        machine.faults.operations_to_live = operations
        try:
            Store.open(storage, SMALL, chance=machine.chance, wall_ms=1_000)
            died = False
        except SimCrashed:
            died = True
        machine.lose_power()

        again = machine.open()

        assert whole_log(again) == log + theirs
        assert stretches(again) == [(1, False, 0), (1, True, end)]
        if not died:
            return
    pytest.fail("it never came to its end")


def test_what_we_write_behind_a_visit_is_never_taken_for_anothers(machine: Machine) -> None:
    end, _ = left(machine, clean=True)
    theirs = append(machine, end)
    store = machine.lead()
    store.append([frame(b"ours", producer="q", first=0)], 99)
    store.sync()
    machine.lose_power()

    again = machine.open()

    assert stretches(again) == [(1, False, 0), (1, True, end), (2, False, end + len(theirs))]
    assert again.find_sequence("q", 0) is not None


def test_damage_in_what_rocketmq_appended_is_found_by_readers_and_by_verify(machine: Machine) -> None:
    end, _ = left(machine, clean=True)
    theirs = append(machine, end)
    machine.open().close(clean=True)
    report = verify(open_on_disk(machine.storage(), "store"))
    assert (report.whole, report.end) == (True, end + len(theirs))
    position = theirs.index(b"theirs 7.")
    put_log(machine, b"T", end + position)

    store = machine.open()

    assert not verify(open_on_disk(machine.storage(), "store")).whole
    with pytest.raises(CorruptRecord, match="damaged"):
        bodies(machine.open())
    assert store.end == end + len(theirs)


@pytest.mark.parametrize("clean", [True, False], ids=["closed", "killed"])
def test_verify_knows_a_visit_before_we_open_the_store_again(machine: Machine, clean: bool) -> None:
    end, _ = left(machine, clean=clean)
    theirs = append(machine, end)

    report = verify(open_on_disk(machine.storage(), "store"))

    assert report.end == end + len(theirs)
    assert {finding.kind.value for finding in report.findings} == set()
