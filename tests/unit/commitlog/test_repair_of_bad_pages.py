"""Damaged ranges on pages that the disk does not give: such a page is written whole or not at all, and what was not written stays noted."""

import random
from typing import cast

import pytest

from dittomq.commitlog.disk.storage import Storage
from dittomq.commitlog.store import Store
from dittomq.copies import RangeOutcome
from dittomq.epoch_history import FOREIGN, EpochEntry
from dittomq.offsets import Epoch, PhysicalOffset
from tests.support.record_damage import entries
from tests.support.stores import SMALL, Machine, dispatched, frame, whole_log
from tests.unit.broker.repair_sources import copy_of, serving
from tests.unit.commitlog.bad_pages import PAGE, BadPages
from tests.unit.commitlog.piecewise_repair import RecordByRecord, mended_by

SEGMENT = f"commitlog/{0:020d}"


def in_use() -> tuple[Store, BadPages, bytes, Store]:
    """A store whose pages may go bad; its log; and another copy of it."""
    machine = Machine(random.Random(1))
    store = dispatched(machine)
    log, other = whole_log(store), copy_of(store, Machine(random.Random(2)))
    store.close(clean=True)
    door = BadPages(machine)
    return Store.open(cast("Storage", door), SMALL, chance=random.Random(1), wall_ms=9_000), door, log, other


def damaged_by(store: Store, door: BadPages, *pages: int) -> tuple[int, int]:
    """The one range that is noted when these pages go bad."""
    door.bad[SEGMENT] = set(pages)
    store.verify(0, SMALL.segment_bytes)
    [(start, end)] = store.damaged
    return start, end


@pytest.mark.parametrize("pages", [(1,), (0, 1), (1, 2), (0, 1, 2, 3), (3,)])
def test_pieces_that_end_inside_bad_pages_are_written_with_those_behind_them(pages: tuple[int, ...]) -> None:
    store, door, log, other = in_use()
    start, end = damaged_by(store, door, *pages)

    [outcome] = mended_by(store, RecordByRecord(serving(other), log, len(log)))

    assert outcome == RangeOutcome(PhysicalOffset(start), PhysicalOffset(end), "a/2")
    assert (store.damaged, door.bad[SEGMENT], whole_log(store)) == ([], set(), log)


def test_record_that_ends_inside_a_bad_page_is_never_repaired() -> None:
    """Another replica goes on there."""
    store, door, log, other = in_use()
    start, end = damaged_by(store, door, 1, 2)
    middle = next(at for at, _ in entries(log) if at > 2 * PAGE + 100)

    repaired, outcome = mended_by(store, RecordByRecord(serving(other), log, middle))

    [(left, to)] = store.damaged
    assert repaired == RangeOutcome(PhysicalOffset(start), PhysicalOffset(left), "a/2")
    assert (left, to, outcome.source) == (outcome.start, end, "")
    assert start < left <= 2 * PAGE
    assert "damaged there too" in outcome.problem
    assert door.bad[SEGMENT] == {2}
    assert store.read(start, left - start) == log[start:left]
    [outcome] = mended_by(store, RecordByRecord(serving(other), log, middle), RecordByRecord(serving(other), log, len(log)))
    assert (outcome.source, store.damaged, whole_log(store)) == ("a/3", [], log)


def test_page_that_goes_bad_around_a_damaged_record_is_noted_and_repaired_whole() -> None:
    store, door, log, other = in_use()
    at, end = next((at, end) for at, end in entries(log) if at > PAGE + 100 and end < 2 * PAGE)
    door.bad[SEGMENT] = set()
    inode = door.machine.disk.names.files[SEGMENT]
    inode.write(memoryview(b"\xff"), at + 90, random.Random(1))
    store.verify(at, end)
    assert store.damaged == [(at, end)]
    door.bad[SEGMENT] = {1}

    [first] = mended_by(store, RecordByRecord(serving(other), log, len(log)))

    assert (first.source, "a part of the page" in first.problem) == ("", True)
    [(low, high)] = store.damaged
    assert low <= PAGE < 2 * PAGE <= high
    [second] = mended_by(store, RecordByRecord(serving(other), log, len(log)))
    assert (second.source, store.damaged, whole_log(store)) == ("a/2", [], log)


def test_bytes_of_two_hands_that_share_a_bad_page_are_written_at_once() -> None:
    store, door, log, other = in_use()
    border = next(end for at, end in entries(log) if at > PAGE and end > PAGE + 100)
    theirs = EpochEntry(Epoch(1), FOREIGN, 9, PhysicalOffset(border))
    for each in (store, other):
        each.replace_epoch_history((*each.epoch_history, theirs))
    damaged_by(store, door, 1)

    [outcome] = mended_by(store, RecordByRecord(serving(other), log, len(log)))

    assert (outcome.source, store.damaged, whole_log(store)) == ("a/2", [], log)


def test_a_bad_page_in_which_the_log_ends_is_repaired_and_written_on() -> None:
    store, door, log, other = in_use()
    base = len(log) - len(log) % SMALL.segment_bytes
    door.bad[f"commitlog/{base:020d}"] = {(len(log) - base) // PAGE}
    store.verify(base, len(log))
    assert store.damaged[-1].end == len(log)

    [outcome] = mended_by(store, RecordByRecord(serving(other), log, len(log)))

    assert (outcome.source, store.damaged, whole_log(store)) == ("a/2", [], log)
    store.append([frame(b"next")], 9_000)
    assert whole_log(store).startswith(log)


@pytest.mark.parametrize("helped", [False, True])
def test_what_the_disk_gives_again_of_a_range_is_told_as_repaired_by_the_node_itself(helped: bool) -> None:
    store, door, log, other = in_use()
    start, end = damaged_by(store, door, 1, 2)
    door.bad[SEGMENT] = {2}

    repaired, rest = mended_by(store, *[RecordByRecord(serving(other), log, len(log))][: int(helped)])

    assert (repaired.start, repaired.source) == (start, "a/1")
    assert (repaired.end, rest.start, rest.end, rest.source) == (rest.start, repaired.end, end, "a/2" if helped else "")
    assert store.damaged == ([] if helped else [(rest.start, end)])
    assert start < rest.start <= 2 * PAGE


def test_readable_parts_behind_a_bad_page_are_reported_in_order() -> None:
    store, door, _, _ = in_use()
    start, end = damaged_by(store, door, 1, 2)
    door.bad[SEGMENT] = {1}

    first, *rest = mended_by(store)

    assert (first.start, first.source) == (start, "")
    assert [(each.source, each.end) for each in rest] == [("a/1", end)]
    assert store.damaged == [(start, first.end)]
