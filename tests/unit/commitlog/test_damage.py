"""Bytes of a flushed log that are no longer what was written: each damage is named and isolated, whatever it hits, and never served."""

from pathlib import Path

import pytest

from dittomq.commitlog.disk.storage import OsStorage
from dittomq.commitlog.offline.open_store import open_on_disk
from dittomq.commitlog.offline.verify import StoreFault, verify
from dittomq.commitlog.store import Store
from dittomq.errors import CorruptRecord
from tests.support.record_damage import HARMS, harmed, served
from tests.support.stores import SMALL, Machine, queues_of


@pytest.mark.parametrize("name", HARMS)
def test_damage_below_the_recovery_point_costs_that_record_and_no_other(machine: Machine, name: str) -> None:
    log, (start, end) = harmed(machine, HARMS[name])

    again = machine.open()

    assert (again.end, again.recovery_truncation) == (len(log), None)
    assert again.damaged == [(start, end)]
    again.dispatch(again.end)
    count = sum(len(units) for units in queues_of(log, SMALL.segment_bytes).values())
    bodies, damaged = served(again)
    assert (len(bodies), damaged) == (count - 1, 1)
    assert {body[:1] for body in bodies} == {b"x", b"y"}


@pytest.mark.tier("test")
@pytest.mark.parametrize("name", HARMS)
def test_damage_in_real_files_costs_that_record_alone(machine: Machine, name: str, tmp_path: Path) -> None:
    """Whoever verifies the files finds it."""
    log, (start, end) = harmed(machine, HARMS[name])
    for path, data in machine.files().items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(data)
    storage = OsStorage(tmp_path)

    found = verify(open_on_disk(storage, "here")).findings
    again = Store.open(storage, SMALL, chance=machine.chance, wall_ms=1_000)
    again.dispatch(again.end)
    bodies, damaged = served(again)
    again.close(clean=True)

    assert start in {finding.position for finding in found if finding.kind in {StoreFault.DAMAGED, StoreFault.UNSUPPORTED}}
    assert (again.end, again.recovery_truncation, again.damaged) == (len(log), None, [(start, end)])
    count = sum(len(units) for units in queues_of(log, SMALL.segment_bytes).values())
    assert (len(bodies), damaged) == (count - 1, 1)
    assert {body[:1] for body in bodies} == {b"x", b"y"}


@pytest.mark.parametrize("name", HARMS)
def test_a_record_that_is_damaged_after_the_start_is_never_handed_out(machine: Machine, name: str) -> None:
    log, (start, end) = harmed(machine, lambda *_: None)
    again = machine.open()
    again.dispatch(again.end)
    bad = bytearray(log)
    HARMS[name](bad, start, end)
    base = start - start % SMALL.segment_bytes
    inode = machine.disk.names.files[f"commitlog/{base:020d}"]
    inode.write(memoryview(bad[base : base + SMALL.segment_bytes]), 0, machine.chance)

    bodies, damaged = served(again)

    assert damaged == 1
    assert {body[:1] for body in bodies} == {b"x", b"y"}
    with pytest.raises(CorruptRecord):
        again.read_records(start, base + SMALL.segment_bytes, end - start)
