"""The file in which a nameserver keeps group records, on disks that stop, fail, are full or damaged."""

import random
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest

from dittomq.commitlog.disk.storage import OsStorage, Storage
from dittomq.errors import DiskFull, NotReady, StorageFailure, StoreLocked, StoreOpenFailed
from services.nameserver.group_records_file import KeptRecord, Rows, keep, opened
from tests.support.failing_storage import Crashed, CrashingStorage, Harm
from tests.support.stores import Machine

OLD: Rows = {"a": KeptRecord('{"epoch": 1}', "v1"), "b": KeptRecord("ä", "v2")}
NEW: Rows = {"b": KeptRecord("ä", "v2"), "a": KeptRecord('{"epoch": 2}', "v3")}
FILE = Path("dittomq") / "groups"


def found(storage: Storage) -> Rows:
    with opened(storage, "/data") as rows:
        return rows


def with_old() -> Machine:
    machine = Machine(random.Random(7))
    with opened(door := machine.storage(), "/data"):
        assert keep(door, OLD) is None
    return machine


@pytest.fixture
def on_disk(tmp_path: Path) -> Path:
    with opened(storage := OsStorage(tmp_path), str(tmp_path)):
        keep(storage, OLD)
    return tmp_path


def test_a_new_disk_holds_nothing() -> None:
    assert found(Machine(random.Random(1)).storage()) == {}


def test_what_was_kept_is_found_by_the_next_start() -> None:
    assert found(with_old().storage()) == OLD


@pytest.mark.parametrize("power_lost", [False, True])
def test_a_crash_at_any_call_leaves_the_old_records_or_the_new_ones(*, power_lost: bool) -> None:
    for crash_at in count(1):
        machine = with_old()
        door = CrashingStorage(machine.storage(), crash_at)
        with suppress(Crashed), opened(door, "/data"):
            keep(door, NEW)
        if power_lost:
            machine.disk.lose_power()

        left = found(machine.storage())

        assert left in (OLD, NEW), door.struck
        if not door.struck:
            assert left == NEW
            assert crash_at > 6
            return


@pytest.mark.parametrize("operation", ["fdatasync", "fsync"])
def test_a_sync_that_fails_is_final(operation: str) -> None:
    machine = with_old()
    with opened(door := CrashingStorage(machine.storage()), "/data"):
        door.failing = operation

        with pytest.raises(StorageFailure):
            keep(door, NEW)


@pytest.mark.parametrize("call", ["write", "truncate"])
def test_a_call_before_the_rename_that_fails_leaves_the_old_records(call: str) -> None:
    machine = with_old()
    with opened(door := CrashingStorage(machine.storage()), "/data"):
        calls = calls_of_a_write()
        door.strike_in(1 + next(at for at, name in enumerate(calls) if name.startswith(call)), Harm.ERROR)
        reason = keep(door, NEW)

    assert isinstance(reason, NotReady)
    assert str(reason).startswith(f"the nameserver is not ready: {call} of dittomq/tmp-dittomq-groups failed: [Errno 5] Input/output error")
    assert found(machine.storage()) == OLD


@pytest.mark.parametrize("call", ["rename", "open"])
def test_a_call_that_may_have_renamed_and_fails_is_final(call: str) -> None:
    machine = with_old()
    with opened(door := CrashingStorage(machine.storage()), "/data"):
        calls = calls_of_a_write()
        door.strike_in(1 + next(at for at, name in enumerate(calls) if name.startswith(call)), Harm.ERROR)

        with pytest.raises(StorageFailure):
            keep(door, NEW)
    assert found(machine.storage()) in (OLD, NEW)


def calls_of_a_write() -> list[str]:
    with opened(door := CrashingStorage(with_old().storage()), "/data"):
        before = door.calls
        keep(door, NEW)
        return door.heard[before:]


def test_on_a_full_disk_nothing_is_kept_and_nothing_touched() -> None:
    machine = with_old()
    with opened(door := CrashingStorage(machine.storage()), "/data"):
        door.free = 1_000
        before = door.calls

        reason = keep(door, NEW)

        assert isinstance(reason, DiskFull)
        assert (str(reason).startswith("the disk of the nameserver has 1,000 bytes left, and 65,"), door.calls) == (True, before)
        door.free = None
        assert keep(door, NEW) is None
    assert found(machine.storage()) == NEW


@pytest.mark.parametrize("position", [0, 5, 12, 20, 25, -1])
def test_a_damaged_file_is_refused_in_a_sentence_that_says_what_deleting_it_means(on_disk: Path, position: int) -> None:
    data = bytearray((on_disk / FILE).read_bytes())
    data[position] ^= 1
    (on_disk / FILE).write_bytes(data)

    with pytest.raises(StoreOpenFailed, match=r"groups (is damaged|has version).*delete it, and each group makes a new record when all"):
        found(OsStorage(on_disk))

    (on_disk / FILE).unlink()
    assert found(OsStorage(on_disk)) == {}


def test_a_second_nameserver_on_the_same_folder_is_refused(on_disk: Path) -> None:
    refused = pytest.raises(StoreLocked, match="is held by another process; stop it or use another data_dir")
    with opened(OsStorage(on_disk), str(on_disk)), refused:
        found(OsStorage(on_disk))

    assert found(OsStorage(on_disk)) == OLD


@pytest.mark.parametrize("of_a_broker", ["commitlog", "dittomq/identity"])
def test_the_folder_of_a_broker_is_refused(tmp_path: Path, of_a_broker: str) -> None:
    (tmp_path / of_a_broker).mkdir(parents=True)

    with pytest.raises(StoreOpenFailed, match=r"it is a broker's; set node\.data_dir to a folder of the nameserver's own"):
        found(OsStorage(tmp_path))


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(StoreOpenFailed, match=r"Not a directory.*set another node\.data_dir"):
        found(OsStorage(tmp_path / "file" / "data"))
