"""A reader while the group's master recovers, on a disk that has not, or not yet, what its slaves have: they serve."""

import asyncio
import contextlib

import pytest

from dittomq.cli.consume import Printer, Wanted, print_messages
from dittomq.cli.exits import Exit
from dittomq.client import Ack, AsyncClient
from dittomq.errors import NotReady, OutOfReach
from tests.simulation.group import Group, play

COUNT = 40
COPIES_FOR_S = 22  # as long as the link is so slow


async def store_messages(mq: AsyncClient) -> None:
    """Confirmed on both copies, and the slave has heard so."""
    [created] = await mq.admin.create_topic("orders", 1)
    assert created.error is None
    async with mq.producer(Ack.REPLICA_FLUSHED) as producer:
        for number in range(COUNT):
            await producer.publish("orders", b"%d:" % number + bytes(20_000), queue=0)
    await asyncio.sleep(11)


async def empty_the_master(group: Group, mq: AsyncClient) -> None:
    """It is back, and answers."""
    group.world.network.link("a1", "a0").slowness = 400.0
    await group.replace_disk("a0")
    while True:
        with contextlib.suppress(OutOfReach):
            await mq.admin.ha_status("a0:10911")
            return
        await asyncio.sleep(0.1)


def test_while_a_master_copies_a_slave_onto_its_empty_disk_readers_get_all_that_the_slave_has() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await store_messages(mq)
        await empty_the_master(group, mq)
        began = group.now
        asked = 0
        while group.now < began + COPIES_FOR_S:
            asked += 1
            read = [message.body.split(b":")[0] async for message in mq.reader("orders", queue=0).messages(until_end=True)]
            assert read == [b"%d" % number for number in range(COUNT)]
            await asyncio.sleep(1)
            assert not (await mq.admin.ha_status("a0:10911")).writable or group.now > began + COPIES_FOR_S
        assert asked > 9

    play(story)


def test_a_master_that_recovers_does_not_say_that_a_topic_is_not_there_or_a_queue_is_empty() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await store_messages(mq)
        await empty_the_master(group, mq)
        began = group.now
        while group.now < began + COPIES_FOR_S - 3:
            with pytest.raises(NotReady, match="recovering, waits for"):
                await mq.reader("orders", queue=0, node="a/0").pull(0)
            await asyncio.sleep(1)

    play(story)


def test_consume_prints_all_while_the_master_recovers_and_does_not_call_a_lone_recovering_master_read_to_its_end(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await store_messages(mq)
        await empty_the_master(group, mq)
        wanted = Wanted("orders", "earliest", None, None, follow=False)
        for _ in range(15):
            await asyncio.sleep(1)
            assert await print_messages(mq, wanted, Printer(None, json=False)) == Exit.DONE
            assert len(capsys.readouterr().out.splitlines()) == COUNT
        await group.kill("a1")
        await asyncio.sleep(1)
        with pytest.raises((NotReady, OutOfReach)):
            await print_messages(mq, wanted, Printer(None, json=False))

    play(story)


def test_while_a_master_recovers_without_its_tables_topics_are_told_by_its_slaves() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await store_messages(mq)
        await empty_the_master(group, mq)
        for _ in range(COPIES_FOR_S):
            [listed], [described] = await mq.admin.list_topics(), await mq.admin.describe_topic("orders")
            assert listed.value is not None
            assert [topic.name for topic in listed.value] == ["orders"]
            assert described.value is not None
            await asyncio.sleep(1)

    play(story)


def test_a_master_that_recovers_alone_says_what_it_waits_for_to_whoever_asks_for_topics() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await store_messages(mq)
        await group.kill("a1")
        await empty_the_master(group, mq)
        [listed], [described] = await mq.admin.list_topics(), await mq.admin.describe_topic("orders")
        for error in (listed.error, described.error):
            assert isinstance(error, NotReady)
            assert "recovering, waits for" in str(error)

    play(story)
