"""One writer, one dispatcher, one syncer and readers in real threads."""

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import cast

import pytest

from dittomq.commitlog.disk.storage import File, OsStorage, Storage
from dittomq.commitlog.store import Store, StoreOptions
from dittomq.doors.chance import os_chance
from dittomq.errors import NotReady, Refused, StorageFailure
from tests.support.record_damage import entries
from tests.support.stores import SMALL, Machine, dispatched, filled, frame, led, whole_log
from tests.unit.commitlog.bad_pages import BadPages, PagedFile

GROUPS = 300


@pytest.mark.tier("test")
def test_readers_see_only_whole_messages_in_order_while_everything_else_goes_on(tmp_path: Path) -> None:
    options = StoreOptions(segment_bytes=16 * 1024, queue_file_units=100, min_free_bytes=0, open_files=4, zero_window_bytes=8_192)
    store = led(OsStorage(tmp_path), options, chance=os_chance(), wall_ms=0)
    done = threading.Event()

    def write() -> None:
        for number in range(GROUPS):
            store.append([frame(*[b"%d" % (number * 4 + at) * 50 for at in range(4)])], number)
        done.set()

    def until_done(work: Callable[[], object]) -> None:
        last = False
        while not last:
            last = done.is_set()
            work()

    def read() -> int:
        at = 0
        while at < GROUPS * 4:
            found = store.read_queue("orders", 0, at, 100, 50_000)
            assert [message.body for message in found.messages] == [b"%d" % number * 50 for number in range(at, found.next_offset)]
            at = found.next_offset
        return at

    def raw() -> int:
        at = 0
        while not (done.is_set() and at == store.end):
            at += len(store.read_records(at, store.end, 10_000))
        return at

    with ThreadPoolExecutor(10) as threads:
        work = [
            threads.submit(write),
            threads.submit(until_done, lambda: store.dispatch(store.end)),
            threads.submit(until_done, store.sync),
        ]
        work += [
            threads.submit(until_done, store.checkpoint),
            threads.submit(until_done, lambda: store.persist_recovery_point(store.flushed, 0)),
            threads.submit(until_done, store.ahead.prepare_segment),
            threads.submit(until_done, store.ahead.zero),
        ]
        readers = [threads.submit(read), threads.submit(read), threads.submit(raw)]
        for each in work:
            each.result(timeout=60)

    assert [reader.result(timeout=60) for reader in readers] == [GROUPS * 4, GROUPS * 4, store.end]
    store.close(clean=True)


class Turnstile:
    """A lock that says when somebody has to wait for it."""

    def __init__(self, waited_for: threading.Event) -> None:
        self._lock = threading.Lock()
        self._waited_for = waited_for

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self._waited_for.set()
            self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def test_disk_error_reported_once_reaches_the_sync_despite_a_repair() -> None:
    """The repair runs beside the sync."""
    machine = Machine(random.Random(7))
    store = filled(machine)
    store.sync()
    log, flushed = whole_log(store), store.flushed
    start, end = entries(log)[-1]
    base = start - start % SMALL.segment_bytes
    machine.disk.names.files[f"commitlog/{base:020d}"].write(memoryview(b"\xee"), start - base + 60, machine.chance)
    assert store.verify(start, end).damaged == ((start, end),)
    store.append([frame(b"lost in write-back")], 1_000)
    syncing, mending_stopped = threading.Event(), threading.Event()
    store._gate.syncing = Turnstile(mending_stopped)  # type: ignore[assignment]  # noqa: SLF001  # nothing else tells that it is waited for

    def sync() -> None:
        with pytest.raises(StorageFailure):
            store.sync()

    def mend() -> None:
        with pytest.raises(StorageFailure):
            store.repair(start, log[start:end])
        mending_stopped.set()

    def wait_in_the_sync(_: str, __: float) -> None:
        if not syncing.is_set():
            syncing.set()
            assert mending_stopped.wait(60)

    machine.faults.failing_syncs, machine.faults.synced = 1, wait_in_the_sync
    with ThreadPoolExecutor(2) as threads:
        syncer = threads.submit(sync)
        assert syncing.wait(60)
        mender = threads.submit(mend)
        for each in (syncer, mender):
            each.result(timeout=60)

    assert store.flushed == flushed


class Cut(BadPages):
    """Lets the `reader` read a segment only when a cut has made it shorter, and that cut go on only when it has read."""

    reader: threading.Thread | None = None

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self.reads, self.is_short = threading.Event(), threading.Event()

    def open(self, path: str, *, create: bool = False, readonly: bool = False) -> File:
        return cast("File", CutFile(super().open(path, create=create, readonly=readonly), path, self))


class CutFile(PagedFile):
    def pread(self, length: int, offset: int) -> bytes:
        door = cast("Cut", self._door)
        if self._path.startswith("commitlog/") and threading.current_thread() is door.reader:
            door.reads.set()
            door.is_short.wait(10)
        return self._file.pread(length, offset)

    def truncate(self, size: int) -> None:
        door = cast("Cut", self._door)
        self._file.truncate(size)
        if self._path.startswith("commitlog/") and door.reads.is_set():
            door.is_short.set()
            assert door.reader is not None
            door.reader.join(10)


def test_reader_during_a_truncation_is_told_to_ask_again_and_of_no_damage() -> None:
    machine = Machine(random.Random(1))
    store = dispatched(machine)
    store.close(clean=True)
    door = Cut(machine)
    store = Store.open(cast("Storage", door), SMALL, chance=machine.chance, wall_ms=9_000)
    store.dispatch(store.end)
    last = entries(whole_log(store))[-1][0]
    said: list[Exception] = []

    def read() -> None:
        try:
            store.read_queue("orders", 2, store.queue_range("orders", 2)[1] - 1, 1, 1)
        except Refused as refused:
            said.append(refused)

    door.reader = reader = threading.Thread(target=read)
    reader.start()
    assert door.reads.wait(10)
    store.truncate(last)

    read()
    assert [type(each) for each in said] == [NotReady]
