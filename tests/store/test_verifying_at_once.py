"""Many records proven at once, or judged one by one: the same report, word for word, whatever the store went through."""

import random
from pathlib import Path

import pytest

from dittomq.commitlog import expecting, inspect, proving
from tests.support.worn_stores import damage, filled, verified_alike

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
