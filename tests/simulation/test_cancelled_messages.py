"""Cancelling delayed messages: what is cancelled never comes, and what was too late came once."""

import asyncio
import contextlib
import random

import pytest

from dittomq._pb.ditto.messaging.v1 import messaging_pb2 as pb
from dittomq._pb.ditto.messaging.v1.messaging_pb2_grpc import MessagingServiceStub
from dittomq.client import AsyncClient, CancelOutcome, Message, Receipt
from dittomq.errors import DittoError, InvalidField, LimitReached, MessageNotFound, NotMaster, PreconditionFailed
from dittomq.rpc.channel import call
from dittomq.tokens import decode_token, encode_token
from tests.simulation.group import Group, bodies, play
from tests.support.virtual_time import played_by


async def create(mq: AsyncClient) -> None:
    [created] = await mq.admin.create_topic("orders", 1)
    assert created.error is None


async def delay(mq: AsyncClient, *delays_s: float) -> list[Receipt]:
    async with mq.producer() as producer:
        return [await producer.publish("orders", f"{delay_s:g}", delay_s=delay_s) for delay_s in delays_s]


@pytest.mark.parametrize("delay_s", [5, 30.5], ids=["level", "timer"])
@played_by(play)
async def test_cancelled_message_never_comes_and_others_do(group: Group, mq: AsyncClient, /, delay_s: float) -> None:
    await create(mq)
    [cancelled, _, late] = await delay(mq, delay_s, delay_s + 1.5, 0.5)
    await asyncio.sleep(2)

    first = await mq.messages.cancel(cancelled.token)
    again = await mq.messages.cancel(cancelled.token)
    too_late = await mq.messages.cancel(late.token)
    await asyncio.sleep(delay_s + 2)

    assert (first, again, too_late) == (CancelOutcome.CANCELLED, CancelOutcome.CANCELLED, CancelOutcome.ALREADY_DELIVERED)
    assert await bodies(mq, "a/0") == [b"0.5", f"{delay_s + 1.5:g}".encode()]
    assert await mq.messages.cancel(cancelled.token) is CancelOutcome.CANCELLED


@played_by(play)
async def test_cancellation_survives_a_failover(group: Group, mq: AsyncClient) -> None:
    await create(mq)
    receipts = await delay(mq, 10, 12.5, 11)
    assert [await mq.messages.cancel(each.token) for each in receipts[:2]] == [CancelOutcome.CANCELLED] * 2
    await group.kill("a0")
    await group.fail_over("a/1")

    await asyncio.sleep(14)

    assert await bodies(mq, "a/1") == [b"11"]
    assert await mq.messages.cancel(receipts[0].token) is CancelOutcome.CANCELLED
    assert await mq.messages.cancel(receipts[2].token) is CancelOutcome.ALREADY_DELIVERED


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_message_comes_exactly_if_its_cancellation_says_that_it_was_too_late(seed: int) -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await create(mq)
        chance = random.Random(seed)
        async with mq.producer() as producer:
            delays = [chance.choice([1_000, 5_000, chance.randrange(1, 8_000)]) for _ in range(60)]
            receipts = await producer.publish_many([Message("orders", b"%d" % at, delay_ms=each) for at, each in enumerate(delays)])
        outcomes: dict[bytes, CancelOutcome] = {}

        async def cancel(number: int, receipt: Receipt) -> None:
            await asyncio.sleep(chance.uniform(0, delays[number] / 1_000 + 0.1))
            with contextlib.suppress(DittoError):
                outcomes[b"%d" % number] = await mq.messages.cancel(receipt.token)

        async with asyncio.TaskGroup() as tasks:
            for number, receipt in enumerate(receipts):
                if number % 3:
                    tasks.create_task(cancel(number, receipt))
            await asyncio.sleep(chance.uniform(1, 4))
            await group.kill("a0")
            await group.fail_over("a/1")
        await asyncio.sleep(10)

        came = await bodies(mq, "a/1")
        assert len(set(came)) == len(came)
        assert {b"%d" % number for number in range(0, 60, 3)} <= set(came)
        for body, outcome in outcomes.items():
            assert outcome is CancelOutcome.UNKNOWN or (body in came) is (outcome is CancelOutcome.ALREADY_DELIVERED), body

    play(story, seed=seed)


@played_by(play)
async def test_only_tokens_of_this_groups_delayed_messages_can_be_cancelled(group: Group, mq: AsyncClient) -> None:
    await create(mq)
    async with mq.producer() as producer:
        plain = await producer.publish("orders", b"x")
    [receipt] = await delay(mq, 5)
    token = decode_token(receipt.token)

    with pytest.raises(PreconditionFailed):
        await mq.messages.cancel(plain.token)
    with pytest.raises(MessageNotFound):
        await mq.messages.cancel(encode_token("a", token.epoch, type(token.end)(token.end + 5_000), token.incarnation, size=token.size))
    with pytest.raises(MessageNotFound):
        await mq.messages.cancel(encode_token("a", type(token.epoch)(99), token.end, size=token.size))
    for text in ("", "x", "F" * 32, "AC11000100002A9F0000000000000000", encode_token("b", token.epoch, token.end, size=token.size)):
        with pytest.raises(InvalidField):
            await mq.messages.cancel(text)
    await asyncio.sleep(6)
    assert await bodies(mq, "a/0") == [b"x", b"5"]


@played_by(play)
async def test_slave_names_the_master_to_whoever_cancels(group: Group, mq: AsyncClient) -> None:
    await create(mq)
    [receipt] = await delay(mq, 5)
    [slave] = [node for node in await mq.admin.list_brokers() if node.name == "a/1"]
    stub = mq._around.channels.stub(MessagingServiceStub, slave.address)  # noqa: SLF001  # the client asks masters

    with pytest.raises(NotMaster):
        await call(stub.Cancel, pb.CancelRequest(token=receipt.token), who="a/1", deadline_s=3)


@played_by(play)
async def test_new_master_knows_no_cancellations_of_messages_that_are_passed(group: Group, mq: AsyncClient) -> None:
    await create(mq)
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr("services.master.cancellation.MAX_CANCELLED", 2)
        passed = await delay(mq, 5, 5.5)
        assert [await mq.messages.cancel(each.token) for each in passed] == [CancelOutcome.CANCELLED] * 2
        await delay(mq, 5, 5.5)
        await asyncio.sleep(7)
        [waiting] = await delay(mq, 30)
        assert await mq.messages.cancel(waiting.token) is CancelOutcome.CANCELLED
        await group.kill("a0")
        await group.fail_over("a/1")
        group.node("a0").start()
        await group.in_sync(mq, "a/1")

        [late] = await delay(mq, 30)
        assert await mq.messages.cancel(late.token) is CancelOutcome.CANCELLED
        [later] = await delay(mq, 30)
        with pytest.raises(LimitReached):
            await mq.messages.cancel(later.token)
    await asyncio.sleep(32)

    assert await bodies(mq, "a/1") == [b"5", b"5.5", b"30"]
