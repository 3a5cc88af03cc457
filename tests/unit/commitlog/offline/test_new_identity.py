"""A copied disk gets an id of its own, while no process has it open."""

import random
from pathlib import Path

import pytest

from dittomq.commitlog import store_swap
from dittomq.commitlog.disk.storage import OsStorage
from dittomq.commitlog.offline.new_identity import draw_identity
from dittomq.commitlog.state import identity
from dittomq.commitlog.state.identity import StoreIdentity
from dittomq.commitlog.store import Store
from dittomq.commitlog.store_swap import StoreSwap
from dittomq.errors import StoreLocked, StoreOpenFailed
from dittomq.offsets import Epoch, PhysicalOffset
from tests.support.stores import SMALL, frame, open_epoch

NAME = "/restored/a-1"


@pytest.fixture
def storage(tmp_path: Path) -> OsStorage:
    """Of a store with one message that promised epoch 9."""
    storage = OsStorage(tmp_path)
    store = opened(storage)
    open_epoch(store)
    store.append([frame(b"body")], 1)
    store.take_birth("4f")
    store.promise(Epoch(9))
    store.adopt_epoch(Epoch(7))
    store.close(clean=True)
    return storage


def opened(storage: OsStorage) -> Store:
    return Store.open(storage, SMALL, chance=random.Random(1), wall_ms=1_000)


def test_both_parts_of_the_id_are_new_and_all_else_stays(storage: OsStorage) -> None:
    before = opened(storage)
    before.close(clean=True)

    old, new = draw_identity(storage, NAME, random.Random(2))

    after = opened(storage)
    assert (old, new) == (before.replica, after.replica)
    assert new.uuid != old.uuid
    assert new.incarnation != old.incarnation
    assert (after.birth, after.adopted_epoch, after.promised_epoch, after.end) == ("4f", 7, 9, before.end)


def test_a_store_that_a_process_has_open_is_refused(storage: OsStorage) -> None:
    store = opened(storage)
    replica = store.replica

    with pytest.raises(StoreLocked):
        draw_identity(OsStorage(Path(storage._root)), NAME, random.Random(2))  # noqa: SLF001 - another process's door
    store.close(clean=True)

    assert opened(storage).replica == replica


def test_a_copy_of_a_full_resync_goes_since_the_other_node_has_it_too(storage: OsStorage) -> None:
    store_swap.make(storage, random.Random(3))

    draw_identity(storage, NAME, random.Random(2))

    assert not store_swap.is_begun(storage)


def test_a_store_that_a_copy_is_about_to_replace_is_refused(storage: OsStorage) -> None:
    store_swap.make(storage, random.Random(3))
    Store.open(store_swap.copy_of(storage), SMALL, chance=random.Random(1), wall_ms=1_000).close(clean=True)
    store_swap.intend(storage, StoreSwap(PhysicalOffset(0), PhysicalOffset(10)))

    with pytest.raises(StoreOpenFailed, match="a new copy is taking its place; start its node"):
        draw_identity(storage, NAME, random.Random(2))


def test_a_store_that_no_node_of_this_version_has_opened_is_refused(storage: OsStorage, tmp_path: Path) -> None:
    with pytest.raises(StoreOpenFailed, match="it has no identity yet"):
        draw_identity(OsStorage(tmp_path / "commitlog"), NAME, random.Random(2))

    identity.save(storage, StoreIdentity(0, replica_uuid="cd61", format=1, written_by="0.1.0"))
    with pytest.raises(StoreOpenFailed, match=r"dittomq 0\.1\.0 wrote it; start its node once"):
        draw_identity(storage, NAME, random.Random(2))
