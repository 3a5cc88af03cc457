"""Dead letters: listed by every node, replayed by the master, each page or none of it, over failovers too."""

import asyncio
from dataclasses import replace

import pytest

from dittomq._pb.ditto.admin.v1 import groups_pb2 as pb
from dittomq._pb.ditto.admin.v1.groups_pb2_grpc import GroupServiceStub
from dittomq.client import AsyncClient, DeadLetterPage, DeadLetterQuery, GroupConfig, LetterPlace, Message, ReplayOrder, ReplayResult
from dittomq.consumer.assignment import TopicQueue
from dittomq.errors import DittoError, GroupNotFound, InvalidField, NotMaster, NotReady, OffsetOutOfRange, TopicNotFound, Unavailable
from dittomq.metadata.groups import GroupUpdate
from dittomq.rpc.channel import call
from tests.simulation.group import Group, play
from tests.support.hand_held_member import sent_back
from tests.support.virtual_time import played_by

ORDERS = TopicQueue("orders", 0)
BILLING = DeadLetterQuery("billing")


async def give_up(mq: AsyncClient, count: int, *, retry_queues: int = 1) -> None:
    """Topic "orders" with so many messages in its queue 0, which group "billing" gives up one after the other."""
    await mq.admin.create_topic("orders", 1)
    await mq.admin.create_group(GroupConfig("billing", retry_max_times=0, retry_queues=retry_queues))
    await publish(mq, *(b"%d" % number for number in range(count)))
    for number in range(count):
        assert (await sent_back(mq, ORDERS, number)).dead_letter


async def publish(mq: AsyncClient, *bodies: bytes) -> None:
    async with mq.producer() as producer:
        for body in bodies:
            await producer.publish_message(Message("orders", body, 0, keys=("k",), tag="paid", properties={"who": "me"}))


async def letters(mq: AsyncClient, query: DeadLetterQuery = BILLING) -> DeadLetterPage:
    [result] = await mq.admin.list_dead_letters(query)
    if result.error is not None:
        raise result.error
    assert result.value is not None
    return result.value


async def replayed(mq: AsyncClient, order: ReplayOrder) -> ReplayResult:
    [result] = await mq.admin.replay_dead_letters(order)
    if result.error is not None:
        raise result.error
    assert result.value is not None
    return result.value


async def asked(mq: AsyncClient, address: str, method: str, request: object) -> object:
    stub = mq.admin._around.channels.stub(GroupServiceStub, address)  # noqa: SLF001
    return await call(getattr(stub, method), request, who=address, deadline_s=5)


async def retries(mq: AsyncClient, count: int, queue: int = 0) -> list[tuple[bytes, dict[str, str]]]:
    """What lies in a queue of the group's retry topic, when it is at least so much."""
    reader = mq.reader("%RETRY%billing", queue=queue)
    while True:
        try:
            found = (await reader.pull(0)).messages
        except (TopicNotFound, OffsetOutOfRange, Unavailable, NotReady):
            found = ()
        if len(found) >= count:
            return [(each.body, dict(each.properties)) for each in found]
        await asyncio.sleep(0.2)


@played_by(play)
async def test_replay_gives_the_group_each_dead_letter_once_and_keeps_it(group: Group, mq: AsyncClient) -> None:
    await give_up(mq, 3)

    first = await letters(mq, replace(BILLING, page_size=2))
    second = await letters(mq, replace(BILLING, page_size=2, page_token=first.next_token))
    would_be = await replayed(mq, ReplayOrder(BILLING, validate_only=True))
    result = await replayed(mq, ReplayOrder(BILLING))

    assert [(each.message.body, each.origin_topic, each.tries) for each in (*first.letters, *second.letters)] == [
        (b"%d" % number, "orders", 0) for number in range(3)
    ]
    assert second.next_token == ""
    assert result == would_be
    assert [(each.place, each.retry_queue) for each in result.replayed] == [(LetterPlace(0, number), 0) for number in range(3)]
    copies = await retries(mq, 3)
    assert [body for body, _ in copies] == [b"0", b"1", b"2"]
    assert {(each["RETRY_TOPIC"], each["who"], each.get("RECONSUME_TIME")) for _, each in copies} == {("orders", "me", None)}
    assert len((await letters(mq)).letters) == 3


@played_by(play)
async def test_replay_ends_though_the_group_gives_everything_up_again(group: Group, mq: AsyncClient) -> None:
    await give_up(mq, 2)

    first = await replayed(mq, ReplayOrder(replace(BILLING, page_size=1)))
    assert (await sent_back(mq, TopicQueue("%RETRY%billing", 0), 0)).dead_letter
    second = await replayed(mq, ReplayOrder(replace(BILLING, page_size=1, page_token=first.next_token)))

    assert [each.place.offset for each in (*first.replayed, *second.replayed)] == [0, 1]
    assert second.next_token == ""
    assert [each.message.queue_offset for each in (await letters(mq)).letters] == [0, 1, 2]


@played_by(play)
async def test_failover_between_list_and_replay_leaves_no_dead_letter_out(group: Group, mq: AsyncClient) -> None:
    await give_up(mq, 3)
    first = await replayed(mq, ReplayOrder(replace(BILLING, page_size=2)))

    await group.kill("a0")
    await group.fail_over("a/1")
    second = await _until_answered(mq, ReplayOrder(replace(BILLING, page_size=2, page_token=first.next_token)))

    assert [each.place.offset for each in (*first.replayed, *second.replayed)] == [0, 1, 2]
    assert second.next_token == ""
    assert [body for body, _ in await retries(mq, 3)] == [b"0", b"1", b"2"]


async def _until_answered(mq: AsyncClient, order: ReplayOrder) -> ReplayResult:
    while True:
        try:
            return await replayed(mq, order)
        except (NotReady, NotMaster, Unavailable):
            await asyncio.sleep(0.2)


@played_by(play)
async def test_slave_lists_dead_letters_and_replays_none(group: Group, mq: AsyncClient) -> None:
    await give_up(mq, 1)
    request = pb.ListDeadLettersRequest(group="billing", prefer_text=True)

    listed = await asked(mq, "a1:10911", "ListDeadLetters", request)
    while not listed.dead_letters:  # type: ignore[attr-defined]
        await asyncio.sleep(0.2)
        listed = await asked(mq, "a1:10911", "ListDeadLetters", request)

    assert listed.dead_letters[0].message.text == "0"  # type: ignore[attr-defined]
    with pytest.raises(NotMaster):
        await asked(mq, "a1:10911", "ReplayDeadLetters", pb.ReplayDeadLettersRequest(group="billing"))


@played_by(play)
async def test_replay_of_one_dead_letter_or_of_those_since_a_time_takes_no_other(group: Group, mq: AsyncClient) -> None:
    await give_up(mq, 1)
    await asyncio.sleep(5)
    since_ms = (await letters(mq)).letters[0].message.store_ms + 1_000
    await publish(mq, b"late")
    assert (await sent_back(mq, ORDERS, 1)).dead_letter

    late = await replayed(mq, ReplayOrder(replace(BILLING, from_ms=since_ms)))
    one = await replayed(mq, ReplayOrder(BILLING, LetterPlace(0, 0)))

    assert [each.place.offset for each in late.replayed] == [1]
    assert [each.place.offset for each in one.replayed] == [0]
    assert [body for body, _ in await retries(mq, 2)] == [b"late", b"0"]


@played_by(play)
async def test_refused_replay_stores_nothing(group: Group, mq: AsyncClient) -> None:
    await give_up(mq, 1)
    await mq.admin.create_group("shipping")
    other = (await letters(mq, replace(BILLING, page_size=1))).next_token or "1.0.0.00000000"

    async def refused(kind: type[DittoError], **fields: object) -> None:
        with pytest.raises(kind):
            await asked(mq, "a0:10911", "ReplayDeadLetters", pb.ReplayDeadLettersRequest(**{"group": "billing", **fields}))  # type: ignore[arg-type]

    await refused(InvalidField, page_size=257)
    await refused(InvalidField, page_size=-1)
    await refused(InvalidField, page_token="x")
    await refused(InvalidField, group="shipping", page_token=other)
    await refused(InvalidField, queue=0)
    await refused(InvalidField, offset=0)
    await refused(InvalidField, queue=0, offset=-1)
    await refused(InvalidField, queue=0, offset=0, page_size=1)
    await refused(OffsetOutOfRange, queue=0, offset=1)
    await refused(OffsetOutOfRange, queue=7, offset=0)
    await refused(GroupNotFound, group="nobody")
    await refused(InvalidField, group="no group")

    assert (await replayed(mq, ReplayOrder(DeadLetterQuery("shipping")))).replayed == ()
    with pytest.raises((TopicNotFound, NotReady)):  # nobody has heard of such a topic
        await mq.reader("%RETRY%billing", queue=0).pull(0)


@played_by(play)
async def test_copies_go_to_queues_that_members_read_when_the_group_asks_for_more(group: Group, mq: AsyncClient) -> None:
    """The retry topic keeps the queues that it was made with."""
    await give_up(mq, 2)
    await replayed(mq, ReplayOrder(BILLING, LetterPlace(0, 0)))
    await mq.admin.update_group(GroupUpdate(GroupConfig("billing", retry_queues=4, retry_max_times=3), ("retry_queues", "retry_max_times")))
    await publish(mq, b"2")

    result = await replayed(mq, ReplayOrder(BILLING))
    assert not (await sent_back(mq, ORDERS, 2, 0)).dead_letter

    assert {each.retry_queue for each in result.replayed} == {0}
    assert [body for body, _ in await retries(mq, 4)] == [b"0", b"0", b"1", b"2"]
