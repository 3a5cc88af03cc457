"""How long syncs take: timed by the clock of the node, told by folder."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from dittomq.commitlog.disk.storage import OsStorage
from dittomq.errors import StorageFailure
from services.disk_metrics import SyncMetrics
from tests.support.manual_clock import HandClock


def sums(registry: CollectorRegistry) -> dict[tuple[str, str], float]:
    """Of each folder, how many syncs there were and how many seconds they took."""
    samples = [sample for metric in registry.collect() for sample in metric.samples]
    wanted = {"dittomq_disk_sync_seconds_count": "syncs", "dittomq_disk_sync_seconds_sum": "seconds"}
    return {(sample.labels["folder"], wanted[sample.name]): sample.value for sample in samples if sample.name in wanted}


def test_each_sync_counts_with_its_seconds_where_it_lies_also_one_that_fails() -> None:
    clock, registry = HandClock(), CollectorRegistry()
    metrics = SyncMetrics("/data/a-0", clock, registry)

    for path, seconds in (("commitlog/00", 0.25), ("commitlog", 0.5), ("checkpoint.tmp", 0.125), ("", 1.0)):
        with contextlib.suppress(StorageFailure), metrics.timed(f"/data/a-0/{path}"):
            clock.now_s += seconds
            raise StorageFailure("fdatasync", path, "input/output error")

    expected = {("commitlog", "syncs"): 2, ("commitlog", "seconds"): 0.75, (".", "syncs"): 2, (".", "seconds"): 1.125}
    assert sums(registry) == pytest.approx(expected)


def test_a_disk_times_syncs_of_files_and_folders_and_no_writes(tmp_path: Path) -> None:
    storage, timed = OsStorage(tmp_path), list[str]()

    @contextlib.contextmanager
    def noted(path: str) -> Iterator[None]:
        timed.append(path)
        yield

    storage.under_way.timed = noted
    storage.make_folder("commitlog")
    file = storage.open("commitlog/00", create=True)
    file.pwrite(b"record", 0)
    file.fdatasync()
    file.close()
    storage.sync_folder("commitlog")

    assert timed == [f"{tmp_path}/commitlog/00", f"{tmp_path}/commitlog"]
