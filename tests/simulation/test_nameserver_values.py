"""What operators tell nameservers, and what brokers and clients make of it: closed groups, order topics."""

import asyncio
import json
from typing import Any

import pytest

from dittomq._pb.ditto.naming.v1 import naming_pb2 as pb
from dittomq._pb.ditto.naming.v1.naming_pb2_grpc import NameServerServiceStub
from dittomq.broker.doors import BrokerDoors
from dittomq.client import AsyncClient, NotStored
from dittomq.errors import PermissionDenied, Unavailable, WrongCluster
from dittomq.routes import ORDER_TOPIC_CONFIG
from dittomq.rpc.channel import Channels, call
from services.nameserver.config import NameserverConfig, NodeConfig
from tests.simulation.disk_snapshots import Files
from tests.simulation.group import Group, play
from tests.simulation.scenario import Town
from tests.simulation.scenario import play as play_town
from tests.simulation.world import Power, World
from tests.support.naming import master
from tests.support.virtual_time import played_by


async def put(group: Group, topic: str, config: str) -> None:
    """Give a topic an order configuration, by hand."""

    async def serve(doors: BrokerDoors, _: asyncio.Event) -> None:
        async with Channels(doors.transport) as channels:
            stub: Any = channels.stub(NameServerServiceStub, "ns:9876")
            value = pb.KeyValue(namespace=ORDER_TOPIC_CONFIG, key=topic, value=config)
            await call(stub.PutKeyValue, pb.PutKeyValueRequest(key_value=value), who="ns", deadline_s=3)

    by_hand = group.world.node("hand", serve)
    by_hand.start()
    await by_hand.ended()


@played_by(play)
async def test_a_closed_group_takes_no_writes_until_it_is_given_back(group: Group, mq: AsyncClient) -> None:
    """Also from a nameserver that was killed in between."""
    await mq.admin.create_topic("orders", 1)

    [result] = await mq.admin.set_writable("a", writable=False)
    group.node("ns").crash(Power.KILL)
    group.node("ns").start()
    await asyncio.sleep(31)

    assert (result.topics, result.error) == (1, None)
    async with mq.producer(retry_s=1) as orders:
        with pytest.raises(NotStored) as refused:
            await orders.publish("orders", b"refused")
        assert isinstance(refused.value.cause, PermissionDenied)
        await mq.admin.set_writable("a", writable=True)
        await asyncio.sleep(31)
        await orders.publish("orders", b"taken")
    assert [message.body for message in (await mq.reader("orders", 0).pull(0)).messages] == [b"taken"]


@played_by(play)
async def test_a_topic_of_a_closed_group_is_known_at_once_and_not_waited_for(group: Group, mq: AsyncClient) -> None:
    """It was waited for until 3 s had passed: its route names the group for reading only, whatever the topic has."""
    await mq.admin.set_writable("a", writable=False)
    began = asyncio.get_running_loop().time()

    await mq.admin.create_topic("orders", 4)
    created = asyncio.get_running_loop().time()
    [known] = (await mq.route("orders")).queues
    await mq.admin.update_topic("orders", write_queues=2)
    updated = asyncio.get_running_loop().time()

    assert (known.read_queues, known.write_queues) == (4, 4)
    assert [each.write_queues for each in (await mq.route("orders")).queues] == [2]
    assert created - began < 1
    assert updated - created < 1


@played_by(play)
async def test_a_topic_with_an_order_configuration_is_marked_on_all_nodes(group: Group, mq: AsyncClient) -> None:
    """As RocketMQ does, which never unmarks one."""
    await mq.admin.create_topic("orders", 4)
    await mq.admin.create_topic("others", 4)

    await put(group, "orders", "a:2")
    await asyncio.sleep(35)

    marked = {name: is_marked(group, name) for name in ("a0", "a1")}
    assert marked == {"a0": {"orders": True, "others": False}, "a1": {"orders": True, "others": False}}
    assert (await mq.route("orders")).order_config == "a:2"


def is_marked(group: Group, machine: str) -> dict[str, bool]:
    """By topic, as the node's file says."""
    table = json.loads(Files(group.node(machine).disk, "config/")["config/topics.json"])["topicConfigTable"]
    return {name: row["order"] for name, row in table.items() if name in ("orders", "others")}


@played_by(play_town)
async def test_nameserver_of_another_cluster_closes_no_group(town: Town, /, world: World) -> None:
    town.nameserver()
    town.broker(master())
    await asyncio.sleep(1)
    town.nameserver(NameserverConfig(node=NodeConfig(cluster="other")))
    await asyncio.sleep(1)

    outcomes = await town.routes().set_writable("a", writable=False)

    assert outcomes["n0:9876"] == 1
    assert isinstance(outcomes["n1:9876"], WrongCluster)


@played_by(play_town)
async def test_a_silent_nameserver_is_named_while_the_others_close_a_group(town: Town, /, world: World) -> None:
    town.nameserver()
    town.nameserver()
    town.broker(master())
    await asyncio.sleep(1)
    world.nodes["n1"].crash(Power.KILL)

    outcomes = await town.routes().set_writable("a", writable=False)

    assert outcomes["n0:9876"] == 1
    assert isinstance(outcomes["n1:9876"], Unavailable)
