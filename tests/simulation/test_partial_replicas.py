"""A reader among copies that lack what others hold: dropped by each for itself, or of a topic not heard of yet, in virtual time."""

import pytest

from dittomq.client import AsyncClient
from dittomq.errors import CorruptRecord, LimitReached, OffsetOutOfRange, QueueNotFound, Refused, TopicNotFound
from tests.simulation.client_scenario import ClientTown, play
from tests.support.virtual_time import played_by


async def fill(mq: AsyncClient) -> None:
    """Put ten messages into queue 0 of group a."""
    async with mq.producer() as orders:
        for at in range(10):
            await orders.publish("orders", b"%d" % at, queue=0)


@pytest.mark.parametrize("wait_s", [0.0, 20.0])
@played_by(play, slaves=2)
async def test_what_a_copy_has_dropped_is_read_from_one_that_holds_it_still(town: ClientTown, mq: AsyncClient, /, wait_s: float) -> None:
    await fill(mq)
    town.brokers["a/1"].begins_at = 8  # its disk is the smaller one
    town.brokers["a/2"].readable = 3
    for broker in town.brokers.values():
        broker.suggests = 1
    reader = mq.reader("orders", 0, max_messages=1)
    began = town.now
    pages = [await reader.pull(offset, wait_s=wait_s) for offset in range(10)]

    assert [page.messages[0].body for page in pages] == [b"%d" % at for at in range(10)]
    assert town.now - began < 1
    assert len(town.brokers["a/1"].pulls) == 1  # it is not asked first again for a while


@played_by(play, slaves=2)
async def test_offset_that_all_replicas_dropped_is_out_of_range(town: ClientTown, mq: AsyncClient) -> None:
    """The queue begins where the first of them does."""
    await fill(mq)
    for node, begin in {"a/0": 6, "a/1": 4, "a/2": 8}.items():
        town.brokers[node].begins_at = begin
    for suggested in range(3):
        for broker in town.brokers.values():
            broker.suggests = suggested
        reader = mq.reader("orders", 0)
        await reader.pull(9)
        with pytest.raises(OffsetOutOfRange) as gone:
            await reader.pull(2)
        assert gone.value.start == 4


@played_by(play)
async def test_message_damaged_at_one_replica_and_dropped_by_another_is_damaged(town: ClientTown, mq: AsyncClient) -> None:
    await fill(mq)
    town.master.damaged.add((0, 5))
    town.brokers["a/1"].begins_at = 8
    for _ in range(2):  # the second time it is the slave that is asked first
        with pytest.raises(CorruptRecord):
            await mq.reader("orders", 0).pull(5)
        town.master.suggests = 1


NOT_HEARD_OF = [TopicNotFound("orders", "a/1"), QueueNotFound("orders", 0, 0)]


@pytest.mark.parametrize("unheard", NOT_HEARD_OF)
@played_by(play, slaves=2)
async def test_topic_unknown_to_one_slave_is_read_from_another_without_master(
    town: ClientTown, mq: AsyncClient, /, unheard: Refused
) -> None:
    await fill(mq)
    town.kill("a-0")
    town.brokers["a/1"].pull_error = unheard
    readers = [mq.reader("orders", 0) for _ in range(10)]
    pages = [await reader.pull(0) for reader in (*readers, *readers)]

    assert {page.node for page in pages} == {"a/2"}
    assert 1 <= len(town.brokers["a/1"].pulls) <= len(readers)  # it is not asked first again for a while


@pytest.mark.parametrize("unheard", NOT_HEARD_OF)
@pytest.mark.parametrize("away", ["a-0", "a-1"])
@played_by(play)
async def test_a_topic_that_nobody_who_answers_has_heard_of_is_refused_as_that(
    town: ClientTown, mq: AsyncClient, /, unheard: Refused, away: str
) -> None:
    await fill(mq)
    town.kill(away)
    for broker in town.brokers.values():
        broker.pull_error = unheard
    with pytest.raises(type(unheard)):
        await mq.reader("orders", 0).pull(0)


@pytest.mark.parametrize("wait_s", [0.0, 20.0])
@played_by(play, slaves=2)
async def test_lagging_slave_does_not_end_a_queue_that_another_slave_holds(town: ClientTown, mq: AsyncClient, /, wait_s: float) -> None:
    """The master is away."""
    await fill(mq)
    town.kill("a-0")
    town.brokers["a/1"].readable = 3
    began = town.now
    for _ in range(10):
        reader = mq.reader("orders", 0)
        assert [message.body async for message in reader.messages(until_end=True)] == [b"%d" % at for at in range(10)]
        assert (await reader.pull(3, wait_s=wait_s)).messages
    assert town.now - began < 1


@played_by(play, slaves=2)
async def test_pull_waits_at_the_farthest_slave_and_asks_no_silent_master(town: ClientTown, mq: AsyncClient) -> None:
    await fill(mq)
    for end in (("client", "a-0"), ("a-0", "client")):
        town.world.network.cut(*end)
    town.brokers["a/1"].readable = 3
    for _ in range(5):
        reader = mq.reader("orders", 0)
        await reader.pull(0)  # finds the master silent
        began = town.now
        page = await reader.pull(10, wait_s=20)
        assert (page.node, page.messages, round(town.now - began)) == ("a/2", (), 20)
    for end in (("client", "a-0"), ("a-0", "client")):
        town.world.network.heal(*end)


@played_by(play, slaves=2)
async def test_a_pull_that_a_slave_has_no_seat_for_waits_at_another_one(town: ClientTown, mq: AsyncClient) -> None:
    await fill(mq)
    town.kill("a-0")
    town.brokers["a/1"].seats = 0
    for _ in range(10):
        began = town.now
        page = await mq.reader("orders", 0).pull(10, wait_s=5)
        assert (page.node, page.messages, round(town.now - began)) == ("a/2", (), 5)
    town.brokers["a/2"].seats = 0
    with pytest.raises(LimitReached):
        await mq.reader("orders", 0).pull(10, wait_s=5)


@pytest.mark.parametrize("wait_s", [0.0, 20.0])
@pytest.mark.parametrize("reason", [CorruptRecord, OffsetOutOfRange])
@played_by(play, slaves=2)
async def test_lagging_slave_does_not_end_a_queue_that_another_cannot_continue(
    town: ClientTown, mq: AsyncClient, /, reason: type[Refused], wait_s: float
) -> None:
    """The other one cannot give the next message."""
    await fill(mq)
    town.kill("a-0")
    town.brokers["a/1"].readable = 3
    if reason is CorruptRecord:
        town.brokers["a/2"].damaged.add((0, 3))
    else:
        town.brokers["a/2"].begins_at = 8
    for _ in range(10):  # in either order
        reader = mq.reader("orders", 0)
        read = [await reader.pull(0)] if reason is CorruptRecord else []
        assert all(len(page.messages) == 3 for page in read)
        began = town.now
        with pytest.raises(reason):
            await reader.pull(3, wait_s=wait_s)
        assert town.now - began < 1
