"""What a store on disk is said to hold, with damage, while it is used, and at any size."""

import json
import random
import tracemalloc
from pathlib import Path

import pytest

from dittomq.cli.app import run
from dittomq.commitlog.disk.storage import OsStorage
from dittomq.commitlog.offline.open_store import open_on_disk
from dittomq.commitlog.offline.stats import Measured, measure
from dittomq.commitlog.offline.verify import StoreFault
from dittomq.commitlog.store import AppendBatch, Store, StoreOptions
from tests.support.stores import draft, frame, led

OPTIONS = StoreOptions(segment_bytes=64 * 1024, queue_file_units=500, min_free_bytes=0)


def opened(folder: Path) -> Store:
    return led(OsStorage(folder), OPTIONS, chance=random.Random(1), wall_ms=1_000)


def measured(folder: Path) -> Measured:
    return measure(open_on_disk(OsStorage(folder), "here"))


def test_a_store_is_measured_while_it_is_open_and_nothing_in_it_changes(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.append([frame(b"one", b"two", topic="orders", queue=3), frame(b"three", topic="events")], 5_000)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}

    found = measured(tmp_path)

    assert {topic: {queue: tally.records for queue, tally in queues.items()} for topic, queues in found.topics.items()} == {
        "orders": {3: 2},
        "events": {0: 1},
    }
    assert found.report.whole
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_what_is_damaged_is_named_and_the_rest_is_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = opened(tmp_path)
    placed = [store.append([frame(b"body %d" % number)], number).start for number in range(10)]
    store.dispatch(store.end)
    store.close(clean=True)
    with (tmp_path / "commitlog" / f"{0:020d}").open("r+b") as log:
        log.seek(placed[4] + 88)
        log.write(b"X")
    with (tmp_path / "consumequeue/orders/0" / f"{0:020d}").open("r+b") as queue:
        queue.seek(7 * 20)
        queue.write(bytes(20))

    code = run(["log", "stats", str(tmp_path), "--json"])

    found = json.loads(capsys.readouterr().out)
    assert code == 3
    assert [(each["kind"], each["position"]) for each in found["verified"]["findings"]] == [
        (StoreFault.DAMAGED, placed[4]),
        (StoreFault.QUEUE_GAP, placed[5]),
        (StoreFault.UNIT_MISSING, placed[7]),
    ]
    assert (found["records"], found["oldest_store_ms"], found["newest_store_ms"]) == (9, 0, 9)


def test_a_person_reads_the_verdict_and_a_line_for_each_topic(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = opened(tmp_path)
    store.append([frame(b"body", topic="orders", queue=queue) for queue in range(3)], 1_795_224_456_773)
    end = store.end
    store.dispatch(end)
    store.close(clean=True)

    assert run(["log", "stats", str(tmp_path)]) == 0

    moment = "2026-11-21T01:27:36.773Z"
    assert capsys.readouterr().out.splitlines() == [
        f"dittomq store, 1 × 65,536 bytes of log, 3 queues, {moment} to {moment}",
        f"WHOLE  3 records, bytes 0 to {end}",
        "RECORDS  BYTES  QUEUES  FIRST STORED              LAST STORED               TOPIC",
        f"3        {end}    3       {moment}  {moment}  orders",
    ]


def test_an_empty_store_has_nothing_to_tell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = opened(tmp_path)
    store.append([frame(b"gone")], 1)
    store.truncate(0)
    store.close(clean=True)

    assert run(["log", "stats", str(tmp_path)]) == 0

    assert "0 queues, - to -" in capsys.readouterr().out


@pytest.mark.tier("nightly")
def test_memory_does_not_grow_with_the_log(tmp_path: Path) -> None:
    store = opened(tmp_path)
    peaks = []
    for segments in (4, 24):
        while store.end < segments * OPTIONS.segment_bytes:
            store.append([AppendBatch([draft(body=b"x" * 1_000, queue=number % 5) for number in range(20)])], 1)
        store.dispatch(store.end)
        tracemalloc.start()
        measured(tmp_path)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()

    assert peaks[1] < peaks[0] * 1.2
