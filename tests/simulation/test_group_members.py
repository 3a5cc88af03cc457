"""A group member against scripted masters and slaves: where it begins, what it passes over, and what it hands out."""

import asyncio
from dataclasses import replace

import pytest

from dittomq.client import AsyncClient, ConsumedMessage, Consumer
from dittomq.client.consumer import ConsumerOptions
from dittomq.consumer.group_session import SESSION_S
from dittomq.consumer_progress import CommittedOffset
from dittomq.doors.clock import Clock
from dittomq.errors import DittoError, NotReady, OffsetOutOfRange, TopicNotFound
from tests.simulation.client_scenario import ClientTown, play
from tests.support.virtual_time import played_by


async def fill(mq: AsyncClient, count: int, queue: int = 0) -> None:
    """Put numbered messages into a queue."""
    async with mq.producer() as orders:
        for number in range(count):
            await orders.publish("orders", b"%d" % number, queue=queue)


async def handle(messages: Consumer, count: int, within_s: float = 30.0) -> list[int]:
    """Acknowledge so many messages; their queue offsets."""
    found: list[int] = []
    async with asyncio.timeout(within_s):
        while len(found) < count:
            message: ConsumedMessage = await anext(messages)
            await message.ack()
            found.append(message.queue_offset)
    return found


@pytest.mark.parametrize("master", ["silent", "answers"])
@played_by(play)
async def test_what_only_a_slave_dropped_is_not_passed_over(town: ClientTown, mq: AsyncClient, /, *, master: str) -> None:
    await fill(mq, 10)
    town.brokers["a/1"].begins_at = 6
    town.master.members.offsets[0] = CommittedOffset("orders", 0, 2)
    if master == "silent":
        town.master.pull_error = NotReady("a/0", "recovering")
    else:
        town.brokers["a/1"].suggests = town.master.suggests = 1
    async with mq.consumer("billing", ["orders"]) as messages:
        await asyncio.sleep(3)
        town.master.pull_error = None
        found = await handle(messages, 8)

    assert found == list(range(2, 10))


@played_by(play)
async def test_what_the_master_dropped_is_passed_over(town: ClientTown, mq: AsyncClient) -> None:
    """But for what another copy still has."""
    await fill(mq, 10)
    town.master.begins_at, town.brokers["a/1"].begins_at = 6, 4
    town.master.members.offsets[0] = CommittedOffset("orders", 0, 2)
    async with mq.consumer("billing", ["orders"]) as messages:
        found = await handle(messages, 6)

    assert found == list(range(4, 10))


@played_by(play)
async def test_new_group_begins_where_the_masters_queue_does(town: ClientTown, mq: AsyncClient) -> None:
    await fill(mq, 10)
    town.brokers["a/1"].begins_at = 6
    town.master.pull_error = NotReady("a/0", "recovering")
    async with mq.consumer("billing", ["orders"]) as messages:
        await asyncio.sleep(3)
        town.master.pull_error = None
        found = await handle(messages, 10)

    assert found == list(range(10))


@played_by(play)
async def test_start_at_the_end_of_an_empty_queue_is_committed_at_once(town: ClientTown, mq: AsyncClient) -> None:
    async with mq.consumer("billing", ["orders"], start="latest") as messages:
        await asyncio.sleep(3)
        await fill(mq, 3)
        await anext(messages)  # in hand, and not handled: what is committed stays where it is
    async with mq.consumer("billing", ["orders"], start="latest") as messages:
        found = await handle(messages, 3)

    assert town.master.members.commits[0] == {0: 0}
    assert found == [0, 1, 2]


@pytest.mark.parametrize("problem", [NotReady("a/0", "it stops"), OffsetOutOfRange("queue offset", 3, 0, 2)])
@played_by(play)
async def test_nothing_is_handed_out_before_the_start_is_committed(town: ClientTown, mq: AsyncClient, /, *, problem: DittoError) -> None:
    await fill(mq, 3)
    town.master.members.commit_errors[0] = problem
    async with mq.consumer("billing", ["orders"]) as messages:
        with pytest.raises(TimeoutError):
            await handle(messages, 1, within_s=5.0)
        town.master.members.commit_errors.clear()
        found = await handle(messages, 3)

    assert set(map(str, town.master.members.commits[:3])) == {"{0: 0}"}
    assert found == [0, 1, 2]


@played_by(play)
async def test_member_names_its_group_when_it_reads(town: ClientTown, mq: AsyncClient) -> None:
    await fill(mq, 1)
    async with mq.consumer("billing", ["orders"]) as messages:
        await handle(messages, 1)

    assert {pull.group for pull in town.master.pulls} == {"billing"}


class BlockedClock:
    """The client's clock; `blocked_s` have passed in which its loop did not run."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.blocked_s = 0.0

    def monotonic(self) -> float:
        return self._clock.monotonic() + self.blocked_s

    def wall_ms(self) -> int:
        return self._clock.wall_ms()


def blocking_consumer(mq: AsyncClient) -> tuple[Consumer, BlockedClock]:
    """A member whose caller can block."""
    around = mq.admin._around  # noqa: SLF001
    clock = BlockedClock(around.clock)
    return Consumer(replace(around, clock=clock), ConsumerOptions("billing", ("orders",), "one")), clock


@pytest.mark.parametrize("answered", [True, False])
@played_by(play)
async def test_caller_that_blocked_for_a_session_gets_no_message_of_it(town: ClientTown, mq: AsyncClient, /, *, answered: bool) -> None:
    """Another member may have the queue, though the master should still answer."""
    await fill(mq, 10)
    messages, clock = blocking_consumer(mq)
    async with messages:
        town.master.members.heartbeat_s = 0.05
        await handle(messages, 1)
        await asyncio.sleep(2)
        town.master.members.gives = ()
        clock.blocked_s += SESSION_S + 1
        if answered:
            await asyncio.sleep(0.1)
        with pytest.raises(TimeoutError):
            await handle(messages, 1, within_s=5.0)

    assert town.master.members.joins == 2


@played_by(play)
async def test_caller_that_never_waits_lets_the_session_live(town: ClientTown, mq: AsyncClient) -> None:
    await fill(mq, 100)
    messages, clock = blocking_consumer(mq)
    turns: list[int] = []
    async with messages:
        await handle(messages, 1)
        await asyncio.sleep(1)
        for number in range(50):
            asyncio.get_running_loop().call_soon(turns.append, number)
            clock.blocked_s += 0.01
            message = await anext(messages)
            await message.ack()
            assert turns[-1] == number


async def master_is_back(town: ClientTown) -> None:
    """It dies, and comes again; members join it."""
    joins = town.master.members.joins
    town.kill("a-0")
    await asyncio.sleep(0.5)
    town.restart("a-0")
    while town.master.members.joins == joins:  # noqa: ASYNC110  # it tells nobody
        await asyncio.sleep(0.1)


@played_by(play)
async def test_member_goes_where_a_new_master_has_moved_its_offset(town: ClientTown, mq: AsyncClient) -> None:
    await fill(mq, 10)
    async with mq.consumer("billing", ["orders"]) as messages:
        await handle(messages, 10)
        await asyncio.sleep(2)
        town.master.members.offsets[0] = CommittedOffset("orders", 0, 7, resets=1)
        await master_is_back(town)
        found = await handle(messages, 3)
        await asyncio.sleep(2)

    assert found == [7, 8, 9]
    assert town.master.members.offsets[0] == CommittedOffset("orders", 0, 10, resets=1)


@played_by(play)
async def test_commit_that_a_master_has_lost_is_made_again(town: ClientTown, mq: AsyncClient) -> None:
    await fill(mq, 10)
    async with mq.consumer("billing", ["orders"]) as messages:
        await handle(messages, 10)
        await asyncio.sleep(2)
        town.master.members.offsets[0] = CommittedOffset("orders", 0, 4)
        await master_is_back(town)
        await asyncio.sleep(3)

    assert town.master.members.offsets[0] == CommittedOffset("orders", 0, 10)


@pytest.mark.parametrize("error", [OffsetOutOfRange("queue offset", 10, 0, 9), TopicNotFound("orders", "a/0")], ids=["end", "topic"])
@played_by(play)
async def test_commit_refused_for_one_queue_is_made_for_the_others(town: ClientTown, mq: AsyncClient, /, *, error: DittoError) -> None:
    for queue in (0, 1):
        await fill(mq, 3, queue)
    town.master.members.gives = (0, 1)
    async with mq.consumer("billing", ["orders"]) as messages:
        await handle(messages, 1)
        await asyncio.sleep(1)
        town.master.members.commit_errors[1] = error
        await handle(messages, 5)
        await asyncio.sleep(3)
        refused = dict(town.master.members.offsets)
        town.master.members.commit_errors.clear()
        await asyncio.sleep(3)

    assert refused[0] == CommittedOffset("orders", 0, 3)
    assert town.master.members.offsets[1] == CommittedOffset("orders", 1, 3)


@played_by(play)
async def test_member_beyond_the_end_of_a_new_master_goes_back(town: ClientTown, mq: AsyncClient) -> None:
    """It was elected without messages that were confirmed, and knows a commit from before them."""
    await fill(mq, 10)
    async with mq.consumer("billing", ["orders"]) as messages:
        await handle(messages, 10)
        await asyncio.sleep(2)
        del town.log.placed[5:]
        town.master.members.offsets[0] = CommittedOffset("orders", 0, 4)
        town.master.members.commit_errors[0] = OffsetOutOfRange("queue offset", 10, 0, 5)
        await master_is_back(town)
        await asyncio.sleep(3)
        town.master.members.commit_errors.clear()
        await fill(mq, 3)
        found = await handle(messages, 4)

    assert found == [4, 5, 6, 7]
