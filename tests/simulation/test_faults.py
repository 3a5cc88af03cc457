import random

from tests.simulation.faults import FaultKind, Machines, plan

MACHINES = Machines(("a0", "a1", "a2"), "ns", ("p0", "p1", "r0"))


def test_a_seed_has_one_plan_and_others_have_others() -> None:
    assert plan(random.Random(3), MACHINES, 60) == plan(random.Random(3), MACHINES, 60)
    assert plan(random.Random(3), MACHINES, 60) != plan(random.Random(4), MACHINES, 60)


def test_a_hundred_seeds_have_every_kind_of_fault_and_each_seed_lacks_some() -> None:
    kinds = [{fault.kind for fault in plan(random.Random(seed), MACHINES, 60)} for seed in range(100)]

    assert set().union(*kinds) == set(FaultKind)
    assert all(len(found) < len(FaultKind) for found in kinds)


def test_at_most_one_disk_is_lost_and_faults_come_in_order() -> None:
    for seed in range(200):
        faults = plan(random.Random(seed), MACHINES, 60)

        assert sum(fault.kind is FaultKind.DISK_LOSS for fault in faults) <= 1
        assert [fault.at for fault in faults] == sorted(fault.at for fault in faults)
        assert all(fault.machine != fault.other for fault in faults)
