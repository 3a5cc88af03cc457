"""For which slaves a master keeps its log."""

import random

import pytest

from dittomq.offsets import PhysicalOffset
from services.master.holds import SlaveHolds
from services.master.slaves import SlaveRecord
from tests.support.lanes import InlineLane
from tests.support.metadata_node import run
from tests.support.stores import SMALL, Machine


def record(node: str, flushed: int, *, connected: bool = True) -> SlaveRecord:
    return SlaveRecord(node, "u" + node, connected=connected, flushed=PhysicalOffset(flushed))


@pytest.mark.parametrize(("slaves", "held"), [(0, ["a/1", "a/2"]), (1, ["a/1"]), (2, ["a/1", "a/2"])])
def test_who_is_of_the_group_no_more_holds_nothing_while_all_others_are_there(slaves: int, held: list[str]) -> None:
    async def story() -> None:
        machine = Machine(random.Random(1))
        store, segment = machine.open(), SMALL.segment_bytes
        records = {"a/1": record("a/1", segment + 1), "a/2": record("a/2", 3 * segment + 1)}
        before = SlaveHolds(machine.beside(), store, InlineLane(), 2, lambda: records)
        await before.keep()

        now = {"a/1": record("a/1", 4 * segment + 1)}
        holds = SlaveHolds(machine.beside(), store, InlineLane(), slaves, lambda: now)
        await holds.load()
        assert sorted(hold.name for hold in holds.holds(1_000)) == held
        await holds.keep()

        now["a/1"].connected = False
        again = SlaveHolds(machine.beside(), store, InlineLane(), slaves, lambda: now)
        await again.load()
        assert {hold.name: hold.offset for hold in again.holds(1_000)} == {
            "a/1": 4 * segment + 1,
            **({"a/2": 3 * segment} if "a/2" in held else {}),
        }

    run(story())
