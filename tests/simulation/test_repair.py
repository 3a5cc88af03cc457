"""Bits that flip on the disks of a whole group: nothing damaged is served or copied, nobody is cut, and every copy becomes whole again."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence

import pytest

from dittomq.client import AsyncClient
from dittomq.errors import CorruptRecord, DittoError
from dittomq.ha_status import NodeView
from services.master.config import Mode, ReplicationTable
from services.slave.config import FlushMode
from tests.simulation.disk import Deed, Inode, Operation
from tests.simulation.flipped_bits import flip
from tests.simulation.group import Group, play
from tests.simulation.parser import parse_log
from tests.simulation.shapes import Shape
from tests.simulation.world import Power
from tests.support.virtual_time import played_by

_SEGMENT = 65_536
_THREE_COPIES = Shape(2, ReplicationTable(mode=Mode.SYNC_MASTER, replicas_expected=2, heartbeat_ms=1_000), FlushMode.SYNC_FLUSH, _SEGMENT)
_BODIES = [b"%06d" % number * 200 for number in range(220)]
_ALL = ("a0", "a1", "a2")
_CHECKPOINT_S = 35.0


async def publish(mq: AsyncClient, bodies: Sequence[bytes]) -> None:
    await mq.admin.create_topic("orders", queues=1)
    async with mq.producer() as producer:
        for body in bodies:
            await producer.publish("orders", body, queue=0)


async def restart_with_flips(group: Group, *positions: int) -> None:
    """The master comes back with nothing of its log in memory, and with bits flipped that its last checkpoint covers."""
    await asyncio.sleep(_CHECKPOINT_S)
    await group.kill("a0")
    for position in positions:
        flip(group, "a0", position)
    group.node("a0").start()


async def view(mq: AsyncClient, machine: str) -> NodeView:
    """What a node says of itself."""
    return (await mq.admin.ha_status(f"{machine}:10911")).nodes[0]


async def caught_up(mq: AsyncClient, machine: str, *, within_s: float = 60.0) -> None:
    """Wait until the slave has heard all that its master has, holes included, and is in sync for what lies behind them."""
    async with asyncio.timeout(within_s):
        while True:
            await asyncio.sleep(0.5)
            if await has_caught_up(mq, f"a/{machine[1:]}"):
                return


async def has_caught_up(mq: AsyncClient, node: str) -> bool:
    try:
        seen = await mq.admin.ha_status("a/0")
    except DittoError:
        return False
    return any(each.node == node and each.state == "in sync" and each.flushed == seen.end > 0 for each in seen.nodes)


async def whole(mq: AsyncClient, *, within_s: float = 120.0) -> None:
    """Wait until no node misses or doubts a byte, and every slave is verified up to the end."""
    async with asyncio.timeout(within_s):
        while True:
            await asyncio.sleep(0.5)
            if await is_whole(mq):
                return


async def is_whole(mq: AsyncClient) -> bool:
    try:
        views = [await view(mq, machine) for machine in _ALL]
        seen = await mq.admin.ha_status("a/0")
    except DittoError:
        return False
    proven = [each.verified_offset for each in seen.nodes if each.role == "slave"]
    return [each.damaged_bytes for each in views] == [0] * 3 and proven == [seen.end] * 2


async def read_from(mq: AsyncClient, node: str) -> list[bytes]:
    """All bodies as one node serves them; what is damaged there now is asked for again."""
    reader = mq.reader("orders", 0, broker="a", node=node, max_messages=50)
    bodies: list[bytes] = []
    while len(bodies) < len(_BODIES):
        try:
            page = await reader.pull(len(bodies))
        except CorruptRecord:
            await asyncio.sleep(0.2)
            continue
        bodies += [message.body for message in page.messages]
    return bodies


async def most_proven_while_damaged(mq: AsyncClient, machine: str) -> int:
    """Wait until a node has found its damage and a copy has mended it; the most that a/1, or its master, called proven meanwhile."""
    most = damaged = 0
    while damaged == 0 or (await view(mq, machine)).damaged_bytes:
        with contextlib.suppress(DittoError):
            own, master = await view(mq, machine), await mq.admin.ha_status("a/0")
            proven = [each.verified_offset or 0 for each in (own, *master.nodes) if each.node == "a/1" and each.state != "gone"]
            most = max(most, *proven, 0) if own.damaged_bytes else most
            damaged += own.damaged_bytes or 0
        await asyncio.sleep(0.02)
    return most


async def each_moment(seconds: float) -> AsyncIterator[None]:
    """Now, and every 4 ms for so long."""
    for _ in range(int(seconds / 0.004)):
        yield
        await asyncio.sleep(0.004)


async def proven_by_master(mq: AsyncClient, node: str) -> int:
    """How far the master calls this slave equal to itself."""
    [proven] = [each.verified_offset or 0 for each in (await mq.admin.ha_status("a/0")).nodes if each.node == node]
    return proven


def equal_copies(group: Group) -> None:
    """The logs on all disks are the same, record by record, and whole."""
    logs = [parse_log(group.cluster.files(machine)).content for machine in _ALL]
    assert logs[0] == logs[1] == logs[2]


@played_by(play, _THREE_COPIES)
async def test_rot_on_all_replicas_is_repaired_and_they_end_equal(group: Group, mq: AsyncClient) -> None:
    """Whoever reads the rot repairs it."""
    await publish(mq, _BODIES)
    flip(group, "a0", 20_000)
    flip(group, "a1", 90_000)
    flip(group, "a2", 20_000)  # the same place as on the master
    flip(group, "a2", 150_003)

    bodies = [await read_from(mq, node) for node in ("a/0", "a/1", "a/2")]

    assert bodies == [_BODIES] * 3
    await whole(mq)
    equal_copies(group)


@played_by(play, _THREE_COPIES)
async def test_new_slave_of_a_damaged_master_repairs_from_the_other_slave(group: Group, mq: AsyncClient) -> None:
    """It goes on behind the missing range."""
    await publish(mq, _BODIES)
    await restart_with_flips(group, 20_000, 70_000)

    await group.replace_disk("a2")
    await caught_up(mq, "a2")

    assert await read_from(mq, "a/2") == _BODIES
    await whole(mq)
    equal_copies(group)


@played_by(play, _THREE_COPIES)
async def test_missing_range_that_no_replica_holds_keeps_no_slave_out_of_sync(group: Group, mq: AsyncClient) -> None:
    """It is fetched when a replica holds it."""
    await publish(mq, _BODIES)
    group.node("a1").crash(Power.KILL)
    await group.world.buried()
    await restart_with_flips(group, 20_000)

    await group.replace_disk("a2")
    await caught_up(mq, "a2")
    await publish(mq, [b"written behind the hole"])

    views = [await view(mq, machine) for machine in ("a0", "a2")]
    assert all(each.damaged_bytes for each in views)
    assert views[1].received == views[0].received
    group.node("a1").start()
    await whole(mq)
    equal_copies(group)


@pytest.mark.parametrize("rotten", ["a0", "a1"])
@played_by(play, _THREE_COPIES)
async def test_restart_with_cold_damage_truncates_no_slave_and_keeps_none_out_of_sync(
    group: Group, mq: AsyncClient, /, rotten: str
) -> None:
    await publish(mq, _BODIES)
    await asyncio.sleep(3)  # what is damaged lies before the point from which a start reads
    await group.kill(rotten)
    await group.kill("a2")
    flip(group, rotten, 200_000)
    ends = [max(map(int, (name[len("commitlog/") :] for name in group.cluster.files(machine)))) for machine in _ALL]

    for machine in (rotten, "a2"):
        group.node(machine).start()
    await group.in_sync(mq)

    await whole(mq)
    assert [max(map(int, (name[len("commitlog/") :] for name in group.cluster.files(machine)))) for machine in _ALL] == ends
    assert not [path for machine in _ALL for path in group.node(machine).disk.names.files if path.startswith("dittomq/tail-")]
    equal_copies(group)


@played_by(play, _THREE_COPIES)
async def test_nothing_behind_known_damage_is_verified_before_the_repair(group: Group, mq: AsyncClient) -> None:
    await publish(mq, _BODIES)
    await whole(mq)
    await group.kill("a2")
    await group.kill("a1")
    flip(group, "a0", 90_000)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(5):
            await read_from(mq, "a/0")

    group.node("a1").start()

    assert await most_proven_while_damaged(mq, "a0") <= 90_000
    group.node("a2").start()
    await whole(mq)


@played_by(play, _THREE_COPIES)
async def test_damage_at_a_slave_ends_verification_until_it_is_compared_again(group: Group, mq: AsyncClient) -> None:
    await publish(mq, _BODIES)
    await whole(mq)
    [since] = [each.since_ms for each in (await mq.admin.ha_status("a/0")).nodes if each.node == "a/1"]
    flip(group, "a1", 90_000)
    assert await read_from(mq, "a/1") == _BODIES

    compared_again = 131_072  # the range with the damage is mended and compared, maybe between two looks; nothing behind it is
    assert min([await proven_by_master(mq, "a/1") async for _ in each_moment(5)]) <= compared_again

    await whole(mq)
    assert [each.since_ms for each in (await mq.admin.ha_status("a/0")).nodes if each.node == "a/1"] == [since], "one stream"


@pytest.mark.parametrize("segment", [0, 2, -1])
@played_by(play, _THREE_COPIES)
async def test_slave_that_lost_a_segment_fetches_it_and_all_replicas_end_equal(group: Group, mq: AsyncClient, /, segment: int) -> None:
    await publish(mq, _BODIES)
    await asyncio.sleep(_CHECKPOINT_S)
    await group.kill("a1")
    disk = group.node("a1").disk
    path = sorted(name for name in disk.names.files if name.startswith("commitlog/"))[segment]
    disk.do(Operation(Deed.REMOVED, path, disk.names.files[path]))
    disk.sync_folder("commitlog")
    if segment == 0:  # it is not missed: so it is emptied instead
        disk.do(Operation(Deed.MADE, path, Inode()))
        disk.sync_folder("commitlog")

    group.node("a1").start()
    if segment >= 0:
        assert await most_proven_while_damaged(mq, "a1") <= segment * _SEGMENT
    await group.in_sync(mq)
    await publish(mq, [b"written meanwhile"])

    assert (await read_from(mq, "a/1"))[: len(_BODIES)] == _BODIES
    await whole(mq)
    equal_copies(group)
