"""Many records proven at once, or judged one by one: the same report, word for word, whatever the store went through."""

import random
from pathlib import Path

import pytest

from dittomq.commitlog.disk.storage import OsStorage
from dittomq.commitlog.offline import bulk_verify, expected_units, open_store
from dittomq.commitlog.offline.verify import StoreFault
from dittomq.commitlog.records.encoding import encode_draft
from dittomq.commitlog.records.format import UNIT_BYTES
from dittomq.commitlog.store import Store
from dittomq.places import AppendResult
from tests.support.corrupt_stores import HOST, OPTIONS, damage, filled, put, records_of, verified_alike
from tests.support.foreign_records import foreign_log
from tests.support.stores import draft, frame, led, places

SEEDS = range(40)


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that stores of a few hundred records have as many borders as large ones."""
    monkeypatch.setattr(open_store, "_WINDOW_BYTES", 40 * 1024)
    monkeypatch.setattr(bulk_verify, "_BLOCK_BYTES", 9 * 1024)
    monkeypatch.setattr(bulk_verify, "_LEAST_ROWS", 2)
    monkeypatch.setattr(expected_units, "_STRIDE_BYTES", 20 * 1024)
    monkeypatch.setattr(expected_units, "_READ_UNITS", (4, 8))


@pytest.mark.tier("test")
@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("seed", SEEDS)
def test_a_damaged_store_is_reported_alike_at_once_and_one_by_one(seed: int, tmp_path: Path) -> None:
    print(f"seed {seed}")
    chance = random.Random(seed)
    filled(chance, tmp_path).close(clean=chance.random() < 0.5)
    if chance.random() < 0.2:
        min((tmp_path / "commitlog").iterdir()).unlink()
    if not any((tmp_path / "commitlog").iterdir()):
        return

    print(damage(chance, tmp_path))

    verified_alike(tmp_path)


def one_queue(folder: Path, records: int) -> list[AppendResult]:
    """A store with that many records in queue 0 of `orders`, and where they lie."""
    store = led(OsStorage(folder), OPTIONS, chance=random.Random(1), wall_ms=1_000)
    placed = store.append([frame(*[b"body %d" % at for at in range(records)])], 1).placed[0]
    store.dispatch(store.end)
    store.close(clean=True)
    return places(placed)


def segment_of(folder: Path) -> Path:
    return folder / "commitlog" / f"{0:020d}"


@pytest.mark.tier("test")
@pytest.mark.usefixtures("small_steps")
def test_each_byte_of_a_record_counts(tmp_path: Path) -> None:
    place = one_queue(tmp_path, 40)[17]
    assert verified_alike(tmp_path)[1].at_once > 30
    log = segment_of(tmp_path)

    for at in range(place.physical_offset, place.physical_offset + place.size):
        whole = log.read_bytes()[at]
        put(log, bytes((whole ^ 1,)), at)

        assert verified_alike(tmp_path)[0].counts, at

        put(log, bytes((whole,)), at)


@pytest.mark.tier("test")
@pytest.mark.usefixtures("small_steps")
def test_each_unit_of_a_queue_counts(tmp_path: Path) -> None:
    one_queue(tmp_path, 120)

    for path in sorted(tmp_path.glob("consumequeue/orders/0/*")):
        data = path.read_bytes()
        for at in range(0, len(data.rstrip(b"\0")), UNIT_BYTES):
            put(path, bytes(UNIT_BYTES), at)

            report, _ = verified_alike(tmp_path)
            assert report.undispatched or report.counts == {StoreFault.UNIT_MISSING: 1}, at

            put(path, data[at : at + UNIT_BYTES], at)


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize(("topic", "queue", "offset"), [("ORDERS", 0, 17), ("orders", 1, 17), ("orders", 0, 16), ("order", 0, 17)])
def test_a_whole_record_of_another_queue_in_the_place_of_one_counts(tmp_path: Path, topic: str, queue: int, offset: int) -> None:
    place = one_queue(tmp_path, 40)[17]
    body = b"body 17".ljust(7 + len("orders") - len(topic), b"!")

    put(segment_of(tmp_path), encode_draft(draft(topic, queue, body), offset, place.physical_offset, 1, host=HOST), place.physical_offset)

    assert StoreFault.QUEUE_GAP in verified_alike(tmp_path)[0].counts


@pytest.mark.tier("test")
@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize(("row", "change"), [(17, 0x00), (17, 0x04), (40, 0x01)])
def test_each_byte_of_a_record_counts_alike_where_another_hand_wrote_before_us(tmp_path: Path, row: int, change: int) -> None:
    """Row 40 is the first that is ours, 17 one of RocketMQ's; `change` 0 zeroes the byte."""
    data = foreign_log([draft(body=b"body %d" % at, tag="tag") for at in range(40)], 0, OPTIONS.segment_bytes)
    segment_of(tmp_path).parent.mkdir()
    segment_of(tmp_path).write_bytes(data.ljust(OPTIONS.segment_bytes, b"\0"))
    store = led(OsStorage(tmp_path), OPTIONS, chance=random.Random(1), wall_ms=1_000)
    store.append([frame(*[b"body %d" % at for at in range(40)])], 1)
    store.dispatch(store.end)
    store.close(clean=True)
    assert verified_alike(tmp_path)[1].at_once > 70
    record = records_of(tmp_path)[row]

    for at in range(record.physical_offset, record.physical_offset + record.size):
        whole = segment_of(tmp_path).read_bytes()[at]
        put(segment_of(tmp_path), bytes((whole ^ change if change else 0,)), at)

        verified_alike(tmp_path)

        put(segment_of(tmp_path), bytes((whole,)), at)


@pytest.mark.usefixtures("small_steps")
def test_records_of_another_hand_without_any_property_are_verified_like_others(tmp_path: Path) -> None:
    data = foreign_log([draft(body=b"body %d" % at) for at in range(40)], 0, OPTIONS.segment_bytes)
    segment_of(tmp_path).parent.mkdir()
    segment_of(tmp_path).write_bytes(data.ljust(OPTIONS.segment_bytes, b"\0"))
    store = Store.open(OsStorage(tmp_path), OPTIONS, chance=random.Random(1), wall_ms=1_000)
    store.dispatch(store.end)
    store.close(clean=True)

    report, seen = verified_alike(tmp_path)

    assert (report.records, report.counts) == (40, {})
    assert seen.at_once > 30
