"""Offsets of consumer groups in a broker group: what a failover, a restart and a slave keep of them."""

import asyncio
import contextlib
from typing import Any

import pytest

from dittomq._pb.ditto.metadata.v1 import metadata_pb2 as pb
from dittomq._pb.ditto.metadata.v1.metadata_pb2_grpc import MetadataServiceStub
from dittomq.client import (
    AsyncClient,
    CommittedOffset,
    DittoError,
    Message,
    OffsetCommit,
    QueueReset,
    ResetOrder,
    ResetTarget,
)
from dittomq.consumer.group_session import SESSION_S
from dittomq.errors import GroupNotFound, OffsetOutOfRange, PreconditionFailed, Unavailable, WrongCluster
from dittomq.metadata.rows import GroupConfig
from dittomq.routes import Role
from dittomq.rpc.channel import breaking
from dittomq.rpc.headers import GroupTarget, meant_for
from tests.simulation.group import Group, play
from tests.simulation.shapes import machine_of
from tests.support.virtual_time import played_by


async def fill(mq: AsyncClient, messages: int = 5) -> None:
    """Topic "orders" of one queue, and group "billing"."""
    await mq.admin.create_topic("orders", 1)
    await mq.admin.create_group("billing")
    async with mq.producer() as producer:
        for number in range(messages):
            await producer.publish_message(Message("orders", b"%d" % number, 0))


async def commit(mq: AsyncClient, offset: int, resets: int | None = None) -> CommittedOffset | DittoError | None:
    [result] = await mq.admin.commit_offsets("billing", [OffsetCommit("orders", 0, offset, resets)], broker="a")
    return result.error if result.value is None else result.value[0]


async def committed(mq: AsyncClient) -> CommittedOffset | DittoError | None:
    [result] = await mq.admin.get_offsets("billing", [("orders", 0)])
    return result.error if result.value is None else result.value[0]


async def offsets_of(mq: AsyncClient, address: str) -> list[int]:
    """What the node at that address holds of the group's offsets."""
    stub = mq.admin._around.channels.stub(MetadataServiceStub, address)  # noqa: SLF001
    response = await stub.GetAllConsumerOffset(pb.GetAllConsumerOffsetRequest())
    return [row.offset for row in response.offsets]


@played_by(play)
async def test_commit_beyond_what_is_confirmed_is_refused_and_changes_nothing(group: Group, mq: AsyncClient) -> None:
    await fill(mq)
    await commit(mq, 3)

    refused = await commit(mq, 6)

    assert isinstance(refused, OffsetOutOfRange)
    assert (refused.asked, refused.start, refused.end) == (6, 0, 5)
    assert await committed(mq) == CommittedOffset("orders", 0, 3)


@played_by(play)
async def test_failover_keeps_the_offsets_that_its_slave_has_pulled(group: Group, mq: AsyncClient) -> None:
    await fill(mq)
    await commit(mq, 4)
    await asyncio.sleep(15)

    await group.kill("a0")
    await group.fail_over("a/1")

    assert await committed(mq) == CommittedOffset("orders", 0, 4)
    assert await commit(mq, 5) == CommittedOffset("orders", 0, 5)


@played_by(play)
async def test_slave_is_at_most_2_s_behind_in_offsets(group: Group, mq: AsyncClient) -> None:
    await fill(mq, 20)
    await asyncio.sleep(10)
    late: list[float] = []
    for offset in range(1, 8):
        await commit(mq, offset)
        began = group.now
        while (await offsets_of(mq, "a1:10911")) != [offset]:  # noqa: ASYNC110  # it is asked again and again
            await asyncio.sleep(0.05)
        late.append(group.now - began)
        await asyncio.sleep(0.37)

    assert max(late) <= 2.0


@played_by(play)
async def test_reset_survives_a_failover_and_commits_from_before_it_do_not(group: Group, mq: AsyncClient) -> None:
    await fill(mq)
    await commit(mq, 4)
    [moved] = await mq.admin.reset_offsets(ResetOrder("billing", "orders", ResetTarget.EARLIEST))
    await asyncio.sleep(15)
    await group.kill("a0")
    await group.fail_over("a/1")

    assert moved.value == [QueueReset(0, 4, 0)]
    assert await commit(mq, 5, resets=0) == CommittedOffset("orders", 0, 0, 1)
    assert await commit(mq, 2, resets=1) == CommittedOffset("orders", 0, 2, 1)


@played_by(play)
async def test_reset_after_a_failover_waits_for_members_to_find_the_master(group: Group, mq: AsyncClient) -> None:
    order = ResetOrder("billing", "orders", ResetTarget.EARLIEST)
    await fill(mq)
    await commit(mq, 4)
    await asyncio.sleep(15)
    await group.kill("a0")
    await group.fail_over("a/1")

    [refused] = await mq.admin.reset_offsets(order)
    await asyncio.sleep(SESSION_S)
    [moved] = await mq.admin.reset_offsets(order)

    assert isinstance(refused.error, PreconditionFailed)
    assert moved.value == [QueueReset(0, 4, 0)]


@pytest.mark.parametrize("target", [GroupTarget("other", "a"), GroupTarget("dittomq", "b")], ids=["cluster", "broker group"])
@played_by(play)
async def test_nodes_of_another_cluster_or_group_are_refused_tables_and_offsets(
    group: Group, mq: AsyncClient, /, target: GroupTarget
) -> None:
    await fill(mq)
    await commit(mq, 3)
    stub: Any = mq.admin._around.channels.stub(MetadataServiceStub, "a0:10911")  # noqa: SLF001
    [row] = (await stub.GetAllConsumerOffset(pb.GetAllConsumerOffsetRequest())).offsets
    row.offset = 5
    calls = {
        "ReturnConsumerOffsets": pb.ReturnConsumerOffsetsRequest(offsets=[row]),
        "GetAllConsumerOffset": pb.GetAllConsumerOffsetRequest(),
        "GetAllDelayOffset": pb.GetAllDelayOffsetRequest(),
        "GetAllSubscriptionGroupConfig": pb.GetAllSubscriptionGroupConfigRequest(),
        "GetAllTopicConfig": pb.GetAllTopicConfigRequest(),
    }

    for method, request in calls.items():
        with pytest.raises(WrongCluster), breaking("a0:10911"):
            await getattr(stub, method)(request, metadata=meant_for(target))

    assert await committed(mq) == CommittedOffset("orders", 0, 3, 0)


@played_by(play)
async def test_progress_tells_lag_and_the_age_of_the_oldest_unread_message(group: Group, mq: AsyncClient) -> None:
    await fill(mq)
    await commit(mq, 3)
    await asyncio.sleep(30)

    [told] = await mq.admin.group_progress("billing")

    assert told.value is not None
    [queue] = told.value.queues
    assert (queue.committed, queue.end, queue.lag) == (3, 5, 2)
    assert 30_000 <= (queue.oldest_unread_ms or 0) < 32_000


@played_by(play)
async def test_switchover_takes_every_answered_commit_along(group: Group, mq: AsyncClient) -> None:
    await fill(mq)
    await commit(mq, 4)

    await group.switch_over("a/1")

    assert await committed(mq) == CommittedOffset("orders", 0, 4)


@played_by(play)
async def test_group_and_its_offsets_survive_a_kill_6_s_after_the_commit(group: Group, mq: AsyncClient) -> None:
    await fill(mq)
    await mq.admin.create_group(GroupConfig("audit", retry_max_times=3))
    await commit(mq, 4)
    await asyncio.sleep(6)
    await group.kill("a0")
    group.node("a0").start()
    await asyncio.sleep(1)
    await group.in_sync(mq)

    [listed] = await mq.admin.list_groups()

    assert [(each.name, each.retry_max_times) for each in listed.value or ()] == [("audit", 3), ("billing", 16)]
    assert await committed(mq) == CommittedOffset("orders", 0, 4)


@played_by(play)
async def test_deleted_group_has_no_offsets_when_it_is_made_again(group: Group, mq: AsyncClient) -> None:
    await fill(mq)
    await commit(mq, 4)
    await mq.admin.delete_group("billing")
    unknown = await committed(mq)
    await mq.admin.create_group("billing")
    await asyncio.sleep(15)
    await group.fail_over("a/1")

    assert isinstance(unknown, GroupNotFound)
    assert await committed(mq) == CommittedOffset("orders", 0, None)


@played_by(play)
async def test_commits_made_at_a_slave_come_home_when_the_master_is_back(group: Group, mq: AsyncClient) -> None:
    await fill(mq)
    await commit(mq, 2)
    await asyncio.sleep(15)
    await mq.admin.set_paused("a", paused=True)
    await group.kill("a0")
    early = await commit_late(mq, 3)
    await asyncio.sleep(40)

    at_slave = await commit_late(mq, 4)
    group.node("a0").start()
    await mq.admin.set_paused("a", paused=False)
    await group.in_sync(mq, await leader(mq))
    await asyncio.sleep(5)

    assert isinstance(early, Unavailable)
    assert at_slave == CommittedOffset("orders", 0, 4)
    assert await committed(mq) == CommittedOffset("orders", 0, 4)


async def commit_late(mq: AsyncClient, offset: int) -> CommittedOffset | DittoError | None:
    try:
        return await commit(mq, offset)
    except DittoError as refused:
        return refused


async def leader(mq: AsyncClient) -> str:
    """The node that leads, as soon as one does."""
    while True:
        for node in ("a/0", "a/1"):
            if await leads(mq, node):
                return node
        await asyncio.sleep(0.1)


async def leads(mq: AsyncClient, node: str) -> bool:
    with contextlib.suppress(DittoError):
        return (await mq.admin.ha_status(f"{machine_of(node)}:10911")).role != Role.SLAVE
    return False


@pytest.mark.parametrize("after_s", [0.0, 0.3, 0.6, 0.9, 1.2])
@played_by(play)
async def test_group_deleted_just_before_a_failover_is_gone_or_whole(group: Group, mq: AsyncClient, /, *, after_s: float) -> None:
    """The new master has one version of the tables or the next: never the group without its offsets, nor they without it."""
    await fill(mq)
    await commit(mq, 4)
    await asyncio.sleep(15)
    await mq.admin.delete_group("billing")
    await asyncio.sleep(after_s)
    await group.kill("a0")
    await group.fail_over("a/1")

    [listed] = await mq.admin.list_groups()
    groups = [each.name for each in listed.value or ()]
    offset = await committed(mq)
    if groups:
        assert (groups, offset) == (["billing"], CommittedOffset("orders", 0, 4))
    else:
        assert isinstance(offset, GroupNotFound)
    group.node("a0").start()
    await asyncio.sleep(30)
    assert await offsets_of(mq, "a0:10911") == await offsets_of(mq, "a1:10911") == ([4] if groups else [])
