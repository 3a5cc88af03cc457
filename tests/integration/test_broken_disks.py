"""Real disks that do not take what is written: too short, full, or failing a sync. Nothing that was called flushed is lost."""

import contextlib
import resource
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from dittomq.commitlog.storage import OsStorage
from dittomq.commitlog.store import StopKind, Store
from dittomq.errors import DiskFull, StoreFailed, UnreadableStore
from tests.simulation.parser import ParsedLog, parse_log
from tests.support.harming import act, harming
from tests.support.mounts import ext4_device, mounted_ext4, small_tmpfs
from tests.support.store_process import FAILED, FLUSHED, QUEUES, body, fill, middle, open_store
from tests.support.stores import open_epoch

DISK_BYTES = 4 * 1024 * 1024
IMAGE_BYTES = 32 * 1024 * 1024
READ_ONLY = "Read-only file system|Input/output error"


def filled(root: Path) -> Store:
    """A store in use, with some segments of flushed messages."""
    store = open_store(OsStorage(root))
    open_epoch(store)
    store.stamp_boot()
    for number in range(0, FLUSHED, 50):
        fill(store, range(number, number + 50))
    store.sync()
    store.dispatch(store.end)
    store.checkpoint()
    return store


def log_of(root: Path) -> ParsedLog:
    return parse_log({f"commitlog/{path.name}": path.read_bytes() for path in sorted((root / "commitlog").iterdir())})


def reopened(root: Path) -> tuple[Store, ParsedLog]:
    """The store as the next start finds it, with its queues built, and its log by other code."""
    store = open_store(OsStorage(root))
    store.dispatch(store.end)
    log = log_of(root)
    assert log.end == store.end
    assert [record.body for record in log.records[:FLUSHED]] == [body(number) for number in range(min(FLUSHED, len(log.records)))]
    for queue in range(QUEUES):
        mine = [record.queue_offset for record in log.records if record.queue == queue]
        assert mine == list(range(len(mine)))
        assert store.queue_range("orders", queue) == (0, len(mine))
    return store, log


def breaks(store: Store) -> None:
    """Say on disk that it failed, if it takes that, and end."""
    with contextlib.suppress(StoreFailed):
        store.clear_boot_stamp()
    store.close(clean=False)


def test_a_disk_that_turns_read_only_fails_the_store_and_is_refused_until_it_can_be_written(tmp_path: Path) -> None:
    disk, root = tmp_path / "disk", tmp_path / "disk" / "store"
    with ext4_device(tmp_path / "image", IMAGE_BYTES) as device:
        with mounted_ext4(device, disk):
            store = filled(root)
            fill(store, range(FLUSHED, FLUSHED + 1))
            Path(f"/sys/fs/ext4/{device.name}/trigger_fs_error").write_text("a test", encoding="ascii")

            with pytest.raises(StoreFailed, match=READ_ONLY):
                store.checkpoint()
            with pytest.raises(StoreFailed):
                fill(store, range(FLUSHED + 1, FLUSHED + 2))
            breaks(store)
            with pytest.raises(UnreadableStore, match="Read-only file system"):
                open_store(OsStorage(root))

        with mounted_ext4(device, disk):
            again, log = reopened(root)
            assert len(log.records) in {FLUSHED, FLUSHED + 1}
            again.close(clean=True)


def test_a_process_without_descriptors_fails_its_store_with_the_reason_and_loses_nothing(tmp_path: Path) -> None:
    store = filled(tmp_path)
    end = store.end
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        with pytest.raises(StoreFailed, match="Too many open files"):
            store.persist_watermark(store.flushed, store.flushed, ())
        with pytest.raises(StoreFailed):
            fill(store, range(FLUSHED, FLUSHED + 1))
        breaks(store)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    again, log = reopened(tmp_path)
    assert (log.end, len(log.records)) == (end, FLUSHED)
    again.close(clean=True)


def appends(store: Store) -> None:
    number = FLUSHED
    while True:
        fill(store, range(number, number + 5))
        number += 5
        store.sync()
        store.dispatch(store.end)
        store.checkpoint()


def cuts(store: Store) -> None:
    store.cut(middle(store))


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
        except (DiskFull, StoreFailed) as failure:
            interrupted = True
            assert isinstance(failure, DiskFull) or "No space left on device" in f"{failure}"  # noqa: PT017 - a cut may also fit
        breaks(store)
        try:
            open_store(OsStorage(root)).close(clean=False)
        except (StoreFailed, UnreadableStore) as refused:
            assert "No space left on device" in f"{refused}"  # noqa: PT017 - it may also start

        (disk / "filler").unlink()
        again, log = reopened(root)
        assert interrupted or log.end == to
        assert log.end >= end or (deed is cuts and log.end == to)
        again.close(clean=True)


@pytest.mark.parametrize(("deed", "folder"), [("checkpoint", "commitlog"), ("checkpoint", "consumequeue"), ("checkpoint", "dittomq")])
def test_a_failed_fdatasync_of_any_file_of_a_checkpoint_fails_the_store_and_loses_nothing(
    tmp_path: Path, shim: Path, deed: str, folder: str
) -> None:
    store = filled(tmp_path / "before")
    store.close(clean=True)

    for nth in range(1, 20):
        root = tmp_path / f"{nth}"
        shutil.copytree(tmp_path / "before", root)
        switch = tmp_path / f"{nth}.switch"
        harm = harming(shim, root / folder, calls="fdatasync", nth=nth, kind="eio", when=switch)
        status, said = act(deed, root, harm, switch)
        again, log = reopened(root)
        again.close(clean=True)
        assert len(log.records) == FLUSHED + 100
        if status == 0:
            assert nth > 1, "no fdatasync was there to fail"
            return
        assert (status, again.stopped) == (FAILED, StopKind.FAILED_SYNC)
        assert said[-1].startswith(f"fdatasync of {root}/{folder}/")
    pytest.fail("the checkpoint never ran to its end")


@pytest.mark.parametrize("folder", ["commitlog", "dittomq"])
def test_a_failed_fdatasync_of_any_file_of_a_cut_leaves_the_log_as_it_was_or_cut(tmp_path: Path, shim: Path, folder: str) -> None:
    store = filled(tmp_path / "before")
    end, to = store.end, middle(store)
    store.close(clean=True)

    for nth in range(1, 40):
        root = tmp_path / f"{nth}"
        shutil.copytree(tmp_path / "before", root)
        switch = tmp_path / f"{nth}.switch"
        harm = harming(shim, root / folder, calls="fdatasync", nth=nth, kind="eio", when=switch)
        status, said = act("cut", root, harm, switch)
        again, log = reopened(root)
        again.close(clean=True)
        assert log.end in {end, to}
        if status == 0:
            assert log.end == to
            assert nth > 1, "no fdatasync was there to fail"
            return
        assert (status, again.stopped) == (FAILED, StopKind.FAILED_SYNC)
        assert said[-1].startswith(f"fdatasync of {root}/{folder}/")
    pytest.fail("the cut never ran to its end")
