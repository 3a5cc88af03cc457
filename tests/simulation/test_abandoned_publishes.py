"""Callers that wait no longer for what they have published: what is sent all the same, and who is told that it failed."""

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator, Iterator

import pytest

from dittomq.client import AsyncClient, Message, NotStored, OutcomeUnknown, Producer
from dittomq.client.send_results import Stored
from dittomq.errors import DiskFull, InvalidField
from dittomq.message import MAX_BATCH_MESSAGES
from tests.simulation.client_scenario import ClientTown, play
from tests.support.fake_broker import Refuse
from tests.support.virtual_time import played_by

FULL = DiskFull("a/0", 0, 1)


class SourceFailed(Exception):
    """The source of messages broke."""


async def for_ever() -> AsyncIterator[Message]:
    """A frame and a half, and then nothing for a long time."""
    for at in range(MAX_BATCH_MESSAGES * 3 // 2):
        yield Message("orders", b"%d" % at)
    await asyncio.sleep(1_000)


async def failing() -> AsyncIterator[Message]:
    for at in range(MAX_BATCH_MESSAGES * 3 // 2):
        yield Message("orders", b"%d" % at)
    raise SourceFailed


def failing_at_once() -> Iterator[Message]:
    for at in range(MAX_BATCH_MESSAGES * 3 // 2):
        yield Message("orders", b"%d" % at)
    raise SourceFailed


async def cancelled_while_its_source_waits(orders: Producer) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(1):
            await orders.publish_many(for_ever())


async def cancelled_while_it_waits_for_answers(orders: Producer) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(1):
            await orders.publish_many([Message("orders", b"%d" % at) for at in range(3)])


async def left_by_its_source(orders: Producer) -> None:
    with contextlib.suppress(SourceFailed):
        await orders.publish_many(failing())


async def left_by_its_source_at_once(orders: Producer) -> None:
    with contextlib.suppress(SourceFailed):
        await orders.publish_many(failing_at_once())


ABANDONED = pytest.mark.parametrize(
    "abandoned",
    [cancelled_while_its_source_waits, cancelled_while_it_waits_for_answers, left_by_its_source, left_by_its_source_at_once],
)


@ABANDONED
@pytest.mark.parametrize("refused_before", [False, True])
def test_leaving_the_block_raises_unstored_messages_of_an_abandoned_call(abandoned: object, refused_before: bool) -> None:
    async def story(town: ClientTown, mq: AsyncClient) -> None:
        async with mq.producer() as orders:
            town.master.script.append(Refuse(FULL))
            town.master.gate = asyncio.Event()
            if refused_before:
                town.master.gate.set()
            await abandoned(orders)  # type: ignore[operator]
            town.master.gate.set()

    with pytest.raises(NotStored) as raised:
        ClientTown().play(story)
    assert isinstance(raised.value.cause, DiskFull)


@ABANDONED
@played_by(play)
async def test_leaving_the_block_is_silent_when_an_abandoned_call_is_stored(
    town: ClientTown, mq: AsyncClient, /, abandoned: object
) -> None:
    async with mq.producer() as orders:
        town.master.gate = asyncio.Event()
        await abandoned(orders)  # type: ignore[operator]
        town.master.gate.set()

    assert len(town.log.placed) in (3, MAX_BATCH_MESSAGES)


def test_leaving_the_block_raises_what_was_refused_before_it_was_sent() -> None:
    """Its call was abandoned."""

    async def story(town: ClientTown, mq: AsyncClient) -> None:
        def source() -> Iterator[Message]:
            yield Message("orders", b"", keys=("a b",))
            raise SourceFailed

        async with mq.producer() as orders:
            with pytest.raises(SourceFailed):
                await orders.publish_many(source(), on_failure="return")

    with pytest.raises(NotStored) as raised:
        ClientTown().play(story)
    assert isinstance(raised.value.cause, InvalidField)


@played_by(play)
async def test_what_a_call_has_told_of_is_not_raised_again_when_the_block_is_left(town: ClientTown, mq: AsyncClient) -> None:
    town.master.script.append(Refuse(FULL))
    async with mq.producer() as orders:
        with pytest.raises(NotStored):
            await orders.publish_many([Message("orders", b"told")])


@played_by(play)
async def test_of_cancelled_publishes_that_were_stored_nothing_is_kept(town: ClientTown, mq: AsyncClient) -> None:
    async with mq.producer() as orders:
        for _ in range(50):
            town.master.gate = asyncio.Event()
            publishing = asyncio.create_task(orders.publish("orders", b"left"))
            await asyncio.sleep(0.1)
            publishing.cancel()
            await asyncio.wait([publishing])
            town.master.gate.set()
            await asyncio.sleep(0.1)

        assert len(town.log.placed) == 50
        gc.collect()
        assert sum(isinstance(each, Stored) for each in gc.get_objects()) <= 1


class BlockLeft(Exception):
    """The caller's own error, with which a block is left."""


@pytest.mark.parametrize("turns", range(8))
@played_by(play)
async def test_a_publish_whose_block_is_left_with_an_error_says_what_became_of_it(town: ClientTown, mq: AsyncClient, /, turns: int) -> None:
    async with mq.producer() as first:
        await first.publish("orders", b"so that the route is known")
    with contextlib.suppress(BlockLeft):
        async with mq.producer() as orders:
            publishing = asyncio.ensure_future(orders.publish("orders", b"x"))
            for _turn in range(turns):
                await asyncio.sleep(0)
            raise BlockLeft
    async with asyncio.timeout(60):
        with pytest.raises((NotStored, OutcomeUnknown)):
            await publishing


@pytest.mark.parametrize("many", [False, True])
@played_by(play)
async def test_a_publish_outside_of_its_block_is_not_stored_and_says_why(town: ClientTown, mq: AsyncClient, /, many: bool) -> None:
    async def publish(orders: Producer) -> None:
        await (orders.publish_many([Message("orders", b"x")]) if many else orders.publish("orders", b"x"))

    orders = mq.producer()
    with pytest.raises(NotStored, match=r"inside its block only.* nothing was sent"):
        await publish(orders)
    async with orders:
        await orders.publish("orders", b"stored")
    with pytest.raises(NotStored, match=r"inside its block only.* nothing was sent"):
        await publish(orders)
    assert len(town.log.placed) == 1


@played_by(play)
async def test_a_publish_that_waits_for_room_when_its_block_is_left_is_not_stored(town: ClientTown, mq: AsyncClient) -> None:
    town.master.gate = asyncio.Event()
    with contextlib.suppress(BlockLeft):
        async with mq.producer(max_waiting_bytes=1) as orders:
            first, second = (asyncio.ensure_future(orders.publish("orders", body)) for body in (b"first", b"second"))
            await asyncio.sleep(1)
            raise BlockLeft
    async with asyncio.timeout(60):
        with pytest.raises(OutcomeUnknown):
            await first
        with pytest.raises(NotStored, match="nothing was sent"):
            await second
