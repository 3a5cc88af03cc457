"""The format of a store: older versions refuse what only newer ones understand, by name, and change nothing."""

import random
import struct
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from dittomq.commitlog import store_swap
from dittomq.commitlog.disk import state_file
from dittomq.commitlog.disk.storage import OsStorage, Storage
from dittomq.commitlog.offline.open_store import open_on_disk
from dittomq.commitlog.offline.store_digest import digest_store
from dittomq.commitlog.state import identity
from dittomq.commitlog.state.identity import FORMAT, StoreIdentity
from dittomq.commitlog.store import Store
from dittomq.commitlog.store_swap import StoreSwap
from dittomq.errors import StoreOpenFailed
from dittomq.offsets import PhysicalOffset
from dittomq.version import VERSION
from tests.simulation.simulated_process import SimCrashed
from tests.support.stores import SMALL, Machine, dies, filled, led, whole_log

NEWER = FORMAT + 1
OLD_UUID = "0123456789abcdef0123456789abcdef"
TELLS_WHAT_TO_USE = r"; use dittomq 9\.4\.1 or a newer one$"
REFUSAL = (
    f"it has format {NEWER} since dittomq 9.4.1 wrote to it, and this is dittomq {VERSION}, "
    f"which understands formats up to {FORMAT}; use dittomq 9.4.1 or a newer one"
)


def make_newer(storage: Storage) -> None:
    """What 9.4.1 leaves, which also puts into the file what we have never heard of."""
    held = identity.load(storage)
    assert held is not None
    identity.save(storage, replace(held, format=NEWER, written_by="9.4.1"))


def save_without_format(storage: Storage) -> None:
    """The identity as releases before there were formats wrote it."""
    state_file.save_json(storage, "identity", b"IDEN", {"replica_uuid": OLD_UUID, "generation": 0})


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in sorted(folder.rglob("*")) if path.is_file()}


def test_newer_format_is_refused_by_everything_that_opens_stores(machine: Machine) -> None:
    """In one sentence."""
    filled(machine).close(clean=True)
    make_newer(machine.storage())

    for what in (
        machine.open,
        lambda: open_on_disk(machine.storage(), SMALL.path),
        lambda: digest_store(machine.storage(), SMALL.path),
    ):
        with pytest.raises(StoreOpenFailed) as refused:
            what()
        assert str(refused.value) == f"the store {SMALL.path} cannot be opened: {REFUSAL}"


def test_refused_store_keeps_every_byte(tmp_path: Path) -> None:
    """Also without its lock file, and after a kill."""
    options = replace(SMALL, path=str(tmp_path))
    store = led(OsStorage(tmp_path), options, chance=random.Random(1), wall_ms=0)
    store.close(clean=False)
    (tmp_path / "lock").unlink()
    (tmp_path / "dittomq" / "tmp-left").write_bytes(b"a start would remove this")
    make_newer(OsStorage(tmp_path))
    before = contents(tmp_path)

    with pytest.raises(StoreOpenFailed, match=TELLS_WHAT_TO_USE):
        Store.open(OsStorage(tmp_path), options, chance=random.Random(1), wall_ms=0)

    assert contents(tmp_path) == before


def test_a_format_that_was_raised_while_we_waited_for_the_lock_is_refused_too(machine: Machine) -> None:
    filled(machine).close(clean=True)
    storage = machine.storage()
    lock = storage.lock

    def raise_and_let_go(path: str) -> object:
        make_newer(storage)
        return lock(path)

    storage.lock = raise_and_let_go  # type: ignore[method-assign,assignment]

    with pytest.raises(StoreOpenFailed, match=TELLS_WHAT_TO_USE):
        Store.open(storage, SMALL, chance=machine.chance, wall_ms=0)


def test_old_releases_refuse_a_raised_format_by_the_files_version(machine: Machine) -> None:
    """Those that know no formats."""
    filled(machine).close(clean=True)
    make_newer(machine.storage())

    with pytest.raises(state_file.CorruptStateFile, match=f"dittomq/identity has version {NEWER}, this program knows 1; use the program"):
        state_file.load_json(machine.storage(), "identity", b"IDEN", StoreIdentity)


def test_store_without_a_format_has_the_first_one(machine: Machine) -> None:
    """It keeps its log and its name."""
    store = filled(machine)
    log = whole_log(store)
    store.close(clean=True)
    save_without_format(machine.storage())

    assert identity.load(machine.storage()) == StoreIdentity(0, replica_uuid=OLD_UUID, format=1, written_by="")
    again = machine.open()
    assert (whole_log(again), again.replica_uuid) == (log, OLD_UUID)
    again.truncate(again.min_offset)
    assert identity.load(machine.storage()) == StoreIdentity(1, format=FORMAT, written_by=VERSION)


def test_a_new_store_names_the_version_that_made_it(machine: Machine) -> None:
    machine.open()

    assert identity.load(machine.storage()) == StoreIdentity(0, format=FORMAT, written_by=VERSION)


@pytest.mark.parametrize(("head", "payload"), [(NEWER, 1), (1, NEWER)], ids=["in the head", "in the payload"])
def test_a_format_that_head_and_payload_do_not_agree_on_is_damage_and_no_version(machine: Machine, head: int, payload: int) -> None:
    filled(machine).close(clean=True)
    held = identity.load(machine.storage())
    assert held is not None
    identity.save(machine.storage(), replace(held, format=payload))
    file = machine.disk.names.files["dittomq/identity"]
    file.write(memoryview(struct.pack(">H", head)), 8, machine.chance)

    with pytest.raises(StoreOpenFailed, match=r"dittomq/identity is damaged: its head has version .*restore it"):
        machine.open()


def test_dying_newer_version_leaves_no_store_that_older_ones_misread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever it dies, older versions do not open what they misread."""
    seen: set[tuple[int, bool, bool]] = set()
    done = False
    while not done:
        machine = Machine(random.Random(len(seen)))
        filled(machine).close(clean=True)
        with monkeypatch.context() as newer:
            newer.setattr(identity, "FORMAT", NEWER)
            newer.setattr(identity, "VERSION", "9.4.1")
            done = _write_anew(machine, operations=len(seen))
        machine.lose_power()
        files = machine.files()
        seen.add((len(seen), f'"format": {NEWER}'.encode() in files["dittomq/identity"], "dittomq/anew" in files))
        if "dittomq/anew" in files:
            with pytest.raises(StoreOpenFailed, match=TELLS_WHAT_TO_USE):
                machine.open()

    assert {(raised, written) for _, raised, written in seen} == {(False, False), (True, False), (True, True)}


def _write_anew(machine: Machine, operations: int) -> bool:
    """As a newer version, raise the format, then write a file of a new kind; whether it came to that before the disk had done so much."""
    storage = machine.storage()
    machine.faults.operations_to_live = operations
    try:
        identity.raise_format(storage, NEWER)
        state_file.save_json(storage, "anew", b"ANEW", {})
    except SimCrashed:
        return False
    return True


def test_format_is_lowered_neither_by_a_truncation_nor_by_an_older_need(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "FORMAT", NEWER)
    filled(machine).close(clean=True)
    make_newer(machine.storage())

    store = machine.open()
    store.truncate(store.min_offset)
    store.close(clean=True)
    identity.raise_format(machine.storage(), FORMAT)

    held = identity.load(machine.storage())
    assert held is not None
    assert (held.format, held.written_by, held.generation) == (NEWER, "9.4.1", 1)


@pytest.mark.tier("test")
def test_killed_first_start_leaves_older_versions_what_they_know() -> None:
    """Until the format is raised, an earlier version opens the store and finds all that it left there."""
    seen: set[tuple[int, bool, bool]] = set()
    for operations in count():
        machine = Machine(random.Random(operations))
        filled(machine).close(clean=True)
        make_older(machine)
        storage = machine.storage()
        machine.faults.operations_to_live = operations
        done = dies(lambda storage=storage: Store.open(storage, SMALL, chance=random.Random(1), wall_ms=0))  # type: ignore[misc]
        machine.lose_power()
        held, files = identity.load(machine.storage()), machine.files()
        assert held is not None
        assert held.format == FORMAT or "dittomq/heard" in files
        assert held.format < FORMAT or "dittomq/replica" in files
        seen.add((held.format, "dittomq/heard" in files, "dittomq/replica" in files))
        assert machine.open().promised_epoch == 7
        if done:
            break

    assert seen == {(1, True, False), (1, True, True), (FORMAT, True, True), (FORMAT, False, True)}


def make_older(machine: Machine) -> None:
    """Let the store be one of the first format, which has noted epoch 7."""
    storage = machine.storage()
    identity.save(storage, StoreIdentity(0, replica_uuid=OLD_UUID, written_by="0.1.0"))
    storage.unlink("dittomq/replica")
    state_file.save(storage, "heard", b"HEAR", b"7 1;7 1")
    machine.disk.lose_power(all_unsynced=False)


def test_a_store_of_this_format_without_its_replica_is_refused(machine: Machine) -> None:
    filled(machine).close(clean=True)
    del machine.disk.names.files["dittomq/replica"]

    with pytest.raises(StoreOpenFailed, match="dittomq/replica is missing; restore it, or empty the data_dir"):
        machine.open()


def test_resync_of_a_newer_format_is_not_swapped_in_by_an_older_version(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "FORMAT", NEWER)
    filled(machine).close(clean=True)
    storage = machine.storage()
    store_swap.make(storage, machine.chance)
    identity.raise_format(store_swap.copy_of(storage), NEWER)

    store_swap.intend(storage, StoreSwap(PhysicalOffset(0), PhysicalOffset(5_000)))

    held = identity.load(storage)
    assert held is not None
    assert held.format == NEWER
