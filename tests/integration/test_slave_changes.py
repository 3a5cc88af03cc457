"""Slaves that are added, go and come back with old disks while writes go on; slaves that are too slow for what retention keeps."""

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from dittomq.client import Ack, PutStatus
from dittomq.errors import OffsetOutOfRange, Unavailable
from tests.support.history import Stream
from tests.support.linked_group import LinkedGroup, linked_group
from tests.support.proxy import Way
from tests.support.real_group import MASTER, QUEUES, TOPIC, RealGroup
from tests.support.waiting import PATIENCE_S, eventually

pytestmark = pytest.mark.tier("nightly")

SOME = 40
FILLING = 10
SEGMENT_BYTES = 64 * 1024
HOLD_BYTES = 256 * 1024
MIB = 1024 * 1024
SMALL = {"store.segment_bytes": SEGMENT_BYTES}
DROPS: dict[str, str | int] = {**SMALL, "retention.max_age_ms": 1, "retention.check_period_ms": 100}


@pytest.fixture
def trio(tmp_path: Path) -> Iterator[LinkedGroup]:
    with linked_group(tmp_path, 2, master={**SMALL, "replication.in_sync_replicas": 3}, slave=SMALL) as running:
        yield running


def in_sync(group: RealGroup, name: str) -> None:
    eventually(lambda: group.slave_state(name) == "in sync", f"{name} is in sync")


def is_told(stream: Stream, status: PutStatus, *copies: str) -> bool:
    """Whether the newest receipt says so."""
    newest = stream.receipts[-1]
    return (newest.status, {copy.node for copy in newest.copies}) == (status, set(copies))


def check_while_it_fills(trio: LinkedGroup, name: str) -> None:
    """Start a node on an empty disk, with a slow line to its master, and hold receipts against the disks until it has what there was."""
    group, checked, end = trio.group, 0, trio.group.status().end
    trio.link.dribble(4 * 1024, 0.01, Way.BACK)  # 0.4 MB/s
    group.cluster.start_node(name)
    while eventually(lambda: group.status(name), f"{name} answers").end < end:
        trio.history.check_holders()
        checked += 1
        if checked == FILLING:
            trio.link.heal()
    assert checked >= FILLING, "it was full before anybody had looked"


def test_slave_added_again_with_an_old_disk_holds_all_and_counts_once(trio: LinkedGroup, tmp_path: Path) -> None:
    """It was added and removed before."""
    group, cluster, history = trio.group, trio.group.cluster, trio.history
    disk, old = cluster.data_dir("a/2"), tmp_path / "old"
    with group.mq.producer(timeout_s=0.5, on_weak="return") as producer, history.publishing(producer, size=2_000) as stream:
        history.wait_for_more(SOME)
        cluster.stop_node("a/2")
        shutil.copytree(disk, old)
        shutil.rmtree(disk)
        eventually(lambda: is_told(stream, PutStatus.SLAVE_NOT_AVAILABLE, "a/0", "a/1"), "it is missed")

        history.told.lost_with("a/2")
        history.publish(producer, 5 * SOME, size=4_000)
        check_while_it_fills(trio, "a/2")  # a new slave
        in_sync(group, "a/2")
        history.wait_for_more(SOME)
        eventually(lambda: is_told(stream, PutStatus.PUT_OK, *group.copies), "it counts as a copy")
        assert group.status("a/2").min_offset == 0

        cluster.stop_node("a/2")
        shutil.rmtree(disk)
        shutil.move(old, disk)
        history.wait_for_more(SOME)
        cluster.start_node("a/2")  # with what it had long ago
        in_sync(group, "a/2")
        history.wait_for_more(SOME)
        eventually(lambda: is_told(stream, PutStatus.PUT_OK, *group.copies), "it counts as a copy")
    assert [view.node for view in group.status().nodes] == list(group.copies)
    assert group.events("a/2", "log_truncated") == []
    history.check()


def test_slave_is_ready_once_it_has_caught_up_and_then_without_a_master_too(trio: LinkedGroup) -> None:
    group, cluster, history, unready = trio.group, trio.group.cluster, trio.history, 0
    eventually(lambda: group.is_ready("a/2"), "it was in sync, so it is ready")
    cluster.stop_node("a/2")
    with group.mq.producer(timeout_s=0.5, on_weak="return") as producer:
        history.publish(producer, 5 * SOME, size=4_000)
    trio.link.dribble(4 * 1024, 0.01, Way.BACK)  # 0.4 MB/s
    cluster.start_node("a/2")
    is_ready = group.is_ready("a/2")
    while eventually(lambda: group.status("a/2"), "it answers").end < group.status().end:
        assert not is_ready
        unready += 1
        if unready == FILLING:
            trio.link.heal()
        is_ready = group.is_ready("a/2")
    assert unready >= FILLING, "it was full before anybody had looked"
    eventually(lambda: group.is_ready("a/2"), "it is ready")

    cluster.kill(MASTER)
    eventually(lambda: group.status("a/2").waiting_for, "it has no master")
    assert group.is_ready("a/2")


@pytest.fixture
def linked(tmp_path: Path) -> Iterator[LinkedGroup]:
    with linked_group(tmp_path, 1, master={**DROPS, "replication.max_slot_bytes": HOLD_BYTES}, slave=SMALL) as running:
        yield running


def is_in_sync(group: RealGroup, slave: str) -> bool:
    with contextlib.suppress(Unavailable):
        return group.status(slave).min_offset > 0 and group.slave_state(slave) == "in sync"
    return False


def test_slave_slower_than_its_replication_slot_skips_nothing_and_resyncs(linked: LinkedGroup) -> None:
    """It says so."""
    group, link, history, slave = linked.group, linked.link, linked.history, "a/1"
    with history.reading(group.mq, slave), group.mq.producer(timeout_s=0.5, on_weak="return") as producer:
        history.publish(producer, SOME, size=2_000)
        end = group.wait_equal()
        link.hold(*Way)
        eventually(lambda: group.slave_state(slave) == "gone", "the stream has ended")
        with history.publishing(producer, size=2_000):
            eventually(lambda: group.status().min_offset > end, "what the slave lacks is dropped beyond the cap")
        assert group.status().end - group.status().min_offset >= HOLD_BYTES - SEGMENT_BYTES
        assert group.status(slave).end == end
        link.heal()
        eventually(lambda: group.events(slave, "full_resync_ended"), "the slave has copied what there is")
        eventually(lambda: is_in_sync(group, slave), "the slave is back with its copy")
        told = group.events(slave, "full_resync_began")[0]  # told once more when the master's log begins later by then
        assert "this log begins at" in told["reason"]
        assert f"bytes 0 to {end:,}, which the master does not have any more" in told["kept_until_then"]
        history.publish(producer, SOME, size=2_000)
        end = group.wait_equal()
        eventually(lambda: group.status().min_offset > end - 2 * SEGMENT_BYTES, "retention has dropped all that is old")
    assert {event["holder"] for event in group.events("a/0", "retention_overridden")} == {slave}
    history.check_what_retention_left()


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[LinkedGroup]:
    """It may be as silent as in a group of defaults. Segments are large enough for retention to keep pace with producers."""
    patient = {"failover.peer_timeout_ms": 20_000}
    caps = {"replication.max_slot_bytes": 2 * MIB, "replication.ha_max_gap_bytes": MIB, "replication.max_inflight_bytes": MIB}
    drops = {"retention.max_age_ms": 1, "retention.check_period_ms": 100}
    with linked_group(tmp_path, 1, master={**patient, **caps, **drops}, slave=patient) as running:
        yield running


def test_slave_on_a_slow_link_under_load_is_told_to_resync(slow: LinkedGroup) -> None:
    """It is seen to fall behind what its replication slot holds."""
    group, link, history, slave = slow.group, slow.link, slow.history, "a/1"
    lag = f'dittomq_replica_lag_bytes{{node="{slave}",state="received"}}'
    with history.reading(group.mq, slave), group.mq.producer(Ack.MASTER_FLUSHED, timeout_s=PATIENCE_S) as producer:
        history.publish(producer, SOME, size=2_000)
        group.wait_equal()
        link.dribble(8 * 1024, 0.02, Way.BACK)  # 0.4 MB/s
        with history.publishing(producer, size=2_000, burst=64):
            eventually(lambda: group.metrics(MASTER).get(lag, 0) > MIB, "its lag is told")
            released = eventually(lambda: group.events(MASTER, "retention_overridden"), "the cap decides, and the master says so")
            told = eventually(lambda: group.events(slave, "full_resync_began"), "the slave is told to copy the log anew")
            assert group.metrics(MASTER)[f'dittomq_replica_in_sync{{node="{slave}"}}'] == 0
        link.heal()
        eventually(lambda: group.events(slave, "full_resync_ended") and is_in_sync(group, slave), "the slave is back with its copy")
        history.publish(producer, SOME, size=2_000)
    assert {event["holder"] for event in released} == {slave}
    assert "this log begins at" in told[0]["reason"]
    for queue in range(QUEUES):  # whoever reads there hears that messages are gone, and is not led past them
        shown = sorted(offset for each, offset in history.shown if each == queue)
        assert shown == list(range(len(shown)))
        with pytest.raises(OffsetOutOfRange):
            group.mq.reader(TOPIC, queue, node=slave).pull(len(shown))
    history.check_what_retention_left()
