"""To which group a store belongs."""

from pathlib import Path

import pytest

from dittomq.broker.store_owner import StoreOwner, check_cluster, settle
from dittomq.commitlog.disk import state_file
from dittomq.commitlog.disk.storage import OsStorage
from dittomq.errors import StoreOpenFailed

HOME = StoreOwner("prod", "a")


def settled(folder: Path) -> OsStorage:
    storage = OsStorage(folder)
    settle(storage, HOME)
    return storage


def test_a_store_that_belongs_to_nobody_is_anybodys(tmp_path: Path) -> None:
    check_cluster(OsStorage(tmp_path), HOME, "/data")


@pytest.mark.parametrize("stranger", [StoreOwner("prod", "b"), StoreOwner("test", "a")])
def test_store_of_another_group_is_refused_even_after_settling(tmp_path: Path, stranger: StoreOwner) -> None:
    """Or of another cluster; it was asked to settle there."""
    storage = settled(tmp_path)
    settle(storage, stranger)

    with pytest.raises(StoreOpenFailed, match=f"group a of cluster prod and this node is of broker group {stranger.broker} of cluster"):
        check_cluster(storage, stranger, "/data")
    check_cluster(storage, HOME, "/data")


def test_a_damaged_note_is_refused_and_named(tmp_path: Path) -> None:
    storage = settled(tmp_path)
    path = tmp_path / "dittomq" / "group"
    path.write_bytes(path.read_bytes()[:-1])

    with pytest.raises(StoreOpenFailed, match="dittomq/group is damaged"):
        check_cluster(storage, HOME, "/data")


def test_what_an_earlier_version_noted_of_the_nodes_id_is_passed_over(tmp_path: Path) -> None:
    storage = OsStorage(tmp_path)
    storage.make_folder("dittomq")
    state_file.save_json(storage, "group", b"HOME", {"cluster": "prod", "broker": "a", "broker_id": 1})

    check_cluster(storage, HOME, "/data")
    with pytest.raises(StoreOpenFailed):
        check_cluster(storage, StoreOwner("prod", "b"), "/data")
