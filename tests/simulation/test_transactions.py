"""Transactions: what was committed comes exactly once, what was not never does, across failovers too."""

import asyncio
import contextlib
import random

import pytest

from dittomq.client import AsyncClient, Message, NotStored, Receipt, Transaction, TransactionCheck
from dittomq.errors import DittoError, InvalidField, MessageNotFound, PreconditionFailed, TopicNotFound
from dittomq.message import Draft, StoredMessage
from dittomq.metadata.formats import CONSUMER_OFFSETS
from dittomq.tokens import decode_token, encode_token
from dittomq.transactions import EXPIRED_TOPIC, HALF_TOPIC, TransactionEnd, op_of
from tests.simulation.disk import Deed, Disk, Inode, Operation
from tests.simulation.flipped_bits import flip
from tests.simulation.group import Group, bodies, play
from tests.support.virtual_time import played_by


async def create(mq: AsyncClient, topic: str = "orders") -> None:
    [created] = await mq.admin.create_topic(topic, 1)
    assert created.error is None


async def begun(mq: AsyncClient, *bodies_: bytes, topic: str = "orders") -> list[Receipt]:
    """Transactions that are begun and left."""
    receipts = []
    async with mq.producer() as producer:
        for body in bodies_:
            transaction = await producer.transaction(Message(topic, body, keys=("k",), tag="t", properties={"p": "v"}), "billing")
            await transaction.__aenter__()
            assert transaction.receipt is not None
            receipts.append(transaction.receipt)
    return receipts


@played_by(play)
async def test_message_of_a_transaction_is_read_once_it_is_committed(group: Group, mq: AsyncClient) -> None:
    await create(mq)
    async with mq.producer() as producer:
        async with await producer.transaction(Message("orders", b"x", keys=("k",), tag="t", properties={"p": "v"}), "billing") as begun_:
            await asyncio.sleep(2)
            assert await bodies(mq, "a/0") == []
        with pytest.raises(ValueError, match="no"):
            async with await producer.transaction(Message("orders", b"y"), "billing"):
                raise ValueError("no")
    await asyncio.sleep(1)

    [message] = (await mq.reader("orders", 0, broker="a").pull(0)).messages
    assert (message.body, message.keys, message.tag, dict(message.properties)) == (b"x", ("k",), "t", {"p": "v"})
    assert isinstance(begun_, Transaction)
    assert begun_.receipt is not None
    assert begun_.receipt.topic == HALF_TOPIC


@played_by(play)
async def test_committed_messages_come_once_after_failovers(group: Group, mq: AsyncClient) -> None:
    await create(mq)
    receipts = await begun(mq, b"0", b"1", b"2", b"3")
    await mq.transactions.end(receipts[0].token, commit=True)
    await mq.transactions.end(receipts[1].token, commit=False)
    await group.kill("a0")
    await group.fail_over("a/1")
    await mq.transactions.end(receipts[2].token, commit=True)
    group.node("a0").start()
    await group.in_sync(mq, "a/1")
    await group.kill("a1")
    await group.fail_over("a/0")
    await mq.transactions.end(receipts[0].token, commit=True)
    await mq.transactions.end(receipts[3].token, commit=True)
    await asyncio.sleep(2)

    assert sorted(await bodies(mq, "a/0")) == [b"0", b"2", b"3"]


@played_by(play)
async def test_transaction_that_has_ended_cannot_end_otherwise(group: Group, mq: AsyncClient) -> None:
    await create(mq)
    committed, rolled_back = await begun(mq, b"0", b"1")
    for commit, receipt in ((True, committed), (False, rolled_back)):
        await mq.transactions.end(receipt.token, commit=commit)
        await mq.transactions.end(receipt.token, commit=commit)
        with pytest.raises(PreconditionFailed):
            await mq.transactions.end(receipt.token, commit=not commit)
    await asyncio.sleep(1)

    assert await bodies(mq, "a/0") == [b"0"]


@played_by(play)
async def test_ends_of_what_is_no_transaction_are_refused(group: Group, mq: AsyncClient) -> None:
    await create(mq)
    await create(mq, "gone")
    async with mq.producer() as producer:
        plain = await producer.publish("orders", b"x")
        with pytest.raises(NotStored):
            await producer.transaction(Message("orders", b"x", properties={"TRAN_MSG": "true"}), "billing")
        with pytest.raises(InvalidField):
            await (await producer.transaction(Message("orders", b"x", delay_ms=1_000), "billing")).__aenter__()
        with pytest.raises(InvalidField):
            await (await producer.transaction(Message("orders", b"x"), "")).__aenter__()
        with pytest.raises(NotStored):
            await producer.publish(HALF_TOPIC, b"x", queue=0)
    [receipt] = await begun(mq, b"y", topic="gone")
    await mq.admin.delete_topic("gone")
    token = decode_token(receipt.token)

    with pytest.raises(PreconditionFailed):
        await mq.transactions.end(plain.token, commit=True)
    with pytest.raises(TopicNotFound):
        await mq.transactions.end(receipt.token, commit=True)
    with pytest.raises(MessageNotFound):
        await mq.transactions.end(encode_token("a", type(token.epoch)(77), token.end, size=token.size), commit=True)
    with pytest.raises(InvalidField):
        await mq.transactions.end("x", commit=True)


@played_by(play)
async def test_producers_of_the_group_are_asked_about_transactions_that_nobody_ended(group: Group, mq: AsyncClient) -> None:
    await create(mq)
    receipts = await begun(mq, b"0", b"1")
    asked: list[TransactionCheck] = []

    async def answer() -> None:
        with contextlib.suppress(DittoError):
            async for check in mq.transactions.watch("billing", "a"):
                asked.append(check)
                if check.attempt == 2:
                    await mq.transactions.end(check.token, commit=check.message.body == b"0")

    async with asyncio.TaskGroup() as tasks:
        watching = tasks.create_task(answer())
        await asyncio.sleep(40)
        watching.cancel()

    assert {check.token for check in asked} == {receipt.token for receipt in receipts}
    assert sorted(check.attempt for check in asked) == [1, 1, 2, 2]
    assert {check.topic for check in asked} == {"orders"}
    assert await bodies(mq, "a/0") == [b"0"]


@played_by(play)
async def test_nobody_is_asked_about_transactions_that_rocketmq_has_dealt_with(group: Group, mq: AsyncClient) -> None:
    """RocketMQ stores a half message anew with each check, and its offset alone says that the older ones are done with."""
    await create(mq)
    await begun(mq, b"0", b"1")
    for name in ("a0", "a1"):
        await group.kill(name)
        leave_half_messages_read(group.node(name).disk, 2)
        group.node(name).start()
    await group.in_sync(mq)
    [receipt] = await begun(mq, b"2")
    asked: set[str] = set()

    async def watch() -> None:
        async for check in mq.transactions.watch("billing", "a"):
            asked.add(check.token)

    async with asyncio.TaskGroup() as tasks:
        watching = tasks.create_task(watch())
        await asyncio.sleep(40)
        watching.cancel()

    assert asked == {receipt.token}


def leave_half_messages_read(disk: Disk, offset: int) -> None:
    """As RocketMQ leaves them in its file."""
    inode, content = Inode(), b'{"offsetTable":{"RMQ_SYS_TRANS_HALF_TOPIC@CID_RMQ_SYS_TRANS":{0:%d}}}' % offset
    inode.write(memoryview(content), 0, random.Random(1))
    disk.do(Operation(Deed.MADE, CONSUMER_OFFSETS.path, inode))


@played_by(play)
async def test_transaction_that_nobody_ends_is_put_aside_after_15_checks(group: Group, mq: AsyncClient) -> None:
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr("dittomq.transactions.LONGEST_CHECK_S", 10.0)
        await create(mq)
        [receipt] = await begun(mq, b"x")
        await asyncio.sleep(150)
        await mq.transactions.end((await begun(mq, b"y"))[0].token, commit=True)
        await asyncio.sleep(40)

    [message] = (await mq.reader(EXPIRED_TOPIC, 0, node="a/0").pull(0)).messages
    assert message.body == b"x"
    assert await bodies(mq, "a/0") == [b"y"]
    with pytest.raises(PreconditionFailed):
        await mq.transactions.end(receipt.token, commit=True)


@played_by(play)
async def test_committed_message_that_is_damaged_here_comes_once_it_is_repaired(group: Group, mq: AsyncClient) -> None:
    await create(mq)
    [receipt, other] = await begun(mq, b"0", b"1")
    token = decode_token(receipt.token)
    assert token.size is not None
    inside = token.end - token.size + 100

    def damaging(half: StoredMessage, end: TransactionEnd, now_ms: int) -> Draft:
        flip(group, "a0", inside)
        return op_of(half, end, now_ms)

    with pytest.MonkeyPatch.context() as patches:
        patches.setattr("services.master.transactions.op_of", damaging)
        await mq.transactions.end(receipt.token, commit=True)
    await mq.transactions.end(other.token, commit=True)
    await asyncio.sleep(20)

    assert await bodies(mq, "a/0") == [b"0", b"1"]
