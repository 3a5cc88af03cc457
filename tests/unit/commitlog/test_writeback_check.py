"""Pages that a failed sync marked clean and that the kernel drops: before a start looks at them, or while it does."""

import random
from itertools import count

import pytest

from dittomq.commitlog.store import StopKind, Store
from dittomq.errors import StorageFailure
from tests.simulation.disk import PAGE
from tests.support.intercepted_reads import hearing
from tests.support.stores import SMALL, Machine, dies, frame, whole_log


class Forgetting:
    """Forgets what a failed sync marked clean right before the log is read for the n-th time."""

    def __init__(self, machine: Machine, reads: int) -> None:
        self._machine = machine
        self._reads = reads
        self.forgot = False

    def hear(self, path: str, _: int, __: int) -> None:
        self._reads -= path.startswith("commitlog/")
        if self._reads == 0 and not self.forgot:
            self._machine.disk.drop_cache(all_unsynced=True)
            self.forgot = True


def failed(machine: Machine, records: int = 12) -> Store:
    """A store in use whose last records are written and whose last sync failed; the disk did not even take the mark of that."""
    store = machine.lead()
    store.append([frame(b"flushed" * 100)], 1_000)
    store.sync()
    store.persist_recovery_point(store.flushed, store.flushed)
    for at in range(records):
        store.append([frame(b"%02d" % at * 500)], 1_000)  # all in the first segment
    machine.faults.failing_syncs = 1
    with pytest.raises(StorageFailure):
        store.sync()
    return store


def test_recovered_log_is_on_the_disk_though_pages_drop_while_it_reads() -> None:
    reads, forgot = 0, True
    lengths: set[int] = set()
    while forgot:
        reads += 1
        machine = Machine(random.Random(reads))
        written = whole_log(failed(machine))
        door = Forgetting(machine, reads)
        store = Store.open(hearing(machine.storage(), door.hear), SMALL, chance=random.Random(1), wall_ms=0)
        forgot, log = door.forgot, whole_log(store)
        store.dispatch(store.end)
        messages = store.queue_range("orders", 0)
        machine.lose_power(all_unsynced=True)

        again = machine.open()
        again.dispatch(again.end)
        assert whole_log(again) == log == written[: len(log)], f"dropped before read {reads}"
        assert again.queue_range("orders", 0) == messages
        lengths.add(len(log))

    assert len(lengths) > 1, "nothing was ever dropped that mattered"


@pytest.mark.parametrize("seed", range(40))
def test_kill_is_not_reported_where_several_records_begin_behind_the_end(seed: int) -> None:
    machine = Machine(random.Random(seed))
    written = whole_log(failed(machine))
    machine.kill()
    left = len(logged(machine).rstrip(b"\0"))

    store = machine.open()

    beyond = left - store.end
    torn = int.from_bytes(written[store.end : store.end + 4], "big")
    assert store.stopped is (StopKind.KILLED if beyond < max(torn, 1) else StopKind.FAILED_SYNC)


@pytest.mark.tier("test")
def test_failed_sync_seen_by_its_traces_makes_a_stranger() -> None:
    """Wherever the next starts die."""
    for operations in count():
        machine = Machine(random.Random(0))
        before = failed(machine).replica
        punch(machine)
        storage = machine.storage()
        machine.faults.operations_to_live = operations
        done = dies(lambda storage=storage: Store.open(storage, SMALL, chance=random.Random(1), wall_ms=0))  # type: ignore[misc]
        machine.kill()

        assert machine.open().replica != before, f"dead after {operations} operations"
        if done:
            break
    assert operations > 10


def test_tail_that_is_dropped_whole_looks_like_an_earlier_kill() -> None:
    """No disk can tell."""
    machine = Machine(random.Random(0))
    failed(machine, records=5)
    machine.kill(all_unsynced=True)
    dropped = logged(machine)
    other = Machine(random.Random(0))
    killed = other.lead()
    killed.append([frame(b"flushed" * 100)], 1_000)
    killed.sync()
    killed.persist_recovery_point(killed.flushed, killed.flushed)
    other.kill()

    assert dropped == logged(other)
    assert machine.open().stopped is other.open().stopped is StopKind.KILLED


def logged(machine: Machine) -> bytes:
    """The first segment, as the next process will see it."""
    return machine.files()[f"commitlog/{0:020d}"]


def punch(machine: Machine) -> None:
    """Drop the first page of which the disk has nothing; those behind it stay."""
    inode = machine.disk.names.files[f"commitlog/{0:020d}"]
    first = min(number for number in inode.lost if number > 0)
    inode.write(memoryview(inode.lost[first]), first * PAGE, machine.chance)
