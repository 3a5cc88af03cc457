"""The store on a real file system: what the simulated disk cannot show."""

import errno
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dittomq.commitlog.disk.storage import OsStorage
from dittomq.commitlog.store import StopKind, Store, StoreOptions
from dittomq.doors.chance import os_chance
from dittomq.errors import StorageFailure, StoreLocked, StoreOpenFailed
from tests.support.stores import frame, open_epoch

OPTIONS = StoreOptions(segment_bytes=64 * 1024, queue_file_units=100, min_free_bytes=0)
HOLDER = """
import random, sys
from pathlib import Path
from dittomq.commitlog.disk.storage import OsStorage
from dittomq.commitlog.store import Store, StoreOptions
store = Store.open(OsStorage(Path(sys.argv[1])), StoreOptions(segment_bytes=65536), chance=random.Random(1), wall_ms=0)
print("held", flush=True)
sys.stdin.read()
"""


def reopen(folder: Path, options: StoreOptions = OPTIONS) -> Store:
    return Store.open(OsStorage(folder), options, chance=os_chance(), wall_ms=0)


@contextmanager
def file_size_limit(limit: int) -> Iterator[None]:
    """A write past `limit` comes out short, the next one fails."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.tier("test")
def test_a_store_held_by_another_process_is_refused_until_that_process_ends(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"

        with pytest.raises(StoreLocked, match="held by another process"):
            reopen(tmp_path)

        holder.kill()
        holder.wait()
    store = reopen(tmp_path)
    assert store.stopped is StopKind.EMPTY
    store.close(clean=True)


def test_short_write_fails_the_store_and_saves_the_torn_record_aside(tmp_path: Path) -> None:
    store = reopen(tmp_path)
    open_epoch(store)
    end = store.append([frame(b"whole")], 1).end

    with file_size_limit(end + 500), pytest.raises(StorageFailure, match=r"write of .*commitlog/0{20} failed"):
        store.append([frame(b"torn" * 500)], 1)
    store.close(clean=False)
    again = reopen(tmp_path)

    assert (again.stopped, again.end, again.flushed) == (StopKind.KILLED, end, end)
    assert again.recovery_truncation is not None
    assert again.recovery_truncation.saved_bytes == 500
    assert (tmp_path / again.recovery_truncation.side_file).stat().st_size == 500
    again.close(clean=True)


def test_files_have_their_full_size_from_the_start_and_rocketmqs_tools_find_theirs(tmp_path: Path) -> None:
    store = reopen(tmp_path)
    open_epoch(store)
    store.append([frame(b"m", topic="orders")], 1)
    store.dispatch(store.end)
    assert (tmp_path / "abort").exists()
    store.close(clean=True)

    assert (tmp_path / "commitlog" / f"{0:020d}").stat().st_size == OPTIONS.segment_bytes
    assert (tmp_path / "consumequeue/orders/0" / f"{0:020d}").stat().st_size == OPTIONS.queue_file_units * 20
    assert [path.name for path in (tmp_path / "commitlog").iterdir()] == [f"{0:020d}"]
    assert (tmp_path / "checkpoint").stat().st_size == 4_096
    assert not (tmp_path / "abort").exists()
    assert reopen(tmp_path).stopped is StopKind.CLEAN


def test_another_segment_size_is_refused_by_name_and_nothing_is_changed(tmp_path: Path) -> None:
    store = reopen(tmp_path)
    open_epoch(store)
    store.append([frame(b"m")], 1)
    store.close(clean=True)

    for refills in (False, True):
        with pytest.raises(StoreOpenFailed, match="segment_bytes is 131,072; configure the size it was made with"):
            reopen(tmp_path, StoreOptions(segment_bytes=128 * 1024, min_free_bytes=0, refills=refills))

    again = reopen(tmp_path)
    assert (again.end, again.stopped) == (store.end, StopKind.CLEAN)


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, list[str]]]:
    """Folders, as they are synced, and the names in each at that moment."""
    heard: list[tuple[str, list[str]]] = []

    def fsync(descriptor: int) -> None:
        real(descriptor)
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        heard.append((str(path), [each.name for each in path.iterdir()]))

    real = os.fsync
    monkeypatch.setattr(os, "fsync", fsync)
    return heard


def test_the_name_of_a_new_data_dir_is_durable_before_anything_is_in_it(tmp_path: Path, synced: list[tuple[str, list[str]]]) -> None:
    reopen(tmp_path / "above" / "data")

    assert synced[:3] == [(str(tmp_path.parent), synced[0][1]), (str(tmp_path), ["above"]), (str(tmp_path / "above"), ["data"])]


def test_the_name_of_a_data_dir_that_a_killed_process_made_is_made_durable(tmp_path: Path, synced: list[tuple[str, list[str]]]) -> None:
    (tmp_path / "data").mkdir()

    reopen(tmp_path / "data")

    assert synced[0] == (str(tmp_path), ["data"])


def test_a_data_dir_in_a_folder_that_may_not_be_read_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, *rest: int) -> int:
        if path == tmp_path:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return real(path, *rest)

    (tmp_path / "data").mkdir()
    real = os.open
    monkeypatch.setattr(os, "open", refuse)

    reopen(tmp_path / "data").close(clean=True)


def test_a_failed_sync_of_the_name_of_the_data_dir_refuses_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fsync(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fsync)

    with pytest.raises(StoreOpenFailed, match="Input/output error"):
        reopen(tmp_path / "data")


def test_a_folder_that_cannot_be_opened_is_refused_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("a file")

    with pytest.raises(StoreOpenFailed, match="cannot be opened"):
        reopen(tmp_path / "store")
