"""What all nodes said, put together."""

import json
from dataclasses import replace

import pytest

from dittomq.cli.audited import LastAudit
from dittomq.cli.ha_report import Answers, build_report, report_document, report_lines
from dittomq.cli.output import clock_date, clock_time
from dittomq.errors import Unavailable
from dittomq.ha_status import NodeState, NodeView, PinView
from dittomq.offsets import Epoch
from tests.support.ha_answers import BOTH, MASTER, MASTER_VIEW, NOW_MS, SLAVE, SLAVE_VIEW, registered


def test_a_group_that_works_needs_no_attention_and_reads_as_documented() -> None:
    report = build_report(BOTH, {"a/0": MASTER, "a/1": SLAVE})

    assert not report.needs_attention
    assert report.in_sync
    assert report_lines(report, NOW_MS) == [
        "prod · 1 broker group · all in order",
        "a  epoch 7  SYNC_MASTER  in sync 2 of 2, in_sync_replicas 2  confirmed 1,000  failover automatic  writes accepted",
        "   NODE  ROLE    STATE        RECEIVED LAG    FLUSHED LAG     APPLIED LAG     VERIFIED UP TO",
        "   a/0   master  leading      -               -               0 B             -",
        "   a/1   slave   in sync 9 d  0 B      0.0 s  1.2 KiB  0.2 s  1.2 KiB  0.2 s  1,000",
    ]


def test_a_slave_that_is_in_no_list_is_missed_all_the_same() -> None:
    report = build_report([registered(0)], {"a/0": replace(MASTER, nodes=(MASTER_VIEW,))})

    lines = report_lines(report, NOW_MS)
    assert "1 needs attention" in lines[0]
    assert lines[-1] == "   the slave of a is not in sync"


def test_a_slave_that_its_master_knows_by_name_only_is_named() -> None:
    master = replace(MASTER, replicas_expected=2, nodes=(MASTER_VIEW, SLAVE_VIEW, NodeView("a/2", "slave", NodeState.UNKNOWN)))

    report = build_report(BOTH, {"a/0": master, "a/1": SLAVE})

    assert report_lines(report, NOW_MS)[-1] == "   a/2   slave   unknown      not registered with this nameserver"
    assert report.missing == "1 of 2 slaves of a are in sync, a/2 does not answer"


def test_a_slave_that_its_master_knows_by_name_only_says_itself_what_it_does() -> None:
    unheard = replace(MASTER, nodes=(MASTER_VIEW, NodeView("a/1", "slave", NodeState.UNKNOWN)))
    own = replace(SLAVE_VIEW, state=NodeState.WAITING, received=400, last_drop_reason="no master is known yet")

    report = build_report(BOTH, {"a/0": unheard, "a/1": replace(SLAVE, nodes=(own,))})

    line = report_lines(report, NOW_MS)[-1]
    assert line.startswith("   a/1   slave   waiting  600 B ")
    assert line.endswith(" · it says: no master is known yet")
    assert report.missing == "the slave of a is not in sync, a/1 is waiting and 600 B behind: no master is known yet"


def test_what_nobody_knows_is_printed_as_unknown() -> None:
    silent = replace(MASTER, nodes=(MASTER_VIEW, NodeView("a/1", "slave", NodeState.CATCHING_UP)))

    lines = report_lines(build_report(BOTH, {"a/0": silent, "a/1": replace(SLAVE, nodes=())}), NOW_MS)

    assert lines[-1].split() == ["a/1", "slave", "catching", "up", "unknown", "unknown", "unknown", "not", "yet", "compared"]


OPENING = replace(
    MASTER,
    epoch=Epoch(0),
    in_sync_now=0,
    writable=False,
    waiting_for="room for its epoch",
    nodes=(replace(MASTER_VIEW, state=NodeState.RECOVERING, applied_lag_bytes=None),),
)


def test_a_master_that_opens_its_epoch_knows_neither_the_epoch_nor_members() -> None:
    report = build_report(BOTH, {"a/0": OPENING, "a/1": SLAVE})

    assert report_lines(report, NOW_MS)[1].startswith("a  epoch unknown  SYNC_MASTER  in sync unknown of 2, in_sync_replicas 2  ")
    assert report_lines(report, NOW_MS)[-1].split()[3:6] == ["unknown"] * 3
    groups = report_document(report)["groups"]
    assert isinstance(groups, list)
    assert [groups[0]["master"][name] for name in ("epoch", "in_sync_now")] == [None] * 2


def test_a_master_that_opens_its_epoch_waits_for_what_it_says() -> None:
    report = build_report(BOTH, {"a/0": OPENING, "a/1": SLAVE})

    assert report_lines(report, NOW_MS)[1].endswith("  NO WRITES: it waits for room for its epoch")
    assert report.missing == "a/0 takes no writes: it waits for room for its epoch"


def test_a_master_that_leads_and_refuses_writes_says_why_in_its_own_words() -> None:
    few = replace(
        MASTER, writable=False, waiting_for="a/0 has 1 copy in sync and min_in_sync_replicas demands 2; bring slaves back or lower it"
    )

    headline = report_lines(build_report(BOTH, {"a/0": few, "a/1": SLAVE}), NOW_MS)[1]

    assert headline.endswith(f"  NO WRITES: {few.waiting_for}")


def test_a_master_that_gives_its_place_up_is_shown_with_its_successor_and_since_when() -> None:
    view = replace(MASTER_VIEW, state=NodeState.SWITCHING_OVER, switchover_target="a/1", since_ms=NOW_MS - 2000)
    drains = replace(MASTER, writable=False, waiting_for="it switches over to a/1", nodes=(view, SLAVE_VIEW))

    report = build_report(BOTH, {"a/0": drains, "a/1": SLAVE})

    _, headline, _, master, _ = report_lines(report, NOW_MS)
    assert headline.endswith("  NO WRITES: it switches over to a/1")
    assert "a/0   master  switching over, to a/1  " in master
    assert master.endswith(f"since {clock_time(NOW_MS - 2000)}")
    assert report.needs_attention


def test_a_slave_that_follows_nobody_says_why_beside_what_its_master_knows() -> None:
    gone = replace(SLAVE_VIEW, state=NodeState.GONE, last_drop_reason="it hung up", last_drop_ms=NOW_MS)
    own = replace(SLAVE_VIEW, state=NodeState.WAITING, last_drop_reason="the disk of a/1 is full", last_drop_ms=NOW_MS)
    answers = {"a/0": replace(MASTER, nodes=(MASTER_VIEW, gone)), "a/1": replace(SLAVE, nodes=(own,))}

    report = build_report(BOTH, answers)

    assert report_lines(report, NOW_MS)[-1].endswith(f"dropped {clock_time(NOW_MS)}: it hung up · it says: the disk of a/1 is full")
    assert [node.complaint for node in report.groups[0].nodes] == ["", "the disk of a/1 is full"]
    assert '"complaint": "the disk of a/1 is full"' in json.dumps(report_document(report))


def test_node_heard_by_no_one_is_unknown_since_it_was_last_heard() -> None:
    """Neither we nor its master hear it."""
    gone = replace(MASTER, nodes=(MASTER_VIEW, replace(SLAVE_VIEW, state=NodeState.GONE)))

    line = report_lines(build_report(BOTH, {"a/0": gone, "a/1": Unavailable("a/1", "connection refused")}), NOW_MS)[-1]

    assert line == f"   a/1   slave   unknown  does not answer since {clock_time(NOW_MS)}: connection refused"


def test_the_last_audit_is_named_with_its_age() -> None:
    report = replace(build_report(BOTH, {"a/0": MASTER, "a/1": SLAVE}), last_audit=LastAudit("PASS", NOW_MS - 11 * 3_600_000))

    assert report_lines(report, NOW_MS)[0] == "prod · 1 broker group · all in order · last audit: pass, 11 h ago"


def test_a_time_that_no_calendar_has_is_shown_as_a_number() -> None:
    own = replace(SLAVE_VIEW, state=NodeState.FOLLOWING, pins=(PinView("night", 4_096, 1 << 62),))

    line = report_lines(build_report(BOTH, {"a/0": MASTER, "a/1": replace(SLAVE, nodes=(own,))}), NOW_MS)[-1]

    assert line.endswith("until 4,611,686,018,427,387,904 ms")


def test_a_pin_is_shown_at_the_node_that_told_of_it() -> None:
    own = replace(SLAVE_VIEW, state=NodeState.FOLLOWING, pins=(PinView("night", 4_096, NOW_MS + 60_000),))

    line = report_lines(build_report(BOTH, {"a/0": MASTER, "a/1": replace(SLAVE, nodes=(own,))}), NOW_MS)[-1]

    assert line.endswith(f"1,000 · held from 4,096 by audit night until {clock_time(NOW_MS + 60_000)}")


def test_what_is_missing_for_all_to_be_in_sync_is_one_sentence() -> None:
    late = replace(SLAVE_VIEW, state=NodeState.CATCHING_UP, received_lag_bytes=3 * 2**30)
    one_late = replace(MASTER, replicas_expected=2, nodes=(MASTER_VIEW, SLAVE_VIEW, replace(late, node="a/2")))
    nodes = [registered(0), registered(1), registered(2), registered(0, "b")]

    report = build_report(nodes, {"a/0": one_late, "a/1": SLAVE, "a/2": SLAVE, "b/0": Unavailable("b/0", "x")})

    assert report.missing == "1 of 2 slaves of a are in sync, a/2 is catching up and 3.0 GiB behind; no master of b answers"
    assert not report.in_sync


def test_in_sync_is_only_a_cluster_that_has_brokers() -> None:
    assert build_report([], {}).missing == "no broker is registered with this nameserver"


def test_node_that_does_not_answer_needs_attention_though_in_sync() -> None:
    """Its master still counts it."""
    report = build_report(BOTH, {"a/0": MASTER, "a/1": Unavailable("a/1", "connection refused")})

    assert report.needs_attention
    assert report_lines(report, NOW_MS)[-1].endswith(f"  1,000 · does not answer since {clock_time(NOW_MS)}: connection refused")


def test_a_node_that_nobody_knows_anything_of_keeps_the_role_it_registered_with() -> None:
    silent = {"a/0": Unavailable("a/0", "x"), "a/1": Unavailable("a/1", "x")}

    lines = report_lines(build_report(BOTH, silent), NOW_MS)

    assert [line.split()[:3] for line in lines[3:]] == [["a/0", "master", "unknown"], ["a/1", "slave", "unknown"]]


def test_a_group_whose_master_is_silent_says_that_no_writes_are_taken() -> None:
    report = build_report(BOTH, {"a/0": Unavailable("a/0", "connection refused"), "a/1": SLAVE})

    assert report.needs_attention
    assert report_lines(report, NOW_MS)[1] == "a  NO MASTER ANSWERS  no writes; slaves serve reads"


def test_a_group_without_a_master_says_what_each_node_waits_for() -> None:
    waiting = replace(SLAVE, waiting_for="a quorum: a/0 does not answer", nodes=(replace(SLAVE_VIEW, state=NodeState.WAITING),))
    answers: Answers = {"a/0": Unavailable("a/0", "refused"), "a/1": waiting, "a/2": replace(waiting, node="a/2", waiting_for="a master")}

    report = build_report([*BOTH, registered(2)], answers)

    waits = "a/1 waits for a quorum: a/0 does not answer; a/2 waits for a master"
    assert report_lines(report, NOW_MS)[1] == f"a  NO MASTER ANSWERS  no writes; slaves serve reads; {waits}"
    assert report.missing == f"no master of a answers: {waits}"


def test_of_two_masters_the_one_of_the_higher_epoch_is_reported() -> None:
    report = build_report(BOTH, {"a/0": MASTER, "a/1": replace(MASTER, node="a/1", epoch=Epoch(8))})

    assert report.groups[0].master is not None
    assert report.groups[0].master.node == "a/1"


@pytest.mark.parametrize("failover", ["automatic", "manual", "paused"])
def test_whether_failover_is_automatic_is_said(failover: str) -> None:
    headline = report_lines(build_report(BOTH, {"a/0": replace(MASTER, failover=failover), "a/1": SLAVE}), NOW_MS)[1]

    assert f"  confirmed 1,000  failover {failover}  writes accepted" in headline


def test_a_group_without_a_record_has_no_failover_to_speak_of() -> None:
    alone = replace(MASTER, replicas_expected=0, in_sync_now=1, in_sync_replicas=1, failover="none", members=(), nodes=(MASTER_VIEW,))

    report = build_report([registered(0)], {"a/0": alone})

    assert (
        report_lines(report, NOW_MS)[1] == "a  epoch 7  SYNC_MASTER  in sync 1 of 1, in_sync_replicas 1  confirmed 1,000  writes accepted"
    )
    assert not report.needs_attention


def test_slaves_that_do_not_count_are_named_with_what_to_set() -> None:
    alone = replace(MASTER, replicas_expected=0, in_sync_replicas=1, failover="none", members=(), uncounted=("a/1",))

    report = build_report(BOTH, {"a/0": alone, "a/1": SLAVE})

    assert report.needs_attention
    said = "   a/1 follows and does not count as a copy: set replication.replicas_expected to 1 on every node"
    assert report_lines(report, NOW_MS)[-1] == said


def test_a_coordination_store_that_cannot_be_used_needs_attention_while_writes_go_on() -> None:
    away = replace(MASTER, coordination_problem="connection refused")

    report = build_report(BOTH, {"a/0": away, "a/1": SLAVE})

    assert report.needs_attention
    assert "writes accepted" in report_lines(report, NOW_MS)[1]
    said = "   no failover while nameserver 127.0.0.1:9876 cannot be used: connection refused"
    assert report_lines(report, NOW_MS)[-1] == said


def test_a_data_loss_is_reported_with_its_epoch() -> None:
    lost = replace(MASTER, data_loss="acknowledged messages above 900 may be lost; a/2 did not answer")

    report = build_report(BOTH, {"a/0": lost, "a/1": SLAVE})

    assert report.needs_attention
    assert report_lines(report, NOW_MS)[-1] == f"   data loss in epoch 7: {lost.data_loss}"


def test_members_failover_and_problems_are_in_the_document() -> None:
    away = replace(MASTER, coordination_problem="refused", data_loss="what a/2 had", uncounted=("a/3",))

    [group] = json.loads(json.dumps(report_document(build_report(BOTH, {"a/0": away, "a/1": SLAVE}))))["groups"]

    master = group["master"]
    assert (master["members"], master["failover"], master["uncounted"]) == (["a/0", "a/1"], "automatic", ["a/3"])
    assert (master["coordination_store"], master["coordination_problem"]) == ("nameserver 127.0.0.1:9876", "refused")
    assert master["data_loss"] == "what a/2 had"


def test_a_group_of_which_nobody_answers_serves_no_reads_either() -> None:
    report = build_report(BOTH, {"a/0": Unavailable("a/0", "connection refused"), "a/1": Unavailable("a/1", "connection refused")})

    assert report_lines(report, NOW_MS)[1] == "a  NO MASTER ANSWERS  no writes; no slave answers"


def test_seconds_stand_below_each_other_however_wide_the_bytes_before_them_are() -> None:
    late = replace(SLAVE_VIEW, node="a/2", received_lag_bytes=166_810, received_lag_s=1.4)
    wide = replace(MASTER, nodes=(MASTER_VIEW, SLAVE_VIEW, late))

    first, second = report_lines(build_report([*BOTH, registered(2)], {"a/0": wide}), NOW_MS)[-2:]

    assert first.index(" 0.0 s") == second.index(" 1.4 s")
    assert "162.9 KiB 1.4 s  1.2 KiB   0.2 s  1.2 KiB   0.2 s  1,000" in second


def test_a_master_that_is_no_longer_registered_is_missed() -> None:
    report = build_report([registered(1)], {"a/1": SLAVE})

    assert report.needs_attention
    assert not report.in_sync


def test_a_degraded_group_says_since_when() -> None:
    degraded = replace(MASTER, degraded=True, in_sync_now=1, members=("a/0",), degraded_since_ms=NOW_MS)

    headline = report_lines(build_report(BOTH, {"a/0": degraded, "a/1": SLAVE}), NOW_MS)[1]

    assert "  in sync 1 of 2, in_sync_replicas 2  " in headline
    assert headline.endswith(f"  failover automatic  DEGRADED since {clock_time(NOW_MS)}")


def test_a_slave_that_catches_up_shows_its_speed_and_when_and_why_it_was_dropped() -> None:
    view = replace(
        SLAVE_VIEW,
        state=NodeState.CATCHING_UP,
        received_lag_bytes=150 * 2**20,
        received_lag_s=42.3,
        transfer_bytes_per_s=16 * 2**20,
        received_bytes_per_s=10 * 2**20,
        last_drop_reason="no ack for 20 s",
        last_drop_ms=NOW_MS - 100_000,
    )

    line = report_lines(build_report(BOTH, {"a/0": replace(MASTER, nodes=(MASTER_VIEW, view)), "a/1": SLAVE}), NOW_MS)[-1]

    assert line.split("catching up  ")[1].startswith("150.0 MiB 42 s ")
    assert line.endswith(f"1,000 · 10.0 MiB/s, about 15 s to go · dropped {clock_time(NOW_MS - 100_000)}: no ack for 20 s")


def test_past_reasons_of_a_slave_are_no_note_once_it_follows() -> None:
    """No master answers here: what the slave says of itself is all that is known."""
    silent = Unavailable("a/0", "connection refused")
    lines = []
    for state, moment in ((NodeState.FOLLOWING, NOW_MS), (NodeState.WAITING, NOW_MS), (NodeState.WAITING, None)):
        own = replace(SLAVE_VIEW, state=state, last_drop_reason="no master is known yet", last_drop_ms=moment)
        lines.append(report_lines(build_report(BOTH, {"a/0": silent, "a/1": replace(SLAVE, nodes=(own,))}), NOW_MS)[-1])

    following, dropped, never = lines
    assert "no master is known yet" not in following
    assert dropped.endswith(f" · dropped {clock_time(NOW_MS)}: no master is known yet")
    assert never.endswith(" · no master is known yet")


def test_what_was_longer_ago_than_a_day_is_told_with_its_date() -> None:
    before = NOW_MS - 3 * 86_400_000
    view = replace(SLAVE_VIEW, state=NodeState.CATCHING_UP, last_drop_reason="no ack for 20 s", last_drop_ms=before)

    line = report_lines(build_report(BOTH, {"a/0": replace(MASTER, nodes=(MASTER_VIEW, view)), "a/1": SLAVE}), NOW_MS)[-1]

    assert f"dropped {clock_date(before)} {clock_time(before)}: " in line


def test_the_document_keeps_unknown_as_null() -> None:
    document = report_document(build_report(BOTH, {"a/0": MASTER, "a/1": Unavailable("a/1", "x")}))

    groups = document["groups"]
    assert isinstance(groups, list)
    assert groups[0]["nodes"][0]["verified_offset"] is None
    assert groups[0]["master"]["confirmed"] == 1000
