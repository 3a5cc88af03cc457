"""Many records proven at once, or judged one by one: the same report, word for word, whatever the store went through."""

import random
from pathlib import Path

import pytest

from dittomq.commitlog import expecting, inspect, proving
from dittomq.commitlog.storage import OsStorage
from dittomq.commitlog.store import Store
from dittomq.errors import Refused
from tests.support.stores import frame, open_epoch
from tests.support.worn_stores import OPTIONS, damage, filled, put, verified_alike

SEEDS = range(40)


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that stores of a few hundred records have as many borders as large ones."""
    monkeypatch.setattr(inspect, "_WINDOW_BYTES", 40 * 1024)
    monkeypatch.setattr(proving, "_BLOCK_BYTES", 9 * 1024)
    monkeypatch.setattr(proving, "_LEAST_ROWS", 2)
    monkeypatch.setattr(expecting, "_STRIDE_BYTES", 20 * 1024)
    monkeypatch.setattr(expecting, "_READ_UNITS", (4, 8))


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


@pytest.mark.usefixtures("small_steps")
def test_each_byte_of_a_record_counts(tmp_path: Path) -> None:
    store = Store.open(OsStorage(tmp_path), OPTIONS, chance=random.Random(1), wall_ms=1_000)
    open_epoch(store)
    placed = store.append([frame(*[b"body %d" % at for at in range(40)])], 1).placed[0]
    assert not isinstance(placed, Refused)
    store.dispatch(store.end)
    store.close(clean=True)
    assert verified_alike(tmp_path)[1].at_once > 30
    log = min((tmp_path / "commitlog").iterdir())
    place = placed[17]

    for at in range(place.physical_offset, place.physical_offset + place.size):
        whole = log.read_bytes()[at]
        put(log, bytes((whole ^ 1,)), at)

        assert verified_alike(tmp_path)[0].counts, at

        put(log, bytes((whole,)), at)
