"""Stores of real RocketMQ brokers, read as RocketMQ reads them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from dittomq.cli.app import run
from dittomq.commitlog.disk.storage import File, OsStorage
from dittomq.commitlog.offline.open_store import items, open_on_disk
from dittomq.commitlog.offline.verify import verify
from dittomq.commitlog.store import Store, StoreOptions
from dittomq.doors.chance import os_chance
from dittomq.errors import StoreOpenFailed
from tests.support import vectors


def test_a_store_of_rocketmq_that_is_refused_is_left_alone(tmp_path: Path) -> None:
    folder = vectors.unpack("plain-5.3.3", tmp_path) / "master"
    before = sorted(str(path) for path in folder.rglob("*"))

    with pytest.raises(StoreOpenFailed, match="configure the size it was made with"):
        Store.open(OsStorage(folder), StoreOptions(), chance=os_chance(), wall_ms=0)

    assert sorted(str(path) for path in folder.rglob("*") if path.name != "lock") == [path for path in before if not path.endswith("lock")]


@pytest.mark.tier("test")
@pytest.mark.parametrize("command", ["dump", "verify", "stats", "digest"])
def test_a_segment_that_rocketmq_was_killed_while_making_changes_nothing(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, digest = vectors.unpack("plain-4.9.7", tmp_path) / "master", tmp_path / "digest"
    arguments = ["log", command, str(folder), "--json", *(["-o", str(digest)] if command == "digest" else [])]

    def said() -> tuple[str, bytes]:
        assert run(arguments) == 0
        return capsys.readouterr().out, digest.read_bytes() if digest.exists() else b""

    before = said()
    last = max((folder / "commitlog").iterdir())
    (folder / "commitlog" / f"{int(last.name) + last.stat().st_size:020d}").touch()

    assert said() == before


def test_a_store_whose_only_segment_is_one_that_was_never_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / f"{0:020d}").touch()

    with pytest.raises(StoreOpenFailed, match="holds no segment with bytes"):
        open_on_disk(OsStorage(tmp_path), "it")


class RollsMeanwhile(OsStorage):
    """A store whose broker writes the rest of a segment, and goes on in the next one, before a reader comes to that."""

    def __init__(self, folder: Path, next_one: str, rest: Callable[[], None]) -> None:
        super().__init__(folder)
        self._next_one = next_one
        self._rest = rest
        self.looks_at_sizes = True

    def open(self, path: str, *, create: bool = False, readonly: bool = False) -> File:
        if path == self._next_one and not self.looks_at_sizes:
            self._rest()
        return super().open(path, create=create, readonly=readonly)


@pytest.mark.tier("test")
@pytest.mark.parametrize("segments", [1, 2])
@pytest.mark.parametrize("one_by_one", [False, True])
def test_a_log_that_rolls_while_it_is_read_is_read_to_its_end(segments: int, one_by_one: bool, tmp_path: Path) -> None:
    folder = vectors.unpack("plain-4.9.7", tmp_path) / "master"
    store = open_on_disk(OsStorage(folder), "it")
    whole, size = verify(store, one_by_one=one_by_one), store.segment_bytes
    first = [item.start for item in items(store) if item.record and item.start < size][-5]
    saved = {path: path.read_bytes() for path in sorted((folder / "commitlog").iterdir())[:segments]}
    for path, content in saved.items():
        kept = max(0, first - int(path.name))
        path.write_bytes(content[:kept].ljust(size, b"\0"))

    def rest() -> None:
        for path, content in saved.items():
            path.write_bytes(content)

    storage = RollsMeanwhile(folder, f"commitlog/{segments * size:020d}", rest)
    growing = open_on_disk(storage, "it")
    storage.looks_at_sizes = False
    report = verify(growing, one_by_one=one_by_one)

    assert (report.counts, report.records, report.end) == (whole.counts, whole.records, whole.end)
