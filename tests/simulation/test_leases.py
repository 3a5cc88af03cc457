"""Messages received without a session: leased, acknowledged, and what comes again."""

import asyncio
import itertools
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration

from dittomq._pb.ditto.messaging.v1 import consumer_leases_pb2 as pb
from dittomq.client import AsyncClient, Message
from dittomq.consumer.assignment import TopicQueue
from dittomq.errors import (
    CorruptRecord,
    DittoError,
    GroupNotFound,
    InvalidField,
    LimitReached,
    NotMaster,
    NotReady,
    PreconditionFailed,
    SessionExpired,
    TopicNotFound,
)
from dittomq.metadata.rows import GroupConfig
from services.master import leasing
from services.master.leasing import Leasing
from tests.simulation.flipped_bits import flip
from tests.simulation.group import Group, play
from tests.support.hand_held_member import HandHeldMember, asked, sent_back
from tests.support.lease_calls import MASTER, acknowledged, fill, received
from tests.support.virtual_time import played_by


async def fill_queues(mq: AsyncClient, queues: int) -> None:
    """Topic "orders" of so many queues with one message each, and group "billing"."""
    await mq.admin.create_topic("orders", queues)
    await mq.admin.create_group(GroupConfig("billing"))
    async with mq.producer() as producer:
        for queue in range(queues):
            await producer.publish_message(Message("orders", b"%d" % queue, queue))


async def committed(mq: AsyncClient, topic: str = "orders") -> int | None:
    [result] = await mq.admin.get_offsets("billing", [(topic, 0)])
    assert result.value is not None
    return result.value[0].offset


def bodies(messages: list[Any]) -> list[bytes]:
    return [each.message.body for each in messages]


@played_by(play)
async def test_leased_message_is_nobody_elses_until_its_lease_ends(group: Group, mq: AsyncClient) -> None:
    await fill(mq)

    first, second = await received(mq, 2, lease_s=5), await received(mq)
    meanwhile = await received(mq, wait_s=3)
    [again, other] = await received(mq, wait_s=4) + await received(mq, wait_s=1)

    assert (bodies(first), bodies(second), meanwhile) == ([b"0", b"1"], [b"2"], [])
    assert {(each.message.body, each.topic, each.tries) for each in (again, other)} == {(b"0", "orders", 1), (b"1", "orders", 1)}


@played_by(play)
async def test_acknowledged_messages_are_committed_up_to_the_lowest_open_one(group: Group, mq: AsyncClient) -> None:
    await fill(mq)
    [zero, one, two] = await received(mq)

    told = await acknowledged(mq, [two])
    before = await committed(mq)
    told += await acknowledged(mq, [zero])
    middle = await committed(mq)
    told += await acknowledged(mq, [one, one])

    assert told == [True, True, True, True]
    assert (before, middle, await committed(mq)) == (None, 1, 3)
    assert await received(mq, wait_s=1) == []


@played_by(play)
async def test_acknowledgement_of_an_ended_lease_says_so_and_changes_nothing(group: Group, mq: AsyncClient) -> None:
    await fill(mq, 1)
    late = await received(mq, lease_s=1)
    again = await received(mq, wait_s=5)

    told = await acknowledged(mq, late)

    assert (told, bodies(again)) == ([False], [b"0"])
    assert await acknowledged(mq, again) == [True]


@played_by(play)
async def test_extended_lease_lasts_longer(group: Group, mq: AsyncClient) -> None:
    await fill(mq, 1)
    [held] = await received(mq, lease_s=2)

    await asked(mq, MASTER, "ExtendLease", pb.ExtendLeaseRequest(group="billing", lease_token=held.lease_token, lease=Duration(seconds=20)))
    meanwhile = await received(mq, wait_s=4) + await received(mq, wait_s=4)

    assert meanwhile == []
    assert await acknowledged(mq, [held]) == [True]
    with pytest.raises(SessionExpired):
        await asked(mq, MASTER, "ExtendLease", pb.ExtendLeaseRequest(group="billing", lease_token=held.lease_token))


@played_by(play)
async def test_poison_message_that_nobody_acknowledges_becomes_a_dead_letter(group: Group, mq: AsyncClient) -> None:
    await fill(mq, 1, retries=2)
    tries = []
    for _ in range(3):
        [message] = await received(mq, lease_s=1, wait_s=4)
        tries.append(message.tries)
    await asyncio.sleep(3)

    page = None
    while page is None:
        try:
            page = await mq.reader("%DLQ%billing", queue=0).pull(0)
        except (TopicNotFound, NotReady):
            await asyncio.sleep(1)

    assert tries == [0, 1, 2]
    assert [message.body for message in page.messages] == [b"0"]
    assert await received(mq) == []


@played_by(play)
async def test_failover_brings_back_what_was_not_acknowledged_and_no_more(group: Group, mq: AsyncClient) -> None:
    await fill(mq)
    [zero, one, two] = await received(mq)
    await acknowledged(mq, [zero])
    await asyncio.sleep(15)
    await group.kill("a0")
    await group.fail_over("a/1")

    told = await acknowledged(mq, [one], at="a1:10911")

    assert told == [True]
    assert bodies(await received(mq, at="a1:10911")) == [b"2"]
    assert await acknowledged(mq, [two], at="a1:10911") == [False]  # it is leased again now


@played_by(play)
async def test_acknowledgements_ahead_are_kept_after_a_failover(group: Group, mq: AsyncClient) -> None:
    await fill(mq)
    [_, one, two] = await received(mq)
    await asyncio.sleep(15)
    await group.kill("a0")
    await group.fail_over("a/1")

    told = await acknowledged(mq, [one, two], at="a1:10911")
    await asyncio.sleep(2)

    assert told == [True, True]
    assert bodies(await received(mq, at="a1:10911")) == [b"0"]


@played_by(play)
async def test_receiver_waits_for_the_next_message(group: Group, mq: AsyncClient) -> None:
    await fill(mq, 0)
    waiting = asyncio.ensure_future(received(mq, wait_s=4))
    await asyncio.sleep(1)

    async with mq.producer() as producer:
        await producer.publish_message(Message("orders", b"new", 0))
    began = group.now

    assert bodies(await waiting) == [b"new"]
    assert group.now - began < 0.5


@played_by(play)
async def test_receiver_that_fits_nothing_is_refused_by_type(group: Group, mq: AsyncClient) -> None:
    await fill(mq)

    with pytest.raises(GroupNotFound):
        await received(mq, group="biling")
    with pytest.raises(TopicNotFound):
        await received(mq, topic="odrers")
    with pytest.raises(InvalidField):
        await received(mq, 0)
    with pytest.raises(InvalidField):
        await received(mq, lease_s=13 * 3600)
    with pytest.raises(InvalidField):
        await asked(mq, MASTER, "Acknowledge", pb.AcknowledgeRequest(group="billing", lease_tokens=["what"]))
    with pytest.raises(NotMaster):
        await received(mq, at="a1:10911")
    await HandHeldMember(mq, "one").join()
    with pytest.raises(PreconditionFailed):
        await received(mq)


@played_by(play)
async def test_queue_without_room_keeps_no_leased_message_from_its_caller(
    group: Group, mq: AsyncClient, /, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leasing, "_MOST_QUEUES", 1)
    await fill_queues(mq, 2)

    first = await received(mq)
    with pytest.raises(LimitReached):
        await received(mq)
    await acknowledged(mq, first)
    await asyncio.sleep(1)
    second = await received(mq)

    assert sorted(bodies(first + second)) == [b"0", b"1"]
    assert [each.tries for each in first + second] == [0, 0]


@played_by(play)
async def test_queues_without_leases_take_no_room(group: Group, mq: AsyncClient, /, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leasing, "_MOST_QUEUES", 1)
    await mq.admin.create_topic("orders", 4)
    await mq.admin.create_group(GroupConfig("billing"))

    assert await received(mq) == []


@played_by(play)
async def test_caller_that_leaves_during_a_look_leaves_no_lease(group: Group, mq: AsyncClient, /, monkeypatch: pytest.MonkeyPatch) -> None:
    await fill_queues(mq, 2)
    looks, read = itertools.count(1), Leasing._read  # noqa: SLF001

    async def read_one(leases: Leasing, *order: Any) -> Any:
        if next(looks) == 2:
            await asyncio.Event().wait()  # until the caller's deadline
        return await read(leases, *order)

    monkeypatch.setattr(Leasing, "_read", read_one)
    with pytest.raises(DittoError):
        await received(mq)

    assert sorted(bodies(await received(mq))) == [b"0", b"1"]


@played_by(play)
async def test_callers_that_wait_keep_nobody_from_receiving(group: Group, mq: AsyncClient) -> None:
    """More of them than there is room for answers on one connection."""
    await fill(mq, 0)
    waiting = [asyncio.ensure_future(received(mq, 1, wait_s=4)) for _ in range(8)]
    await asyncio.sleep(3)
    async with mq.producer() as producer:
        await producer.publish_message(Message("orders", b"new", 0))

    found = await asyncio.gather(*waiting)

    assert sorted(map(len, found)) == [0] * 7 + [1]


@played_by(play)
async def test_damaged_leased_message_is_asked_for_and_comes(group: Group, mq: AsyncClient) -> None:
    await fill(mq, 1)
    [message] = (await mq.reader("orders", 0).pull(0)).messages
    flip(group, "a0", message.physical_offset + message.record_bytes // 2)

    first = await received(mq)
    later = await received(mq, wait_s=4)

    assert (first, bodies(later)) == ([], [b"0"])


@played_by(play)
async def test_damaged_message_that_is_sent_back_is_asked_for(group: Group, mq: AsyncClient) -> None:
    await fill(mq, 1)
    [message] = (await mq.reader("orders", 0).pull(0)).messages
    flip(group, "a0", message.physical_offset + message.record_bytes // 2)

    with pytest.raises(CorruptRecord):
        await sent_back(mq, TopicQueue("orders", 0), 0)
    await asyncio.sleep(4)

    assert (await sent_back(mq, TopicQueue("orders", 0), 0)).tries == 1


@played_by(play)
async def test_deleted_topic_keeps_no_other_queue_from_being_committed(group: Group, mq: AsyncClient) -> None:
    await fill(mq, 1)
    await mq.admin.create_topic("parcels", 1)
    async with mq.producer() as producer:
        await producer.publish_message(Message("parcels", b"p", 0))
    request = pb.ReceiveRequest(group="billing", topic="parcels", lease=Duration(seconds=1))
    await asked(mq, MASTER, "Receive", request)
    lost = await received(mq, lease_s=1)

    await mq.admin.delete_topic("parcels")
    await asyncio.sleep(3)

    assert (bodies(lost), await committed(mq)) == ([b"0"], 1)


@played_by(play)
async def test_repeated_acknowledgement_is_answered_as_the_first(group: Group, mq: AsyncClient) -> None:
    await fill(mq)
    leased = await received(mq)

    first = await acknowledged(mq, leased)
    await asyncio.sleep(5)  # the queue is drained, and forgotten

    assert (first, await acknowledged(mq, leased)) == ([True] * 3, [True] * 3)


@played_by(play)
async def test_token_nobody_gave_acknowledges_nothing(group: Group, mq: AsyncClient) -> None:
    await fill(mq)
    [zero, _, _] = await received(mq)
    epoch, queue, offset, _, topic = zero.lease_token.split(".")

    request = pb.AcknowledgeRequest(
        group="billing",
        lease_tokens=[
            f"{epoch}.{queue}.{offset}.99.{topic}",
            f"{epoch}.{queue}.7.1.{topic}",
            f"0.{queue}.3.1.{topic}",
            f"0.{queue}.1.0.{topic}",
            f"9{epoch}.0.0.1.{topic}",
        ],
    )
    told = (await asked(mq, MASTER, "Acknowledge", request)).results

    assert [each.acknowledged for each in told] == [False] * 5
    assert await committed(mq) is None
