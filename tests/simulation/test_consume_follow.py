"""`consume --follow` across changes of master after which other messages lie where printed ones lay, in virtual time."""

import asyncio
import contextlib

import pytest

from dittomq._pb.ditto.messaging.v1 import messaging_pb2 as pb
from dittomq.cli.consume import ConsumeRequest, Printer, print_messages
from dittomq.cli.exits import ExitCode
from dittomq.client import AsyncClient, Message
from dittomq.errors import OutcomeUnknown
from services.master.config import Mode, ReplicationTable
from services.slave.config import FlushMode
from tests.simulation.client_scenario import ClientTown
from tests.simulation.group import Group, play
from tests.simulation.shapes import Shape

TWO_SLAVES = Shape(2, ReplicationTable(mode=Mode.SYNC_MASTER, replicas_expected=2), FlushMode.SYNC_FLUSH)
MASTER_GONE_S = 30.0


def follow(mq: AsyncClient, count: int, node: str | None = None) -> "asyncio.Task[int]":
    """Print queue 0 of "orders" from its first message on, until so many are printed."""
    return asyncio.create_task(print_messages(mq, ConsumeRequest("orders", "earliest", 0, node, follow=True), Printer(count, json=False)))


async def publish(mq: AsyncClient, *bodies: str) -> None:
    async with mq.producer(on_weak="return") as orders:
        for body in bodies:
            await orders.publish("orders", body, queue=0)


def undo(town: ClientTown, left: int) -> None:
    """Of the log of group a only so many messages are left."""
    del town.log.placed[left:]


def put(town: ClientTown, *bodies: str) -> None:
    """These lie behind what group a has, at once."""
    town.log.store([pb.Message(topic="orders", body=body.encode(), queue=0) for body in bodies], "new", 0, 0)


def printed(output: str) -> list[str]:
    """The bodies of what was printed."""
    return [line.split()[-1] for line in output.splitlines()]


@pytest.mark.parametrize("node", [None, "a/1"])
def test_replaced_messages_are_printed_at_once_and_marked_as_other(node: str | None, capsys: pytest.CaptureFixture[str]) -> None:
    """A new master puts them where printed messages lay."""

    async def story(town: ClientTown, mq: AsyncClient) -> None:
        await publish(mq, "zero", "one", "two", "three")
        following = follow(mq, 6, node)
        await asyncio.sleep(1)
        undo(town, 2)
        await asyncio.sleep(30)
        await publish(mq, "other-two")
        await asyncio.sleep(30)
        before = capsys.readouterr()
        await publish(mq, "other-three")

        assert await following == ExitCode.DONE
        assert printed(before.out) == ["zero", "one", "two", "three", "other-two"]
        [undone] = [line for line in before.err.splitlines() if "undone" in line]
        assert undone.startswith("queue 0 of a holds other messages from 2 on than were printed")

    ClientTown().play(story)
    said = capsys.readouterr()
    assert (printed(said.out), said.err) == (["other-three"], "")


def test_what_was_put_where_printed_messages_lay_while_nobody_answered_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    async def story(town: ClientTown, mq: AsyncClient) -> None:
        await publish(mq, "zero", "one", "two")
        following = follow(mq, 6)
        await asyncio.sleep(1)
        for machine in ("a-0", "a-1"):
            town.kill(machine)
        await asyncio.sleep(10)
        undo(town, 1)
        town.restart("a-0")
        await publish(mq, "other-one", "other-two", "other-three")

        assert await following == ExitCode.DONE

    ClientTown().play(story)
    said = capsys.readouterr()
    assert printed(said.out) == ["zero", "one", "two", "other-one", "other-two", "other-three"]
    assert "from 1 on than were printed" in said.err


def test_what_was_put_where_printed_messages_lay_while_a_pull_waited_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    async def story(town: ClientTown, mq: AsyncClient) -> None:
        await publish(mq, "zero", "one", "two")
        following = follow(mq, 7, "a/1")
        await asyncio.sleep(1)
        undo(town, 1)
        for broker in town.brokers.values():
            broker.epoch = 2
        put(town, "other-one", "other-two", "other-three", "other-four")

        assert await asyncio.wait_for(following, 30) == ExitCode.DONE

    ClientTown().play(story)
    said = capsys.readouterr()
    others = ["other-one", "other-two", "other-three", "other-four"]
    assert printed(said.out) == ["zero", "one", "two", *others]
    assert "from 1 on than were printed" in said.err


def test_what_is_there_no_more_to_be_compared_is_not_asked_for_again(capsys: pytest.CaptureFixture[str]) -> None:
    async def story(town: ClientTown, mq: AsyncClient) -> None:
        await publish(mq, "zero", "one", "two")
        following = follow(mq, 4)
        await asyncio.sleep(1)
        for broker in town.brokers.values():
            broker.begins_at = 2
        town.kill("a-0")
        await asyncio.sleep(10)
        town.restart("a-0")
        await publish(mq, "three")

        assert await following == ExitCode.DONE

    ClientTown().play(story)
    said = capsys.readouterr()
    assert printed(said.out) == ["zero", "one", "two", "three"]
    assert "undone" not in said.err


def test_message_that_a_new_master_never_had_is_reported_as_undone(capsys: pytest.CaptureFixture[str]) -> None:
    """A slave showed it without its master."""

    async def story(group: Group, mq: AsyncClient) -> None:
        [created] = await mq.admin.create_topic("orders", 1)
        assert created.error is None
        await publish(mq, "confirmed")
        await asyncio.sleep(11)
        following = follow(mq, 4, "a/1")
        group.world.network.cut("a0", "a2")
        group.world.network.silence("a1", "a0")
        with contextlib.suppress(OutcomeUnknown):
            async with mq.producer(timeout_s=0.5, retry_s=0.5, on_weak="return") as orders:
                await orders.publish_many([Message("orders", body, queue=0) for body in (b"undone-1", b"undone-2")])
        await group.kill("a0")
        await asyncio.sleep(MASTER_GONE_S + 30.0)
        shown = capsys.readouterr()
        await group.kill("a1")
        await group.fail_over("a/2", allow_data_loss=True)
        await publish(mq, "new")
        group.node("a1").start()

        assert await following == ExitCode.DONE
        assert printed(shown.out) == ["confirmed", "undone-1", "undone-2"]
        assert "may be undone by a new master" in shown.err

    play(story, TWO_SLAVES)
    said = capsys.readouterr()
    assert printed(said.out) == ["new"]
    assert "queue 0 of a holds other messages from 1 on than were printed" in said.err
