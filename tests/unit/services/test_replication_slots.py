"""For which slaves a master keeps its log."""

import random

import pytest

from dittomq.commitlog.retention import RetentionFloor
from dittomq.group_record import ReplicaId
from dittomq.offsets import PhysicalOffset
from services.master.replica_registry import SlaveRecord
from services.master.replication_slots import Members, SlotsOfSlaves
from services.slave.replication_slots import SlotsOfOthers
from tests.simulation.disk import BOUNDLESS
from tests.support.inline_lane import InlineLane
from tests.support.metadata_node import run
from tests.support.stores import SMALL, Machine, frame
from tests.support.virtual_time import under


def record(node: str, flushed: int, *, connected: bool = True) -> SlaveRecord:
    return SlaveRecord(node, ReplicaId("u" + node, "1"), connected=connected, flushed=PhysicalOffset(flushed))


@under(run)
async def test_slave_records_its_masters_slots_of_other_nodes() -> None:
    """As soon as there is room."""
    machine = Machine(random.Random(1))
    machine.open()
    told = (("a/1", PhysicalOffset(0)), ("a/2", PhysicalOffset(SMALL.segment_bytes)))

    async def after_a_restart() -> list[RetentionFloor]:
        again = SlotsOfOthers("a/1", machine.beside(), InlineLane())
        await again.load()
        return again.floors(1_000)

    holds = SlotsOfOthers("a/1", machine.beside(), InlineLane())
    machine.disk.capacity_bytes = machine.disk.used_bytes()
    await holds.update(told)
    assert holds.floors(1_000) == [RetentionFloor("a/2", PhysicalOffset(SMALL.segment_bytes), 1_000)]
    assert await after_a_restart() == []

    machine.disk.capacity_bytes = BOUNDLESS
    await holds.update(told)
    assert await after_a_restart() == holds.floors(1_000)
    await holds.update(())
    assert await after_a_restart() == []


@pytest.mark.parametrize(("slaves", "held"), [(0, ["a/1", "a/2"]), (1, ["a/1"]), (2, ["a/1", "a/2"])])
@under(run)
async def test_who_is_of_the_group_no_more_holds_nothing_while_all_others_are_there(slaves: int, held: list[str]) -> None:
    machine = Machine(random.Random(1))
    store, segment = machine.open(), SMALL.segment_bytes
    records = {"a/1": record("a/1", segment + 1), "a/2": record("a/2", 3 * segment + 1)}
    before = SlotsOfSlaves(machine.beside(), store, InlineLane(), 2, records=lambda: records)
    await before.keep()

    now = {"a/1": record("a/1", 4 * segment + 1)}
    holds = SlotsOfSlaves(machine.beside(), store, InlineLane(), slaves, records=lambda: now)
    await holds.load("a/0")
    assert sorted(hold.name for hold in holds.floors(1_000)) == held
    await holds.keep()

    now["a/1"].connected = False
    again = SlotsOfSlaves(machine.beside(), store, InlineLane(), slaves, records=lambda: now)
    await again.load("a/0")
    assert {hold.name: hold.offset for hold in again.floors(1_000)} == {
        "a/1": 4 * segment + 1,
        **({"a/2": 3 * segment} if "a/2" in held else {}),
    }


@under(run)
async def test_the_log_is_kept_for_64_slaves_and_for_no_more_however_many_came_and_went() -> None:
    machine = Machine(random.Random(1))
    store, segment = machine.open(), SMALL.segment_bytes
    records: dict[str, SlaveRecord] = {}
    holds = SlotsOfSlaves(machine.beside(), store, InlineLane(), 1, records=lambda: records)
    for node_id in range(1, 201):
        records.clear()
        records[f"a/{node_id}"] = record(f"a/{node_id}", node_id * segment, connected=False)
        await holds.keep()

    newest = {f"a/{node_id}" for node_id in range(137, 201)}
    assert {hold.name for hold in holds.floors(1_000)} == newest
    assert {node for node, _ in holds.written} == newest
    again = SlotsOfSlaves(machine.beside(), store, InlineLane(), 1, records=dict)
    await again.load("a/0")
    assert again.slaves == newest


def test_member_holds_the_log_without_bound_until_removed_for_its_lag() -> None:
    machine = Machine(random.Random(1))
    store = machine.lead()
    end = store.append([frame(b"x" * 2_000)], 1).end
    records, left = {"a/1": record("a/1", 0), "a/2": record("a/2", end)}, list[str]()
    members = Members(lambda: ["a/1", "a/2", "a/3"], left.append)
    holds = SlotsOfSlaves(machine.beside(), store, InlineLane(), 3, records=lambda: records, members=members)

    held = holds.floors(1_000)

    assert {(hold.name, hold.offset, hold.max_bytes) for hold in held} == {("a/1", 0, None), ("a/2", end, None), ("a/3", 0, None)}
    assert left == ["a/1"]
