"""What the door to a real disk says of a file: the blocks that it takes, where it has anything, and whether its name is still its own."""

import os
import random
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from dittomq.commitlog.disk.storage import File, OsStorage, Storage
from dittomq.commitlog.store import StoreOptions
from tests.support.failing_storage import CrashingFile, CrashingStorage
from tests.support.stores import Machine, frame, led

MIB = 1024 * 1024
SIZE = 8 * MIB
SLACK = 128 * 1024  # a file system takes whole blocks, and some for itself


@pytest.fixture
def file(tmp_path: Path) -> Iterator[File]:
    """8 MiB without a byte in it."""
    with closing(OsStorage(tmp_path).open("file", create=True)) as made:
        made.truncate(SIZE)
        yield made


def test_a_file_takes_the_blocks_of_what_was_written_and_none_for_its_holes(file: File) -> None:
    assert file.disk_bytes() <= SLACK

    for at in (MIB, 5 * MIB):
        file.pwrite(os.urandom(MIB // 2), at)
        file.fdatasync()

    assert file.size() == SIZE
    assert MIB <= file.disk_bytes() <= MIB + SLACK


def test_a_hole_is_passed_over_and_nothing_that_was_written_is(file: File) -> None:
    assert file.data_from(0) == file.data_from(SIZE) == SIZE

    file.pwrite(b"unsynced", 5 * MIB + 100)

    assert MIB < file.data_from(0) <= 5 * MIB + 100
    assert file.data_from(5 * MIB + 103) == 5 * MIB + 103
    assert file.data_from(6 * MIB) == SIZE


def test_a_name_that_cannot_be_looked_up_is_not_called_missing(tmp_path: Path) -> None:
    (tmp_path / "circle").symlink_to("circle")
    (tmp_path / "file").touch()
    storage = OsStorage(tmp_path)

    assert [storage.exists(path) for path in ("", "file", "other", "file/other", "other/file")] == [True, True, False, False, False]
    with pytest.raises(OSError, match="Too many levels of symbolic links"):
        storage.exists("circle")


LOSSES: dict[str, Callable[[Storage], None]] = {
    "removed": lambda storage: storage.unlink("file"),
    "moved away": lambda storage: storage.rename("file", "other"),
    "replaced": lambda storage: storage.rename("second", "file"),
}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("door", ["real", "simulated", "crashing"])
def test_a_file_that_lost_its_name_says_so_whatever_has_the_name_now(door: str, loss: str, tmp_path: Path) -> None:
    machine = Machine(random.Random(1))
    storage: Storage = OsStorage(tmp_path) if door == "real" else machine.storage()
    with closing(storage.open("file", create=True)) as made, closing(storage.open("second", create=True)):
        file = CrashingFile(made, "file", CrashingStorage(storage)) if door == "crashing" else made
        assert file.is_named()

        LOSSES[loss](storage)

        assert not file.is_named()


def test_a_file_with_a_second_name_that_lost_its_own_says_so(tmp_path: Path) -> None:
    with closing(OsStorage(tmp_path).open("file", create=True)) as file:
        (tmp_path / "backup").hardlink_to(tmp_path / "file")
        (tmp_path / "file").unlink()

        assert not file.is_named()


def test_a_pipe_with_the_name_of_a_file_is_an_error_and_nobody_waits_for_its_writer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    with closing(OsStorage(tmp_path).open("pipe", readonly=True)) as file, pytest.raises(OSError, match="Illegal seek"):
        file.pread(10, 0)


def test_a_segment_counts_with_its_blocks_not_with_its_size(tmp_path: Path) -> None:
    """A second record of its size does not fit into a segment: the rest of each is a hole."""
    options = StoreOptions(segment_bytes=4 * MIB, queue_file_units=1_000, min_free_bytes=0)
    store = led(OsStorage(tmp_path), options, chance=random.Random(1), wall_ms=1)
    for _ in range(2):
        store.append([frame(os.urandom(5 * MIB // 2))], 1)
    store.sync()

    found = store.survey(0)

    assert found.end - found.start == 4 * MIB
    assert 5 * MIB // 2 <= found.disk_bytes <= 5 * MIB // 2 + SLACK
