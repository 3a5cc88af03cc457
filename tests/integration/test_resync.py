"""A slave that was away for too long copies its master's log anew, in real processes: killed halfway, and swapped by coming back."""

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from dittomq.client.replica_reader import NodeAddress, ReplicaReader
from dittomq.doors.transport import GrpcTransport
from dittomq.errors import OffsetOutOfRange, Unavailable
from dittomq.ha_status import NodeState
from dittomq.rpc.channel import Channels
from tests.support.linked_group import LinkedGroup, linked_group
from tests.support.proxy import Way
from tests.support.real_group import MASTER, SEGMENT_BYTES, TOPIC, RealGroup
from tests.support.traffic import Publishing, messages
from tests.support.waiting import eventually

SLAVE = "a/1"
FORGETFUL = {"retention.max_age_ms": 1_000, "retention.check_period_ms": 200, "replication.max_slot_bytes": SEGMENT_BYTES}


@pytest.fixture
def linked(tmp_path: Path) -> Iterator[LinkedGroup]:
    with linked_group(tmp_path, 1, master=FORGETFUL) as running:
        yield running


def hold_the_rest(group: RealGroup) -> None:
    """Let the master drop nothing more."""

    async def pin() -> None:
        async with Channels(GrpcTransport()) as channels:
            await ReplicaReader(channels, 5.0).pin(NodeAddress("a", 0, "test", group.address(MASTER)), "rest", 300.0)

    asyncio.run(pin())


def copy_of(group: RealGroup) -> Path:
    return group.cluster.data_dir(SLAVE) / "dittomq" / "resync"


def answers(group: RealGroup) -> bool:
    with contextlib.suppress(Unavailable):
        return bool(group.status(SLAVE).end)
    return False


def test_slave_away_for_too_long_is_resynced_despite_a_kill_halfway(linked: LinkedGroup) -> None:
    group, link = linked.group, linked.link
    with group.mq.producer(on_weak="return", timeout_s=0.5) as producer:
        publishing = Publishing(producer)
        publishing.publish(messages(0, 100, size=10_000))
        old = group.wait_equal()
        first = group.mq.reader(TOPIC, 0, node=SLAVE).pull(0).messages[0]
        group.cluster.kill(SLAVE)
        publishing.publish(messages(100, 600, size=10_000))
        eventually(lambda: group.status().min_offset > old, "the master has dropped what the slave would need next")
        hold_the_rest(group)
        begin = group.status().min_offset
        publishing.publish(messages(700, 800, size=10_000))

        link.dribble(16 * 1024, 0.02, Way.BACK)  # 0.8 MB/s of 8 MB and more
        group.cluster.start_node(SLAVE)
        eventually(lambda: len(list(copy_of(group).glob("commitlog/*"))) > 2, "the copy holds two segments")
        link.hold(Way.BACK)
        assert group.status(SLAVE).nodes[0].state is NodeState.FULL_RESYNC
        with pytest.raises(OffsetOutOfRange):
            group.mq.reader(TOPIC, 0, node=MASTER).pull(0)
        assert group.mq.reader(TOPIC, 0, node=SLAVE).pull(0).messages[0] == first
        group.cluster.kill(SLAVE)

        group.cluster.start_node(SLAVE)
        process = group.cluster.pid(SLAVE)
        eventually(lambda: answers(group), "the slave is back")
        assert group.mq.reader(TOPIC, 0, node=SLAVE).pull(0).messages[0] == first
        link.heal()
        eventually(lambda: not copy_of(group).exists() and answers(group), "the copy is in the old store's place")
        publishing.publish(messages(1_500, 100, size=10_000))
    group.wait_equal()

    slave = group.parsed_log(SLAVE)
    assert slave.start == begin
    assert slave.content == group.parsed_log(MASTER).content
    assert group.cluster.pid(SLAVE) == process, "it came back as the same process"
    assert [len(group.events(SLAVE, event)) for event in ("full_resync_began", "full_resync_ended")] == [1, 1]
    [note] = group.events(SLAVE, "store_reported")
    assert f"bytes 0 to {old:,} of the old one, which its master no longer had" in note["note"]
    with pytest.raises(OffsetOutOfRange):
        group.mq.reader(TOPIC, 0, node=SLAVE).pull(0)
