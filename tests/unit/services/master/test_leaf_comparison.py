"""What a master finds when it compares a slave's leaves with its own: only a leaf that differs while ours is whole cuts the slave."""

import random
from dataclasses import replace

import pytest

from dittomq.commitlog.store import Store
from dittomq.offsets import PhysicalOffset
from dittomq.replication.events import LeafDigests, LeafProbe
from dittomq.replication.master_events import LeafDiffers, LeavesCompared
from services.master.replica_sender import compare_leaves
from tests.support.record_damage import entries
from tests.support.stores import SMALL, Machine, filled, frame, open_epoch, queues_of, whole_log


@pytest.fixture
def store(machine: Machine) -> Store:
    return filled(machine)


@pytest.fixture
def equal(store: Store) -> LeafDigests:
    """A slave's leaves of the second segment, which are ours."""
    start, end = PhysicalOffset(SMALL.segment_bytes), PhysicalOffset(2 * SMALL.segment_bytes)
    return leaves_of(store, LeafProbe(start, end))


def leaves_of(store: Store, probe: LeafProbe) -> LeafDigests:
    """What a slave answers."""
    return LeafDigests(probe.start, probe.end, tuple(store.leaf_digests(probe.start, probe.end, leaf_bytes=probe.leaf_bytes)))


@pytest.mark.parametrize("count", [None, 0])
def test_leaves_none_of_which_differs_prove_nothing(store: Store, equal: LeafDigests, count: int | None) -> None:
    assert compare_leaves(store, replace(equal, digests=equal.digests[:count])) == LeavesCompared(None, ours_whole=True)


def test_of_leaves_that_differ_the_first_is_looked_at_closer(store: Store, equal: LeafDigests) -> None:
    digests = (*equal.digests[:1], b"another", b"another")

    assert compare_leaves(store, replace(equal, digests=digests)) == LeafDiffers(
        PhysicalOffset(equal.start + 4_096), PhysicalOffset(equal.start + 8_192)
    )


def probed(ours: Store, theirs: Store, probe: LeafProbe) -> tuple[LeavesCompared, int]:
    """What is found in the end, and how many closer looks that takes."""
    rounds = 0
    while isinstance(found := compare_leaves(ours, leaves_of(theirs, probe)), LeafDiffers):
        probe, rounds = LeafProbe(found.start, found.end), rounds + 1
    return found, rounds


def grown(differs_from: int, chance: random.Random) -> Store:
    """A log of three segments whose messages are others from that one on, of the same sizes."""
    store = Machine(random.Random(1), replace(SMALL, segment_bytes=3 * 1024 * 1024)).open()
    open_epoch(store)
    for at in range(60):
        fill = b"other" if at >= differs_from else b"equal"
        store.append([frame(fill * chance.randrange(1, 30_000), producer="p", first=at)], at)
    store.sync()
    return store


@pytest.mark.parametrize("seed", range(8))
def test_probes_end_at_the_first_differing_record(seed: int) -> None:
    """Both logs have the same length."""
    differs_from = random.Random(seed).randrange(60)
    ours, theirs = grown(60, random.Random(seed)), grown(differs_from, random.Random(seed))
    records = [start for _, start in queues_of(whole_log(ours), ours.segment_bytes)["orders", 0]]
    start, end = ours.segment_of(records[differs_from])

    found, rounds = probed(ours, theirs, LeafProbe(start, PhysicalOffset(min(end, ours.end))))

    assert found == LeavesCompared(PhysicalOffset(records[differs_from]), ours_whole=True)
    assert rounds <= 3


def test_a_leaf_that_differs_because_of_our_own_damage_is_told_from_that(machine: Machine, store: Store, equal: LeafDigests) -> None:
    whole = filled(Machine(random.Random(7)))
    inode = machine.disk.names.files[f"commitlog/{equal.start:020d}"]
    inode.write(memoryview(b"\xee"), 300, machine.chance)

    assert probed(store, whole, LeafProbe(equal.start, equal.end))[0] == LeavesCompared(equal.start, ours_whole=False)


def test_damage_before_a_compared_range_hides_no_difference_in_it(machine: Machine, store: Store) -> None:
    """The record that differs is found."""
    base = SMALL.segment_bytes
    records = [start for start, _ in entries(whole_log(store)) if start >= base]
    differs = LeafProbe(PhysicalOffset(records[3]), PhysicalOffset(2 * base))
    theirs = leaves_of(store, LeafProbe(PhysicalOffset(records[4] + 7), PhysicalOffset(records[4] + 8)))
    leaves = leaves_of(store, differs)
    inode = machine.disk.names.files[f"commitlog/{base:020d}"]
    inode.write(memoryview(b"\xee"), records[1] - base + 60, machine.chance)

    coarse = compare_leaves(store, replace(leaves, digests=(b"another", *leaves.digests[1:])))
    fine = compare_leaves(store, replace(theirs, digests=(b"another",)))

    assert store.damaged == [(records[1], records[2])]
    assert coarse == LeafDiffers(differs.start, PhysicalOffset(records[3] + 4_096))
    assert fine == LeavesCompared(PhysicalOffset(records[4]), ours_whole=True)
