"""What of a slave is told by its master, and what by itself."""

from dataclasses import replace

import pytest

from dittomq.cli.ha_report import build_report, report_lines
from dittomq.cli.output import clock_time
from dittomq.errors import Unavailable
from dittomq.ha_status import NodeState, NodeView, StreamEndReason
from dittomq.offsets import Epoch
from tests.support.ha_answers import BOTH, MASTER, MASTER_VIEW, NOW_MS, SLAVE, SLAVE_VIEW


def test_what_its_master_has_not_heard_the_node_itself_says() -> None:
    applied_unknown = replace(SLAVE_VIEW, applied=None, applied_lag_bytes=None, applied_lag_s=None)

    lines = report_lines(build_report(BOTH, {"a/0": replace(MASTER, nodes=(MASTER_VIEW, applied_unknown)), "a/1": SLAVE}), NOW_MS)

    assert lines[-1].split()[-3:] == ["0", "B", "1,000"]


def test_lag_of_a_silent_slave_is_measured_by_the_confirmed_offset() -> None:
    """It tells its master nothing."""
    waiting = replace(SLAVE_VIEW, state=NodeState.WAITING, applied=None, applied_lag_bytes=None, applied_lag_s=None)
    own = replace(SLAVE_VIEW, state=NodeState.WAITING, applied=400, applied_lag_bytes=0, applied_lag_s=0.0)

    answers = {"a/0": replace(MASTER, nodes=(MASTER_VIEW, waiting)), "a/1": replace(SLAVE, nodes=(own,))}
    [_, slave] = build_report(BOTH, answers).groups[0].nodes

    assert slave.view is not None
    assert (slave.view.applied_lag_bytes, slave.view.applied_lag_s) == (600, None)


def test_a_slave_that_is_gone_is_shown_with_the_kind_of_its_last_drop() -> None:
    gone = replace(SLAVE_VIEW, state=NodeState.GONE, last_drop_reason="silent for 3 s", last_drop_kind=StreamEndReason.SESSION_EXPIRED)
    own = NodeView("a/1", "slave", NodeState.WAITING, last_drop_reason="no address", last_drop_kind=StreamEndReason.UNREACHABLE)

    answers = {"a/0": replace(MASTER, nodes=(MASTER_VIEW, gone)), "a/1": replace(SLAVE, epoch=Epoch(0), nodes=(own,))}
    [_, slave] = build_report(BOTH, answers).groups[0].nodes

    assert slave.view is not None
    assert (slave.view.last_drop_reason, slave.view.last_drop_kind) == ("silent for 3 s", StreamEndReason.SESSION_EXPIRED)


def test_a_slave_that_its_master_does_not_hear_is_measured_by_what_it_says_itself() -> None:
    """Its disk is a new one."""
    gone = replace(SLAVE_VIEW, state=NodeState.GONE, received_lag_bytes=0, last_drop_reason="it left", last_drop_ms=NOW_MS)
    own = NodeView("a/1", "slave", NodeState.WAITING, received=0, flushed=0, applied=0, applied_lag_bytes=0, applied_lag_s=0.0)

    answers = {"a/0": replace(MASTER, nodes=(MASTER_VIEW, gone)), "a/1": replace(SLAVE, epoch=Epoch(0), nodes=(own,))}
    line = report_lines(build_report(BOTH, answers), NOW_MS)[-1]

    assert line.split()[2:] == [
        "gone",
        *["1000", "B"] * 3,
        "not",
        "yet",
        "compared",
        "·",
        "dropped",
        f"{clock_time(NOW_MS)}:",
        "it",
        "left",
    ]


def test_a_slave_that_its_master_never_heard_is_measured_by_its_masters_ends() -> None:
    own = replace(SLAVE_VIEW, state=NodeState.WAITING, received=400, flushed=300, applied=200, received_lag_bytes=None, applied_lag_bytes=0)

    answers = {"a/0": replace(MASTER, nodes=(MASTER_VIEW,)), "a/1": replace(SLAVE, nodes=(own,))}
    [_, slave] = build_report(BOTH, answers).groups[0].nodes

    assert slave.view is not None
    assert (slave.view.received_lag_bytes, slave.view.flushed_lag_bytes, slave.view.applied_lag_bytes) == (600, 700, 800)
    assert (slave.view.state, slave.view.applied_lag_s) == ("waiting", None)


def test_slave_of_an_older_epoch_may_differ_though_as_long_as_its_master() -> None:
    own = replace(SLAVE_VIEW, state=NodeState.WAITING, received=1000, flushed=1000, applied=900)

    answers = {"a/0": replace(MASTER, nodes=(MASTER_VIEW,)), "a/1": replace(SLAVE, epoch=Epoch(6), nodes=(own,))}
    [_, slave] = build_report(BOTH, answers).groups[0].nodes

    assert slave.view is not None
    assert (slave.view.received_lag_bytes, slave.view.flushed_lag_bytes, slave.view.applied_lag_bytes) == (None, None, 100)


def test_nobody_knows_how_far_a_slave_is_behind_a_master_that_does_not_answer() -> None:
    line = report_lines(build_report(BOTH, {"a/0": Unavailable("a/0", "x"), "a/1": SLAVE}), NOW_MS)[-1]

    assert line.split() == ["a/1", "slave", "following", "unknown", "unknown", "unknown", "1,000"]


@pytest.mark.parametrize("state", [NodeState.CATCHING_UP, NodeState.IN_SYNC, NodeState.GONE])
def test_resyncing_slave_reports_its_progress_whatever_its_master_knows(state: NodeState) -> None:
    view = replace(SLAVE_VIEW, state=state, received_lag_bytes=150 * 2**20, received_bytes_per_s=10 * 2**20)
    own = replace(SLAVE_VIEW, state=NodeState.FULL_RESYNC, resync_done_bytes=31 * 2**30 // 10, resync_total_bytes=9 * 2**30)

    report = build_report(BOTH, {"a/0": replace(MASTER, nodes=(MASTER_VIEW, view)), "a/1": replace(SLAVE, nodes=(own,))})

    line = report_lines(report, NOW_MS)[-1]
    assert "  full resync, 3.1 of 9.0 GiB  " in line
    assert ("  150.0 MiB" in line and "10.0 MiB/s, about 15 s to go" in line) == (state != "gone")
    assert not report.in_sync
