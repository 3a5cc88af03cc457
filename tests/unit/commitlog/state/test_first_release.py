"""A store of dittomq 0.1: what it remembered of epochs and roles goes on in `dittomq/replica`, and its files go.

`data/store-0.1.tar.gz` was written by 0.1.0 as the slave a/1 of cluster prod, which became master in epoch 4: forty frames of two messages,
written in epochs 1 and 3. Epoch 5 was told of. It was closed cleanly.
"""

import random
import tarfile
from pathlib import Path

import pytest

from dittomq.broker.store_owner import StoreOwner, check_cluster
from dittomq.commitlog.disk import state_file
from dittomq.commitlog.disk.storage import OsStorage
from dittomq.commitlog.store import StopKind, Store
from dittomq.errors import StoreOpenFailed
from tests.support.stores import SMALL, frame, open_epoch

UUID = "cd613e30d8f16adf91b7584a2265b1f5"
END = 87_070
OLD_FILES = {"role", "heard", "filled", "degraded"}
HERE = Path(__file__).parent


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with tarfile.open(HERE / "data" / "store-0.1.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "store-0.1"


def opened(folder: Path) -> Store:
    return Store.open(OsStorage(folder), SMALL, chance=random.SystemRandom(), wall_ms=1_000)


def names(folder: Path) -> set[str]:
    return {path.name for path in (folder / "dittomq").iterdir()}


def test_it_opens_as_the_same_replica_with_all_its_messages(folder: Path) -> None:
    store = opened(folder)
    store.dispatch(store.end)

    assert (store.replica.uuid, store.stopped, store.end, store.damaged) == (UUID, StopKind.CLEAN, END, [])
    assert [entry.epoch for entry in store.epoch_history] == [1, 3]
    assert sum(store.queue_range("orders", queue)[1] for queue in range(3)) == 80
    assert store.find_sequence("p", 79) is not None
    check_cluster(OsStorage(folder), StoreOwner("prod", "a"), "/data")
    open_epoch(store)
    assert store.append([frame(b"more")], 1).start == END


def test_first_release_store_adopts_the_newest_epoch_of_its_history(folder: Path) -> None:
    """It has promised what it was told."""
    store = opened(folder)

    assert (store.adopted_epoch, store.promised_epoch, store.birth, store.record_revision) == (3, 5, "", 0)


def test_without_a_note_of_epochs_it_has_promised_that_of_its_role(folder: Path) -> None:
    (folder / "dittomq" / "heard").unlink()

    assert opened(folder).promised_epoch == 4


@pytest.mark.parametrize("name", ["heard", "role"])
def test_a_damaged_file_of_old_rules_refuses_nothing(folder: Path, name: str) -> None:
    (folder / "dittomq" / name).write_bytes(b"damaged")

    assert opened(folder).promised_epoch == (4 if name == "heard" else 5)


@pytest.mark.parametrize(("name", "kind"), [("filling", b"FILL"), ("incomplete", b"PART")])
def test_one_that_was_marked_as_a_part_of_another_log_has_adopted_nothing(folder: Path, name: str, kind: bytes) -> None:
    state_file.save(OsStorage(folder), name, kind, b"{}")

    store = opened(folder)

    assert (store.adopted_epoch, store.promised_epoch) == (0, 5)
    assert name not in names(folder)


def test_its_old_files_go_and_the_next_start_is_the_same_replica(folder: Path) -> None:
    assert names(folder) > OLD_FILES
    store = opened(folder)
    store.close(clean=True)
    assert not names(folder) & OLD_FILES
    assert "replica" in names(folder)

    again = opened(folder)

    assert (again.replica, again.adopted_epoch, again.promised_epoch) == (store.replica, 3, 5)


def test_a_refused_start_leaves_it_to_its_own_version(folder: Path) -> None:
    (folder / "commitlog" / f"{SMALL.segment_bytes:020d}").unlink()
    before = names(folder)

    with pytest.raises(StoreOpenFailed, match="is missing between others"):
        opened(folder)

    assert names(folder) == before
