"""A reader against masters and slaves that die, lag, or hold damaged bytes, in virtual time."""

import asyncio
from collections import Counter
from datetime import timedelta

import pytest

from dittomq.client import AsyncClient
from dittomq.errors import CorruptRecord, InvalidField, LimitReached, NotReady, OffsetOutOfRange, TopicNotFound, Unavailable
from tests.simulation.client_scenario import ClientTown, play
from tests.support.fake_broker import RECORD_BYTES
from tests.support.virtual_time import played_by

SECOND = timedelta(seconds=1)


async def fill(mq: AsyncClient, count: int = 10) -> str:
    """Put messages into queue 0 of group a; the token of the last one."""
    async with mq.producer() as orders:
        receipts = [await orders.publish("orders", b"%d" % at, queue=0) for at in range(count)]
    return receipts[-1].token


@played_by(play)
async def test_reads_start_at_the_master(town: ClientTown, mq: AsyncClient) -> None:
    await fill(mq)
    page = await mq.reader("orders", 0, max_messages=4).pull(3)

    assert [message.body for message in page.messages] == [b"3", b"4", b"5", b"6"]
    assert (page.node, page.next_offset, page.min_offset, page.max_offset) == ("a/0", 7, 0, 10)
    assert (page.confirmed, page.unconfirmed_from) == (10 * RECORD_BYTES, None)


@played_by(play, slaves=2)
async def test_next_pull_of_each_queue_goes_where_its_last_answer_says(town: ClientTown, mq: AsyncClient) -> None:
    await fill(mq)
    far_back, near = mq.reader("orders", 0), mq.reader("orders", 0)
    town.brokers["a/0"].suggests = town.brokers["a/2"].suggests = 2
    sent_away = [(await far_back.pull(0)).node for _ in range(3)]
    stays = (await near.pull(0, wait_s=0)).node
    town.brokers["a/0"].suggests = town.brokers["a/2"].suggests = 0
    sent_back = [(await far_back.pull(0)).node for _ in range(2)]

    assert sent_away == ["a/0", "a/2", "a/2"]
    assert stays == "a/0"
    assert sent_back == ["a/2", "a/0"]


@pytest.mark.parametrize("known", [True, False])
@played_by(play, slaves=2)
async def test_with_the_suggested_node_gone_another_one_serves(town: ClientTown, mq: AsyncClient, /, *, known: bool) -> None:
    await fill(mq)
    for broker in town.brokers.values():
        broker.suggests = 2
    reader = mq.reader("orders", 0)
    await reader.pull(0)
    town.kill("a-2")
    if known:
        town.forget("a/2")
        await asyncio.sleep(60)

    assert [(await reader.pull(0)).node for _ in range(3)] == ["a/0", "a/0", "a/0"]
    assert (await mq.reader("orders", 0, node="a/1").pull(0)).node == "a/1"


@played_by(play, slaves=2)
async def test_with_the_suggested_slave_out_of_the_route_the_next_id_serves(town: ClientTown, mq: AsyncClient) -> None:
    """RocketMQ's findBrokerAddressInSubscribe: far readers do not fall back to the master while there is another slave."""
    await fill(mq)
    for broker in town.brokers.values():
        broker.suggests = 1
    reader = mq.reader("orders", 0)
    await reader.pull(0)
    town.kill("a-1")
    town.forget("a/1")
    await asyncio.sleep(60)

    assert [(await reader.pull(0)).node for _ in range(3)] == ["a/2", "a/2", "a/2"]


@pytest.mark.parametrize("registered", [True, False])
@played_by(play)
async def test_slave_serves_while_the_master_is_gone_unnoticed_or_not(town: ClientTown, mq: AsyncClient, /, *, registered: bool) -> None:
    """The nameserver has noticed, or not."""
    await fill(mq)
    town.kill("a-0")
    if not registered:
        town.forget("a/0")
        await asyncio.sleep(60)
    reader = mq.reader("orders", 0)
    bodies = [message.body async for message in reader.messages(until_end=True)]

    assert bodies == [b"%d" % at for at in range(10)]
    assert (await reader.pull(0)).node == "a/1"


@pytest.mark.parametrize("error", [NotReady("a/0", "recovering"), CorruptRecord("a/0", 7, "its checksum is wrong")])
@played_by(play)
async def test_another_copy_serves_what_the_master_cannot(town: ClientTown, mq: AsyncClient, /, error: NotReady | CorruptRecord) -> None:
    await fill(mq)
    town.master.pull_error = error
    page = await mq.reader("orders", 0).pull(0)

    assert page.node == "a/1"


@played_by(play)
async def test_a_node_that_was_silent_is_asked_first_again_after_a_while(town: ClientTown, mq: AsyncClient) -> None:
    await fill(mq)
    town.master.pull_error = NotReady("a/0", "recovering")
    reader = mq.reader("orders", 0)
    await reader.pull(0)
    town.master.pull_error = None
    soon = await reader.pull(0)
    await asyncio.sleep(6)
    later = await reader.pull(0)

    assert (soon.node, later.node) == ("a/1", "a/0")


@played_by(play, slaves=3)
async def test_readers_without_a_master_spread_over_its_slaves_and_each_stays_with_its_own(town: ClientTown, mq: AsyncClient) -> None:
    await fill(mq)
    town.kill("a-0")
    readers = [mq.reader("orders", 0) for _ in range(30)]
    first = [(await reader.pull(0)).node for reader in readers]
    await asyncio.sleep(6)
    later = [(await reader.pull(0)).node for reader in readers]

    assert min(Counter(first)[f"a/{slave}"] for slave in (1, 2, 3)) >= 5
    assert later == first


@played_by(play, slaves=2)
async def test_a_reader_stays_with_the_slave_that_served_it_when_its_own_was_silent(town: ClientTown, mq: AsyncClient) -> None:
    await fill(mq)
    town.kill("a-0")
    reader = mq.reader("orders", 0)
    silent = (await reader.pull(0)).node
    town.kill(silent.replace("/", "-"))
    other = (await reader.pull(0)).node
    town.restart(silent.replace("/", "-"))
    await asyncio.sleep(6)

    assert silent != (await reader.pull(0)).node == other


@played_by(play, slaves=2)
async def test_reader_without_a_master_moves_to_a_slave_that_holds_what_it_read(town: ClientTown, mq: AsyncClient) -> None:
    """Its own slave ends earlier."""
    await fill(mq)
    reader = mq.reader("orders", 0)
    town.kill("a-0")
    behind = (await reader.pull(0)).node
    town.brokers[behind].readable = 5
    some = await reader.pull(8)
    await asyncio.sleep(6)

    assert [message.body for message in some.messages] == [b"8", b"9"]
    assert (await reader.pull(10)).node == some.node


@played_by(play)
async def test_slave_that_ends_too_early_is_asked_before_a_silent_master(town: ClientTown, mq: AsyncClient) -> None:
    await fill(mq)
    reader = mq.reader("orders", 0)
    town.brokers["a/1"].readable = 5
    town.world.network.silence("a-0", "client")
    assert (await reader.pull(8)).node == "a/1"
    started = town.now

    assert (await reader.pull(8)).node == "a/1"
    assert town.now - started < 1.0


@played_by(play)
async def test_a_reader_that_insists_on_a_node_is_served_by_no_other(town: ClientTown, mq: AsyncClient) -> None:
    await fill(mq)
    reader = mq.reader("orders", 0, node="a/1")
    assert (await reader.pull(0)).node == "a/1"
    town.kill("a-1")
    with pytest.raises(Unavailable):
        await reader.pull(0)


@played_by(play)
async def test_a_copy_that_lacks_what_the_token_names_is_passed_over(town: ClientTown, mq: AsyncClient) -> None:
    token = await fill(mq)
    town.master.readable = 5
    page = await mq.reader("orders", 0).pull(0, at_least=token)

    assert page.node == "a/1"
    assert len(page.messages) == 10


@played_by(play)
async def test_where_no_copy_holds_what_the_token_names_the_reader_waits_and_then_says_so(town: ClientTown, mq: AsyncClient) -> None:
    token = await fill(mq)
    town.master.readable = town.brokers["a/1"].readable = 5
    with pytest.raises(NotReady, match="longer wait_s"):
        await mq.reader("orders", 0).pull(0, wait_s=2, at_least=token)
    assert [(round(request.wait.ToTimedelta() / SECOND, 1), bool(request.at_least)) for request in town.master.pulls] == [
        (0, True),
        (2, True),
    ]
    with pytest.raises(InvalidField):
        await mq.reader("orders", 0).pull(0, at_least="nonsense")


@pytest.mark.parametrize("node", [None, "a/0"])
@pytest.mark.parametrize("wait_s", [0, 5])
@played_by(play)
async def test_a_pull_waits_for_what_a_token_names_as_long_as_asked_and_no_longer(
    town: ClientTown, mq: AsyncClient, /, node: str | None, wait_s: float
) -> None:
    token = await fill(mq)
    town.master.readable = town.brokers["a/1"].readable = 5
    began = town.now
    with pytest.raises(NotReady, match="longer wait_s"):
        await mq.reader("orders", 0, node=node).pull(0, wait_s=wait_s, at_least=token)

    assert wait_s <= town.now - began < wait_s + 0.1


@played_by(play)
async def test_pull_whose_master_dies_waits_at_a_slave_for_its_remaining_time(town: ClientTown, mq: AsyncClient) -> None:
    token = await fill(mq)
    town.master.readable = town.brokers["a/1"].readable = 5
    town.world.loop.call_later(4, town.kill, "a-0")
    began = town.now
    with pytest.raises(NotReady, match="a/1 is not ready"):
        await mq.reader("orders", 0).pull(0, wait_s=5, at_least=token)

    assert town.now - began < 6


@played_by(play)
async def test_an_offset_beyond_every_copy_is_out_of_range(town: ClientTown, mq: AsyncClient) -> None:
    await fill(mq)
    with pytest.raises(OffsetOutOfRange) as raised:
        await mq.reader("orders", 0).pull(11)
    assert (raised.value.asked, raised.value.end) == (11, 10)


@played_by(play, groups=("a", "b"))
async def test_a_topic_in_two_groups_is_read_by_naming_one(town: ClientTown, mq: AsyncClient) -> None:
    await fill(mq)
    with pytest.raises(InvalidField, match="a, b"):
        await mq.reader("orders", 0).pull(0)
    assert (await mq.reader("orders", 0, broker="b").pull(0)).node == "b/0"
    assert await mq.queues("orders") == [(group, queue) for group in ("a", "b") for queue in range(4)]
    with pytest.raises(TopicNotFound):
        await mq.reader("order", 0).pull(0)


@pytest.mark.parametrize("stranger", [("b/0", "test"), ("a/0", "another")])
@played_by(play)
async def test_a_reader_takes_no_page_from_another_node_that_has_come_up_at_the_address(
    town: ClientTown, mq: AsyncClient, /, stranger: tuple[str, str]
) -> None:
    await fill(mq)
    await mq.reader("orders", 0).pull(0)
    town.master.name, town.master.cluster = stranger
    page = await mq.reader("orders", 0).pull(0)
    with pytest.raises(Unavailable, match=f"^a/0 at a-0:10911 does not answer: {stranger[0]}.* has this address now$"):
        await mq.reader("orders", 0, node="a/0").pull(0)
    town.master.pull_error = NotReady("b/0", "it recovers")
    with pytest.raises(Unavailable):
        await mq.reader("orders", 0, node="a/0").pull(0)

    assert page.node == "a/1"


@played_by(play)
async def test_a_reader_whose_client_was_left_ends_and_asks_nobody(town: ClientTown, mq: AsyncClient) -> None:
    token = await fill(mq)
    town.master.readable = 5
    reader = mq.reader("orders", 0, node="a/0")
    async with mq:
        reading = asyncio.create_task(reader.pull(0, wait_s=5, at_least=token))
        await asyncio.sleep(1)
    asked = sum(len(broker.pulls) for broker in town.brokers.values())
    left = town.now
    with pytest.raises(Unavailable, match="its client was left"):
        await reading
    with pytest.raises(Unavailable, match="its client was left"):
        await reader.pull(0)

    assert town.now - left < 1
    assert sum(len(broker.pulls) for broker in town.brokers.values()) == asked


@pytest.mark.parametrize("offset", [0, 11])
@played_by(play)
async def test_what_one_copy_says_of_an_offset_is_not_hidden_by_the_silence_of_another(
    town: ClientTown, mq: AsyncClient, /, offset: int
) -> None:
    await fill(mq)
    town.master.damaged.add((0, 0))
    town.kill("a-1")
    with pytest.raises(OffsetOutOfRange if offset else CorruptRecord):
        await mq.reader("orders", 0).pull(offset)


@played_by(play)
async def test_damage_at_one_replica_is_reported_though_another_is_behind(town: ClientTown, mq: AsyncClient) -> None:
    """Nor is it reported late."""
    await fill(mq)
    town.master.damaged.add((0, 5))
    slave = town.brokers["a/1"]
    slave.readable = 5
    with pytest.raises(CorruptRecord):
        await mq.reader("orders", 0).pull(5, wait_s=20)
    with pytest.raises(CorruptRecord):
        _ = [message async for message in mq.reader("orders", 0).messages(until_end=True)]

    assert not any(asked.wait.ToSeconds() for asked in slave.pulls)


@pytest.mark.parametrize(
    ("queue", "offset", "wait_s", "limit", "field"),
    [
        (2**31, 0, 0.0, 1, "queue"),
        (0, 2**63, 0.0, 1, "offset"),
        (0, 0, float("inf"), 1, "wait_s"),
        (0, 0, float("nan"), 1, "wait_s"),
        (0, 0, 1e30, 1, "wait_s"),
        (0, 0, 0.0, 2**31, "max_messages"),
    ],
)
@played_by(play)
async def test_a_number_that_the_wire_cannot_carry_is_refused_by_field(
    town: ClientTown, mq: AsyncClient, /, *, queue: int, offset: int, wait_s: float, limit: int, field: str
) -> None:
    with pytest.raises(InvalidField) as refused:
        await mq.reader("orders", queue, max_messages=limit).pull(offset, wait_s=wait_s)

    assert refused.value.field == field


@played_by(play)
async def test_a_node_that_nobody_knows_is_named_with_what_to_do(town: ClientTown, mq: AsyncClient) -> None:
    with pytest.raises(Unavailable) as silent:
        await mq.reader("orders", 0, node="a/7").pull(0)

    assert str(silent.value) == "a/7 does not answer: no nameserver knows it now; list those it knows: dittomq cluster"


@played_by(play)
async def test_the_next_pages_come_by_a_stream_while_the_caller_has_one(town: ClientTown, mq: AsyncClient) -> None:
    await fill(mq)
    broker, found = town.brokers["a/0"], list[bytes]()
    messages = mq.reader("orders", 0, max_messages=2).messages(until_end=True)
    found += [(await anext(messages)).body for _ in range(3)]
    await asyncio.sleep(1)
    asked = broker.streamed[:1]
    found += [message.body async for message in messages]

    assert asked == [4]
    assert found == [b"%d" % at for at in range(10)]
    assert [pull.offset for pull in broker.pulls] == [0, 2, 10]


@pytest.mark.parametrize("error", [None, LimitReached("the number of waiting pulls", 0)])
@played_by(play)
async def test_where_a_stream_of_pages_breaks_the_reader_goes_on(town: ClientTown, mq: AsyncClient, /, error: LimitReached | None) -> None:
    await fill(mq)
    messages = mq.reader("orders", 0, max_messages=2).messages(until_end=True)
    found = [(await anext(messages)).body for _ in range(3)]
    if error is None:
        town.kill("a-0")
        await asyncio.sleep(60)
    else:
        town.brokers["a/0"].pull_error = error
    found += [message.body async for message in messages]

    assert found == [b"%d" % at for at in range(10)]


@played_by(play)
async def test_whoever_takes_its_time_for_a_page_is_not_read_ahead_for(town: ClientTown, mq: AsyncClient) -> None:
    await fill(mq)
    found = list[bytes]()
    async for page in mq.reader("orders", 0, max_messages=2).pages(until_end=True):
        found += [message.body for message in page.messages]
        await asyncio.sleep(6)

    assert found == [b"%d" % at for at in range(10)]
    assert town.brokers["a/0"].streamed == []


@played_by(play)
async def test_a_reader_that_is_left_ends_its_stream(town: ClientTown, mq: AsyncClient) -> None:
    await fill(mq, 40)
    pages = mq.reader("orders", 0, max_messages=2).pages()
    for _ in range(2):
        await anext(pages)
    await asyncio.sleep(1)
    await pages.aclose()
    await asyncio.sleep(1)
    streamed = len(town.brokers["a/0"].streamed)
    await asyncio.sleep(60)

    assert 0 < streamed == len(town.brokers["a/0"].streamed)
