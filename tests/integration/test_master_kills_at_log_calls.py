"""A master dies at the very call: before its append, in the middle of it, and between it and its sync."""

import signal
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.simulation.parser import Malformed
from tests.support.disk_faults import calls_in, harming, preloading
from tests.support.event_log import Fate, Place
from tests.support.history import History
from tests.support.real_group import MASTER, RealGroup, real_group, shape
from tests.support.waiting import eventually

pytestmark = pytest.mark.tier("nightly")

SOME = 20
PATIENT = {"replication.ack_timeout_ms": 20_000}  # what has no receipt has none because the master died
WHOLE, TORN, MISSING = "whole", "torn", "missing"


class Point(NamedTuple):
    """A call on the log, what happens at it, and what the master's disk has of the message that it was about."""

    call: str
    kind: str
    leaves: str


POINTS = {
    "before its append": Point("pwrite", "kill", MISSING),
    "in the middle of its append": Point("pwrite", "torn", TORN),
    "between its append and its sync": Point("fdatasync", "kill", WHOLE),
}


def what_is_left(group: RealGroup, body: bytes) -> str:
    """Of the last message that the dead master took."""
    try:
        records = group.parsed_log(MASTER).records
    except Malformed:
        return TORN
    return WHOLE if body in [record.body for record in records] else MISSING


@pytest.mark.parametrize("when", POINTS)
def test_master_that_dies_at_a_log_call_leaves_one_outcome_unknown(tmp_path: Path, shim: Path, when: str) -> None:
    """Its next life knows that outcome."""
    point, switch, trace = POINTS[when], tmp_path / "switch", tmp_path / "trace"
    with real_group(tmp_path, shape(1, master=PATIENT)) as group:
        cluster, history = group.cluster, History(group)
        cluster.stop_node(MASTER)
        harm = harming(cluster.data_dir(MASTER) / "commitlog", when=switch, calls=point.call, nth=2, kind=point.kind, trace=trace)
        with preloading(shim, harm):
            cluster.start_node(MASTER)
        cluster.wait_in_sync()
        with group.mq.producer(timeout_s=2.0, retry_s=0.5) as producer:
            with history.publishing(producer, burst=1) as stream:
                history.wait_for_more(SOME)
                switch.touch()
                assert group.exit_status(MASTER) == signal.SIGKILL
                [struck] = eventually(lambda: history.told.bodies(Fate.UNKNOWN), "what was under way is unknown")
                assert [(call.name, call.harmed) for call in calls_in(trace)][-1] == (point.call, True)
                assert what_is_left(group, struck) == point.leaves
                cluster.start_node(MASTER)
                history.wait_for_more(SOME)
            stream.settle()
        cluster.wait_in_sync()
        assert history.told.bodies(Fate.UNKNOWN) == []
        assert isinstance(history.told.outcomes[struck], Place) == (point.leaves is WHOLE)
        history.check()
