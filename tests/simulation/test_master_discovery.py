"""How fast a producer finds the node that took its master's place."""

import asyncio
from dataclasses import replace

import pytest

from dittomq.client import AsyncClient
from dittomq.errors import NotMaster
from dittomq.offsets import Epoch
from dittomq.routes import Role
from tests.simulation.client_scenario import ClientTown, play
from tests.support.fake_broker import Refuse
from tests.support.virtual_time import played_by

FOUND_S = 0.3


def promote(town: ClientTown) -> None:
    """The node a/1 leads in epoch 2."""
    town.brokers["a/1"].refusal, town.brokers["a/1"].epoch = None, 2


def register(town: ClientTown) -> None:
    """Nameservers know that."""
    [slave] = [node for node in town.nameserver.nodes if node.name == "a/1"]
    town.nameserver.nodes = [replace(slave, broker_id=0, configured_id=1, role=Role.SYNC_MASTER, epoch=Epoch(2))]


@played_by(play)
async def test_the_master_that_a_refusing_node_names_is_followed_at_once(town: ClientTown, mq: AsyncClient) -> None:
    async with mq.producer() as orders:
        await orders.publish("orders", b"before")
        promote(town)
        town.master.script.append(Refuse(NotMaster("a/0", "a-1:10911")))
        asked, began = town.nameserver.asked, town.now

        receipt = await orders.publish("orders", b"after")

    assert (receipt.epoch, town.nameserver.asked) == (2, asked)
    assert town.now - began < FOUND_S


@played_by(play)
async def test_a_named_master_that_is_none_yet_is_looked_for_in_routes(town: ClientTown, mq: AsyncClient) -> None:
    async with mq.producer() as orders, asyncio.TaskGroup() as tasks:
        await orders.publish("orders", b"before")
        town.master.refusal = NotMaster("a/0", "a-1:10911")
        town.brokers["a/1"].refusal = NotMaster("a/1", "a-0:10911")
        town.master.script.append(Refuse(NotMaster("a/0", "a-1:10911")))
        publishing = tasks.create_task(orders.publish("orders", b"after"))
        await asyncio.sleep(1.0)
        assert town.master.streams + town.brokers["a/1"].streams < 20, "the two do not send it back and forth without a pause"
        promote(town)
        register(town)
        began = town.now
        receipt = await publishing

    assert receipt.epoch == 2
    assert town.now - began < FOUND_S


@pytest.mark.parametrize("away_s", [0.2, 0.7, 3.0])
@played_by(play)
async def test_the_master_after_a_killed_one_is_found_soon_after_it_has_registered(
    town: ClientTown, mq: AsyncClient, /, away_s: float
) -> None:
    async with mq.producer() as orders, asyncio.TaskGroup() as tasks:
        await orders.publish("orders", b"before")
        town.kill("a-0")
        publishing = tasks.create_task(orders.publish("orders", b"after"))
        await asyncio.sleep(away_s)
        promote(town)
        register(town)
        began = town.now
        receipt = await publishing

    assert receipt.epoch == 2
    assert town.now - began < FOUND_S
