"""A slave dies at a call that changes its disk, one after the other; so does a master at those that replace a table.

And a master dies when a message is on its disk and on no other.
"""

import itertools
import json
import shutil
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import grpc
import pytest

from dittomq._pb.ditto.messaging.v1 import messaging_pb2 as pb
from tests.support.disk_faults import Call, calls_in, harming, preloading
from tests.support.event_log import Fate
from tests.support.real_group import MASTER, QUEUES, TOPIC, RealGroup, real_group, shape
from tests.support.traffic import Publishing, messages, nothing_is_lost
from tests.support.waiting import eventually

pytestmark = pytest.mark.tier("nightly")

PUBLISH_STREAM = "ditto.messaging.v1.MessagingService/PublishStream"
SOME = 500
ACK_TIMEOUT_MS = 20_000
UNANSWERED_S = 10.0  # a master on a busy machine is killed before it gives an answer


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

REPLACING = "pwrite rename fsync"  # what a kill between any two calls leaves differs at these


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

        def died() -> bool:
            publishing.publish(messages(len(publishing.told.outcomes), SOME, size=200))
            return not cluster.is_alive("a/1")

        for number, point in enumerate(POINTS):
            switch = tmp_path / f"{number}"
            harm = harming(root / point.folder, when=switch, calls=point.call, nth=point.nth, kind="torn")
            with preloading(shim, harm):
                cluster.start_node("a/1")
            cluster.wait_in_sync()
            switch.touch()
            eventually(died, f"{point}")
            assert group.exit_status("a/1") == signal.SIGKILL, point
            assert bytes_of(group, MASTER).startswith(bytes_of(group, "a/1").rstrip(b"\0")), point
        assert publishing.refusals == []

    cluster.start_node("a/1")
    cluster.wait_in_sync()
    nothing_is_lost(group, publishing.told)


def test_master_killed_while_replacing_topics_has_the_old_or_the_new_ones(shim: Path, tmp_path: Path) -> None:
    """It is killed at any call."""
    with real_group(tmp_path, shape(0)) as group:
        cluster, root = group.cluster, group.cluster.data_dir(MASTER)
        topics, died_at = set(group.topics(MASTER)), list[Call]()
        cluster.stop_node(MASTER)
        for nth in itertools.count(1):
            switch, trace = tmp_path / f"{nth}", tmp_path / f"{nth}.trace"
            with preloading(shim, harming(root, when=switch, calls=REPLACING, nth=nth, kind="torn", trace=trace)):
                cluster.start_node(MASTER)
            eventually(group.writable, "it leads")
            assert set(group.topics(MASTER)) == topics, died_at
            switch.touch()
            [answer] = group.mq.admin.create_topic(f"changed-{nth}", QUEUES)
            if answer.error is None:
                break
            assert group.exit_status(MASTER) == signal.SIGKILL
            died_at += [call for call in calls_in(trace) if call.harmed]
            file, backup = root / "config" / "topics.json", root / "config" / "topics.json.bak"
            found = topics_in(file if file.exists() else backup)
            assert topics <= found <= topics | {f"changed-{nth}"}, died_at
            assert topics_in(backup) <= found, died_at
            topics = found
    assert {(call.name, call.path.name) for call in died_at} >= {
        ("pwrite", "tmp-config-topics.json"),
        ("rename", "topics.json.bak"),
        ("rename", "topics.json"),
        ("fsync", "config"),
    }


def topics_in(path: Path) -> set[str]:
    """The names in a whole file of topics."""
    return set(json.loads(path.read_text())["topicConfigTable"])


@contextmanager
def unanswered(group: RealGroup, name: str, frame: pb.PublishStreamRequest) -> Iterator[None]:
    """The frame is sent to that node, and during the block nobody reads an answer."""
    over = threading.Event()

    def requests() -> Iterator[pb.PublishStreamRequest]:
        yield frame
        over.wait()

    with grpc.insecure_channel(group.address(name)) as channel:
        calling = channel.stream_stream(
            f"/{PUBLISH_STREAM}", pb.PublishStreamRequest.SerializeToString, pb.PublishStreamResponse.FromString
        )
        answers = calling(requests(), timeout=60)
        try:
            yield
        finally:
            over.set()
            answers.cancel()


@pytest.fixture
def electing(tmp_path: Path) -> Iterator[RealGroup]:
    """It fails over by itself, and a slave that was killed stays a member for long."""
    settings = {"replication.ack_timeout_ms": ACK_TIMEOUT_MS, "replication.leave_ms": 20_000, "failover.peer_timeout_ms": 21_000}
    with real_group(tmp_path, shape(master=settings, slave=settings, automatic=True)) as running:
        yield running


@pytest.mark.parametrize("disk", ["its disk", "an empty disk"])
def test_acknowledged_batch_keeps_its_offsets_when_the_master_dies(electing: RealGroup, disk: str) -> None:
    """A slave has acknowledged it; the master dies with the answer and comes back."""
    group, cluster, old = electing, electing.cluster, electing.master()
    slaves = [name for name in group.copies if name != old]
    frame = pb.PublishStreamRequest(batch_id=1, producer_id="retrying", first_sequence=0)
    frame.messages.extend(pb.Message(topic=TOPIC, body=b"%d" % number, queue=1) for number in range(3))
    with unanswered(group, old, frame):
        end = group.wait_flushed(3, old)
        eventually(lambda: {group.status(name).flushed for name in slaves} == {end}, "both slaves have flushed the frame")
        cluster.kill(old)
    before = [(record.queue, record.queue_offset, record.physical_offset) for record in group.parsed_log(slaves[0]).records]

    if disk == "an empty disk":
        shutil.rmtree(cluster.data_dir(old))
    cluster.start()
    leads = group.wait_led_by_all()
    [again] = group.stream(leads, PUBLISH_STREAM, [frame], pb.PublishStreamResponse)

    assert again.stored.duplicate
    [run] = again.stored.runs
    assert (run.queue, run.first_queue_offset, run.first_physical_offset) == before[0]
    group.wait_equal()
    for name in group.copies:
        records = group.parsed_log(name).records
        assert [(record.queue, record.queue_offset, record.physical_offset) for record in records] == before


def test_bytes_only_on_a_dead_masters_disk_are_truncated_after_failover(electing: RealGroup) -> None:
    """They count as not stored; the disk loses them when it is back."""
    group, cluster, old = electing, electing.cluster, electing.master()
    slaves = [name for name in group.copies if name != old]
    with group.mq.producer(timeout_s=UNANSWERED_S, retry_s=0.5) as producer, ThreadPoolExecutor(1) as thread:
        publishing = Publishing(producer)
        assert len(publishing.publish(messages(0, SOME))) == SOME
        confirmed = group.wait_equal()
        for name in slaves:
            cluster.kill(name)
        sent = thread.submit(publishing.publish, messages(SOME, SOME))
        unsent = group.wait_flushed(SOME * 2, old) - confirmed
        cluster.kill(old)
        assert sent.result() == []
        assert len(publishing.told.bodies(Fate.UNKNOWN)) == SOME

        # The slaves have all that was confirmed, and one of them leads.
        for name in slaves:
            cluster.start_node(name)
        assert group.master() in slaves
        publishing.settle()
        assert len(publishing.told.bodies(Fate.NOT_STORED)) == SOME
        publishing.publish(messages(2 * SOME, SOME))

    # The old disk comes back.
    cluster.start_node(old)
    group.wait_led_by_all()
    [cut] = group.events(old, "log_truncated")
    [tail] = (cluster.data_dir(old) / "dittomq").glob("tail-*")
    assert (cut["to"], cut["end"], tail.stat().st_size) == (confirmed, confirmed + unsent, unsent)
    nothing_is_lost(group, publishing.told)
