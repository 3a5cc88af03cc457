"""Replicas that serve ranges to one that repairs its log."""

import asyncio
import random
from collections.abc import Sequence

from dittomq.broker.range_server import RangeServer
from dittomq.broker.repair import Repairer, RepairerParts, RepairSource
from dittomq.commitlog.store import Store
from dittomq.copies import RangeOutcome
from dittomq.offsets import PhysicalOffset
from tests.support.inline_lane import InlineLane
from tests.support.record_damage import HARMS, entries
from tests.support.stores import Machine, whole_log
from tests.unit.commitlog.repaired_stores import rot


def copy_of(store: Store, machine: Machine) -> Store:
    """Another replica's store with the same log."""
    return copy_of_log(store, whole_log(store), machine)


def copy_of_log(store: Store, log: bytes, machine: Machine) -> Store:
    """The same, of a store whose log has rotted since."""
    copy = machine.open()
    copy.replace_epoch_history(store.epoch_history)
    for base in range(0, len(log), store.segment_bytes):
        copy.write_chunk(base, log[base : base + store.segment_bytes])
    copy.sync()
    return copy


def serving(store: Store) -> RangeServer:
    return RangeServer(lambda: (store,), InlineLane(), "test", "a", damaged=lambda _: None)


def repair_damage(store: Store, peers: Sequence[RepairSource]) -> list[RangeOutcome]:
    async def found() -> Sequence[RepairSource]:
        return peers

    lane = InlineLane()
    return asyncio.run(Repairer(RepairerParts("a/1", store, lane, lane, lane, random.Random(1)), found).repair_ranges(store.damaged))


def damage(store: Store, machine: Machine, *numbers: int) -> list[tuple[PhysicalOffset, PhysicalOffset]]:
    all_of_them = entries(whole_log(store))
    found = [(PhysicalOffset(all_of_them[number][0]), PhysicalOffset(all_of_them[number][1])) for number in numbers]
    for start, end in found:
        rot(machine, whole_log(store), HARMS["body"], start, end=end)
    store.verify(0, store.end)
    return found
