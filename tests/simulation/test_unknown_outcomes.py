"""Messages whose answer was lost: what `resolve` may say of them, and sending them again."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from dittomq.client import AsyncClient, Message, NotStored, OutcomeHandle, OutcomeUnknown, Producer
from dittomq.errors import DittoError, FencedEpoch, InvalidField, NotMaster, OutOfOrderSequence, StorageFailure
from dittomq.offsets import Epoch
from dittomq.routes import Role
from tests.simulation.client_scenario import ClientTown, play
from tests.support.fake_broker import Log, Reply
from tests.support.virtual_time import played_by


def messages(count: int) -> list[Message]:
    return [Message("orders", b"%d" % at) for at in range(count)]


async def lost_answer(
    town: ClientTown, orders: Producer, body: bytes, then: Callable[[ClientTown], None], *, after_s: float = 1, queue: int | None = None
) -> OutcomeHandle:
    """Publish what the master stores and never answers, with what becomes of the master `then`; the handle of the unknown outcome."""
    town.master.script.append(Reply.STORE_SILENTLY)
    town.world.loop.call_later(after_s, then, town)
    with pytest.raises(OutcomeUnknown) as raised:
        await orders.publish("orders", body, queue=queue)
    return raised.value.handle


def die(town: ClientTown) -> None:
    """The master dies; its disk stays."""
    town.kill("a-0")


def lose(town: ClientTown) -> None:
    """The master dies and what only it had is gone."""
    town.kill("a-0")
    empty = Log()
    for broker in town.brokers.values():
        broker.log = empty
    town.logs["a"] = empty


def lose_last(town: ClientTown) -> None:
    """The master dies and its newest message is gone."""
    town.kill("a-0")
    gone = town.log.placed.pop()
    town.log.next.clear()
    town.log.by_sequence = {key: one for key, one in town.log.by_sequence.items() if one is not gone}


@played_by(play)
async def test_outcome_is_unknown_when_a_master_dies_and_resolve_finds_it(town: ClientTown, mq: AsyncClient) -> None:
    """The master dies with the answer."""
    async with mq.producer() as orders:
        await orders.publish("orders", b"warm", queue=1)
        handle = await lost_answer(town, orders, b"where", die, queue=1)
        town.master.epoch = 2
        town.restart("a-0")

        receipt = await orders.resolve(handle)
        after = await orders.publish("orders", b"after", queue=1)

    assert (receipt.queue_offset, receipt.duplicate) == (1, True)
    assert after.queue_offset == 2
    assert town.log.bodies() == [b"warm", b"where", b"after"]


@played_by(play)
async def test_resolve_finds_the_outcome_after_the_topic_was_deleted(town: ClientTown, mq: AsyncClient) -> None:
    """The client's last route knows no master, and nameservers know the topic no more."""
    async with mq.producer(retry_s=5.0) as orders:
        handle = await lost_answer(town, orders, b"where", die, queue=1)
        away, town.nameserver.nodes = town.nameserver.nodes, []
        with pytest.raises(OutcomeUnknown, match="no nameserver knows one now"):
            await orders.resolve(handle)
        town.nameserver.nodes = away
        del town.nameserver.queues["orders"]
        town.master.epoch = 2
        town.restart("a-0")

        receipt = await orders.resolve(handle)

    assert (receipt.queue_offset, receipt.duplicate) == (0, True)


@played_by(play)
async def test_resolve_asks_the_new_master_of_a_topic_that_was_deleted(town: ClientTown, mq: AsyncClient) -> None:
    """The client's last route names the old one, which is a slave now, and nameservers know the topic no more."""
    async with mq.producer(retry_s=5.0) as orders:
        handle = await lost_answer(town, orders, b"where", die, queue=1)
        del town.nameserver.queues["orders"]
        old, new = town.nameserver.nodes
        leading = replace(new, broker_id=0, configured_id=1, role=Role.SYNC_MASTER, epoch=Epoch(2))
        town.nameserver.nodes = [leading, replace(old, broker_id=1, configured_id=0, role=Role.SLAVE)]
        town.brokers["a/1"].refusal, town.brokers["a/1"].epoch = None, 2
        town.master.refusal = NotMaster("a/0", "")
        town.restart("a-0")

        receipt = await orders.resolve(handle)

    assert (receipt.queue_offset, receipt.duplicate) == (0, True)


@played_by(play)
async def test_not_in_the_log_of_a_new_epoch_is_not_stored(town: ClientTown, mq: AsyncClient) -> None:
    async with mq.producer() as orders:
        handle = await lost_answer(town, orders, b"gone", lose)
        town.master.epoch = 2
        town.restart("a-0")

        with pytest.raises(NotStored):
            await orders.resolve(handle)


@played_by(play)
async def test_not_in_the_log_of_the_same_epoch_stays_unknown_until_it_is_sent_again(town: ClientTown, mq: AsyncClient) -> None:
    async with mq.producer() as orders:
        handle = await lost_answer(town, orders, b"again", lose, queue=3)
        town.restart("a-0")

        with pytest.raises(OutcomeUnknown):
            await orders.resolve(handle)
        with pytest.raises(InvalidField, match="half of a surrogate pair"):
            await orders.send_again(handle, Message("orders", b"again", tag="\ud800"))
        first = await orders.send_again(handle, Message("orders", b"again"))
        second = await orders.send_again(handle, Message("orders", b"again"))

    assert (first.queue, first.duplicate) == (3, False)
    assert second.duplicate
    assert town.log.bodies() == [b"again"]


@played_by(play)
async def test_what_is_being_sent_again_is_not_called_absent_meanwhile(town: ClientTown, mq: AsyncClient) -> None:
    async with mq.producer() as orders:
        handle = await lost_answer(town, orders, b"again", lose)
        town.master.epoch = 2
        town.restart("a-0")
        await asyncio.sleep(20.0)
        await orders.publish("orders", b"other")
        town.master.gate = asyncio.Event()
        sending = asyncio.create_task(orders.send_again(handle, Message("orders", b"again")))
        await asyncio.sleep(1.0)

        with pytest.raises(OutcomeUnknown):
            await orders.resolve(handle)

        town.master.gate.set()
        assert not (await sending).duplicate


@played_by(play)
async def test_message_of_a_forgotten_producer_stays_unknown_and_is_stored_once(town: ClientTown, mq: AsyncClient) -> None:
    async with mq.producer() as orders:
        town.master.script.append(Reply.STORE_AND_FORGET)
        with pytest.raises(OutcomeUnknown, match="no longer remembered") as raised:
            await orders.publish("orders", b"where", queue=1)
        handle = raised.value.handle

        with pytest.raises(OutcomeUnknown, match="does not remember"):
            await orders.resolve(handle)
        with pytest.raises(OutcomeUnknown, match="no longer remembered"):
            await orders.send_again(handle, Message("orders", b"where"))
        after = await orders.publish("orders", b"after", queue=1)

    assert after.queue_offset == 1
    assert town.log.bodies() == [b"where", b"after"]


@played_by(play)
async def test_message_lost_behind_all_that_is_forgotten_can_be_sent_again(town: ClientTown, mq: AsyncClient) -> None:
    """Or is not stored."""
    async with mq.producer(timeout_s=1, retry_s=0.5) as warm, mq.producer(timeout_s=1, retry_s=0.5) as orders:
        await warm.publish("orders", b"warm")
        town.log.forget()
        handle = await lost_answer(town, orders, b"gone", lose_last, after_s=0.5)
        town.master.epoch = 2
        town.restart("a-0")
        await asyncio.sleep(1)

        with pytest.raises(NotStored):
            await orders.resolve(handle)
        await orders.send_again(handle, Message("orders", b"gone"))

    assert town.log.bodies() == [b"warm", b"gone"]


@played_by(play)
async def test_message_of_a_forgotten_producer_is_not_sent_a_third_time(town: ClientTown, mq: AsyncClient) -> None:
    """It may lie in a shorter log since it was sent again."""
    async with mq.producer() as warm, mq.producer() as orders:
        await warm.publish_many(messages(3))
        handle = await lost_answer(town, orders, b"once", lose)
        town.restart("a-0")
        await orders.send_again(handle, Message("orders", b"once"))
        town.log.forget()

        with pytest.raises(OutcomeUnknown, match="no longer remembered"):
            await orders.send_again(handle, Message("orders", b"once"))

    assert town.log.bodies() == [b"once"]


@pytest.mark.parametrize(
    "error", [StorageFailure("sync", "commitlog/0", "I/O error"), FencedEpoch("the master of epoch 1", "2 was opened")]
)
@played_by(play)
async def test_try_answered_by_a_failed_store_or_fenced_epoch_may_be_in_the_log(
    town: ClientTown, mq: AsyncClient, /, error: DittoError
) -> None:
    async with mq.producer() as warm, mq.producer() as orders:
        await warm.publish_many(messages(3))
        handle = await lost_answer(town, orders, b"once", lose)  # the log is shorter now than when it was first sent
        town.restart("a-0")
        with pytest.raises(OutcomeUnknown, match="may still arrive"):
            await orders.resolve(handle)  # it answers again
        town.master.publish_error = error
        with pytest.raises(OutcomeUnknown):
            await orders.send_again(handle, Message("orders", b"once"))
        town.master.publish_error = None
        town.log.forget()

        with pytest.raises(OutcomeUnknown, match="no longer remembered"):
            await orders.send_again(handle, Message("orders", b"once"))

    assert town.log.bodies() == [b"once"]


@played_by(play)
async def test_absence_proves_nothing_until_the_tried_master_is_replaced(town: ClientTown, mq: AsyncClient) -> None:
    """A try that its caller gave up may still arrive."""
    async with mq.producer() as orders:
        handle = await lost_answer(town, orders, b"slow", lose)
        town.master.epoch = 2
        town.restart("a-0")
        await asyncio.sleep(1)
        town.master.gate = asyncio.Event()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(2):
                await orders.send_again(handle, Message("orders", b"slow"))

        with pytest.raises(OutcomeUnknown, match="may still arrive"):
            await orders.resolve(handle)
        town.kill("a-0")
        town.master.epoch = 3
        town.restart("a-0")
        with pytest.raises(NotStored):
            await orders.resolve(handle)


@played_by(play)
async def test_old_master_in_a_route_does_not_bound_the_epoch_of_a_lost_try(town: ClientTown, mq: AsyncClient) -> None:
    """The route names it once more."""
    old, promoted = town.nameserver.nodes
    leads = [replace(promoted, broker_id=0, configured_id=1, role=Role.SYNC_MASTER, epoch=Epoch(3))]
    async with mq.producer() as orders:
        handle = await lost_answer(town, orders, b"slow", lose)
        town.restart("a-0")
        town.nameserver.nodes, lived = leads, [replace(old, epoch=Epoch(2))]
        town.master.epoch, new = 2, town.brokers["a/1"]
        new.epoch, new.refusal, new.gate = 3, None, asyncio.Event()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(2):
                await orders.send_again(handle, Message("orders", b"slow"))
        town.nameserver.nodes = lived  # by one that has not heard of the promotion
        with pytest.raises(OutcomeUnknown):
            await orders.resolve(handle)
        town.nameserver.nodes = leads
        with pytest.raises(OutcomeUnknown, match="may still arrive"):
            await orders.resolve(handle)

        new.gate.set()
        new.epoch, town.nameserver.nodes = 4, [replace(leads[0], epoch=Epoch(4))]
        await orders.send_again(handle, Message("orders", b"slow"))
    assert town.log.bodies() == [b"slow"]


@pytest.mark.parametrize("is_publishing", [False, True])
@played_by(play)
async def test_producer_of_an_unsent_message_cannot_know_who_may_still_get_it(
    town: ClientTown, mq: AsyncClient, /, is_publishing: bool
) -> None:
    async with mq.producer() as orders, mq.producer() as other:
        handle = await lost_answer(town, orders, b"gone", lose)
        town.master.epoch = 2
        town.restart("a-0")
        if is_publishing:
            await other.publish("orders", b"its own")

        with pytest.raises(OutcomeUnknown, match="may still arrive"):
            await other.resolve(handle)
        with pytest.raises(NotStored):
            await orders.resolve(handle)


@played_by(play)
async def test_a_broker_that_lost_what_it_had_gets_the_rest_under_a_new_producer_id(town: ClientTown, mq: AsyncClient) -> None:
    async with mq.producer() as orders:
        await orders.publish_many(messages(10))
        lose(town)
        await asyncio.sleep(1)
        town.restart("a-0")
        await orders.publish("orders", b"10", queue=0)

    assert town.log.bodies() == [b"10"]
    assert len(town.log.next) == 1


@played_by(play)
async def test_batch_behind_a_lost_acknowledged_message_is_not_stored(town: ClientTown, mq: AsyncClient) -> None:
    """The new master has answered every try."""
    async with mq.producer(timeout_s=1.0, retry_s=10.0) as orders:
        await orders.publish("orders", b"acknowledged", queue=1)
        town.master.script.append(Reply.STORE_SILENTLY)
        following = asyncio.create_task(orders.publish("orders", b"following", queue=1))
        await asyncio.sleep(0.5)
        lose(town)
        town.master.epoch = 2
        town.restart("a-0")

        with pytest.raises(OutcomeUnknown, match="0 is next") as unknown:
            await following
        with pytest.raises(NotStored):
            await orders.resolve(unknown.value.handle)


@played_by(play)
async def test_answer_of_another_node_at_the_masters_address_proves_nothing(town: ClientTown, mq: AsyncClient) -> None:
    async with mq.producer() as orders:
        handle = await lost_answer(town, orders, b"where", die)
        town.master.name, town.master.epoch, town.master.log = "b/0", 2, Log()
        town.restart("a-0")

        with pytest.raises(OutcomeUnknown, match="b/0 has this address now"):
            await orders.resolve(handle)
        town.master.refusal = OutOfOrderSequence("p", 0, 1)
        with pytest.raises(OutcomeUnknown, match="b/0 has this address now"):
            await orders.resolve(handle)


@pytest.mark.parametrize("stranger", [("b/0", "test"), ("a/0", "another")])
@played_by(play)
async def test_resent_message_is_stored_by_no_other_node_at_the_masters_address(
    town: ClientTown, mq: AsyncClient, /, stranger: tuple[str, str]
) -> None:
    async with mq.producer(timeout_s=1, retry_s=1) as orders:
        handle = await lost_answer(town, orders, b"where", die)
        theirs = Log()
        town.master.name, town.master.cluster = stranger
        town.master.log = theirs
        town.restart("a-0")
        await asyncio.sleep(1)

        with pytest.raises(OutcomeUnknown, match=f"{stranger[0]}.* has this address now"):
            await orders.send_again(handle, Message("orders", b"where"))

    assert theirs.bodies() == []
