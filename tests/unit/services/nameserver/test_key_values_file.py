"""The file in which a nameserver keeps its values, on disks that stop or are damaged."""

import random
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest

from dittomq.commitlog.disk.storage import OsStorage, Storage
from dittomq.errors import StoreOpenFailed
from services.nameserver.key_values_file import Namespaces, keep, load
from services.nameserver.state_folder import locked
from tests.support.failing_storage import Crashed, CrashingStorage
from tests.support.stores import Machine

OLD: Namespaces = {"ORDER_TOPIC_CONFIG": {"orders": "a:4"}, "n": {"k": "ä"}}
NEW: Namespaces = {"ORDER_TOPIC_CONFIG": {"orders": "a:4;b:4"}}


def found(storage: Storage) -> Namespaces:
    with locked(storage, "/data"):
        return load(storage, "/data")


def with_old() -> Machine:
    machine = Machine(random.Random(7))
    with locked(door := machine.storage(), "/data"):
        assert keep(door, OLD) is None
    return machine


def test_values_on_a_new_disk_are_none() -> None:
    assert found(Machine(random.Random(1)).storage()) == {}


@pytest.mark.parametrize("power_lost", [False, True])
def test_a_crash_at_any_call_leaves_the_old_values_or_the_new_ones(*, power_lost: bool) -> None:
    for crash_at in count(1):
        machine = with_old()
        door = CrashingStorage(machine.storage(), crash_at)
        with suppress(Crashed), locked(door, "/data"):
            keep(door, NEW)
        if power_lost:
            machine.disk.lose_power()

        left = found(machine.storage())

        assert left in (OLD, NEW), door.struck
        if not door.struck:
            assert left == NEW
            assert crash_at > 6
            return


@pytest.mark.parametrize("position", [0, 5, 12, 20, 25, -1])
def test_a_damaged_file_of_values_is_refused_and_says_what_deleting_it_means(tmp_path: Path, position: int) -> None:
    with locked(storage := OsStorage(tmp_path), str(tmp_path)):
        keep(storage, OLD)
    file = tmp_path / "dittomq" / "key_values"
    data = bytearray(file.read_bytes())
    data[position] ^= 1
    file.write_bytes(data)

    with pytest.raises(StoreOpenFailed, match=r"key_values (is damaged|has version).*or delete it and put the values again"):
        found(OsStorage(tmp_path))

    file.unlink()
    assert found(OsStorage(tmp_path)) == {}
