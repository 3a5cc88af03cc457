"""A producer against brokers that refuse, cut, fall silent and die, in virtual time."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace

import pytest

from dittomq._pb.ditto.messaging.v1 import messaging_pb2 as pb
from dittomq.client import AckLevelNotReached, AsyncClient, Message, NotStored, Producer, PutStatus, Receipt
from dittomq.errors import (
    DiskFull,
    LimitReached,
    NotMaster,
    NotReady,
    Unavailable,
)
from dittomq.offsets import Epoch
from tests.simulation.client_scenario import ClientTown, play
from tests.support.fake_broker import Refuse, Reply
from tests.support.virtual_time import played_by

FULL = DiskFull("a/0", 0, 1)


def messages(count: int, start: int = 0) -> list[Message]:
    return [Message("orders", b"%d" % at) for at in range(start, start + count)]


async def publish_together(orders: Producer, count: int) -> list[Receipt]:
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(orders.publish("orders", b"%d" % at)) for at in range(count)]
    return [task.result() for task in running]


@pytest.mark.parametrize("reply", [Reply.CUT, Reply.STORE_AND_CUT, Reply.STORE_SILENTLY])
@played_by(play)
async def test_a_lost_answer_is_asked_for_again_and_nothing_is_stored_twice(town: ClientTown, mq: AsyncClient, /, reply: Reply) -> None:
    town.master.script.extend([Reply.STORE, reply])
    async with mq.producer() as orders:
        receipts = await orders.publish_many(messages(5_000))

    assert sorted(town.log.bodies(), key=int) == [b"%d" % at for at in range(5_000)]
    assert [town.log.placed[receipt.physical_offset // 100].message.body for receipt in receipts] == [b"%d" % at for at in range(5_000)]


@played_by(play)
async def test_batch_refused_by_a_fenced_master_is_resent_once_to_the_new_epoch(town: ClientTown, mq: AsyncClient) -> None:
    """The route names a master of a newer epoch."""
    async with mq.producer() as orders, asyncio.TaskGroup() as tasks:
        await orders.publish("orders", b"before")
        town.master.frames.clear()
        town.master.script.append(Refuse(NotMaster("a/0", "a-1:10911")))
        publishing = tasks.create_task(orders.publish("orders", b"after"))
        await asyncio.sleep(1.0)

        assert len(town.master.frames) == 1, "a route that still names the node that refused leads nowhere"
        assert town.nameserver.asked >= 5, "it is looked for often"
        town.master.epoch = 2
        town.nameserver.nodes = [replace(node, epoch=Epoch(2)) for node in town.nameserver.nodes]
        began = town.now
        receipt = await publishing

    assert (receipt.epoch, len(town.master.frames)) == (2, 2)
    assert town.now - began < 0.3


@played_by(play)
async def test_many_messages_to_a_missing_topic_are_one_question_to_the_nameserver(town: ClientTown, mq: AsyncClient) -> None:
    async with mq.producer() as orders:
        outcomes = await orders.publish_many([Message("nowhere", b"x")] * 1_000, on_failure="return")

    assert outcomes.tally() == (0, 0, 1_000, 0)
    assert town.nameserver.asked == 1


@played_by(play)
async def test_many_messages_while_no_nameserver_answers_fail_after_the_time_of_one(town: ClientTown, mq: AsyncClient) -> None:
    town.kill("ns")
    async with mq.producer(retry_s=5) as orders:
        outcomes = await orders.publish_many(messages(1_000), on_failure="return")

    assert outcomes.tally() == (0, 0, 1_000, 0)
    assert town.now < 10


@played_by(play)
async def test_a_topic_that_is_made_while_many_are_published_is_found(town: ClientTown, mq: AsyncClient) -> None:
    async def source() -> AsyncIterator[Message]:
        for at in range(10):
            yield Message("late", b"%d" % at, queue=0)
            await asyncio.sleep(1)
            town.nameserver.queues["late"] = {"a": 1}

    async with mq.producer() as orders:
        outcomes = await orders.publish_many(source(), on_failure="return")

    assert outcomes.tally().not_stored < 3
    assert len(town.log.placed) == outcomes.tally().stored


@played_by(play)
async def test_what_waited_unsent_for_its_whole_time_says_so(town: ClientTown, mq: AsyncClient) -> None:
    town.master.gate = asyncio.Event()
    town.world.loop.call_later(4, town.master.gate.set)
    async with mq.producer(retry_s=0.5) as orders:
        outcomes = await orders.publish_many(messages(6 * 1_024), on_failure="return")

    assert outcomes.tally() == (4 * 1_024, 0, 2 * 1_024, 0)
    unsent = outcomes[-1]
    assert isinstance(unsent, NotStored)
    assert str(unsent) == (
        "not stored: its turn to be sent did not come in 0.5 s: the stream to the master of a is full (4); send slower or retry later"
    )


@played_by(play)
async def test_nothing_sent_to_a_dead_master_is_not_stored_and_never_unknown(town: ClientTown, mq: AsyncClient) -> None:
    town.kill("a-0")
    async with mq.producer() as orders:
        with pytest.raises(NotStored) as raised:
            await orders.publish("orders", b"lost", queue=0)

    assert isinstance(raised.value.cause, Unavailable)
    assert 10 <= town.now < 14


@played_by(play)
async def test_message_waiting_for_a_master_is_not_stored_though_its_topic_closes(town: ClientTown, mq: AsyncClient) -> None:
    """The topic takes no writes any longer."""
    async with mq.producer(retry_s=5) as orders:
        await orders.publish("orders", b"stored")
        town.kill("a-0")
        await asyncio.sleep(1)
        town.world.loop.call_later(1, town.nameserver.queues["orders"].__setitem__, "a", 0)
        with pytest.raises(NotStored):
            async with asyncio.timeout(20):
                await orders.publish("orders", b"waits")

    assert town.log.bodies() == [b"stored"]


@played_by(play)
async def test_what_follows_a_long_outage_fails_without_the_full_wait(town: ClientTown, mq: AsyncClient) -> None:
    town.kill("a-0")
    async with mq.producer(max_waiting_bytes=100_000) as orders:
        outcomes = await orders.publish_many(messages(10_000), on_failure="return")

    assert outcomes.tally() == (0, 0, 10_000, 0)
    assert town.now < 25


@played_by(play)
async def test_a_weak_receipt_is_raised_or_returned_as_asked(town: ClientTown, mq: AsyncClient) -> None:
    town.master.put_status = pb.PUT_STATUS_SLAVE_NOT_AVAILABLE
    async with mq.producer() as orders:
        with pytest.raises(AckLevelNotReached) as raised:
            await orders.publish("orders", b"weak")
        assert str(raised.value.receipt.copies[0]) == "a/0 flushed"
        outcomes = await orders.publish_many(messages(5), on_failure="return")
        assert all(isinstance(entry, AckLevelNotReached) for entry in outcomes)
    async with mq.producer(on_weak="return") as orders:
        assert (await orders.publish("orders", b"weak")).status == "SLAVE_NOT_AVAILABLE"


@played_by(play)
async def test_the_first_failure_ends_publish_many_and_says_which_message_it_was(town: ClientTown, mq: AsyncClient) -> None:
    read = []

    def source() -> Iterator[Message]:
        for message in [*messages(10), Message("nowhere", b""), *messages(10)]:
            read.append(message)
            yield message

    async with mq.producer() as orders:
        with pytest.raises(NotStored) as raised:
            await orders.publish_many(source())

    assert raised.value.index == 10
    assert len(read) == 12
    assert len(town.log.placed) == 10


@played_by(play)
async def test_a_full_producer_makes_publishers_wait_or_refuses_as_asked(town: ClientTown, mq: AsyncClient) -> None:
    async with mq.producer(max_waiting_bytes=1_000) as orders:
        await publish_together(orders, 500)
    async with mq.producer(max_waiting_bytes=1_000, on_full="raise") as orders:
        with pytest.raises(ExceptionGroup) as raised:
            await publish_together(orders, 500)

    assert len(town.log.placed) >= 500
    assert isinstance(raised.value.exceptions[0], NotStored)
    assert isinstance(raised.value.exceptions[0].cause, LimitReached)


@played_by(play)
async def test_leaving_the_block_sends_what_a_cancelled_caller_left_behind(town: ClientTown, mq: AsyncClient) -> None:
    async with mq.producer() as orders:
        await orders.publish("orders", b"warm")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.00001):
                await orders.publish("orders", b"left")

    assert town.log.bodies() == [b"warm", b"left"]


def test_leaving_the_block_raises_what_nobody_was_told_is_not_stored() -> None:
    async def story(town: ClientTown, mq: AsyncClient) -> None:
        async with mq.producer() as orders:
            await orders.publish("orders", b"warm")
            town.master.script.append(Refuse(FULL))
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.00001):
                    await orders.publish("orders", b"left")

    with pytest.raises(NotStored):
        ClientTown().play(story)


@played_by(play)
async def test_a_topic_once_known_is_published_to_while_no_nameserver_answers(town: ClientTown, mq: AsyncClient) -> None:
    async with mq.producer() as orders:
        await orders.publish("orders", b"one")
        town.kill("ns")
        await asyncio.sleep(60)
        await orders.publish("orders", b"two")

    assert town.log.bodies() == [b"one", b"two"]


@played_by(play)
async def test_silent_nameserver_is_awaited_by_one_use_of_an_old_route_at_a_time(town: ClientTown, mq: AsyncClient) -> None:
    async with mq.producer() as orders:
        await orders.publish("orders", b"one")
        town.world.network.silence("client", "ns")
        await asyncio.sleep(31)
        began = town.now
        await orders.publish("orders", b"two")
        waited = town.now
        for _ in range(5):
            await orders.publish("orders", b"more")
            await mq.reader("orders", 0).pull(0)

    assert 2.9 < waited - began < 3.2
    assert town.now - waited < 0.1


@played_by(play)
async def test_a_lone_message_lingers_no_longer_than_asked(town: ClientTown, mq: AsyncClient) -> None:
    async with mq.producer(linger_s=0.5) as orders:
        await orders.publish("orders", b"warm")
        began = town.now
        await publish_together(orders, 50)

    assert 0.5 <= town.now - began < 0.7
    assert len(town.master.frames) == 2


@played_by(play)
async def test_lingered_message_leaves_with_the_answer_of_the_batch_in_flight(town: ClientTown, mq: AsyncClient) -> None:
    """Time passes until then."""
    async with mq.producer(linger_s=0.005) as orders, asyncio.TaskGroup() as tasks:
        town.master.gate = asyncio.Event()
        tasks.create_task(orders.publish("orders", b"first"))
        await asyncio.sleep(0.1)
        tasks.create_task(orders.publish("orders", b"second"))
        await asyncio.sleep(1)
        assert len(town.master.frames) == 1
        town.master.gate.set()

    assert town.log.bodies() == [b"first", b"second"]
    assert town.now < 2


@played_by(play)
async def test_lingered_message_is_stored_once_its_master_is_back(town: ClientTown, mq: AsyncClient) -> None:
    """Time passes until then."""
    town.kill("a-0")
    town.world.loop.call_later(5, town.restart, "a-0")
    async with mq.producer(linger_s=0.005) as orders:
        await orders.publish("orders", b"bound", queue=0)

    assert town.log.bodies() == [b"bound"]


@pytest.mark.parametrize(("name", "cluster"), [("b/0", "test"), ("a/0", "another")])
@played_by(play, groups=("a", "b"))
async def test_nothing_is_sent_to_another_node_at_the_masters_address(
    town: ClientTown, mq: AsyncClient, /, name: str, cluster: str
) -> None:
    """Sending resumes when the route leads to the master."""
    stranger = town.brokers["b/0"]
    stranger.name, stranger.cluster = name, cluster
    whole = town.nameserver.nodes
    town.nameserver.nodes = [replace(node, address="b-0:10911") if node.name == "a/0" else node for node in whole]
    town.world.loop.call_later(1, setattr, town.nameserver, "nodes", whole)
    async with mq.producer() as orders:
        await orders.publish("orders", b"kept", queue=0)

    assert town.now > 1
    assert (town.logs["a"].bodies(), town.logs["b"].bodies(), stranger.frames) == ([b"kept"], [], [])


@played_by(play)
async def test_client_asks_again_while_a_nameserver_cannot_know_topics(town: ClientTown, mq: AsyncClient) -> None:
    """A route once known serves."""
    unheard = NotReady("the nameserver", "it was just started")

    async def hear_brokers_after(seconds: float) -> None:
        town.nameserver.refusal = unheard
        await asyncio.sleep(seconds)
        town.nameserver.refusal = None

    async with asyncio.TaskGroup() as tasks, mq.producer() as orders:
        tasks.create_task(hear_brokers_after(5))
        await asyncio.sleep(0)
        assert (await orders.publish("orders", b"waits", queue=0)).status is PutStatus.PUT_OK
        assert 5 <= town.now < 7
        tasks.create_task(hear_brokers_after(5))
        await asyncio.sleep(0)
        assert (await orders.publish("orders", b"does not", queue=0)).status is PutStatus.PUT_OK
        assert town.now < 7

    town.nameserver.refusal = unheard
    with pytest.raises(NotReady):
        await mq.route("payments")
    async with mq.producer(retry_s=1) as orders:
        with pytest.raises(NotStored) as raised:
            await orders.publish("payments", b"nobody knows")
    assert isinstance(raised.value.cause, NotReady)
