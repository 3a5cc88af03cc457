"""`consume` among copies of which none has some message whole, in virtual time."""

import asyncio
import re
from typing import Any

import pytest

from dittomq.cli.consume import ConsumeRequest, Printer, print_messages
from dittomq.cli.exits import ExitCode
from dittomq.client import AsyncClient, Page
from dittomq.errors import InvalidField, OffsetOutOfRange
from tests.simulation.client_scenario import ClientTown, play
from tests.support.virtual_time import played_by


async def fill(mq: AsyncClient) -> None:
    """Three messages, "queue@offset", in each of the first two queues of group a."""
    async with mq.producer() as orders:
        for queue, offset in [(queue, offset) for queue in (0, 1) for offset in range(3)]:
            await orders.publish("orders", f"{queue}@{offset}", queue=queue)


def printed(output: str) -> list[str]:
    """The bodies of what was printed."""
    return [line.split()[-1] for line in output.splitlines()]


@pytest.mark.parametrize(("damaged", "left"), [(0, []), (1, ["0@0"])])
@played_by(play)
async def test_a_damaged_message_ends_its_queue_and_no_other_and_is_named(
    town: ClientTown, mq: AsyncClient, /, damaged: int, left: list[str], *, capsys: pytest.CaptureFixture[str]
) -> None:
    await fill(mq)
    for broker in town.brokers.values():
        broker.damaged.add((0, damaged))

    code = await print_messages(mq, ConsumeRequest("orders", "earliest", None, None, follow=False), Printer(None, json=False))

    assert code == ExitCode.PARTLY
    said = capsys.readouterr()
    assert printed(said.out) == [*left, "1@0", "1@1", "1@2"]
    [named] = said.err.splitlines()
    assert named.startswith(f"a is not read from 0@{damaged} on: ")
    assert named.endswith(f"--queue 0 --from {damaged + 1}")


@played_by(play)
async def test_reader_with_enough_messages_learns_of_a_queue_not_read_to_its_end(
    town: ClientTown, mq: AsyncClient, /, capsys: pytest.CaptureFixture[str]
) -> None:
    """The queue comes before the messages."""
    await fill(mq)
    for broker in town.brokers.values():
        broker.damaged.add((0, 1))

    code = await print_messages(mq, ConsumeRequest("orders", "earliest", None, None, follow=False), Printer(3, json=False))

    assert code == ExitCode.PARTLY
    assert printed(capsys.readouterr().out) == ["0@0", "1@0", "1@1"]


@pytest.mark.parametrize("away", ["a", "b"])
@played_by(play, groups=("a", "b"))
async def test_who_has_enough_messages_is_still_told_of_a_group_that_was_left_out(
    town: ClientTown, mq: AsyncClient, /, away: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async with mq.producer() as orders:
        for _ in range(16):
            await orders.publish("orders", "one")
    for machine in town.world.nodes:
        if machine.startswith(away):
            town.kill(machine)

    code = await print_messages(mq, ConsumeRequest("orders", "earliest", None, None, follow=False), Printer(2, json=False))

    assert code == (ExitCode.PARTLY if away == "a" else ExitCode.DONE)  # b comes after what was enough
    assert printed(capsys.readouterr().out) == ["one", "one"]


@played_by(play, groups=("a", "b"))
async def test_damaged_message_is_skipped_at_a_node_of_its_own_group(
    town: ClientTown, mq: AsyncClient, /, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its topic is in two groups."""
    async with mq.producer() as orders:
        for _ in range(16):
            await orders.publish("orders", "one")
    town.brokers["b/0"].damaged.add((3, 0))

    assert (
        await print_messages(mq, ConsumeRequest("orders", "earliest", None, None, follow=False), Printer(None, json=False))
        == ExitCode.PARTLY
    )
    [named] = capsys.readouterr().err.splitlines()
    assert named.startswith("b is not read from 3@0 on: ")
    assert named.endswith("--queue 3 --from 1 --node b/0")


@played_by(play)
async def test_a_damaged_first_message_is_passed_over_when_the_start_lies_behind_it(
    town: ClientTown, mq: AsyncClient, /, capsys: pytest.CaptureFixture[str]
) -> None:
    await fill(mq)
    for broker in town.brokers.values():
        broker.damaged.add((0, 0))

    assert await print_messages(mq, ConsumeRequest("orders", 1, 0, None, follow=False), Printer(None, json=False)) == ExitCode.DONE
    with pytest.raises(OffsetOutOfRange):
        await print_messages(mq, ConsumeRequest("orders", 4, 0, None, follow=False), Printer(None, json=False))
    assert printed(capsys.readouterr().out) == ["0@1", "0@2"]


@played_by(play)
async def test_follower_waits_for_a_damaged_message_and_reads_other_queues(
    town: ClientTown, mq: AsyncClient, /, capsys: pytest.CaptureFixture[str]
) -> None:
    await fill(mq)
    for broker in town.brokers.values():
        broker.damaged.add((0, 1))
    following = asyncio.create_task(
        print_messages(mq, ConsumeRequest("orders", "earliest", None, None, follow=True), Printer(6, json=False))
    )
    await asyncio.sleep(30)
    meanwhile = capsys.readouterr()
    town.master.damaged.clear()

    assert await following == ExitCode.DONE
    assert sorted(printed(meanwhile.out)) == ["0@0", "1@0", "1@1", "1@2"]
    assert len(meanwhile.err.splitlines()) == 1
    assert printed(capsys.readouterr().out) == ["0@1", "0@2"]


@played_by(play)
async def test_who_begins_at_the_latest_message_is_not_kept_from_it_by_a_damaged_first_one(
    town: ClientTown, mq: AsyncClient, /, capsys: pytest.CaptureFixture[str]
) -> None:
    await fill(mq)
    for broker in town.brokers.values():
        broker.damaged.add((0, 0))
    following = asyncio.create_task(print_messages(mq, ConsumeRequest("orders", "latest", 0, None, follow=True), Printer(1, json=False)))
    await asyncio.sleep(1)
    async with mq.producer() as orders:
        await orders.publish("orders", "new", queue=0)

    assert await following == ExitCode.DONE
    assert printed(capsys.readouterr().out) == ["new"]


@pytest.mark.parametrize("follow", [False, True])
@played_by(play, groups=("a", "b"))
async def test_a_node_of_no_group_with_that_topic_is_refused_by_naming_those_groups(
    town: ClientTown, mq: AsyncClient, /, *, follow: bool
) -> None:
    with pytest.raises(InvalidField, match="those are: a, b"):
        await print_messages(mq, ConsumeRequest("orders", "earliest", None, "z/9", follow), Printer(None, json=False))


@played_by(play)
async def test_follower_waits_for_an_offset_that_a_slave_has_not_reached(
    town: ClientTown, mq: AsyncClient, /, capsys: pytest.CaptureFixture[str]
) -> None:
    """Other queues are read."""
    await fill(mq)
    town.kill("a-0")
    slave = town.brokers["a/1"]
    slave.readable = 4
    following = asyncio.create_task(print_messages(mq, ConsumeRequest("orders", 2, None, None, follow=True), Printer(2, json=False)))
    await asyncio.sleep(30)
    meanwhile = capsys.readouterr()
    slave.readable = 1 << 40

    assert await following == ExitCode.DONE
    [hint] = meanwhile.err.splitlines()
    assert printed(meanwhile.out) == ["0@2"]
    assert re.match("a is waited for: queue . of a/1 ends at ., before 2", hint)
    assert printed(capsys.readouterr().out) == ["1@2"]


@pytest.mark.parametrize("node", [None, "a/0"])
@played_by(play)
async def test_who_follows_is_told_of_a_place_beyond_the_end_that_the_master_knows(
    town: ClientTown, mq: AsyncClient, /, node: str | None
) -> None:
    await fill(mq)
    with pytest.raises(OffsetOutOfRange) as outside:
        await print_messages(mq, ConsumeRequest("orders", 4, 0, node, follow=True), Printer(1, json=False))

    assert (outside.value.asked, outside.value.end) == (4, 3)


@played_by(play)
async def test_who_follows_waits_for_a_master_that_ends_before_what_was_read(
    town: ClientTown, mq: AsyncClient, /, capsys: pytest.CaptureFixture[str]
) -> None:
    await fill(mq)
    town.kill("a-1")
    following = asyncio.create_task(print_messages(mq, ConsumeRequest("orders", "earliest", 0, None, follow=True), Printer(4, json=False)))
    await asyncio.sleep(5)
    town.master.readable = 1
    await asyncio.sleep(30)
    town.master.readable = 1 << 40
    async with mq.producer() as orders:
        await orders.publish("orders", "new", queue=0)

    assert await following == ExitCode.DONE
    said = capsys.readouterr()
    assert printed(said.out) == ["0@0", "0@1", "0@2", "new"]
    assert len(said.err.splitlines()) == 1


@played_by(play)
async def test_who_follows_is_told_of_messages_that_were_dropped_before_they_were_read(town: ClientTown, mq: AsyncClient) -> None:
    await fill(mq)
    following = asyncio.create_task(print_messages(mq, ConsumeRequest("orders", "earliest", 0, None, follow=True), Printer(9, json=False)))
    await asyncio.sleep(5)
    for broker in town.brokers.values():
        broker.pull_error = OffsetOutOfRange("queue offset", 3, 7, 9)

    with pytest.raises(OffsetOutOfRange):
        await following


@pytest.mark.parametrize("held", [1, 2])
@played_by(play)
async def test_replica_that_ends_earlier_than_the_previous_one_is_named(
    town: ClientTown, mq: AsyncClient, /, held: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """The other queues are read."""
    async with mq.producer() as orders:
        for body in ("1@0", "0@0", "0@1", "0@2"):
            await orders.publish("orders", body, queue=int(body[0]))
    town.master.damaged.add((0, 2))  # so it takes another pull
    town.brokers["a/1"].readable = 1 + held

    class LosingTheMaster(Printer):
        def show(self, queue: Any, page: Page) -> None:
            super().show(queue, page)
            town.kill("a-0")

    code = await print_messages(mq, ConsumeRequest("orders", "earliest", None, None, follow=False), LosingTheMaster(None, json=False))

    assert code == ExitCode.PARTLY
    said = capsys.readouterr()
    assert printed(said.out) == ["0@0", "0@1", "1@0"]
    assert said.err.splitlines() == [f"a is not read to its end: queue 0 of a/1 ends at {held}, before 3"]


@played_by(play)
async def test_start_offset_that_a_lone_slave_has_not_reached_is_named(
    town: ClientTown, mq: AsyncClient, /, capsys: pytest.CaptureFixture[str]
) -> None:
    """The other queues are read."""
    async with mq.producer() as orders:
        for body in ("1@0", "1@1", "0@0", "2@0", "2@1", "3@0", "3@1"):
            await orders.publish("orders", body, queue=int(body[0]))
    town.kill("a-0")
    town.forget("a/0")

    assert await print_messages(mq, ConsumeRequest("orders", 2, None, None, follow=False), Printer(None, json=False)) == ExitCode.PARTLY
    assert await print_messages(mq, ConsumeRequest("orders", 1, None, None, follow=False), Printer(None, json=False)) == ExitCode.DONE
    said = capsys.readouterr()
    assert printed(said.out) == ["1@1", "2@1", "3@1"]
    assert said.err.splitlines() == ["a is not read to its end: queue 0 of a/1 ends at 1, before 2"]
