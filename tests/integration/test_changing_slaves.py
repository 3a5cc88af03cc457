"""Slaves that are added, go and come back with old disks while writes go on; slaves that are too slow for what retention keeps."""

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from dittomq.client import PutStatus
from dittomq.errors import OutOfReach
from tests.support.history import History, Stream
from tests.support.linked_group import QUICK, LinkedGroup, linked_group
from tests.support.proxy import Way
from tests.support.real_group import RealGroup, real_group, shape
from tests.support.waiting import eventually

SOME = 40
SEGMENT_BYTES = 64 * 1024
HOLD_BYTES = 256 * 1024
SMALL = {"store.segment_bytes": SEGMENT_BYTES}
DROPS: dict[str, str | int] = {**SMALL, "retention.max_age_ms": 1, "retention.check_period_ms": 100}


@pytest.fixture
def group(tmp_path: Path) -> Iterator[RealGroup]:
    with real_group(tmp_path, shape(2, master={**QUICK, **SMALL, "replication.in_sync_replicas": 3}, slave={**QUICK, **SMALL})) as running:
        yield running


def in_sync(group: RealGroup, name: str) -> None:
    eventually(lambda: group.slave_state(name) == "in sync", f"{name} is in sync")


def is_told(stream: Stream, status: PutStatus, *copies: str) -> bool:
    """Whether the newest receipt says so."""
    newest = stream.receipts[-1]
    return (newest.status, {copy.node for copy in newest.copies}) == (status, set(copies))


def test_a_slave_that_is_added_removed_and_added_again_with_an_old_disk_has_all_and_counts_once(group: RealGroup, tmp_path: Path) -> None:
    cluster, history, disk, old = group.cluster, History(group), group.cluster.data_dir("a/2"), tmp_path / "old"
    with group.mq.producer(timeout_s=0.5, on_weak="return") as producer, history.publishing(producer, size=2_000) as stream:
        history.wait_for_more(SOME)
        cluster.stop_node("a/2")
        shutil.copytree(disk, old)
        shutil.rmtree(disk)
        eventually(lambda: is_told(stream, PutStatus.SLAVE_NOT_AVAILABLE, "a/0", "a/1"), "it is missed")

        cluster.start_node("a/2")  # empty: a new slave
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
    assert group.events("a/2", "log_cut") == []
    history.check()


@pytest.fixture
def linked(tmp_path: Path) -> Iterator[LinkedGroup]:
    with linked_group(tmp_path, 1, master={**DROPS, "replication.hold_max_bytes": HOLD_BYTES}, slave=SMALL) as running:
        yield running


def is_in_sync(group: RealGroup, slave: str) -> bool:
    with contextlib.suppress(OutOfReach):
        return group.status(slave).min_offset > 0 and group.slave_state(slave) == "in sync"
    return False


def test_a_slave_too_slow_for_what_retention_holds_skips_nothing_says_so_and_copies_the_log_anew(linked: LinkedGroup) -> None:
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
        eventually(lambda: group.events(slave, "copied_anew"), "the slave has copied what there is")
        eventually(lambda: is_in_sync(group, slave), "the slave is back with its copy")
        told = group.events(slave, "copying_anew")[0]  # told once more when the master's log begins later by then
        assert "this log begins at" in told["reason"]
        assert f"bytes 0 to {end:,}, which the master does not have any more" in told["kept_until_then"]
        history.publish(producer, SOME, size=2_000)
        end = group.wait_equal()
        eventually(lambda: group.status().min_offset > end - 2 * SEGMENT_BYTES, "retention has dropped all that is old")
    assert {event["holder"] for event in group.events("a/0", "hold_released")} == {slave}
    history.check_what_retention_left()
