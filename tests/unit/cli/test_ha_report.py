"""What all nodes said, put together."""

import json
from dataclasses import replace

import pytest

from dittomq.cli.ha_report import build_report, report_document, report_lines
from dittomq.cli.last_audit import LastAudit
from dittomq.cli.output import clock_date, clock_time
from dittomq.errors import OutOfReach
from dittomq.ha_status import HaStatus, NodeView, PinView
from dittomq.offsets import Epoch
from tests.support.ha_answers import BOTH, FOLLOWER, LEADER, MASTER_VIEW, NOW_MS, SLAVE_VIEW, registered


def test_a_group_that_works_needs_no_attention_and_reads_as_documented() -> None:
    report = build_report(BOTH, {"a/0": LEADER, "a/1": FOLLOWER})

    assert not report.needs_attention
    assert report.in_sync
    assert report_lines(report, NOW_MS) == [
        "prod · 1 broker group · all in order",
        "a  epoch 7  SYNC_MASTER  asks 2 flushed copies, has 2  confirmed 1,000  writes accepted",
        "   NODE  ROLE    STATE        RECEIVED LAG    FLUSHED LAG     APPLIED LAG     PROVEN EQUAL UP TO",
        "   a/0   master  leading      -               -               0 B             -",
        "   a/1   slave   in sync 9 d  0 B      0.0 s  1.2 KiB  0.2 s  1.2 KiB  0.2 s  1,000",
    ]


@pytest.mark.parametrize(("level", "words"), [("received", "asks 2 received copies"), ("", "asks 2 copies")])
def test_copies_are_called_flushed_only_where_they_must_be(level: str, words: str) -> None:
    report = build_report(BOTH, {"a/0": replace(LEADER, release_level=level), "a/1": FOLLOWER})

    assert words in report_lines(report, NOW_MS)[1]


def test_a_slave_that_is_in_no_list_is_missed_all_the_same() -> None:
    report = build_report([registered(0)], {"a/0": replace(LEADER, nodes=(MASTER_VIEW,))})

    lines = report_lines(report, NOW_MS)
    assert "1 needs attention" in lines[0]
    assert lines[-1] == "   the slave of a is not in sync"


def test_a_slave_that_its_master_knows_by_name_only_is_named() -> None:
    leader = replace(LEADER, replicas_expected=2, nodes=(MASTER_VIEW, SLAVE_VIEW, NodeView("a/2", "slave", "unknown")))

    report = build_report(BOTH, {"a/0": leader, "a/1": FOLLOWER})

    assert report_lines(report, NOW_MS)[-1] == "   a/2   slave   unknown      not registered with this nameserver"
    assert report.missing == "1 of 2 slaves of a are in sync, a/2 does not answer"


def test_a_slave_that_its_master_knows_by_name_only_says_itself_what_it_does() -> None:
    unheard = replace(LEADER, nodes=(MASTER_VIEW, NodeView("a/1", "slave", "unknown")))
    own = replace(SLAVE_VIEW, state="waiting", received=400, last_drop_reason="no master is known yet")

    line = report_lines(build_report(BOTH, {"a/0": unheard, "a/1": replace(FOLLOWER, nodes=(own,))}), NOW_MS)[-1]

    assert line.startswith("   a/1   slave   waiting  600 B ")
    assert line.endswith(" · it says: no master is known yet")


def test_what_nobody_knows_is_printed_as_unknown() -> None:
    silent = replace(LEADER, nodes=(MASTER_VIEW, NodeView("a/1", "slave", "catching up")))

    lines = report_lines(build_report(BOTH, {"a/0": silent, "a/1": replace(FOLLOWER, nodes=())}), NOW_MS)

    assert lines[-1].split() == ["a/1", "slave", "catching", "up", "unknown", "unknown", "unknown", "not", "yet", "compared"]


RECOVERING = replace(
    LEADER,
    epoch=Epoch(0),
    in_sync_now=0,
    confirmed=0,
    writable=False,
    waiting_for="2 more of 2 slaves: this store is empty",
    nodes=(replace(MASTER_VIEW, state="recovering", applied_lag_bytes=None),),
)


def test_a_master_that_recovers_knows_no_epoch_no_copies_and_on_an_empty_store_nothing_confirmed() -> None:
    report = build_report(BOTH, {"a/0": RECOVERING, "a/1": FOLLOWER})

    assert report_lines(report, NOW_MS)[1].startswith(
        "a  epoch unknown  SYNC_MASTER  asks 2 flushed copies, has unknown  confirmed unknown  NO WRITES"
    )
    assert report_lines(report, NOW_MS)[-1].split()[3:6] == ["unknown"] * 3
    groups = report_document(report)["groups"]
    assert isinstance(groups, list)
    assert [groups[0]["leader"][name] for name in ("epoch", "in_sync_now", "confirmed")] == [None] * 3


def test_a_master_that_recovers_waits_for_what_it_says() -> None:
    report = build_report(BOTH, {"a/0": RECOVERING, "a/1": FOLLOWER})

    assert report_lines(report, NOW_MS)[1].endswith("  NO WRITES: it waits for 2 more of 2 slaves: this store is empty")
    assert report.missing == "a/0 takes no writes: it waits for 2 more of 2 slaves: this store is empty"


def test_a_master_that_leads_and_refuses_writes_says_why_in_its_own_words() -> None:
    few = replace(
        LEADER, writable=False, waiting_for="a/0 has 1 copy in sync and min_in_sync_replicas demands 2; bring slaves back or lower it"
    )

    headline = report_lines(build_report(BOTH, {"a/0": few, "a/1": FOLLOWER}), NOW_MS)[1]

    assert headline.endswith(f"  NO WRITES: {few.waiting_for}")


def test_a_master_that_gives_its_place_up_is_shown_with_its_successor_and_since_when() -> None:
    view = replace(MASTER_VIEW, state="handing over, to a/1", since_ms=NOW_MS - 2000)
    drains = replace(LEADER, writable=False, waiting_for="it hands its place over to a/1", nodes=(view, SLAVE_VIEW))

    report = build_report(BOTH, {"a/0": drains, "a/1": FOLLOWER})

    _, headline, _, master, _ = report_lines(report, NOW_MS)
    assert headline.endswith("  NO WRITES: it hands its place over to a/1")
    assert "a/0   master  handing over, to a/1  " in master
    assert master.endswith(f"since {clock_time(NOW_MS - 2000)}")
    assert report.needs_attention


def test_a_master_that_recovers_says_what_its_own_store_knows_to_be_confirmed() -> None:
    report = build_report(BOTH, {"a/0": replace(RECOVERING, confirmed=900), "a/1": FOLLOWER})

    assert "  confirmed 900  " in report_lines(report, NOW_MS)[1]


def test_a_slave_that_follows_nobody_says_why_beside_what_its_master_knows() -> None:
    gone = replace(SLAVE_VIEW, state="gone", last_drop_reason="it hung up", last_drop_ms=NOW_MS)
    own = replace(SLAVE_VIEW, state="waiting", last_drop_reason="the disk of a/1 is full", last_drop_ms=NOW_MS)
    answers = {"a/0": replace(LEADER, nodes=(MASTER_VIEW, gone)), "a/1": replace(FOLLOWER, nodes=(own,))}

    report = build_report(BOTH, answers)

    assert report_lines(report, NOW_MS)[-1].endswith(f"dropped {clock_time(NOW_MS)}: it hung up · it says: the disk of a/1 is full")
    assert [node.complaint for node in report.groups[0].nodes] == ["", "the disk of a/1 is full"]
    assert '"complaint": "the disk of a/1 is full"' in json.dumps(report_document(report))


def test_a_node_that_neither_we_nor_its_master_hear_is_unknown_since_it_was_last_heard() -> None:
    gone = replace(LEADER, nodes=(MASTER_VIEW, replace(SLAVE_VIEW, state="gone")))

    line = report_lines(build_report(BOTH, {"a/0": gone, "a/1": OutOfReach("a/1", "connection refused")}), NOW_MS)[-1]

    assert line == f"   a/1   slave   unknown  does not answer since {clock_time(NOW_MS)}: connection refused"


def test_the_last_audit_is_named_with_its_age() -> None:
    report = replace(build_report(BOTH, {"a/0": LEADER, "a/1": FOLLOWER}), last_audit=LastAudit("PASS", NOW_MS - 11 * 3_600_000))

    assert report_lines(report, NOW_MS)[0] == "prod · 1 broker group · all in order · last audit: pass, 11 h ago"


def test_a_time_that_no_calendar_has_is_shown_as_a_number() -> None:
    own = replace(SLAVE_VIEW, state="following", pins=(PinView("night", 4_096, 1 << 62),))

    line = report_lines(build_report(BOTH, {"a/0": LEADER, "a/1": replace(FOLLOWER, nodes=(own,))}), NOW_MS)[-1]

    assert line.endswith("until 4,611,686,018,427,387,904 ms")


def test_a_pin_is_shown_at_the_node_that_told_of_it() -> None:
    own = replace(SLAVE_VIEW, state="following", pins=(PinView("night", 4_096, NOW_MS + 60_000),))

    line = report_lines(build_report(BOTH, {"a/0": LEADER, "a/1": replace(FOLLOWER, nodes=(own,))}), NOW_MS)[-1]

    assert line.endswith(f"1,000 · held from 4,096 by audit night until {clock_time(NOW_MS + 60_000)}")


def test_what_is_missing_for_all_to_be_in_sync_is_one_sentence() -> None:
    late = replace(SLAVE_VIEW, state="catching up", received_lag_bytes=3 * 2**30)
    one_late = replace(LEADER, replicas_expected=2, nodes=(MASTER_VIEW, SLAVE_VIEW, replace(late, node="a/2")))
    nodes = [registered(0), registered(1), registered(2), registered(0, "b")]

    report = build_report(nodes, {"a/0": one_late, "a/1": FOLLOWER, "a/2": FOLLOWER, "b/0": OutOfReach("b/0", "x")})

    assert report.missing == "1 of 2 slaves of a are in sync, a/2 is catching up and 3.0 GiB behind; no master of b answers"
    assert not report.in_sync


def test_in_sync_is_only_a_cluster_that_has_brokers() -> None:
    assert build_report([], {}).missing == "no broker is registered with this nameserver"


def test_a_node_that_does_not_answer_needs_attention_even_where_its_master_still_counts_it() -> None:
    report = build_report(BOTH, {"a/0": LEADER, "a/1": OutOfReach("a/1", "connection refused")})

    assert report.needs_attention
    assert report_lines(report, NOW_MS)[-1].endswith(f"  1,000 · does not answer since {clock_time(NOW_MS)}: connection refused")


def test_a_node_that_nobody_knows_anything_of_keeps_the_role_it_registered_with() -> None:
    silent = {"a/0": OutOfReach("a/0", "x"), "a/1": OutOfReach("a/1", "x")}

    lines = report_lines(build_report(BOTH, silent), NOW_MS)

    assert [line.split()[:3] for line in lines[3:]] == [["a/0", "master", "unknown"], ["a/1", "slave", "unknown"]]


def test_a_group_whose_master_is_silent_says_that_no_writes_are_taken() -> None:
    report = build_report(BOTH, {"a/0": OutOfReach("a/0", "connection refused"), "a/1": FOLLOWER})

    assert report.needs_attention
    assert report_lines(report, NOW_MS)[1] == "a  NO MASTER ANSWERS  no writes; slaves serve reads"


WAITING = replace(FOLLOWER, waiting_for="the master: a/0 is no master", nodes=(replace(SLAVE_VIEW, state="waiting"),))


def test_a_group_all_nodes_of_which_are_slaves_says_which_command_lets_the_one_that_holds_most_lead() -> None:
    nodes = [registered(0), registered(1), registered(2)]
    longest = replace(WAITING, node="a/1", end=1_200, replicas_expected=2)
    answers = {"a/0": replace(longest, node="a/0", end=1_100), "a/1": longest, "a/2": replace(longest, node="a/2", epoch=6, end=1_300)}

    report = build_report(nodes, answers)

    command = "unless a change of roles is under way, let one lead: dittomq role lead a/1"
    assert report_lines(report, NOW_MS)[1] == f"a  NO MASTER ANSWERS  no writes; slaves serve reads; all are slaves: {command}"
    assert report.missing == f"no master of a answers, all its nodes are slaves: {command}"


@pytest.mark.parametrize(
    "other",
    [OutOfReach("a/0", "connection refused"), replace(FOLLOWER, node="a/0"), replace(LEADER, writable=False, waiting_for="recovering")],
    ids=["is silent", "follows somebody who is not heard", "recovers"],
)
def test_nobody_is_said_to_be_told_to_lead_where_another_node(other: HaStatus | OutOfReach) -> None:
    report = build_report(BOTH, {"a/0": other, "a/1": WAITING})

    assert "role lead" not in report_lines(report, NOW_MS)[1] + report.missing


def test_nobody_is_said_to_be_told_to_lead_where_a_node_that_is_configured_is_in_no_list() -> None:
    report = build_report([registered(1)], {"a/1": WAITING})

    assert report.missing == "no master of a answers"


def test_a_group_of_which_nobody_answers_serves_no_reads_either() -> None:
    report = build_report(BOTH, {"a/0": OutOfReach("a/0", "connection refused"), "a/1": OutOfReach("a/1", "connection refused")})

    assert report_lines(report, NOW_MS)[1] == "a  NO MASTER ANSWERS  no writes; no slave answers"


def test_one_copy_is_asked_for_as_one() -> None:
    report = build_report(BOTH, {"a/0": replace(LEADER, in_sync_replicas=1), "a/1": FOLLOWER})

    assert "  asks 1 flushed copy, has 2  " in report_lines(report, NOW_MS)[1]


def test_seconds_stand_below_each_other_however_wide_the_bytes_before_them_are() -> None:
    late = replace(SLAVE_VIEW, node="a/2", received_lag_bytes=166_810, received_lag_s=1.4)
    wide = replace(LEADER, nodes=(MASTER_VIEW, SLAVE_VIEW, late))

    first, second = report_lines(build_report([*BOTH, registered(2)], {"a/0": wide}), NOW_MS)[-2:]

    assert first.index(" 0.0 s") == second.index(" 1.4 s")
    assert "162.9 KiB 1.4 s  1.2 KiB   0.2 s  1.2 KiB   0.2 s  1,000" in second


def test_a_master_that_is_no_longer_registered_is_missed() -> None:
    report = build_report([registered(1)], {"a/1": FOLLOWER})

    assert report.needs_attention
    assert not report.in_sync


@pytest.mark.parametrize(
    ("messages", "copies", "said"),
    [
        (3_240_118, 1, "3,240,118 messages confirmed on one copy only"),
        (1, 2, "1 message confirmed on 2 copies only"),
        (None, 1, "an unknown number of messages confirmed on one copy only"),
    ],
)
def test_a_degraded_group_says_since_when_and_how_many_messages(messages: int | None, copies: int, said: str) -> None:
    degraded = replace(LEADER, degraded=True, in_sync_now=copies, degraded_since_ms=NOW_MS, degraded_messages=messages)

    headline = report_lines(build_report(BOTH, {"a/0": degraded, "a/1": FOLLOWER}), NOW_MS)[1]

    assert headline.endswith(f"has {copies}  confirmed 1,000  DEGRADED since {clock_time(NOW_MS)}, {said}")


def test_a_slave_that_catches_up_shows_its_speed_and_when_and_why_it_was_dropped() -> None:
    view = replace(
        SLAVE_VIEW,
        state="catching up",
        received_lag_bytes=150 * 2**20,
        received_lag_s=42.3,
        transfer_bytes_per_s=16 * 2**20,
        received_bytes_per_s=10 * 2**20,
        last_drop_reason="no ack for 20 s",
        last_drop_ms=NOW_MS - 100_000,
    )

    line = report_lines(build_report(BOTH, {"a/0": replace(LEADER, nodes=(MASTER_VIEW, view)), "a/1": FOLLOWER}), NOW_MS)[-1]

    assert line.split("catching up  ")[1].startswith("150.0 MiB 42 s ")
    assert line.endswith(f"1,000 · 10.0 MiB/s, about 15 s to go · dropped {clock_time(NOW_MS - 100_000)}: no ack for 20 s")


def test_why_a_slave_followed_nobody_before_is_no_note_of_one_that_follows_and_no_drop_where_it_never_followed() -> None:
    """No master answers here: what the slave says of itself is all that is known."""
    silent = OutOfReach("a/0", "connection refused")
    lines = []
    for state, moment in (("following", NOW_MS), ("waiting", NOW_MS), ("waiting", None)):
        own = replace(SLAVE_VIEW, state=state, last_drop_reason="no master is known yet", last_drop_ms=moment)
        lines.append(report_lines(build_report(BOTH, {"a/0": silent, "a/1": replace(FOLLOWER, nodes=(own,))}), NOW_MS)[-1])

    following, dropped, never = lines
    assert "no master is known yet" not in following
    assert dropped.endswith(f" · dropped {clock_time(NOW_MS)}: no master is known yet")
    assert never.endswith(" · no master is known yet")


def test_what_was_longer_ago_than_a_day_is_told_with_its_date() -> None:
    before = NOW_MS - 3 * 86_400_000
    view = replace(SLAVE_VIEW, state="catching up", last_drop_reason="no ack for 20 s", last_drop_ms=before)

    line = report_lines(build_report(BOTH, {"a/0": replace(LEADER, nodes=(MASTER_VIEW, view)), "a/1": FOLLOWER}), NOW_MS)[-1]

    assert f"dropped {clock_date(before)} {clock_time(before)}: " in line


def test_a_configured_slave_that_nobody_has_seen_is_missed() -> None:
    report = build_report(BOTH, {"a/0": replace(LEADER, replicas_expected=2), "a/1": FOLLOWER})

    assert report.needs_attention
    assert not report.in_sync


def test_the_document_keeps_unknown_as_null() -> None:
    document = report_document(build_report(BOTH, {"a/0": LEADER, "a/1": OutOfReach("a/1", "x")}))

    groups = document["groups"]
    assert isinstance(groups, list)
    assert groups[0]["nodes"][0]["proven_equal"] is None
    assert groups[0]["leader"]["confirmed"] == 1000
