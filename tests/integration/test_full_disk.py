"""A disk that runs full under a real process: a small tmpfs as the data directory of one node."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from dittomq.client import NotStored, PutStatus
from dittomq.errors import DiskFull
from tests.support.event_log import wrong_copies, wrong_reads
from tests.support.mounts import small_tmpfs
from tests.support.real_group import MASTER, TOPIC, RealGroup, real_group, shape
from tests.support.traffic import Publishing, messages, nothing_is_lost, read_all
from tests.support.waiting import PATIENCE_S, eventually

MIN_FREE_BYTES = 8 * 1024 * 1024
DISK_BYTES = 32 * 1024 * 1024


@pytest.fixture
def full_disk_of(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RealGroup]:
    """A group of which the node that the test names has a small disk."""
    small = {"store.min_free_bytes": MIN_FREE_BYTES}
    with (
        small_tmpfs(tmp_path / "cluster" / request.param.replace("/", "-"), DISK_BYTES),
        real_group(tmp_path, shape(master=small, slave=small)) as group,
    ):
        yield group


def filler(group: RealGroup, name: str) -> Path:
    """A file that somebody else puts on the disk: it leaves less than the reserve."""
    path = group.cluster.data_dir(name) / "filler"
    stat = os.statvfs(path.parent)
    path.write_bytes(bytes(stat.f_bavail * stat.f_frsize - MIN_FREE_BYTES // 2))
    return path


@pytest.mark.parametrize("full_disk_of", [MASTER], indirect=True)
def test_full_disk_refuses_writes_before_they_happen_and_serves_reads(full_disk_of: RealGroup) -> None:
    """Writes resume by themselves."""
    group = full_disk_of
    with group.mq.producer(retry_s=0.5) as producer, group.mq.producer(timeout_s=PATIENCE_S) as patient:
        publishing = Publishing(patient)
        publishing.publish(messages(0, 1_000, size=100))
        end = group.wait_equal()
        foreign = filler(group, MASTER)

        with pytest.raises(NotStored) as refused:
            producer.publish(TOPIC, b"too much", queue=0)

        assert isinstance(refused.value.cause, DiskFull)
        assert "writes resume by themselves" in str(refused.value.cause)
        assert group.status().end == end
        assert list(wrong_reads(publishing.told, read_all(group.mq, MASTER)))[:3] == []

        foreign.unlink()
        assert len(publishing.publish(messages(1_000, 1_000, size=100))) == 1_000

    nothing_is_lost(group, publishing.told)
    assert group.cluster.is_alive(MASTER)


@pytest.mark.parametrize("full_disk_of", ["a/1"], indirect=True)
def test_a_slave_whose_disk_is_full_stops_copying_serves_what_it_has_and_catches_up(full_disk_of: RealGroup) -> None:
    group = full_disk_of
    with group.mq.producer(timeout_s=PATIENCE_S) as producer:
        publishing = Publishing(producer)
        publishing.publish(messages(0, 1_000, size=100))
        before = group.wait_equal()
        foreign = filler(group, "a/1")

        receipts = publishing.publish(messages(1_000, 1_000, size=100))

        assert {receipt.status for receipt in receipts} == {PutStatus.PUT_OK}
        assert {tuple(copy.node for copy in receipt.copies) for receipt in receipts} == {("a/0", "a/2")}
        eventually(lambda: "the disk of a/1 has" in group.status("a/1").nodes[0].last_drop_reason, "a/1 says that its disk is full")
        assert group.status("a/1").end == before
        assert len(read_all(group.mq, "a/1")[0]) == 250

        foreign.unlink()
        end = group.wait_equal()

    assert list(wrong_reads(publishing.told, read_all(group.mq, "a/1")))[:3] == []
    assert list(wrong_copies(group.logs(), end)) == []
    assert group.cluster.is_alive("a/1")
