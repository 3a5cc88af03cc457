"""Stores of running RocketMQ brokers, as they are and damaged: the same report at once and record by record."""

import random
import shutil
from pathlib import Path

import pytest

from dittomq.commitlog.offline import bulk_verify
from tests.support.corrupt_stores import damage, verified_alike
from tests.vectors.conftest import Vector

pytestmark = pytest.mark.tier("nightly")


def test_a_store_of_rocketmq_is_reported_alike_at_once_and_one_by_one(vector: Vector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_verify, "_BLOCK_BYTES", 64 * 1024)

    report, heard = verified_alike(vector.folder)

    assert report.records > 0
    assert heard.at_once > report.records / 2 or vector.name.startswith(("ipv6", "queues"))


@pytest.mark.parametrize("seed", range(3))
def test_a_damaged_store_of_rocketmq_is_reported_alike(vector: Vector, seed: int, tmp_path: Path) -> None:
    print(f"seed {seed}")
    folder = shutil.copytree(vector.folder, tmp_path / "store", ignore=shutil.ignore_patterns("index"))

    print(damage(random.Random(seed), folder))

    verified_alike(folder)
