"""Real disks that do not take what is written: too short, full, or failing a sync. Nothing that was called flushed is lost."""

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dittomq.commitlog.disk.storage import OsStorage
from dittomq.commitlog.store import StopKind, Store
from dittomq.errors import DiskFull, StorageFailure, StoreOpenFailed
from tests.simulation.parser import ParsedLog
from tests.support.disk_faults import Actors, harming
from tests.support.mounts import ThinDisk, small_tmpfs
from tests.support.real_store import filled, is_whole_or_cut, numbers_in, reopened
from tests.support.store_process import FAILED, FLUSHED, fill, log_of, middle, open_store

pytestmark = pytest.mark.tier("nightly")

DISK_BYTES = 4 * 1024 * 1024
THIN_BYTES = 16 * 1024 * 1024


def breaks(store: Store) -> None:
    """Say on disk that it failed, if it takes that, and end."""
    with contextlib.suppress(StorageFailure):
        store.clear_boot_stamp()
    store.close(clean=False)


def appends(store: Store) -> None:
    number = FLUSHED
    while True:
        fill(store, range(number, number + 5))
        number += 5
        store.sync()
        store.dispatch(store.end)
        store.checkpoint()


def cuts(store: Store) -> None:
    store.truncate(middle(store))


# The tail that a cut keeps takes the first 180 KiB or so; what follows takes little.
@pytest.mark.parametrize("room", [*range(0, 172 * 1024, 43 * 1024), *range(172 * 1024, 204 * 1024, 4 * 1024)])
@pytest.mark.parametrize("deed", [appends, cuts])
def test_a_full_disk_loses_nothing_whatever_it_interrupts(tmp_path: Path, room: int, deed: Callable[[Store], None]) -> None:
    disk, root = tmp_path / "disk", tmp_path / "disk" / "store"
    with small_tmpfs(disk, DISK_BYTES):
        store = filled(root)
        to, end = middle(store), store.end
        free = shutil.disk_usage(disk).free
        (disk / "filler").write_bytes(bytes(max(0, free - room)))

        interrupted = False
        try:
            deed(store)
        except (DiskFull, StorageFailure) as failure:
            interrupted = True
            assert isinstance(failure, DiskFull) or "No space left on device" in f"{failure}"  # noqa: PT017 - a cut may also fit
        breaks(store)
        try:
            open_store(OsStorage(root)).close(clean=False)
        except (StorageFailure, StoreOpenFailed) as refused:
            assert "No space left on device" in f"{refused}"  # noqa: PT017 - it may also start

        (disk / "filler").unlink()
        again, log = reopened(root)
        assert interrupted or log.end == to
        assert log.end >= end or (deed is cuts and log.end == to)
        assert numbers_in(log) == list(range(len(log.records)))
        again.close(clean=True)


def streams(store: Store) -> None:
    for number in range(FLUSHED, THIN_BYTES, 25):  # for some time: the file system has set blocks aside
        fill(store, range(number, number + 25))
        store.sync()


def sync_again(root: Path) -> None:
    """Whoever tries again is told that all is well."""
    for path in (root / "commitlog").iterdir():
        with path.open("r+b") as file:
            os.fdatasync(file.fileno())


def test_disk_that_loses_unwritten_pages_costs_nothing_called_flushed(tmp_path: Path) -> None:
    thin, root = ThinDisk(tmp_path / "disk", tmp_path / "behind", THIN_BYTES), tmp_path / "disk" / "store"
    with thin.made():
        with thin.mounted():
            store = filled(root)
            thin.runs_out()

            with pytest.raises(StorageFailure, match=rf"fdatasync of {root}/commitlog/\d+ failed"):
                streams(store)
            breaks(store)
            shown = log_of(root).end
            sync_again(root)
        thin.has_room()

        with thin.mounted():
            again, log = reopened(root)
            again.close(clean=True)
            assert shown > log.end, "nothing was lost, so nothing is proven"
            assert log.end >= store.flushed
            assert numbers_in(log) == list(range(len(log.records)))
            assert again.stopped in {StopKind.FAILED_SYNC, StopKind.POWER_LOSS}


def acted_with_failing_syncs(folder: Path, harmed: Actors, deed: str, part: str) -> Iterator[tuple[ParsedLog, int, list[str]]]:
    """Act on a store of its own while the first fdatasync in that part of it fails, then the second, and so on, until none is left to fail.

    Each time the log that a restart finds, how the deed ended and what it said.
    """
    store = filled(folder / "before")
    store.close(clean=True)
    for nth in range(1, 40):
        root = folder / f"{nth}"
        shutil.copytree(folder / "before", root)
        switch = folder / f"{nth}.switch"
        harm = harming(root / part, calls="fdatasync", nth=nth, kind="eio", when=switch)
        status, said = harmed.act(deed, root, harm, switch)
        again, log = reopened(root)
        again.close(clean=True)
        yield log, status, said
        if status == 0:
            assert nth > 1, "no fdatasync was there to fail"
            return
        assert (status, again.stopped) == (FAILED, StopKind.FAILED_SYNC)
        assert said[-1].startswith(f"fdatasync of {root}/{part}/")
    pytest.fail("it never ran to its end")


@pytest.mark.parametrize("part", ["commitlog", "consumequeue", "dittomq"])
def test_store_fails_when_any_fdatasync_of_a_checkpoint_fails(tmp_path: Path, harmed: Actors, part: str) -> None:
    """Nothing is lost."""
    for log, _, _ in acted_with_failing_syncs(tmp_path, harmed, "checkpoint", part):
        assert numbers_in(log) == list(range(FLUSHED + 100))


@pytest.mark.parametrize("part", ["commitlog", "dittomq"])
def test_failed_fdatasync_in_a_truncation_leaves_the_log_old_or_truncated(tmp_path: Path, harmed: Actors, part: str) -> None:
    for log, status, said in acted_with_failing_syncs(tmp_path, harmed, "cut", part):
        assert is_whole_or_cut(log)
        assert status != 0 or len(log.records) == int(said[-1])
