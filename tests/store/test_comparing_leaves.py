"""What a master finds when it compares a slave's leaves with its own: only a leaf that differs while ours is whole cuts the slave."""

import random
from dataclasses import replace

import pytest

from dittomq.commitlog.store import Store
from dittomq.offsets import PhysicalOffset
from dittomq.replication.events import LeafDigests
from dittomq.replication.master_events import LeavesCompared
from services.master.replicate import compare_leaves
from tests.support.stores import SMALL, Machine, filled


@pytest.fixture
def machine() -> Machine:
    return Machine(random.Random(7))


@pytest.fixture
def store(machine: Machine) -> Store:
    return filled(machine)


@pytest.fixture
def equal(store: Store) -> LeafDigests:
    """A slave's leaves of the second segment, which are ours."""
    start, end = PhysicalOffset(SMALL.segment_bytes), PhysicalOffset(2 * SMALL.segment_bytes)
    return LeafDigests(start, end, tuple(store.leaf_digests(start, end)))


@pytest.mark.parametrize("count", [None, 0])
def test_leaves_none_of_which_differs_prove_nothing(store: Store, equal: LeafDigests, count: int | None) -> None:
    assert compare_leaves(store, replace(equal, digests=equal.digests[:count])) == LeavesCompared(None, ours_whole=True)


def test_a_leaf_that_differs_is_named_by_a_records_start(store: Store, equal: LeafDigests) -> None:
    assert compare_leaves(store, replace(equal, digests=(b"another",))) == LeavesCompared(equal.start, ours_whole=True)


def test_a_leaf_that_differs_because_of_our_own_damage_is_told_from_that(machine: Machine, store: Store, equal: LeafDigests) -> None:
    inode = machine.disk.names.files[f"commitlog/{equal.start:020d}"]
    inode.write(memoryview(b"\xee"), 300, machine.chance)

    assert compare_leaves(store, equal) == LeavesCompared(equal.start, ours_whole=False)
