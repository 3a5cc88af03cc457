"""A consumer group that was made shortly before a failover: its members bring it along to a master that never heard of it."""

import asyncio

import pytest

from dittomq.client import AsyncClient
from dittomq.consumer.group_session import SESSION_S
from dittomq.errors import GroupNotFound
from dittomq.metadata.rows import GroupConfig
from tests.simulation.consumers import GROUP, Members
from tests.simulation.group import Group, play
from tests.support.hand_held_member import HandHeldMember
from tests.support.virtual_time import played_by


async def make_unheard(mq: AsyncClient, *, heard: bool = False) -> None:
    """The slave has just asked for the groups, and asks for the next ones a second later; `heard`: it has this one too."""
    await mq.admin.create_topic("orders", 1)
    await asyncio.sleep(12)
    await mq.admin.create_group(GroupConfig("other"))
    await asyncio.sleep(0.3)
    [made] = await mq.admin.create_group(GroupConfig(GROUP))
    assert made.error is None
    await asyncio.sleep(3 if heard else 0)


async def fail_over(group: Group) -> None:
    await group.kill("a0")
    await group.fail_over("a/1")


async def member_of_old(mq: AsyncClient) -> int:
    """The generation of what a member reads at the old master."""
    one = await HandHeldMember(mq, "one").join()
    await one.hear_until([0])
    assert one.given is not None
    return one.given.generation


async def groups(mq: AsyncClient) -> list[str]:
    [listed] = await mq.admin.list_groups()
    return [each.name for each in listed.value or ()]


@played_by(play)
async def test_consumers_bring_their_group_to_a_master_that_never_heard_of_it(group: Group, mq: AsyncClient) -> None:
    await make_unheard(mq)
    members = Members(group)
    async with mq.producer(retry_s=60.0, on_weak="return") as producer:
        await producer.publish("orders", "1")
        members.start("m1")
        await members.until_handled(["1"])
        members.kills.append(group.now)
        await fail_over(group)
        await producer.publish("orders", "2")

        await members.until_handled(["1", "2"])

    assert await groups(mq) == [GROUP, "other"]


@played_by(play)
async def test_group_comes_along_only_with_who_was_its_member_before(group: Group, mq: AsyncClient) -> None:
    await make_unheard(mq)
    generation = await member_of_old(mq)
    await fail_over(group)
    assert await groups(mq) == ["other"]

    with pytest.raises(GroupNotFound):
        await HandHeldMember(mq, "two", address="a1:10911").join()
    await HandHeldMember(mq, "one", address="a1:10911").join(generation=generation)
    await HandHeldMember(mq, "two", address="a1:10911").join()

    assert await groups(mq) == [GROUP, "other"]


@played_by(play)
async def test_member_that_comes_late_brings_no_group_along(group: Group, mq: AsyncClient) -> None:
    await make_unheard(mq)
    generation = await member_of_old(mq)
    await fail_over(group)
    await asyncio.sleep(SESSION_S + 1)

    with pytest.raises(GroupNotFound):
        await HandHeldMember(mq, "one", address="a1:10911").join(generation=generation)


@played_by(play)
async def test_group_deleted_by_the_new_master_is_not_brought_back(group: Group, mq: AsyncClient) -> None:
    await make_unheard(mq, heard=True)
    generation = await member_of_old(mq)
    await fail_over(group)
    one = await HandHeldMember(mq, "one", address="a1:10911").join(generation=generation)
    assert one.given is not None
    [deleted] = await mq.admin.delete_group(GROUP)
    assert deleted.error is None

    for known in (generation, one.given.generation):
        with pytest.raises(GroupNotFound):
            await HandHeldMember(mq, "one", address="a1:10911").join(generation=known)
