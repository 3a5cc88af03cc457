"""Retention in a whole group: what goes, for whom it stays, and what becomes of a slave that was away for too long."""

import asyncio

import pytest

from dittomq.broker.config import RetentionTable
from dittomq.client.replica_reader import NodeAddress
from dittomq.errors import SessionExpired
from tests.simulation.short_retention import OLD_S, RETENTION, SEGMENT, Group, play
from tests.simulation.world import Power, World
from tests.support.virtual_time import played_by

NODES = {name: NodeAddress("a", number, "test", f"{name}:10911") for number, name in enumerate(("a0", "a1"))}


@played_by(play)
async def test_what_is_old_goes_on_each_node_by_its_own_rules_and_the_group_goes_on(group: Group) -> None:
    await group.publish(5)
    await asyncio.sleep(OLD_S)

    leading, following = await group.status("a0"), await group.status("a1")
    assert leading.min_offset == leading.end // SEGMENT * SEGMENT
    assert following.min_offset == 0

    await group.publish(2)
    await group.equal()
    assert await group.drop_reason() == ""


@played_by(play)
async def test_a_clock_that_is_set_forward_makes_nothing_old(group: Group, /, world: World) -> None:
    await group.publish(3)
    world.nodes["a0"].clock.jump(by_ms=86_400_000)
    await asyncio.sleep(10)

    assert (await group.status("a0")).min_offset == 0


@played_by(play)
async def test_the_log_stays_for_a_slave_that_is_away_also_over_a_restart_of_the_master(group: Group, /, world: World) -> None:
    away = (await group.status("a1")).flushed
    world.nodes["a1"].crash(Power.KILL)
    await group.publish(4)
    await asyncio.sleep(OLD_S)
    assert (await group.status("a0")).min_offset == away // SEGMENT * SEGMENT

    world.nodes["a0"].crash(Power.KILL)
    await world.buried()
    world.nodes["a0"].start()
    await asyncio.sleep(OLD_S)
    assert (await group.status("a0")).min_offset == away // SEGMENT * SEGMENT

    world.nodes["a1"].start()
    await group.equal()
    await asyncio.sleep(OLD_S)
    assert (await group.status("a0")).min_offset > away


@played_by(play)
async def test_a_master_that_lost_its_disk_begins_where_its_slave_does(group: Group, /, world: World) -> None:
    world.nodes["a1"].crash(Power.LOSS)
    await world.buried()
    world.nodes["a1"].lose_disk()
    await group.publish(10)
    await asyncio.sleep(OLD_S)
    world.nodes["a1"].start()
    await group.equal()
    await asyncio.sleep(20)  # it has the tables, too
    copied = await group.status("a1")

    world.nodes["a0"].crash(Power.LOSS)
    await world.buried()
    world.nodes["a0"].lose_disk()
    world.nodes["a0"].start()
    await asyncio.sleep(20)

    assert (await group.status("a0")).end == copied.end
    assert (await group.status("a0")).min_offset == copied.min_offset > 0
    await group.publish(1)
    await group.equal()


@pytest.mark.parametrize("name", NODES)
@played_by(play, on_slave=RETENTION)
async def test_retention_pin_holds_exactly_while_its_lease_is_renewed(group: Group, /, world: World, name: str) -> None:
    """Also over a kill."""
    node = NODES[name]
    pin = await group.copies.pin(node, "night", 60.0)
    await group.publish(5)
    await group.equal()
    await asyncio.sleep(OLD_S)
    other = "a1" if name == "a0" else "a0"
    assert (await group.status(other)).min_offset > 0, "the other copy is not held"
    assert (await group.status(name)).min_offset == pin.start == 0

    await group.copies.renew(node, pin, 60.0)
    world.nodes[name].crash(Power.LOSS)
    await world.buried()
    world.nodes[name].start()
    await asyncio.sleep(50)
    await group.copies.renew(node, pin, 60.0)
    await asyncio.sleep(55)
    assert (await group.status(name)).min_offset == 0

    await asyncio.sleep(10)
    assert (await group.status(name)).min_offset > 0
    with pytest.raises(SessionExpired):
        await group.copies.renew(node, pin, 60.0)
    assert not await group.copies.unpin(node, pin)


@played_by(play)
async def test_a_wall_clock_that_jumps_neither_ends_a_lease_nor_makes_it_longer(group: Group, /, world: World) -> None:
    pin = await group.copies.pin(NODES["a0"], "night", 60.0)
    await group.publish(5)
    world.nodes["a0"].clock.jump(by_ms=-3_600_000)
    world.nodes["a0"].clock.jump(by_ms=7_200_000)
    await asyncio.sleep(50)
    assert (await group.status("a0")).min_offset == pin.start

    await asyncio.sleep(20)
    assert (await group.status("a0")).min_offset > pin.start


@played_by(play, on_slave=RetentionTable(forced_used_percent=70, check_period_ms=1_000))
async def test_a_disk_that_is_nearly_full_overrides_a_pin_and_says_so(group: Group, /, world: World) -> None:
    pin = await group.copies.pin(NODES["a1"], "night", 3_600.0)
    await group.publish(5)
    await group.equal()
    await asyncio.sleep(10)
    assert (await group.status("a1")).min_offset == pin.start
    disk = world.nodes["a1"].disk
    disk.capacity_bytes = disk.used_bytes() * 100 // 75  # of a disk this small, less is no room to write down what goes
    await asyncio.sleep(10)

    assert (await group.status("a1")).min_offset > pin.start
    with pytest.raises(SessionExpired):
        await group.copies.renew(NODES["a1"], pin, 60.0)
    assert [line for line in world.transcript.lines if "warning retention_overridden node=a/1 holder=audit night " in line]
