"""Bytes of the log that a disk does not give."""

import random
from dataclasses import replace

import pytest

from dittomq.commitlog.disk.storage import PAGE_BYTES
from dittomq.commitlog.store import Store
from dittomq.errors import CorruptRecord
from dittomq.places import AppendResult
from tests.support.foreign_records import foreign_log, put_log
from tests.support.stores import SMALL, Machine, draft, frame, led, places
from tests.unit.commitlog.bad_sectors import BadSectors, three_messages

WIDE = replace(SMALL, segment_bytes=64 * 1_024)


def test_message_on_a_bad_sector_is_refused_by_its_position() -> None:
    """Its neighbours are read."""
    door, store, placed = three_messages()
    door.bad = range(placed[1].physical_offset + 90, placed[1].physical_offset + 91)

    before = store.read_queue("orders", 0, 0, 10, 10_000)
    with pytest.raises(CorruptRecord) as refused:
        store.read_queue("orders", 0, 1, 10, 10_000)
    behind = store.read_queue("orders", 0, 2, 10, 10_000)

    assert [message.body for message in (*before.messages, *behind.messages)] == [b"one", b"three"]
    assert (refused.value.position, refused.value.node) == (placed[1].physical_offset, SMALL.node)
    assert "Input/output error" in str(refused.value)


def test_range_that_starts_on_a_bad_sector_is_refused_there() -> None:
    """Other ranges are streamed."""
    door, store, placed = three_messages()
    door.bad = range(placed[1].physical_offset, placed[2].physical_offset)

    with pytest.raises(CorruptRecord, match="Input/output error"):
        store.read_records(placed[1].physical_offset, store.end, 1 << 20)

    assert len(store.read_records(0, placed[1].physical_offset, 1 << 20)) == placed[1].physical_offset


def test_range_with_a_bad_sector_inside_is_refused_at_its_record() -> None:
    """It lies behind the first records."""
    door = BadSectors(Machine(random.Random(1), WIDE))
    store = led(door, WIDE, chance=random.Random(1), wall_ms=0)  # type: ignore[arg-type]
    placed = places(store.append([frame(*[bytes([number]) * 3_000 for number in range(9)])], 1).placed[0])
    page = placed[4].physical_offset // PAGE_BYTES + 1
    door.bad = range(page * PAGE_BYTES, (page + 1) * PAGE_BYTES)
    bad = next(each for each in placed if each.end > door.bad.start)

    with pytest.raises(CorruptRecord, match="Input/output error") as refused:
        store.read_records(0, store.end, 1 << 20)

    assert refused.value.position == bad.physical_offset > placed[0].physical_offset
    assert len(store.read_records(0, bad.physical_offset, 1 << 20)) == bad.physical_offset


def test_resent_message_on_a_bad_sector_is_refused() -> None:
    """The others are stored."""
    door, store, _ = three_messages()
    sent = frame(b"once", producer="p", first=0)
    [first] = places(store.append([sent], 1).placed[0])
    door.bad = range(first.physical_offset, first.end)

    again, other = store.append([sent, frame(b"other")], 1).placed

    assert isinstance(again, CorruptRecord)
    assert len(places(other)) == 1


def test_properties_page_that_the_disk_cannot_read_is_damaged_not_zeros() -> None:
    """No checksum covers it."""
    machine = Machine(random.Random(1), WIDE)
    wide = draft(body=b"wide")._replace(properties=b"COLOUR\x01" + b"red " * 3_000 + b"\x02")
    log = foreign_log([draft(body=b"one"), wide, draft(body=b"three")], 0, WIDE.segment_bytes)
    put_log(machine, log, 0)
    store = machine.open()
    page = log.index(b"red ") // PAGE_BYTES + 1
    machine.disk.names.files[f"commitlog/{0:020d}"].fail(page * PAGE_BYTES)

    found = store.verify(0, store.end).damaged

    assert [log[low:high].count(b"COLOUR") for low, high in found] == [1]
    assert not store.salvage(found[0].start)
    assert store.damaged == list(found)


def two_bad_neighbours(*, in_queues: bool) -> tuple[BadSectors, Store, list[AppendResult]]:
    """Of three messages the first two are noted as damaged, and the disk gives the second one again."""
    door = BadSectors(Machine(random.Random(1), WIDE))
    store = led(door, WIDE, chance=random.Random(1), wall_ms=0)  # type: ignore[arg-type]
    placed = places(store.append([frame(*[bytes([number]) * 5_000 for number in range(3)])], 1).placed[0])
    store.sync()
    if in_queues:
        store.dispatch(store.end)
    door.bad = range(PAGE_BYTES, 2 * PAGE_BYTES)
    assert store.verify(0, store.end).damaged == ((0, placed[2].physical_offset),)
    door.bad = range(10, 11)
    return door, store, placed


def test_record_on_a_sector_that_is_readable_again_is_whole() -> None:
    """Its neighbour, which the disk does not give either, is not."""
    door, store, placed = two_bad_neighbours(in_queues=True)

    assert not store.salvage(0)

    assert store.damaged == [(0, placed[0].end)]
    [second] = store.read_queue("orders", 0, 1, 1, 10_000).messages
    assert second.body == bytes([1]) * 5_000
    door.bad = range(0)
    assert store.salvage(0)
    assert store.damaged == []


def test_what_no_queue_names_behind_a_damaged_record_is_not_taken_for_a_message() -> None:
    _, store, placed = two_bad_neighbours(in_queues=False)

    assert not store.salvage(0)

    assert store.damaged == [(0, placed[2].physical_offset)]
