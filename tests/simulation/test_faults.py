import random

from tests.simulation.faults import (
    FaultKind,
    Machines,
    absences,
    any_kinds,
    changes,
    crashes_in_frames,
    freezes,
    plan,
    removals,
    rots,
    stalls,
    stressed,
)

MACHINES = Machines(("a0", "a1", "a2"), "ns", ("p0", "p1", "r0"))


def test_a_seed_has_one_plan_and_others_have_others() -> None:
    assert plan(random.Random(3), MACHINES, 60) == plan(random.Random(3), MACHINES, 60)
    assert plan(random.Random(3), MACHINES, 60) != plan(random.Random(4), MACHINES, 60)


def test_a_hundred_seeds_have_every_kind_of_fault_and_each_seed_lacks_some() -> None:
    kinds = [{fault.kind for fault in plan(random.Random(seed), MACHINES, 60)} for seed in range(100)]
    makers = (absences, changes, freezes, removals, rots, stalls, crashes_in_frames)
    special = {fault.kind for seed in range(100) for make in makers for fault in make(random.Random(seed), MACHINES, 60)}

    assert set().union(*kinds) | special == set(FaultKind)
    assert not set().union(*kinds) & special
    assert all(len(found) < len(FaultKind) for found in kinds)


def test_at_most_one_disk_is_lost_and_faults_come_in_order() -> None:
    for seed in range(200):
        faults = plan(random.Random(seed), MACHINES, 60)

        assert sum(fault.kind is FaultKind.DISK_LOSS for fault in faults) <= 1
        assert [fault.at for fault in faults] == sorted(fault.at for fault in faults)
        assert all(fault.machine != fault.other for fault in faults)


def test_bits_flip_on_one_disk_of_a_run_only() -> None:
    for seed in range(50):
        assert len({fault.machine for fault in rots(random.Random(seed), MACHINES, 60)}) == 1


def test_kinds_that_come_together_under_stress_leave_one_copy_whole() -> None:
    excluded = {FaultKind.ROT, FaultKind.REMOVED}
    drawn = [any_kinds(random.Random(seed)) for seed in range(2_000)]

    assert {kind for kinds in drawn for kind in kinds} == set(FaultKind)
    for kinds in drawn:
        assert 1 <= len(set(kinds)) == len(kinds) <= 3
        assert FaultKind.DISK_LOSS not in kinds or not excluded & set(kinds)


def test_a_run_under_stress_has_the_asked_kinds_alone() -> None:
    kinds = (FaultKind.FAILED_SYNC, FaultKind.POWER_LOSS)

    assert {fault.kind for fault in stressed(random.Random(1), MACHINES, 60, kinds)} == set(kinds)
