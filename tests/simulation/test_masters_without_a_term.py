"""A node that a route names as the master and that takes no messages: it is sent none, and nothing is in doubt for it."""

import asyncio
from typing import Any

import grpc.aio
import pytest

from dittomq._pb.ditto.messaging.v1.messaging_pb2_grpc import MessagingServiceStub
from dittomq.broker.doors import BrokerDoors
from dittomq.client import AsyncClient, NotStored
from dittomq.errors import NotMaster, NotReady, OutOfReach, Refused
from dittomq.rpc.channel import Channels, typed
from dittomq.rpc.headers import EPOCH_HEADER, LOG_END_HEADER
from tests.simulation.client_town import ClientTown
from tests.simulation.group import Group, play

RECOVERS = NotReady("a/0", "recovering, waits for slaves")
LONG_AGO = b"of a producer that is forgotten"
REFUSALS = pytest.mark.parametrize("refusal", [RECOVERS, NotMaster("a/0", "")])


async def forget_somebody(town: ClientTown, mq: AsyncClient) -> None:
    async with mq.producer() as other:
        await other.publish("orders", LONG_AGO)
    town.log.forget()


def test_what_waited_for_a_master_to_lead_is_stored_though_others_were_forgotten_before() -> None:
    async def story(town: ClientTown, mq: AsyncClient) -> None:
        await forget_somebody(town, mq)
        town.master.refusal = RECOVERS
        town.world.loop.call_later(2, setattr, town.master, "refusal", None)
        async with mq.producer() as orders:
            receipt = await orders.publish("orders", b"patient")

        assert not receipt.duplicate
        assert town.log.bodies() == [LONG_AGO, b"patient"]

    ClientTown().play(story)


@REFUSALS
def test_what_waited_for_a_node_that_never_leads_is_not_stored_and_never_unknown(refusal: Refused) -> None:
    async def story(town: ClientTown, mq: AsyncClient) -> None:
        town.master.refusal = refusal
        async with mq.producer(retry_s=5) as orders:
            with pytest.raises(NotStored) as raised:
                await orders.publish("orders", b"never", queue=0)

        assert isinstance(raised.value.cause, NotMaster | NotReady)
        assert (town.master.frames, 5 <= town.now < 10) == ([], True)

    ClientTown().play(story)


@REFUSALS
def test_a_message_bound_to_no_group_goes_to_another_one_when_the_node_that_its_route_names_does_not_lead(refusal: Refused) -> None:
    async def story(town: ClientTown, mq: AsyncClient) -> None:
        town.master.refusal = refusal
        async with mq.producer() as orders:
            receipts = [await orders.publish("orders", b"%d" % at) for at in range(10)]

        assert {receipt.broker for receipt in receipts} == {"b"}
        assert town.now < 2

    ClientTown(groups=("a", "b")).play(story)


def test_a_node_that_names_no_end_of_its_log_and_gives_no_reason_is_sent_nothing_until_it_names_one() -> None:
    async def story(town: ClientTown, mq: AsyncClient) -> None:
        town.master.names_log_end = False  # it leads since it has named itself, or knows of no such header
        async with mq.producer(retry_s=5) as orders:
            with pytest.raises(NotStored, match=f"named no {LOG_END_HEADER}, so it takes no messages"):
                await orders.publish("orders", b"early", queue=0)
            town.master.names_log_end = True
            await orders.publish("orders", b"later", queue=0)

        assert town.log.bodies() == [b"later"]

    ClientTown().play(story)


class Asker:
    """Opens streams to a0, some at once, and notes of each that was refused whether its headers named the end of the log."""

    def __init__(self) -> None:
        self.refused: list[tuple[str, bool]] = []
        self.taken = 0

    async def ask(self, doors: BrokerDoors, stop: asyncio.Event) -> None:
        async with Channels(doors.transport) as channels:
            stub: Any = channels.stub(MessagingServiceStub, "a0:10911")
            await asyncio.gather(*[self._ask_until(stop, stub) for _ in range(8)])  # a master refuses for some milliseconds only

    async def _ask_until(self, stop: asyncio.Event, stub: Any) -> None:
        while not stop.is_set():
            await self._ask_once(stub.PublishStream())
            await asyncio.sleep(0.001)

    async def _ask_once(self, stream: Any) -> None:
        headers = dict(await stream.initial_metadata() or ())
        try:
            await stream.done_writing()
            await stream.read()
            self.taken += 1
        except grpc.aio.AioRpcError as error:
            problem = typed(error, "a0")
            if EPOCH_HEADER in headers and not isinstance(problem, OutOfReach):  # else it was taken, and its connection broke at its end
                self.refused.append((str(problem), LOG_END_HEADER in headers))


@pytest.mark.parametrize("end", ["hand over", "stop"])
def test_a_master_that_refuses_a_stream_has_named_no_end_of_its_log_and_sends_nobody_into_doubt(end: str) -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        asker = group.world.node("asker", asking.ask)
        asker.start()
        await asyncio.sleep(0.1)
        if end == "hand over":
            await mq.admin.change_role("a/1")
        else:
            await group.node("a0").stop()
        await asyncio.sleep(1)
        await asker.stop()

    asking = Asker()
    play(story)
    assert asking.taken > 0
    assert asking.refused
    assert not any(named for _, named in asking.refused), asking.refused
