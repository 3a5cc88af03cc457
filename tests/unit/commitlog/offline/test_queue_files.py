"""What `dittomq log verify` says of queue files that cannot be opened, and of those that a running broker removes meanwhile."""

import errno
import random
from collections.abc import Callable, Collection

import pytest

from dittomq.commitlog.disk.segment import path_of
from dittomq.commitlog.disk.storage import File
from dittomq.commitlog.offline.open_store import StoreOnDisk, open_on_disk
from dittomq.commitlog.offline.queue_files import QueueFiles
from dittomq.commitlog.offline.verify import Report, StoreFault, verify
from dittomq.commitlog.records.format import UNIT_BYTES
from tests.support.stores import SMALL, Machine, frame

MESSAGES = 190
PER_FILE = SMALL.queue_file_units
FILES = [f"consumequeue/orders/0/{at * UNIT_BYTES:020d}" for at in range(0, MESSAGES, PER_FILE)]
OTHER = f"consumequeue/other/0/{0:020d}"


class Door:
    """A look at a store some of whose files cannot be opened; before one is opened for the nth time, something happens."""

    def __init__(self, machine: Machine, closed: Collection[str], happens: dict[tuple[str, int], Callable[[], None]]) -> None:
        self._storage = machine.beside()
        self._closed = closed
        self._happens = happens
        self._opened: dict[str, int] = {}

    def __getattr__(self, name: str) -> object:
        return getattr(self._storage, name)

    def open(self, path: str, *, create: bool = False, readonly: bool = False) -> File:
        if path in self._closed:
            raise OSError(errno.EACCES, "Permission denied")
        times = self._opened[path] = self._opened.get(path, 0) + 1
        self._happens.get((path, times), lambda: None)()
        return self._storage.open(path, create=create, readonly=readonly)


@pytest.fixture
def machine() -> Machine:
    """A store whose first segment holds more messages of a queue than two files of the queue."""
    machine = Machine(random.Random(5))
    store = machine.lead()
    for at in range(MESSAGES):
        store.append([frame(b"x" * 100), frame(b"y", topic="other")][: 1 + (at == 0)], at)
    store.sync()
    store.persist_recovery_point(store.end, store.end)
    store.dispatch(store.end)
    assert store.read_queue("orders", 0, 2 * PER_FILE, 1, 1_000).messages[0].physical_offset < SMALL.segment_bytes
    store.close(clean=True)
    return machine


def seen(machine: Machine, closed: Collection[str] = (), happens: dict[tuple[str, int], Callable[[], None]] | None = None) -> StoreOnDisk:
    return open_on_disk(Door(machine, closed, happens or {}), "here")  # type: ignore[arg-type]


def told(report: Report) -> dict[str, int]:
    """Kinds of findings and how many, after a look at what all of them say."""
    assert all("cannot be opened: Permission denied" in each.problem for each in report.findings)
    assert report.records == MESSAGES + 1
    assert not report.whole
    return {str(kind): count for kind, count in report.counts.items()}


@pytest.mark.parametrize("one_by_one", [True, False])
@pytest.mark.parametrize(
    ("closed", "missing", "unreadable"),
    [(FILES, MESSAGES, 1), (FILES[:1], PER_FILE, 0), (FILES[1:2], PER_FILE, 0), (FILES[-1:], MESSAGES % PER_FILE, 1), ([OTHER], 1, 1)],
    ids=["all", "the first", "another", "the last", "the only one"],
)
def test_units_of_an_unopenable_file_are_missing_and_others_verified(
    machine: Machine, closed: list[str], missing: int, unreadable: int, *, one_by_one: bool
) -> None:
    report = verify(seen(machine, closed), one_by_one=one_by_one)

    assert told(report) == {str(StoreFault.UNIT_MISSING): missing} | ({str(StoreFault.UNIT_UNREADABLE): unreadable} if unreadable else {})


def test_units_behind_a_queues_end_in_such_a_file_are_named(machine: Machine) -> None:
    report = verify(seen(machine, FILES[-1:]))

    (found,) = (each for each in report.findings if each.kind is StoreFault.UNIT_UNREADABLE)
    assert found.queue_offset == MESSAGES
    assert f"units {MESSAGES:,} to {len(FILES) * PER_FILE - 1:,} behind" in found.problem
    assert FILES[-1] in found.problem


@pytest.mark.parametrize("times", [1, 2], ids=["to learn its size", "to read it"])
@pytest.mark.parametrize("one_by_one", [True, False])
def test_records_dropped_between_two_looks_are_neither_missing_nor_errors(machine: Machine, times: int, one_by_one: bool) -> None:
    def drop() -> None:
        for path in (path_of(0), *FILES[:2]):
            machine.beside().unlink(path)

    report = verify(seen(machine, happens={(FILES[0], times): drop}), one_by_one=one_by_one)

    assert report.whole, report.findings


def test_files_that_go_while_those_behind_a_queues_end_are_read_are_passed_over(machine: Machine) -> None:
    units = QueueFiles(seen(machine, happens={(FILES[1], 1): lambda: machine.beside().unlink(FILES[1])}))

    offsets = [offset for offset, _ in units.behind(("orders", 0), 0)]

    assert offsets == [*range(PER_FILE), *range(2 * PER_FILE, MESSAGES)]
