import random
from collections.abc import Callable
from pathlib import Path

import pytest

from dittomq.cli.store_items import report_lines
from dittomq.commitlog.disk.storage import OsStorage
from dittomq.commitlog.offline.open_store import StoreOnDisk, items, open_on_disk
from dittomq.commitlog.offline.verify import StoreFault, verify
from dittomq.commitlog.options import StoreOptions
from dittomq.commitlog.queues.index_checkpoint import QueueKey
from dittomq.commitlog.records.columnar_codec import Numbers, RecordColumns
from dittomq.commitlog.records.decoding import Record
from dittomq.commitlog.records.encoding import encode_draft
from dittomq.commitlog.records.format import UNIT, UNIT_BYTES
from dittomq.commitlog.store import Store
from dittomq.errors import StoreOpenFailed
from tests.support.foreign_records import foreign_log, put_log
from tests.support.stores import Machine, draft, frame, led

SEGMENT_0 = f"commitlog/{0:020d}"
QUEUE_0 = f"consumequeue/orders/0/{0:020d}"


@pytest.fixture
def machine() -> Machine:
    return Machine(random.Random(7), StoreOptions(segment_bytes=16 * 1024, queue_file_units=500, min_free_bytes=0))


@pytest.fixture
def store(machine: Machine) -> Store:
    opened = machine.lead()
    for at in range(100):
        opened.append([frame(b"x" * 300, queue=at % 2)], at)
    opened.dispatch(opened.end)
    return opened


def on_disk(machine: Machine, store: Store) -> StoreOnDisk:
    """Look at the store of a process that is gone."""
    store.close(clean=False)
    return open_on_disk(machine.storage(), "here")


def put(machine: Machine, path: str, data: bytes, at: int) -> None:
    machine.disk.names.files[path].write(memoryview(data), at, machine.chance)


def test_a_whole_store_is_whole(machine: Machine, store: Store) -> None:
    end = store.end

    report = verify(on_disk(machine, store))

    assert report.whole, report.findings
    assert (report.records, report.end, report.undispatched) == (100, end, 0)


def test_reading_changes_nothing_and_asks_for_no_lock(machine: Machine, store: Store) -> None:
    seen = open_on_disk(machine.storage(), "here")
    machine.faults.operations_to_live = None
    before = dict(machine.disk.names.files)

    assert verify(seen).whole
    assert machine.disk.names.files == before


def test_every_kind_of_damage_is_named_where_it_is(machine: Machine, store: Store) -> None:
    size = int.from_bytes(store.read(0, 4), "big")
    put(machine, SEGMENT_0, b"\xee", 5 * size + 100)
    put(machine, SEGMENT_0, b"\xda\xa3\x20\xff", 7 * size + 4)
    put(machine, SEGMENT_0, b"\x00" * 8, 9 * size)

    report = verify(on_disk(machine, store))

    kinds = {(finding.kind, finding.position) for finding in report.findings if finding.kind is not StoreFault.QUEUE_GAP}
    assert kinds == {(StoreFault.DAMAGED, 5 * size), (StoreFault.UNSUPPORTED, 7 * size), (StoreFault.DAMAGED, 9 * size)}
    assert report.records == 97


def test_units_that_differ_are_missing_or_lead_nowhere_are_named(machine: Machine, store: Store) -> None:
    put(machine, QUEUE_0, b"\x01", 3 * 20 + 7)
    put(machine, QUEUE_0, bytes(20), 6 * 20)
    put(machine, QUEUE_0, b"\x07" * 20, 50 * 20)

    report = verify(on_disk(machine, store))

    assert [(finding.kind, finding.queue_offset) for finding in report.findings] == [
        (StoreFault.UNIT_DIFFERS, 3),
        (StoreFault.UNIT_MISSING, 6),
        (StoreFault.UNIT_SURPLUS, 50),
    ]


def test_a_unit_far_behind_the_end_of_its_queue_is_surplus(machine: Machine, store: Store) -> None:
    put(machine, QUEUE_0, UNIT.pack(300, 200, 0), 400 * 20)

    report = verify(on_disk(machine, store))

    assert [(finding.kind, finding.queue, finding.queue_offset) for finding in report.findings] == [(StoreFault.UNIT_SURPLUS, 0, 400)]


def test_a_queue_that_the_log_does_not_name_is_surplus(machine: Machine, store: Store) -> None:
    seen = on_disk(machine, store)
    for queue, content in ((8, UNIT.pack(300, 200, 0)), (9, b"")):  # the second one is preallocated, as RocketMQ does
        seen.storage.make_folder(f"consumequeue/orders/{queue}")
        file = seen.storage.open(f"consumequeue/orders/{queue}/{0:020d}", create=True)
        file.truncate(500 * 20)
        file.pwrite(content, 3 * 20)

    report = verify(seen)

    assert [(finding.kind, finding.queue, finding.queue_offset) for finding in report.findings] == [(StoreFault.UNIT_SURPLUS, 8, 3)]


def lose_queues(seen: StoreOnDisk) -> None:
    """The queue files go, as by a hand."""
    for queue in (0, 1):
        seen.storage.unlink(f"consumequeue/orders/{queue}/{0:020d}")


def test_queue_without_files_is_missing_up_to_the_checkpoint(machine: Machine, store: Store) -> None:
    store.checkpoint()
    store.append([frame(b"x" * 300)], 100)
    store.dispatch(store.end)
    seen = on_disk(machine, store)
    lose_queues(seen)

    report = verify(seen)

    assert not report.whole
    assert (report.counts, report.without_queue) == ({StoreFault.UNIT_MISSING: 100}, 1)
    assert report.findings[0].problem == "its queue has no file"
    assert "1 of queues without a file: deleted, or not built yet" in report_lines(report)[0]


def test_queues_that_a_start_builds_again_are_no_fault(machine: Machine, store: Store) -> None:
    seen = on_disk(machine, store)
    lose_queues(seen)

    report = verify(seen)

    assert (report.whole, report.without_queue) == (True, 100)


def test_records_that_may_not_be_read_yet_are_no_fault(machine: Machine, store: Store) -> None:
    store.append([frame(b"unconfirmed", b"too")], 1)

    report = verify(on_disk(machine, store))

    assert report.whole
    assert report.undispatched == 2


def test_what_a_deleted_topic_held_is_no_fault(machine: Machine, store: Store) -> None:
    store.hide(store.next_offsets("orders"))
    store.append([frame(b"new")], 1)
    store.dispatch(store.end)

    report = verify(on_disk(machine, store))

    assert report.whole, report.findings
    assert report.hidden == 100


def test_a_queue_offset_that_is_left_out_is_a_gap(machine: Machine, store: Store) -> None:
    end = store.end
    put(machine, f"commitlog/{store.segment_of(end)[0]:020d}", encode_draft(draft(), 52, end, 99, host=machine.options.host), end % 16_384)

    report = verify(on_disk(machine, store))

    assert [(finding.kind, finding.position) for finding in report.findings] == [(StoreFault.QUEUE_GAP, end)]


def test_a_torn_end_is_told_and_is_no_damage(machine: Machine, store: Store) -> None:
    end = store.end
    torn = encode_draft(draft(body=b"y" * 500), 50, end, 99, host=machine.options.host)[:400]
    put(machine, f"commitlog/{store.segment_of(end)[0]:020d}", torn, end % 16_384)

    report = verify(on_disk(machine, store))

    assert (report.counts, report.end, report.whole) == ({StoreFault.TORN_END: 1}, end, True)


def test_a_folder_without_a_log_is_refused(machine: Machine) -> None:
    with pytest.raises(StoreOpenFailed, match="name the folder that holds commitlog/"):
        open_on_disk(machine.storage(), "here")


class Meanwhile:
    """Lets something happen once, after so many records were heard of."""

    def __init__(self, after: int, happens: Callable[[], object]) -> None:
        self._left = after
        self._happens = happens

    def record(self, _record: Record) -> None:
        self._count(1)

    def records(self, _key: QueueKey, _columns: RecordColumns, rows: Numbers) -> None:
        self._count(len(rows))

    def _count(self, more: int) -> None:
        before, self._left = self._left, self._left - more
        if before > 0 >= self._left:
            self._happens()


@pytest.fixture
def open_store(tmp_path: Path) -> Store:
    return led(OsStorage(tmp_path), StoreOptions(segment_bytes=1024 * 1024, min_free_bytes=0), chance=random.Random(1), wall_ms=1)


@pytest.mark.parametrize("one_by_one", [True, False])
def test_records_appended_after_the_end_was_read_are_no_surplus(open_store: Store, tmp_path: Path, one_by_one: bool) -> None:
    open_store.append([frame(b"read") for _ in range(256)], 1)
    open_store.dispatch(open_store.end)

    def append() -> None:
        open_store.append([frame(b"x" * 1_000) for _ in range(20)], 2)
        open_store.dispatch(open_store.end)

    report = verify(open_on_disk(OsStorage(tmp_path), "here"), None, Meanwhile(256, append), one_by_one=one_by_one)

    assert report.whole, report.findings
    assert report.records == 256


@pytest.mark.parametrize("one_by_one", [True, False])
def test_units_written_while_their_records_are_read_are_not_missing(open_store: Store, tmp_path: Path, one_by_one: bool) -> None:
    first = open_store.append([frame(b"x" * 100)], 1)
    open_store.dispatch(first.end)
    open_store.append([frame(b"x" * 100) for _ in range(600)], 1)

    def dispatch() -> None:
        open_store.dispatch(open_store.end)

    report = verify(open_on_disk(OsStorage(tmp_path), "here"), None, Meanwhile(3, dispatch), one_by_one=one_by_one)

    assert report.whole, report.findings
    assert report.records == 601


def test_unit_of_a_message_that_never_came_is_surplus(open_store: Store, tmp_path: Path) -> None:
    """It points behind the end."""
    open_store.append([frame(b"read")], 1)
    open_store.dispatch(open_store.end)
    with (tmp_path / QUEUE_0).open("r+b") as file:
        file.seek(UNIT_BYTES)
        file.write(UNIT.pack(open_store.end, 200, 0))

    report = verify(open_on_disk(OsStorage(tmp_path), "here"))

    assert report.counts == {StoreFault.UNIT_SURPLUS: 1}


def test_segment_dropped_while_the_log_is_read_ends_the_reading(machine: Machine, store: Store) -> None:
    """With one sentence."""
    seen = open_on_disk(machine.storage(), "here")
    del machine.disk.names.files[f"commitlog/{seen.starts[-1]:020d}"]

    with pytest.raises(StoreOpenFailed, match="was dropped while the log was read; read it again"):
        verify(seen)


@pytest.mark.parametrize("one_by_one", [True, False])
@pytest.mark.parametrize("name", [b"or\0ers", b"../orders", b"..", b".", b"", b"or\xffers"])
def test_record_of_a_topic_that_names_no_folder_is_damage(machine: Machine, name: bytes, one_by_one: bool) -> None:
    """As it is for a node."""
    queue, size = -1 if name == b"." else 0, machine.options.segment_bytes
    log = foreign_log([*[draft(f"t{at}") for at in range(20)], draft("~" * len(name), queue), draft()], 0, size)
    put_log(machine, log.replace(b"~" * len(name), name) if name else log, 0)
    seen = open_on_disk(machine.storage(), "here")

    report = verify(seen, one_by_one=one_by_one)
    [found] = [item for item in items(seen) if item.problem]
    store = machine.open()

    assert [(each.kind, each.problem) for each in report.findings] == [(StoreFault.DAMAGED, f"it names topic {name!r}, queue {queue}")]
    assert (report.records, report.without_queue, report.whole) == (21, 21, False)
    assert (found.problem, found.record is None) == (report.findings[0].problem, False)
    assert [*store.damaged] == [(found.start, found.end)] == [(report.findings[0].position, found.end)]
