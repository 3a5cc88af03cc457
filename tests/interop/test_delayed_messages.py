"""Messages that wait in a store of ours: RocketMQ delivers those that are left, and we those that RocketMQ leaves."""

import shutil
from pathlib import Path

import pytest

from dittomq.client import Client
from dittomq.metadata.formats import DELAY_OFFSETS, decode
from dittomq.metadata.rows import DelayOffset
from dittomq.offsets import QueueOffset
from dittomq.testing import LocalCluster
from dittomq.testing.state import NAMESERVER
from tests.interop.peer import Outgoing, Peer
from tests.interop.release import Release
from tests.interop.written_store import EVENTS, copy
from tests.support.real_group import MASTER, SEGMENT_BYTES, RealGroup, real_group, shape
from tests.support.waiting import eventually

pytestmark = pytest.mark.tier("nightly")


def test_each_is_delivered_once_whoever_has_the_store_when_it_is_due(rocketmq: Release, tmp_path: Path) -> None:
    bodies = (b"due here", b"due there", b"due there too", b"due here again")
    with real_group(tmp_path, shape(slaves=0)) as group:
        group.mq.admin.create_topic(EVENTS, 1)
        publish(group, bodies[0], delay_s=1)
        publish(group, bodies[1], delay_s=60)
        eventually(lambda: saved(group), "the first is delivered, and RocketMQ's file says so")
        group.cluster.stop()
    folder = copy(group.cluster.data_dir(MASTER), tmp_path / "store")

    with Peer(rocketmq, folder, SEGMENT_BYTES) as peer:
        peer.produce(EVENTS, 0, [Outgoing(bodies[2], delay_level=1)])
        eventually(
            lambda: {bodies[1], bodies[2]} <= {line["body"] for line in peer.read(EVENTS)}, "RocketMQ delivers what is due", within_s=90
        )
        peer.produce(EVENTS, 0, [Outgoing(bodies[3], delay_level=4)])
        peer.close()
    cluster = LocalCluster(group.cluster.folder)
    for node in (NAMESERVER, MASTER):  # the record of the group, too
        shutil.rmtree(cluster.data_dir(node))
    copy(folder, cluster.data_dir(MASTER))
    with cluster, Client(cluster.nameserver) as mq:
        eventually(lambda: bodies[3] in read(mq), "ours delivers the last", within_s=60)
        delivered = read(mq)

    assert sorted(delivered) == sorted(bodies)


def publish(group: RealGroup, body: bytes, *, delay_s: float) -> None:
    with group.mq.producer() as producer:
        producer.publish(EVENTS, body, queue=0, delay_s=delay_s)


def saved(group: RealGroup) -> bool:
    path = group.cluster.data_dir(MASTER) / DELAY_OFFSETS.path
    return path.exists() and DelayOffset(1, QueueOffset(1), 0) in decode(DELAY_OFFSETS, path.read_bytes()).rows.values()


def read(mq: Client) -> list[bytes]:
    return [message.body for message in mq.reader(EVENTS, 0).messages(until_end=True)]
