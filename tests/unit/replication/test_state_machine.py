"""A decider moves along its table or stops: neither its driver nor its own rules can move it otherwise."""

from enum import Enum
from typing import Any

import pytest

from dittomq.epoch_history import EpochEntry
from dittomq.offsets import Epoch, PhysicalOffset
from dittomq.replication.events import SyncAction
from dittomq.replication.master_events import Command, DigestsCompared
from dittomq.replication.master_log import MasterLog
from dittomq.replication.master_session import MasterSession, SessionLimits
from dittomq.replication.master_states import MasterSessionState
from dittomq.replication.slave_events import LogWritten, SlaveLog, Truncated
from dittomq.replication.slave_session import SlaveSession
from dittomq.replication.state_machine import IllegalTransition, Transitions
from tests.support.handshakes import handshake
from tools.statedoc import TABLES

EPOCH_HISTORY = (EpochEntry(Epoch(1), 0, 1, PhysicalOffset(0)),)
LOG = MasterLog("c", "a", 65_536, PhysicalOffset(0), PhysicalOffset(900), PhysicalOffset(0), EPOCH_HISTORY, "a/0", "u0")
TRANSITIONS = [moves for moves, _ in TABLES]


class _Rash(MasterSession):
    """Streams to a slave that should be cut."""

    def _send_truncate(self, to: PhysicalOffset, reason: str) -> list[Command]:
        self.state = MasterSessionState.STREAMING
        return []


def test_a_session_whose_rules_leave_the_table_stops() -> None:
    rash = _Rash(LOG, SessionLimits(), 0.0)

    with pytest.raises(IllegalTransition, match="MasterSession: Handshake does not lead from HANDSHAKE to STREAMING"):
        rash.handle(handshake(1, 1_000, epoch_history=()), 0.0)


def test_a_driver_that_reports_what_nobody_asked_for_is_stopped() -> None:
    stored = LogWritten(PhysicalOffset(0), PhysicalOffset(0), PhysicalOffset(0), PhysicalOffset(0))

    with pytest.raises(IllegalTransition, match="HANDSHAKE takes no DigestsCompared"):
        MasterSession(LOG, SessionLimits(), 0.0).handle(DigestsCompared(PhysicalOffset(0), None), 0.0)
    with pytest.raises(IllegalTransition, match="HANDSHAKE takes no Truncated"):
        SlaveSession(SlaveLog((), PhysicalOffset(0), stored, Epoch(0), ""), silence_s=20.0, now=0.0).handle(Truncated(stored), 0.0)


@pytest.mark.parametrize("moves", TRANSITIONS, ids=lambda moves: moves.title)
def test_no_row_of_a_table_is_empty_and_no_state_of_it_is_forgotten(moves: Transitions[Any]) -> None:
    states = set(type(moves.first).__members__.values())
    reached = {after for row in moves.rows.values() for nexts in row.values() for after in nexts}

    assert all(nexts for row in moves.rows.values() for nexts in row.values())
    assert states == reached | set(moves.rows)
    assert {state for state in states if moves.is_final(state)} == states - set(moves.rows)


def test_a_member_is_named_by_itself_and_a_class_by_its_name() -> None:
    class Light(Enum):
        RED = 1
        GREEN = 2

    moves = Transitions(title="light", first=Light.RED, rows={Light.RED: {str: (Light.GREEN,)}}, said=(str, SyncAction.WAIT))

    assert moves.out_of_turn(Light.RED, str) == ""
    assert moves.out_of_turn(Light.GREEN, str) == "str is out of turn while green"
    assert moves.out_of_turn(Light.RED, SyncAction.WAIT) == "wait is out of turn while red"
