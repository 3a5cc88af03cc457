"""Pulls while the messages that they ask for are dropped or cut: what readers are told meanwhile, and that they leave nothing behind."""

import random
from collections.abc import Callable

import pytest

from dittomq.commitlog.disk.file_cache import OpenFiles
from dittomq.commitlog.disk.segment import path_of as segment_path
from dittomq.commitlog.log_start_state import unlink
from dittomq.commitlog.offline.open_store import open_on_disk
from dittomq.commitlog.offline.verify import verify
from dittomq.commitlog.queues import index_checkpoint
from dittomq.commitlog.queues.consume_queue import QueueIndex, path_of
from dittomq.commitlog.records.format import UNIT, UNIT_BYTES
from dittomq.commitlog.store import Store
from dittomq.errors import NotReady, OffsetOutOfRange, Refused
from tests.support.failing_storage import CrashingStorage
from tests.support.stores import SMALL, Machine, filled

SEGMENT = SMALL.segment_bytes


class Watched(CrashingStorage):
    """A disk whose every call may be looked at, before its effect."""

    look: Callable[[], None] | None = None

    def count(self, call: str) -> None:
        super().count(call)
        if not call.startswith("open "):  # of files others wait for
            self._look()

    def list_folder(self, path: str) -> list[str]:
        self._look()
        return super().list_folder(path)

    def _look(self) -> None:
        look, self.look = self.look, None  # what looks calls the disk itself
        if look is not None:
            look()
            self.look = look


def drop(store: Store) -> None:
    store.drop_before(2 * SEGMENT)


def cut(store: Store) -> None:
    messages = store.read_queue("orders", 0, 0, 1_000, 1 << 30).messages
    store.truncate(next(message.physical_offset for message in messages if message.physical_offset > 2 * SEGMENT))


def filled_twice(machine: Machine) -> tuple[Store, Watched]:
    """A store of several segments with all of it in its queues, and its disk."""
    filled(machine, 60).close(clean=True)
    disk = Watched(machine.storage())
    store = Store.open(disk, SMALL, chance=random.Random(1), wall_ms=1_000)
    store.dispatch(store.end)
    store.persist_recovery_point(store.end, store.end)
    return store, disk


def told_during(store: Store, disk: Watched, change: Callable[[Store], None], offset: int) -> list[Refused | None]:
    """What reads of one message are told at every call of the disk while that is done, and behind it; None where they get it."""
    told: list[Refused | None] = []

    def read() -> None:
        try:
            [message] = store.read_queue("orders", 0, offset, 1, 1).messages
            assert message.queue_offset == offset
            told.append(None)
        except Refused as refused:
            told.append(refused)

    disk.look = read
    change(store)
    disk.look = None
    read()
    return told


@pytest.mark.parametrize(("change", "newest"), [(drop, False), (cut, True)])
def test_a_message_that_goes_while_it_is_read_is_told_in_offsets_of_its_queue(change: Callable[[Store], None], *, newest: bool) -> None:
    store, disk = filled_twice(Machine(random.Random(7)))
    low, high = store.queue_range("orders", 0)

    told = told_during(store, disk, change, high - 1 if newest else low)

    assert told[0] is None
    assert isinstance(told[-1], OffsetOutOfRange)
    outside = [each for each in told if isinstance(each, OffsetOutOfRange)]
    assert all(each.unit == "queue offset" and 0 <= each.start <= each.end <= high for each in outside)
    assert {type(each) for each in told} <= {OffsetOutOfRange, NotReady, type(None)}


def test_kept_message_is_not_damaged_while_queues_are_rebuilt() -> None:
    """They are built again behind a truncation."""
    store, disk = filled_twice(Machine(random.Random(7)))
    index_checkpoint.remove(disk)

    told = told_during(store, disk, cut, 1)

    assert (told[0], told[-1]) == (None, None)
    assert {type(each) for each in told} == {NotReady, type(None)}


def test_rebuilt_queues_are_on_the_disk_though_they_were_read() -> None:
    """They are built again behind a truncation."""
    machine = Machine(random.Random(7))
    store, disk = filled_twice(machine)
    index_checkpoint.remove(disk)

    told_during(store, disk, cut, 1)
    store.checkpoint()

    assert verify(open_on_disk(machine.beside(), "store")).whole


def test_recreated_topics_queue_is_on_the_disk_though_it_was_read() -> None:
    """Somebody read it when it was deleted."""
    machine = Machine(random.Random(7))
    disk = Watched(machine.storage())
    files = OpenFiles(disk, 10)
    index = QueueIndex(disk, files, 4, 1_000, begins_late=False)
    queue = index.queue("orders", 0)
    index.write(queue, 0, UNIT.pack(0, 100, 0))

    def read() -> None:
        if disk.exists(path_of(queue.folder, 0, 4)):
            with files.borrow(path_of(queue.folder, 0, 4)):
                pass

    disk.look = read
    index.raise_minimum(queue, 1)
    disk.look = None
    index.write(queue, 1, UNIT.pack(100, 100, 0))

    assert machine.files()[path_of(queue.folder, 1, 4)][UNIT_BYTES : 2 * UNIT_BYTES] == UNIT.pack(100, 100, 0)


def test_a_segment_that_is_dropped_while_it_is_read_is_not_kept_open() -> None:
    store, disk = filled_twice(Machine(random.Random(7)))
    files = OpenFiles(disk, 10)
    path = segment_path(0)

    def read() -> None:
        if disk.exists(path):
            with files.borrow(path):
                pass

    disk.look = read
    unlink(disk, files, [path])

    with pytest.raises(FileNotFoundError), files.borrow(path):
        pass
    store.close(clean=False)
