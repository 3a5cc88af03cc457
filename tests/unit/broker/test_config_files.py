"""Config files are replaced whole: whatever the crash, the old table or the new one is read, never a mix, never none."""

import errno
import os
from pathlib import Path

import pytest

from dittomq.broker.config_files import ConfigFiles
from dittomq.commitlog.disk.storage import File, OsStorage, Storage
from dittomq.errors import DiskFull, StorageFailure, StoreOpenFailed
from dittomq.metadata.formats import KINDS, TOPICS, encode
from dittomq.metadata.tables import Table, sorted_rows
from dittomq.metadata.topics import TopicConfig
from dittomq.routes import DataVersion
from tests.support.failing_storage import Crashed, CrashingStorage

FIRST = Table(DataVersion(1, 10, 1), sorted_rows(TopicConfig(f"first-{number}") for number in range(50)))
SECOND = Table(DataVersion(1, 20, 2), sorted_rows(TopicConfig(f"second-{number}") for number in range(50)))
THIRD = Table(DataVersion(1, 30, 3), sorted_rows(TopicConfig(f"third-{number}") for number in range(50)))


def files_of(storage: Storage) -> ConfigFiles:
    return ConfigFiles(storage, "a/0")


def save(storage: Storage, table: Table[TopicConfig]) -> None:
    for _ in files_of(storage).save(TOPICS, table):
        pass


def test_a_store_without_files_has_empty_tables(tmp_path: Path) -> None:
    files = files_of(OsStorage(tmp_path))

    assert [files.load(kind) for kind in KINDS] == [(Table(), "")] * 4


def test_what_was_saved_is_loaded_and_the_bak_is_what_was_before(tmp_path: Path) -> None:
    storage = OsStorage(tmp_path)

    save(storage, FIRST)
    save(storage, SECOND)

    assert files_of(storage).load(TOPICS) == (SECOND, "")
    assert (tmp_path / "config" / "topics.json.bak").read_bytes() == encode(TOPICS, FIRST)
    assert sorted(path.name for path in (tmp_path / "config").iterdir()) == ["topics.json", "topics.json.bak"]


class Unreadable(OsStorage):
    """A disk that does not give the bytes of any table."""

    def open(self, path: str, *, create: bool = False, readonly: bool = False) -> File:
        if readonly:
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return super().open(path, create=create, readonly=readonly)


def test_unreadable_table_is_refused_and_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    """Nor for a damaged one."""
    save(OsStorage(tmp_path), FIRST)
    save(OsStorage(tmp_path), SECOND)

    with pytest.raises(StoreOpenFailed, match=r"the store config/topics\.json cannot be opened: .*Input/output error"):
        files_of(Unreadable(tmp_path)).load(TOPICS)

    assert files_of(OsStorage(tmp_path)).load(TOPICS) == (SECOND, "")


def test_a_table_that_cannot_be_read_when_it_is_to_be_replaced_stops_the_node(tmp_path: Path) -> None:
    save(OsStorage(tmp_path), FIRST)

    with pytest.raises(StorageFailure, match=r"reading of config/topics\.json failed: .*Input/output error"):
        save(Unreadable(tmp_path), SECOND)

    assert files_of(OsStorage(tmp_path)).load(TOPICS) == (FIRST, "")


@pytest.mark.parametrize("damage", [b"", b"{", b"\xff", b"\0" * 4_096, b'{"topicConfigTable":{"a":{"perm":"all"}}}'])
def test_damaged_file_is_read_from_its_bak_until_a_newer_table_is_saved(tmp_path: Path, damage: bytes) -> None:
    storage = OsStorage(tmp_path)
    save(storage, FIRST)
    save(storage, SECOND)
    (tmp_path / "config" / "topics.json").write_bytes(damage)

    table, problem = files_of(storage).load(TOPICS)

    assert table == FIRST
    assert problem.startswith("is damaged")
    assert files_of(storage).load(TOPICS) == (table, problem)
    save(storage, THIRD)
    assert files_of(storage).load(TOPICS) == (THIRD, "")
    assert (tmp_path / "config" / "topics.json.bak").read_bytes() == encode(TOPICS, FIRST)


def test_a_file_that_has_rotted_since_its_load_does_not_become_the_bak(tmp_path: Path) -> None:
    storage = OsStorage(tmp_path)
    save(storage, FIRST)
    save(storage, SECOND)
    (tmp_path / "config" / "topics.json").write_bytes(encode(TOPICS, SECOND)[:-9])

    for _ in files_of(storage).save(TOPICS, THIRD):
        assert files_of(storage).load(TOPICS)[0] in (FIRST, THIRD)

    assert files_of(storage).load(TOPICS) == (THIRD, "")
    assert (tmp_path / "config" / "topics.json.bak").read_bytes() == encode(TOPICS, FIRST)


def test_a_crash_of_rocketmq_between_its_two_renames_is_made_good(tmp_path: Path) -> None:
    storage = OsStorage(tmp_path)
    save(storage, FIRST)
    (tmp_path / "config" / "topics.json").rename(tmp_path / "config" / "topics.json.bak")

    assert files_of(storage).load(TOPICS) == (FIRST, "is missing")


class DiesBeforeTheName(OsStorage):
    """Its process is gone before a new table has its name."""

    def rename(self, old: str, new: str) -> None:
        if new == TOPICS.path:
            raise Crashed
        super().rename(old, new)


def test_a_crash_between_the_two_names_is_made_good_by_the_next_save(tmp_path: Path) -> None:
    storage = OsStorage(tmp_path)
    save(storage, FIRST)
    with pytest.raises(Crashed):
        save(DiesBeforeTheName(tmp_path), SECOND)
    assert files_of(storage).load(TOPICS) == (FIRST, "is missing")

    save(storage, THIRD)

    assert files_of(storage).load(TOPICS) == (THIRD, "")
    assert (tmp_path / "config" / "topics.json.bak").read_bytes() == encode(TOPICS, FIRST)


def test_damage_of_both_is_refused_by_name_and_nothing_is_changed(tmp_path: Path) -> None:
    storage = OsStorage(tmp_path)
    save(storage, FIRST)
    save(storage, SECOND)
    for name in ("topics.json", "topics.json.bak"):
        (tmp_path / "config" / name).write_bytes(b"?")

    with pytest.raises(StoreOpenFailed, match=r"config/topics\.json .* put a good copy there"):
        files_of(storage).load(TOPICS)

    assert (tmp_path / "config" / "topics.json").read_bytes() == b"?"


def test_a_damaged_file_without_bak_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "topics.json").write_bytes(b"?")

    with pytest.raises(StoreOpenFailed, match=r"has no \.bak"):
        files_of(OsStorage(tmp_path)).load(TOPICS)


def test_a_full_disk_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    storage = CrashingStorage(OsStorage(tmp_path))
    save(storage, FIRST)
    storage.free = 100
    calls = storage.calls

    with pytest.raises(DiskFull):
        save(storage, SECOND)

    assert storage.calls == calls
    assert files_of(storage).load(TOPICS) == (FIRST, "")
