"""The checkers bite: a product that breaks a promise on purpose is found out within the seeds that `test_seeds` runs."""

from collections.abc import Callable

import pytest

from dittomq.offsets import PhysicalOffset
from dittomq.replication.events import SlaveAck
from dittomq.replication.slave_events import Command, Event, SendAck, WriteChunk
from dittomq.replication.slave_session import SlaveSession
from tests.simulation.cluster import Cluster
from tests.simulation.simulate import simulate

_SEEDS = 100


def seeds_until_found(sabotage: Callable[[Cluster], None] | None = None) -> int:
    """How many seeds it takes until an acknowledged message is missed."""
    for seed in range(_SEEDS):
        if any("was acknowledged" in problem for problem in simulate(seed, sabotage).problems):
            return seed + 1
    return _SEEDS + 1


def skip_fsync_of(machine: str) -> Callable[[Cluster], None]:
    def sabotage(cluster: Cluster) -> None:
        cluster.world.nodes[machine].faults.skips_syncs = True

    return sabotage


def test_a_master_that_skips_fsync_is_found_out() -> None:
    assert seeds_until_found(skip_fsync_of("a0")) <= _SEEDS


def test_a_slave_that_skips_fsync_is_found_out() -> None:
    assert seeds_until_found(skip_fsync_of("a1")) <= _SEEDS


def test_a_slave_that_acknowledges_before_it_has_written_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = SlaveSession.handle

    def acknowledge_first(self: SlaveSession, event: Event, now: float) -> list[Command]:
        commands = honest(self, event, now)
        ends = [PhysicalOffset(write.offset + len(write.data)) for write in commands if isinstance(write, WriteChunk)]
        return [*(SendAck(SlaveAck(self.epoch, end, end, PhysicalOffset(0))) for end in ends), *commands]

    monkeypatch.setattr(SlaveSession, "handle", acknowledge_first)

    assert seeds_until_found() <= _SEEDS
