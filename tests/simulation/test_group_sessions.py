"""Members of a consumer group at the master of their queues: who comes in, who reads what, and what a failover leaves of it."""

import asyncio

import pytest

from dittomq._pb.ditto.messaging.v1 import consumer_sessions_pb2 as pb
from dittomq.client import AsyncClient, Message, ResetOrder, ResetTarget
from dittomq.consumer.assignment import TopicQueue
from dittomq.consumer.group_session import SESSION_S, ConsumeMode
from dittomq.errors import (
    DittoError,
    GroupNotFound,
    InvalidField,
    NotMaster,
    NotReady,
    OffsetOutOfRange,
    PermissionDenied,
    PreconditionFailed,
    SessionExpired,
    TopicNotFound,
    Unavailable,
)
from dittomq.metadata.groups import GroupUpdate
from dittomq.metadata.rows import GroupConfig
from dittomq.wire import consumer_sessions as wire
from tests.simulation.group import Group, play
from tests.support.hand_held_member import HandHeldMember, asked, sent_back
from tests.support.virtual_time import played_by

ORDERS = TopicQueue("orders", 0)


async def fill(mq: AsyncClient, queues: int = 4, *, retries: int = 16) -> None:
    """Topic "orders" with 3 messages in its queue 0, and group "billing"."""
    await mq.admin.create_topic("orders", queues)
    await mq.admin.create_group(GroupConfig("billing", retry_max_times=retries))
    async with mq.producer() as producer:
        for number in range(3):
            await producer.publish_message(Message("orders", b"%d" % number, 0, keys=("k",), tag="paid", properties={"who": "me"}))


async def settled(mq: AsyncClient, member: str = "one") -> HandHeldMember:
    """A member that has all queues: the master leads for as long as a session lasts."""
    one = await HandHeldMember(mq, member).join()
    await one.live_until([0, 1, 2, 3])
    return one


async def refused(mq: AsyncClient, kind: type[DittoError], member: str = "two", **order: object) -> DittoError:
    with pytest.raises(kind) as caught:
        await HandHeldMember(mq, member, process=str(order.pop("process", ""))).join(**order)
    return caught.value


async def tries_of(mq: AsyncClient, topic: str, count: int) -> list[tuple[bytes, dict[str, str]]]:
    """So many messages of a topic of the group's own, when they are there."""
    reader = mq.reader(topic, queue=0)
    while True:
        try:
            page = await reader.pull(0)
        except (TopicNotFound, OffsetOutOfRange, Unavailable, NotReady):
            page = None
        if page is not None and len(page.messages) >= count:
            return [(each.body, dict(each.properties)) for each in page.messages]
        await asyncio.sleep(0.2)


@played_by(play)
async def test_queue_changes_hands_only_when_its_holder_has_let_go(group: Group, mq: AsyncClient) -> None:
    await fill(mq)
    one = await settled(mq)

    two = await HandHeldMember(mq, "two").join()
    await one.hear_until([0, 1])
    before = two.queues
    await one.beat()
    await two.hear_until([2, 3])

    assert before == []


@played_by(play)
async def test_heartbeat_of_an_old_generation_lets_nothing_go(group: Group, mq: AsyncClient) -> None:
    await fill(mq)
    one = await settled(mq)
    assert one.given is not None
    old = one.given.generation
    two = await HandHeldMember(mq, "two").join()
    await one.hear_until([0, 1])

    await one.beat(old)
    await one.answered()
    await two.beat()
    await two.answered()

    assert two.queues == []


@played_by(play)
async def test_heartbeat_of_a_generation_nobody_gave_ends_the_session(group: Group, mq: AsyncClient) -> None:
    await fill(mq)
    one = await settled(mq)
    assert one.given is not None

    await one.beat(one.given.generation + 1)

    with pytest.raises(SessionExpired):
        await one.hear_all()


@played_by(play)
async def test_member_that_leaves_frees_its_queues_at_once(group: Group, mq: AsyncClient) -> None:
    await fill(mq)
    one = await settled(mq)
    two = await HandHeldMember(mq, "two").join()
    began = group.now

    await one.leave()
    await two.hear_until([0, 1, 2, 3])

    assert group.now - began < 1


@played_by(play)
async def test_member_whose_stream_breaks_keeps_its_queues_for_its_session(group: Group, mq: AsyncClient) -> None:
    await fill(mq)
    one = await settled(mq)
    two = await HandHeldMember(mq, "two").join()
    began = group.now

    one.vanish()
    await two.live_until([0, 1, 2, 3])

    assert SESSION_S - 2 <= group.now - began < SESSION_S + 5


@played_by(play)
async def test_two_processes_with_one_member_id_are_refused(group: Group, mq: AsyncClient) -> None:
    await fill(mq)
    one = await settled(mq)

    problem = await refused(mq, PreconditionFailed, "one", process="another")
    await one.beat()
    await one.answered()

    assert "one" in str(problem)
    assert one.queues == [0, 1, 2, 3]


@played_by(play)
async def test_member_that_fits_no_group_or_topic_is_refused_by_type(group: Group, mq: AsyncClient) -> None:
    await fill(mq)
    await settled(mq)

    with pytest.raises(GroupNotFound):
        await HandHeldMember(mq, "two", group="biling").join()
    await refused(mq, TopicNotFound, subscriptions={"odrers": "*"})
    await refused(mq, InvalidField, subscriptions={"orders": "a ||"})
    await refused(mq, PreconditionFailed, subscriptions={"orders": "paid"})
    await refused(mq, PreconditionFailed, mode=ConsumeMode.BROADCASTING)
    await refused(mq, InvalidField, member="no spaces")


@played_by(play)
async def test_group_that_must_not_broadcast_or_consume_refuses_members(group: Group, mq: AsyncClient) -> None:
    await fill(mq)
    quiet = GroupConfig("billing", consume_broadcast_enable=False)
    await mq.admin.update_group(GroupUpdate(quiet, ("consume_broadcast_enable",)))
    await refused(mq, PermissionDenied, mode=ConsumeMode.BROADCASTING)
    one = await settled(mq)

    await mq.admin.update_group(GroupUpdate(GroupConfig("billing", consume_enable=False), ("consume_enable",)))

    with pytest.raises(PermissionDenied):
        await one.hear_all()
    await refused(mq, PermissionDenied)


@played_by(play)
async def test_slave_names_the_master_to_members(group: Group, mq: AsyncClient) -> None:
    await fill(mq)

    with pytest.raises(NotMaster):
        await HandHeldMember(mq, "one", address="a1:10911").join()
    with pytest.raises(NotMaster):
        await sent_back(mq, ORDERS, 0, address="a1:10911")


@played_by(play)
async def test_member_keeps_its_queues_over_a_failover_and_nobody_takes_them(group: Group, mq: AsyncClient) -> None:
    await fill(mq)
    one = await settled(mq)
    assert one.given is not None
    held = one.given.queues
    await asyncio.sleep(15)  # the slave has the tables
    await group.kill("a0")
    await group.fail_over("a/1")

    two = await HandHeldMember(mq, "two", address="a1:10911").join()
    back = await HandHeldMember(mq, "one", address="a1:10911").join(held=held)

    assert two.queues == []
    assert back.given is not None
    assert back.given.generation > one.given.generation
    assert back.queues == [0, 1]
    while two.queues != [2, 3]:
        for member in (back, two):
            await member.beat()
            await member.answered()
        await asyncio.sleep(1)


@played_by(play)
async def test_member_of_a_stopped_master_is_told_that_it_is_not_ready(group: Group, mq: AsyncClient) -> None:
    await fill(mq)
    one = await settled(mq)

    await group.switch_over("a/1")

    with pytest.raises((NotReady, NotMaster, Unavailable)):
        await one.hear_all()


@played_by(play)
async def test_topic_with_more_queues_gives_members_more_of_them(group: Group, mq: AsyncClient) -> None:
    await fill(mq)
    one = await settled(mq)

    await mq.admin.update_topic("orders", read_queues=6, write_queues=6)

    await one.hear_until([0, 1, 2, 3, 4, 5])


@played_by(play)
async def test_locked_queue_is_one_members_until_it_unlocks_it(group: Group, mq: AsyncClient) -> None:
    await fill(mq)
    await asyncio.sleep(60)

    async def locked(member: str, method: str = "LockQueues") -> list[int]:
        kind = pb.LockQueuesRequest if method == "LockQueues" else pb.UnlockQueuesRequest
        request = kind(group="billing", member=member, queues=[pb.QueueSet(topic="orders", queues=[0, 1])])
        response = await asked(mq, "a0:10911", method, request)
        return [queue for each in getattr(response, "locked", ()) for queue in each.queues]

    first, second = await locked("one"), await locked("two")
    await locked("one", "UnlockQueues")
    third = await locked("two")
    await asyncio.sleep(61)

    assert (first, second, third) == ([0, 1], [], [0, 1])
    assert await locked("one") == [0, 1]


@played_by(play)
async def test_queue_that_is_not_there_is_locked_by_nobody(group: Group, mq: AsyncClient) -> None:
    await fill(mq)
    await asyncio.sleep(60)
    wanted = [pb.QueueSet(topic="orders", queues=[3, 4]), pb.QueueSet(topic="made-up", queues=[0])]

    response = await asked(mq, "a0:10911", "LockQueues", pb.LockQueuesRequest(group="billing", member="one", queues=wanted))

    assert [(each.topic, list(each.queues)) for each in response.locked] == [("orders", [3])]


@played_by(play)
async def test_member_that_joins_again_and_again_shares_queues_out_once_a_second(group: Group, mq: AsyncClient) -> None:
    await fill(mq)
    await mq.admin.create_topic("events", 1)
    one = await settled(mq)
    generation, began = one.given.generation if one.given else 0, group.now
    for _ in range(20):
        await one.join()
    unchanged_s, unchanged = group.now - began, one.given.generation if one.given else 0

    for topics in ({"events": "*"}, {"orders": "*"}, {"events": "*"}):
        await one.join(subscriptions=topics)

    assert (unchanged, unchanged_s < 0.5) == (generation, True)
    assert group.now - began - unchanged_s >= 2.0
    assert one.given is not None
    assert {queue.topic for queue in one.given.queues} == {"events"}


@played_by(play)
async def test_message_sent_back_comes_again_with_rocketmqs_properties(group: Group, mq: AsyncClient) -> None:
    await fill(mq)
    began = group.now

    told = await sent_back(mq, ORDERS, 1)
    [(body, properties)] = await tries_of(mq, "%RETRY%billing", 1)
    waited = group.now - began
    again = await sent_back(mq, TopicQueue("%RETRY%billing", 0), 0)
    both = await tries_of(mq, "%RETRY%billing", 2)

    assert told == wire.SentBack(dead_letter=False, tries=1)
    assert body == b"1"
    assert 10 <= waited < 11
    assert (properties["RETRY_TOPIC"], properties["RECONSUME_TIME"], properties["who"]) == ("orders", "1", "me")
    assert len(properties["ORIGIN_MESSAGE_ID"]) == 32
    assert again.tries == 2
    assert both[1][1]["RECONSUME_TIME"] == "2"
    assert both[1][1]["ORIGIN_MESSAGE_ID"] == properties["ORIGIN_MESSAGE_ID"]


@played_by(play)
async def test_poison_message_lies_with_the_dead_letters_after_its_last_try(group: Group, mq: AsyncClient) -> None:
    await fill(mq, retries=2)
    place, told = ORDERS, []
    for offset in (2, 0, 1):
        told.append(await sent_back(mq, place, offset, 0))
        if not told[-1].dead_letter:
            await tries_of(mq, "%RETRY%billing", len(told))
        place = TopicQueue("%RETRY%billing", 0)

    [(body, properties)] = await tries_of(mq, "%DLQ%billing", 1)

    assert [(each.dead_letter, each.tries) for each in told] == [(False, 1), (False, 2), (True, 2)]
    assert (body, properties["RETRY_TOPIC"], properties["RECONSUME_TIME"]) == (b"2", "orders", "2")


@played_by(play)
async def test_message_sent_back_twice_comes_again_once(group: Group, mq: AsyncClient) -> None:
    await fill(mq)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(3):
            tasks.create_task(sent_back(mq, ORDERS, 0, 0))
    await sent_back(mq, ORDERS, 0, 0)
    await sent_back(mq, ORDERS, 1, 0)

    assert [body for body, _ in await tries_of(mq, "%RETRY%billing", 2)] == [b"0", b"1"]


@played_by(play)
async def test_message_that_is_not_there_cannot_be_sent_back(group: Group, mq: AsyncClient) -> None:
    await fill(mq)

    with pytest.raises(OffsetOutOfRange):
        await sent_back(mq, ORDERS, 3)
    with pytest.raises(TopicNotFound):
        await sent_back(mq, TopicQueue("odrers", 0), 0)
    await mq.admin.delete_group("billing")
    with pytest.raises(GroupNotFound):
        await sent_back(mq, ORDERS, 0)


@played_by(play)
async def test_message_with_no_room_for_another_try_is_given_up_whole(group: Group, mq: AsyncClient) -> None:
    await fill(mq)
    async with mq.producer() as producer:
        await producer.publish_message(Message("orders", b"full", 0, properties={"big": "x" * 32_400}))

    told = await sent_back(mq, ORDERS, 3)

    [(body, properties)] = await tries_of(mq, "%DLQ%billing", 1)
    assert told.dead_letter
    assert (body, len(properties["big"])) == (b"full", 32_400)


@played_by(play)
async def test_message_sent_back_survives_a_failover(group: Group, mq: AsyncClient) -> None:
    await fill(mq)
    await sent_back(mq, ORDERS, 0)

    await group.kill("a0")
    await group.fail_over("a/1")

    assert [body for body, _ in await tries_of(mq, "%RETRY%billing", 1)] == [b"0"]
    assert (await sent_back(mq, ORDERS, 1, address="a1:10911")).tries == 1


@played_by(play)
async def test_message_read_again_after_a_reset_can_be_sent_back_again(group: Group, mq: AsyncClient) -> None:
    await fill(mq)
    await sent_back(mq, ORDERS, 0, 0)
    await mq.admin.reset_offsets(ResetOrder("billing", "orders", ResetTarget.EARLIEST))

    await sent_back(mq, ORDERS, 0, 0)

    assert [body for body, _ in await tries_of(mq, "%RETRY%billing", 2)] == [b"0", b"0"]
