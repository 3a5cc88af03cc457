"""A slave dies at a call that changes its disk, one after the other; a master dies when a message is on its disk and on no other."""

import shutil
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.harming import harming, preloading
from tests.support.real_group import MASTER, RealGroup, real_group, shape
from tests.support.told import Fate, wrong_copies, wrong_reads
from tests.support.traffic import Publishing, messages, read_all

SOME = 500
MANY = 30_000
ACK_TIMEOUT_MS = 20_000


class Point(NamedTuple):
    """The n-th of these calls in that folder of a slave's store."""

    folder: str
    call: str
    nth: int


POINTS = [
    Point("commitlog", "pwrite", 3),
    Point("commitlog", "fdatasync", 2),
    Point("commitlog", "rename", 1),
    Point("consumequeue", "pwrite", 2),
    Point("dittomq", "pwrite", 1),
    Point("dittomq", "ftruncate", 2),
    Point("dittomq", "fdatasync", 3),
]


@pytest.fixture
def group(tmp_path: Path) -> Iterator[RealGroup]:
    with real_group(tmp_path, shape(master={"replication.ack_timeout_ms": ACK_TIMEOUT_MS})) as running:
        yield running


def bytes_of(group: RealGroup, name: str) -> bytes:
    """The node's log with what lies behind it."""
    return b"".join(path.read_bytes() for path in sorted((group.cluster.data_dir(name) / "commitlog").iterdir()))


def test_a_slave_killed_at_any_kind_of_call_holds_a_prefix_and_goes_on_from_there(group: RealGroup, shim: Path, tmp_path: Path) -> None:
    cluster, root = group.cluster, group.cluster.data_dir("a/1")
    cluster.stop_node("a/1")
    with group.mq.producer() as producer:
        publishing = Publishing(producer)
        for number, point in enumerate(POINTS):
            switch = tmp_path / f"{number}"
            harm = harming(root / point.folder, when=switch, calls=point.call, nth=point.nth, kind="torn")
            with preloading(shim, harm):
                cluster.start_node("a/1")
            cluster.wait_in_sync()
            switch.touch()
            while cluster.is_alive("a/1"):
                first = len(publishing.told.outcomes)
                assert first < MANY, f"{point} never came"
                publishing.publish(messages(first, SOME, size=200))
            assert group.exit_status("a/1") == signal.SIGKILL, point
            assert bytes_of(group, MASTER).startswith(group.parsed_log("a/1").content), point
        assert (group.status().degraded_bytes, publishing.refusals) == (0, [])

    cluster.start_node("a/1")
    cluster.wait_in_sync()
    end = group.wait_equal()
    for name in group.copies:
        assert list(wrong_reads(publishing.told, read_all(group.mq, name)))[:3] == []
    assert list(wrong_copies(group.logs(), end)) == []


def test_what_only_a_dead_masters_disk_had_is_not_stored_after_a_failover_and_is_cut_when_that_disk_is_back(
    group: RealGroup, tmp_path: Path
) -> None:
    cluster, old_disk = group.cluster, tmp_path / "old-disk"
    with group.mq.producer(timeout_s=1.0, retry_s=0.5) as producer, ThreadPoolExecutor(1) as thread:
        publishing = Publishing(producer)
        publishing.publish(messages(0, SOME))
        confirmed = group.wait_equal()
        for name in group.slaves:
            cluster.kill(name)
        sent = thread.submit(publishing.publish, messages(SOME, SOME))
        unsent = group.wait_flushed(SOME * 2) - confirmed
        cluster.kill(MASTER)
        assert sent.result() == []
        assert len(publishing.told.bodies(Fate.UNKNOWN)) == SOME

        # The slaves have all that was confirmed, and a new disk takes it from them.
        shutil.move(cluster.data_dir(MASTER), old_disk)
        cluster.kill("nameserver")  # one that comes back empty knows no replica that held the id, so nobody waits for its expiry
        cluster.start()
        cluster.wait_in_sync()
        publishing.settle()
        assert len(publishing.told.bodies(Fate.NOT_STORED)) == SOME
        publishing.publish(messages(2 * SOME, SOME))

    # The old disk comes back under a slave.
    cluster.stop_node("a/1")
    shutil.rmtree(cluster.data_dir("a/1"))
    shutil.move(old_disk, cluster.data_dir("a/1"))
    cluster.start_node("a/1")
    cluster.wait_in_sync()
    [cut] = group.events("a/1", "log_cut")
    [tail] = (cluster.data_dir("a/1") / "dittomq").glob("tail-*")
    assert (cut["to"], cut["end"], tail.stat().st_size) == (confirmed, confirmed + unsent, unsent)
    end = group.wait_equal()
    for name in group.copies:
        assert list(wrong_reads(publishing.told, read_all(group.mq, name)))[:3] == []
    assert list(wrong_copies(group.logs(), end)) == []
