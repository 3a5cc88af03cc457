"""Masters and slaves whose newest messages rotted where a start reads them again: no place in a queue is ever given twice."""

import asyncio
import contextlib
from collections.abc import Callable

import pytest

from dittomq.client import AsyncClient
from dittomq.errors import CorruptRecord, DittoError
from dittomq.ha_status import HaStatus
from services.master.config import Mode, ReplicationTable
from services.slave.config import FlushMode
from tests.simulation.flipped_bits import flip
from tests.simulation.group import Group, play
from tests.simulation.parser import parse_log
from tests.simulation.shapes import Shape
from tests.simulation.world import Power
from tests.support.virtual_time import played_by

_ALONE = Shape(0, ReplicationTable(mode=Mode.ASYNC_MASTER, replicas_expected=0), FlushMode.SYNC_FLUSH)
_BODIES = [b"%02d" % number * 300 for number in range(8)]


async def published(mq: AsyncClient, bodies: list[bytes]) -> dict[int, bytes]:
    """What clients were told: the body at each offset of the queue."""
    async with mq.producer(on_weak="return") as producer:
        return {receipt.queue_offset: body for body in bodies for receipt in [await producer.publish("orders", body, queue=0)]}


async def killed_with_its_newest_rotten(group: Group, mq: AsyncClient) -> dict[int, bytes]:
    """The master a/0 is killed, and a bit of the newest message flips on its disk. Returns what clients were told before."""
    told = await published(mq, _BODIES)
    await asyncio.sleep(3)
    await group.kill("a0")
    rot_newest(group, "a0", _BODIES[-1])
    return told


def places(group: Group, machine: str) -> dict[int, bytes]:
    """What the log on a disk has at each offset of the queue; two messages at one offset fail here."""
    found: dict[int, bytes] = {}
    for message in parse_log(group.cluster.files(machine)).records:
        assert message.queue_offset not in found, f"two messages of {machine} have offset {message.queue_offset}"
        found[message.queue_offset] = message.body
    return found


def rot_newest(group: Group, machine: str, body: bytes) -> None:
    """A bit of the message's body flips on that machine's disk."""
    files = group.cluster.files(machine)
    path = max(name for name in files if name.startswith("commitlog/") and body in files[name])
    flip(group, machine, int(path.rpartition("/")[2]) + files[path].index(body))


async def status(mq: AsyncClient, machine: str) -> HaStatus:
    return await mq.admin.ha_status(f"{machine}:10911")


async def seen(mq: AsyncClient, machine: str, wanted: Callable[[HaStatus], bool]) -> None:
    """Wait until the node says so of itself."""
    while True:
        with contextlib.suppress(DittoError):
            if wanted(await status(mq, machine)):
                return
        await asyncio.sleep(0.1)


@played_by(play)
async def test_a_master_whose_newest_message_rotted_leaves_its_place_free_till_it_is_back(group: Group, mq: AsyncClient) -> None:
    await mq.admin.create_topic("orders", queues=1)
    told = await published(mq, _BODIES)
    await asyncio.sleep(3)
    for machine in ("a0", "a1"):
        group.node(machine).crash(Power.KILL)
    await group.world.buried()
    rot_newest(group, "a0", _BODIES[-1])
    group.node("a0").start()
    await seen(mq, "a0", lambda status: status.writable)
    told |= await published(mq, [b"written without it"])
    group.node("a1").start()
    await group.in_sync(mq)
    await seen(mq, "a0", lambda status: not status.nodes[0].damaged_bytes)

    assert len(told) == len(_BODIES) + 1
    assert [places(group, machine) for machine in ("a0", "a1")] == [told, told]


@played_by(play, _ALONE)
async def test_a_master_without_slaves_leads_at_once_and_leaves_the_place_free(group: Group, mq: AsyncClient) -> None:
    await mq.admin.create_topic("orders", queues=1)
    told = await killed_with_its_newest_rotten(group, mq)

    group.node("a0").start()
    await seen(mq, "a0", lambda status: status.writable)
    [behind] = await published(mq, [b"written without it"])

    assert max(told) < behind <= max(told) + 10
    reader = mq.reader("orders", 0, broker="a", max_messages=50)
    assert [message.body for message in (await reader.pull(0)).messages] == _BODIES[:-1]
    assert [message.body for message in (await reader.pull(behind)).messages] == [b"written without it"]
    for offset in range(max(told), behind):
        with pytest.raises(CorruptRecord, match="damaged"):
            await reader.pull(offset)


@played_by(play, _ALONE)
async def test_reserved_queue_offset_stays_free_until_the_queue_is_written_again(group: Group, mq: AsyncClient) -> None:
    await mq.admin.create_topic("orders", queues=2)
    async with mq.producer(on_weak="return") as producer:
        hidden = await producer.publish("orders", _BODIES[0], queue=1)
    await mq.admin.update_topic("orders", write_queues=1)
    await asyncio.sleep(3)
    await group.kill("a0")
    rot_newest(group, "a0", _BODIES[0])

    group.node("a0").start()
    await seen(mq, "a0", lambda status: status.writable)
    await mq.admin.update_topic("orders", write_queues=2)
    async with mq.producer(on_weak="return") as producer:
        behind = await producer.publish("orders", b"written without it", queue=1)

    assert behind.queue_offset > hidden.queue_offset
