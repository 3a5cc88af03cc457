"""What `dittomq log` says of a store on a disk that does not give some of its bytes, and of strangers' files and bytes in it."""

import os
import random
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from dittomq.commitlog.disk.storage import OsStorage
from dittomq.commitlog.offline.open_store import StoreOnDisk, items, open_on_disk
from dittomq.commitlog.offline.verify import StoreFault, verify
from dittomq.commitlog.options import StoreOptions
from dittomq.commitlog.queues import orphaned_queue_files
from dittomq.commitlog.records.decoding import decode
from dittomq.commitlog.records.encoding import encode
from dittomq.commitlog.records.format import UNIT
from dittomq.commitlog.records.record_scanner import Sort
from dittomq.commitlog.records.rocketmq_records import INNER_BATCH
from dittomq.commitlog.store import AppendBatch, Store
from tests.support.foreign_records import foreign_log, put_log
from tests.support.stores import Machine, draft, frame, led, whole_log
from tests.unit.commitlog.bad_sectors import BadSectors

OPTIONS = StoreOptions(segment_bytes=64 * 1024, queue_file_units=200, min_free_bytes=0)
QUEUE = "consumequeue/orders/0"
PAGE = 4_096


def left() -> tuple[Machine, bytes]:
    """A store of 120 messages, and its log."""
    machine = Machine(random.Random(1), OPTIONS)
    store = machine.lead()
    for at in range(120):
        store.append([frame(b"x" * 300)], at)
    store.sync()
    store.dispatch(store.end)
    store.persist_recovery_point(store.end, store.end)
    log = whole_log(store)
    store.close(clean=False)
    return machine, log


def seen(machine: Machine, bad: range, path: str = f"commitlog/{0:020d}") -> StoreOnDisk:
    """A look at a store of which the disk does not give some bytes."""
    door = BadSectors(machine, path)
    door.bad = bad
    return open_on_disk(door, "here")  # type: ignore[arg-type]


@pytest.mark.parametrize("one_by_one", [False, True])
@pytest.mark.parametrize("bad", [range(5_000, 5_001), range(9_000, 20_000), range(1)], ids=["a page", "several", "the first"])
def test_bytes_that_a_disk_does_not_give_are_damaged_and_all_others_are_verified(bad: range, one_by_one: bool) -> None:
    machine, log = left()
    pages = range(bad.start // PAGE * PAGE, -(-bad.stop // PAGE) * PAGE)
    hit = [(start, end) for start, end in entries_of(log) if start < pages.stop and pages.start < end]

    report = verify(seen(machine, bad), one_by_one=one_by_one)

    damaged = [each for each in report.findings if each.kind is StoreFault.DAMAGED]
    assert set(report.counts) == {StoreFault.DAMAGED, StoreFault.QUEUE_GAP}
    assert damaged[0].position == hit[0][0]
    assert all("Input/output error" in each.problem for each in damaged)
    assert (report.records, report.end) == (120 - len(hit), len(log))


@pytest.mark.parametrize("back", [1, 500], ids=["its end", "its beginning too"])
def test_the_last_record_on_a_bad_sector_is_damage_and_no_torn_end(back: int) -> None:
    machine, log = left()

    report = verify(seen(machine, range(len(log) - back, len(log))))

    assert (report.whole, set(report.counts)) == (False, {StoreFault.DAMAGED, StoreFault.UNIT_UNREADABLE})


def test_whether_the_log_has_messages_where_its_end_is_on_a_bad_sector_is_not_known() -> None:
    machine, log = left()
    page = len(log) // PAGE * PAGE
    hit = [start for start, end in entries_of(log) if end > page]
    with closing(machine.beside().open(f"{QUEUE}/{0:020d}")) as file:
        file.pwrite(UNIT.pack(page - 2 * PAGE, 100, 0), 121 * 20)

    report = verify(seen(machine, range(page, len(log))))

    named = [each for each in report.findings if each.kind is StoreFault.UNIT_UNREADABLE]
    assert [(each.queue_offset, each.position) for each in named] == list(zip(range(120 - len(hit), 120), hit, strict=True))
    assert all("Input/output error" in each.problem for each in named)
    assert [each.queue_offset for each in report.findings if each.kind is StoreFault.UNIT_SURPLUS] == [121]


def test_a_bad_sector_behind_the_end_is_named_where_it_lies() -> None:
    machine, log = left()
    bad = range(len(log) // PAGE * PAGE + 2 * PAGE, len(log) // PAGE * PAGE + 3 * PAGE)

    *_, last = items(seen(machine, bad))

    assert (last.sort, last.start, last.end) == (Sort.DAMAGED, len(log), bad.stop)
    assert "Input/output error" in last.problem


def test_unreadable_properties_are_damage_though_no_checksum_covers_them() -> None:
    machine = Machine(random.Random(1), OPTIONS)
    long = draft()._replace(properties=b"p\x01" + b"v" * 12_000 + b"\x02")
    put_log(machine, foreign_log([long] * 3, 0, OPTIONS.segment_bytes), 0)

    report = verify(seen(machine, range(PAGE, PAGE + 1)))

    assert [(each.kind, each.position) for each in report.findings if each.kind is not StoreFault.QUEUE_GAP] == [(StoreFault.DAMAGED, 0)]
    assert report.records == 2


@pytest.mark.parametrize("one_by_one", [False, True])
def test_unreadable_units_are_missing_and_not_taken_for_later_ones(one_by_one: bool) -> None:
    machine, _ = left()

    report = verify(seen(machine, range(500, 501), f"{QUEUE}/{0:020d}"), one_by_one=one_by_one)

    assert (report.records, report.counts, report.undispatched, report.whole) == (120, {StoreFault.UNIT_MISSING: 120}, 0, False)
    assert all("Input/output error" in each.problem for each in report.findings)


@pytest.mark.tier("test")
@pytest.mark.parametrize("one_by_one", [False, True])
@pytest.mark.parametrize("page", range(6))
def test_units_of_which_a_disk_gives_a_part_only_name_no_other_place(page: int, one_by_one: bool) -> None:
    machine = Machine(random.Random(1), replace(OPTIONS, queue_file_units=1_500, segment_bytes=256 * 1024))
    store = machine.lead()
    store.append([AppendBatch([draft(tag="a tag")] * 1_400)], 1)
    store.sync()
    store.dispatch(store.end)
    store.persist_recovery_point(store.end, store.end)
    store.close(clean=False)
    bad = range(page * PAGE, (page + 1) * PAGE)

    report = verify(seen(machine, bad, f"{QUEUE}/{0:020d}"), one_by_one=one_by_one)

    touched = [at for at in range(1_400) if at * 20 < bad.stop and bad.start < (at + 1) * 20]
    assert report.counts == {StoreFault.UNIT_MISSING: len(touched)}
    assert [each.queue_offset for each in report.findings] == touched
    assert (report.records, report.undispatched) == (1_400, 0)


@pytest.mark.parametrize(
    ("bad", "first", "last"),
    [
        (range(PAGE, PAGE + 1), 204, 409),
        (range(PAGE, 3 * PAGE), 204, 614),
        (range(PAGE), 1, 204),
        (range(29_000, 29_020), 1_433, 1_499),
    ],
    ids=["a page", "two pages", "the page of the last unit too", "the end"],
)
@pytest.mark.parametrize("written", [False, True], ids=["zeros there", "a unit there"])
def test_units_behind_a_queues_end_that_a_disk_does_not_give_are_named(bad: range, first: int, last: int, written: bool) -> None:
    machine = Machine(random.Random(1), replace(OPTIONS, queue_file_units=1_500))
    store = machine.lead()
    store.append([frame(b"one")], 1)
    store.sync()
    store.dispatch(store.end)
    store.persist_recovery_point(store.end, store.end)
    store.close(clean=False)
    with closing(machine.beside().open(f"{QUEUE}/{0:020d}")) as file:
        file.pwrite(bytes(30_000 - 20), 20)
        if written:
            file.pwrite(UNIT.pack(1, 100, 0), max(20, bad.start // 20 * 20 + 20))

    report = verify(seen(machine, bad, f"{QUEUE}/{0:020d}"))

    named = [each for each in report.findings if each.kind is StoreFault.UNIT_UNREADABLE]
    assert [(each.topic, each.queue, each.queue_offset) for each in named] == [("orders", 0, first)]
    assert f"units {first:,} to {last:,} " in named[0].problem
    assert "Input/output error" in named[0].problem
    assert set(report.counts) == {StoreFault.UNIT_UNREADABLE, *([StoreFault.UNIT_MISSING] if bad.start == 0 else [])}
    assert not report.whole


def test_a_batch_whose_count_is_no_number_is_named() -> None:
    machine = Machine(random.Random(1), OPTIONS)
    odd = draft()._replace(properties=b"INNER_NUM\x01abc\x02")
    log = foreign_log([draft(), odd, draft()], 0, OPTIONS.segment_bytes)
    [_, (start, end), _] = entries_of(log)
    batch = encode(replace(decode(log[start:end], start), system_flag=INNER_BATCH))
    put_log(machine, log[:start] + batch + log[end:], 0)

    report = verify(seen(machine, range(0)))

    assert [(each.kind, each.position) for each in report.findings] == [(StoreFault.UNSUPPORTED, start)]


def entries_of(log: bytes) -> list[tuple[int, int]]:
    found, at = [], 0
    while at < len(log):
        size = int.from_bytes(log[at : at + 4], "big")
        found.append((at, at + size))
        at += size
    return found


@pytest.mark.parametrize("stray", [".00000000000000000000.Xy1", "lost+found", "7"])
def test_a_strangers_file_in_a_queues_folder_is_left_alone(tmp_path: Path, stray: str) -> None:
    store = led(OsStorage(tmp_path), OPTIONS, chance=random.Random(1), wall_ms=1)
    store.append([frame(b"one", b"two")], 1)
    store.sync()
    store.dispatch(store.end)
    store.close(clean=True)
    path = tmp_path / QUEUE / stray
    path.write_bytes(b"a stranger's")

    whole = verify(open_on_disk(OsStorage(tmp_path), "here")).whole
    (tmp_path / "dittomq" / "checkpoint").unlink()  # so that all queues are built anew
    again = Store.open(OsStorage(tmp_path), OPTIONS, chance=random.Random(1), wall_ms=1)
    again.dispatch(again.end)

    assert whole
    assert [message.body for message in again.read_queue("orders", 0, 0, 10, 10_000).messages] == [b"one", b"two"]
    again.close(clean=True)
    assert path.read_bytes() == b"a stranger's"


def test_a_topics_folder_whose_name_is_no_utf_8_is_passed_over(tmp_path: Path) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/consumequeue/t\xff/0")).mkdir(parents=True)

    assert orphaned_queue_files.emptied(OsStorage(tmp_path), "here", 1_000) == ({}, {})
