"""What a broker refuses, a frame or one message of it: what fails, and what is stored all the same."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from dittomq.client import AsyncClient, Message, NotStored, Producer, Receipt
from dittomq.errors import (
    DiskFull,
    InvalidField,
    LimitReached,
    MessageTooLarge,
    NotEnoughReplicas,
    NotReady,
    PermissionDenied,
    QueueNotFound,
    Refused,
    TopicNotFound,
)
from tests.simulation.client_scenario import ClientTown, play
from tests.support.fake_broker import Refuse, Reply
from tests.support.virtual_time import played_by

FEW = NotEnoughReplicas("a/0", 1, 2)
FULL = DiskFull("a/0", 0, 1)
HALF = "\ud83d"  # of a surrogate pair: JSON may hold it, UTF-8 has none


def messages(count: int, start: int = 0) -> list[Message]:
    return [Message("orders", b"%d" % at) for at in range(start, start + count)]


@pytest.mark.parametrize("error", [NotReady("a/0", "it drains"), FEW, LimitReached("its queue", 1)])
@played_by(play)
async def test_a_refusal_that_may_pass_is_tried_again(town: ClientTown, mq: AsyncClient, /, error: NotReady) -> None:
    town.master.script.extend([Refuse(error)] * 3)
    async with mq.producer() as orders:
        await orders.publish("orders", b"patient")

    assert town.log.bodies() == [b"patient"]


@played_by(play)
async def test_a_refusal_that_does_not_pass_in_time_is_not_stored(town: ClientTown, mq: AsyncClient) -> None:
    town.master.script.extend([Refuse(FEW)] * 1_000)
    async with mq.producer(retry_s=5) as orders:
        with pytest.raises(NotStored) as raised:
            await orders.publish("orders", b"never")
        assert isinstance(raised.value.cause, NotEnoughReplicas)
        assert 5 <= town.now < 8

        town.master.script.clear()
        await orders.publish("orders", b"later")

    assert town.log.bodies() == [b"later"]


@played_by(play)
async def test_a_refused_batch_fails_alone_and_the_batches_behind_it_are_stored(town: ClientTown, mq: AsyncClient) -> None:
    town.master.script.extend([Reply.STORE, Refuse(FULL)])
    async with mq.producer() as orders:
        outcomes = await orders.publish_many(messages(5 * 1_024), on_failure="return")

    assert outcomes.tally() == (4 * 1_024, 0, 1_024, 0)
    failed = outcomes[1_024]
    assert isinstance(failed, NotStored)
    assert isinstance(failed.cause, DiskFull)
    assert failed.index == 1_024
    assert town.log.bodies() == [b"%d" % at for at in range(5 * 1_024) if not 1_024 <= at < 2_048]


@played_by(play)
async def test_a_refusal_of_one_message_fails_that_publish_and_no_other(town: ClientTown, mq: AsyncClient) -> None:
    async with mq.producer() as orders:
        await orders.publish("orders", b"warm")
        town.master.script.append(Refuse(QueueNotFound("orders", 3, 3), index=1))
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(outcome(orders, b"%d" % at)) for at in range(4)]
        results = [task.result() for task in running]

    assert sum(isinstance(result, NotStored) for result in results) == 1
    assert len(town.log.placed) == 4


@played_by(play)
async def test_refusal_of_one_message_fails_only_that_one(town: ClientTown, mq: AsyncClient) -> None:
    """The others are stored in their order."""
    town.master.script.append(Refuse(InvalidField("keys", "cannot be"), index=2))
    async with mq.producer() as orders:
        outcomes = await orders.publish_many(messages(6), on_failure="return")

    assert outcomes.tally() == (5, 0, 1, 0)
    refused = outcomes[2]
    assert isinstance(refused, NotStored)
    assert (refused.index, refused.cause.reason) == (2, "INVALID_FIELD")
    assert town.log.bodies() == [b"0", b"1", b"3", b"4", b"5"]
    receipts = [entry for entry in outcomes if isinstance(entry, Receipt)]
    assert [receipt.queue_offset for receipt in receipts] == [0, 1, 2, 3, 4]


@played_by(play)
async def test_a_refused_queue_fails_all_messages_of_that_queue_and_no_other_in_one_round(town: ClientTown, mq: AsyncClient) -> None:
    town.master.script.append(Refuse(QueueNotFound("orders", 3, 3), index=30))
    async with mq.producer() as orders:
        outcomes = await orders.publish_many((Message("orders", b"%d" % at, queue=at % 4) for at in range(40)), on_failure="return")

    assert [at for at, entry in enumerate(outcomes) if isinstance(entry, NotStored)] == list(range(3, 40, 4))
    assert len(town.log.placed) == 30
    assert len(town.master.frames) == 2


@pytest.mark.parametrize("error", [TopicNotFound("orders", "a/0"), PermissionDenied("it takes no writes")])
@played_by(play)
async def test_refused_topic_fails_its_own_messages_in_all_queues_in_one_round(
    town: ClientTown, mq: AsyncClient, /, error: Refused
) -> None:
    """No other topic's messages fail."""
    town.nameserver.queues["bills"] = {"a": 4}
    town.master.script.append(Refuse(error, index=25))
    async with mq.producer() as orders:
        outcomes = await orders.publish_many(
            (Message("bills" if at < 20 else "orders", b"%d" % at, queue=at % 4) for at in range(60)), on_failure="return"
        )

    assert [at for at, entry in enumerate(outcomes) if isinstance(entry, NotStored)] == list(range(20, 60))
    assert len(town.log.placed) == 20
    assert len(town.master.frames) == 2


@played_by(play)
async def test_the_first_refused_message_of_many_is_raised_and_named(town: ClientTown, mq: AsyncClient) -> None:
    town.master.script.append(Refuse(InvalidField("keys", "cannot be"), index=4))
    async with mq.producer() as orders:
        with pytest.raises(NotStored) as raised:
            await orders.publish_many(messages(6))

    assert raised.value.index == 4
    assert len(town.log.placed) == 5


async def outcome(orders: Producer, body: bytes) -> Receipt | Exception:
    try:
        return await orders.publish("orders", body)
    except NotStored as error:
        return error


@pytest.mark.parametrize(
    ("message", "cause"),
    [
        (Message("orders", bytes(4 * 1024 * 1024 + 1)), MessageTooLarge),
        (Message("orders", b"", keys=("a b",)), InvalidField),
        (Message("orders", b"", properties={"a": "\x01"}), InvalidField),
        (Message("orders", b"", tag="x" * 40_000), MessageTooLarge),
        (Message("orders", b"", queue=4), QueueNotFound),
        (Message("order", b""), TopicNotFound),
        (Message("../etc", b""), InvalidField),
        (Message(HALF, b""), InvalidField),
        (Message("orders", b"", order_key=HALF), InvalidField),
        (Message("orders", b"", queue=0, order_key=HALF), InvalidField),
        (Message("orders", b"", order_key="k" * 32_768), InvalidField),
        (Message("orders", b"", order_key="k" * 17 * 1024 * 1024), InvalidField),
        (Message("orders", b"", keys=("o-17", HALF)), InvalidField),
        (Message("orders", b"", tag=f"é{HALF}"), InvalidField),
        (Message("orders", b"", properties={HALF: "a"}), InvalidField),
        (Message("orders", b"", properties={"a": "\udcff"}), InvalidField),
        (Message("orders", b"", flag=1 << 31), InvalidField),
        (Message("orders", b"", flag=-(1 << 31) - 1), InvalidField),
        (Message("orders", b"", flag=1.0), InvalidField),  # type: ignore[arg-type]
        (Message("orders", b"", queue=1.0), InvalidField),  # type: ignore[arg-type]
        (Message("orders", b"", born_ms=1 << 63), InvalidField),
    ],
)
@played_by(play)
async def test_what_cannot_be_stored_is_refused_before_it_is_sent(
    town: ClientTown, mq: AsyncClient, /, message: Message, cause: type[Exception]
) -> None:
    async with mq.producer() as orders:
        town.master.gate = asyncio.Event()
        others = [asyncio.create_task(outcome(orders, b"%d" % at)) for at in range(3)]
        with pytest.raises(NotStored) as raised:
            await orders.publish_message(message)
        town.master.gate.set()
        outcomes = await orders.publish_many([*messages(3), message, *messages(3)], on_failure="return")

    assert isinstance(raised.value.cause, cause)
    assert str(raised.value).isprintable()
    assert {type(other.result()) for other in others} == {Receipt}
    assert outcomes.tally() == (6, 0, 1, 0)
    assert isinstance(outcomes[3], NotStored)


@played_by(play)
async def test_the_ends_of_what_the_wire_carries_are_stored(town: ClientTown, mq: AsyncClient) -> None:
    async with mq.producer() as orders:
        for flag, born_ms in ((-(1 << 31), -(1 << 63)), ((1 << 31) - 1, (1 << 63) - 1)):
            await orders.publish_message(Message("orders", b"", keys=("\U0001f600",), flag=flag, born_ms=born_ms))

    assert [one.message.flag for one in town.log.placed] == [-(1 << 31), (1 << 31) - 1]


@played_by(play)
async def test_a_body_of_text_that_has_no_utf8_is_not_stored(town: ClientTown, mq: AsyncClient) -> None:
    async with mq.producer() as orders:
        with pytest.raises(NotStored) as raised:
            await orders.publish("orders", HALF)

    assert isinstance(raised.value.cause, InvalidField)


@played_by(play)
async def test_who_is_refused_a_queue_that_is_written_no_more_asks_for_the_route_again(town: ClientTown, mq: AsyncClient) -> None:
    async with mq.producer() as orders:
        await orders.publish("orders", b"warm")
        town.nameserver.queues["orders"]["a"] = 1
        town.master.script.append(Refuse(QueueNotFound("orders", 1, 1), index=0))
        with pytest.raises(NotStored):
            await orders.publish("orders", b"refused")
        queues = {(await orders.publish("orders", b"later")).queue for _ in range(4)}
        asked = town.nameserver.asked
        await orders.publish("orders", b"last")

    assert queues == {0}
    assert town.nameserver.asked == asked


async def _stores_one(orders: Producer, each: str) -> bool:
    """Publish one message; False when its topic takes no writes."""
    message = Message("orders", b"one")
    try:
        await (orders.publish_many([message]) if each == "many" else orders.publish_message(message))
    except NotStored as refused:
        if isinstance(refused.cause, PermissionDenied):
            return False
        raise
    return True


@pytest.mark.parametrize("each", ["alone", "many"])
@played_by(play)
async def test_reopened_topic_is_published_to_within_a_second(town: ClientTown, mq: AsyncClient, /, each: str) -> None:
    """Its route is asked for once a second."""
    town.nameserver.permissions["a"] = 4
    async with mq.producer() as orders:
        for _ in range(30):
            assert not await _stores_one(orders, each)
            await asyncio.sleep(0.1)
        assert town.nameserver.asked <= 4
        town.nameserver.permissions["a"] = 6
        await asyncio.sleep(1.0)
        assert await _stores_one(orders, each)


@played_by(play)
async def test_messages_without_end_are_stored_again_when_their_topic_takes_writes_again(town: ClientTown, mq: AsyncClient) -> None:
    async def come() -> AsyncIterator[Message]:
        for _ in range(40):
            yield Message("orders", b"one")
            await asyncio.sleep(0.1)

    town.nameserver.permissions["a"] = 4
    town.world.loop.call_later(2.0, lambda: town.nameserver.permissions.update(a=6))
    async with mq.producer() as orders:
        outcomes = await orders.publish_many(come(), on_failure="return")

    stored = [isinstance(outcome, Receipt) for outcome in outcomes]
    assert stored == sorted(stored)
    assert 5 <= stored.count(True) < 25


@played_by(play)
async def test_messages_without_limit_for_an_added_queue_are_stored_within_30_s(town: ClientTown, mq: AsyncClient) -> None:
    """Half a minute later."""

    async def come() -> AsyncIterator[Message]:
        for _ in range(80):
            yield Message("orders", b"one", queue=4)
            await asyncio.sleep(0.5)

    town.world.loop.call_later(2.0, lambda: town.nameserver.queues["orders"].update(a=5))
    async with mq.producer() as orders:
        outcomes = await orders.publish_many(come(), on_failure="return")

    stored = [isinstance(outcome, Receipt) for outcome in outcomes]
    assert stored == sorted(stored)
    assert 15 <= stored.count(True) <= 20  # its route is 30 s old by then
    assert town.nameserver.asked <= 3


@played_by(play, groups=("a", "b"))
async def test_producer_refused_by_one_group_goes_on_with_the_others(town: ClientTown, mq: AsyncClient) -> None:
    """The group's topic was closed."""
    async with mq.producer() as orders:
        await orders.publish("orders", b"warm", queue=0)
        town.nameserver.permissions["a"] = 4
        town.master.script.extend([Refuse(PermissionDenied("closed"), index=0)] * 9)
        stored = [await _stores_one(orders, "alone") for _ in range(9)]

    assert stored.count(False) == 1
