"""What `dittomq top` makes of two looks: rates are differences, what nobody said is unknown, and a screen is never overfull."""

from dataclasses import replace

import pytest

from dittomq.cli.ha_report import build_report
from dittomq.cli.top_screen import ClusterSample, ScreenSize, document, group_figures, node_figures, screen, topic_figures
from dittomq.consumer_progress import GroupProgress, QueueProgress
from dittomq.errors import Unavailable
from tests.support.ha_answers import BOTH, MASTER, MASTER_VIEW, SLAVE


def progress(committed: int, lag: int, *members: str) -> GroupProgress:
    return GroupProgress((QueueProgress("orders", 0, committed, committed + lag, lag, 2_500 if lag else None, ""),), members)


FIRST = ClusterSample(
    at_s=100.0,
    report=build_report(BOTH, {"a/0": MASTER, "a/1": SLAVE}),
    epochs={"a/0": 7, "a/1": 7},
    ends={"orders": {"a": 1_000}, "idle": {"a": 5}},
    progress={"billing": {"a": progress(400, 600, "one", "two")}},
)
GROWN = replace(MASTER, end=5_096, nodes=(replace(MASTER_VIEW, received=5_096), *MASTER.nodes[1:]))
SECOND = replace(
    FIRST,
    at_s=102.0,
    report=build_report(BOTH, {"a/0": GROWN, "a/1": SLAVE}),
    ends={"orders": {"a": 3_000}, "idle": {"a": 5}},
    progress={"billing": {"a": progress(401, 2_599, "one", "two")}},
)


def test_screen_shows_nodes_topics_and_groups_with_their_rates() -> None:
    assert screen(FIRST, SECOND, None) == [
        "prod · 1 broker group · all in order",
        "NODE  ROLE    STATE    EPOCH  LAG  LOG GROWS BY",
        "a/0   master  leading  7      -    2.0 KiB/s",
        "a/1   slave   in sync  7      0 B  0 B/s",
        "",
        "TOPIC   MESSAGES  STORED",
        "orders  3,000     1,000/s",
        "idle    5         0.0/s",
        "",
        "GROUP    MEMBERS  LAG    OLDEST UNREAD  READ",
        "billing  2        2,599  2 s            0.5/s",
    ]


def test_first_look_shows_every_rate_as_unknown() -> None:
    assert [each.bytes_per_s for each in node_figures(None, FIRST)] == [None, None]
    assert [each.messages_per_s for each in topic_figures(None, FIRST)] == [None, None]
    assert [each.messages_per_s for each in group_figures(None, FIRST)] == [None]
    assert "unknown" in screen(None, FIRST, None)[-1]


def test_node_that_is_away_is_named_and_its_rate_is_unknown() -> None:
    away = Unavailable("a/1", "connection refused")
    gone = replace(SECOND, report=build_report(BOTH, {"a/0": GROWN, "a/1": away}))

    [_, slave] = node_figures(FIRST, gone)

    assert slave.bytes_per_s is None
    assert "no answer" in screen(FIRST, gone, None)[3]
    assert screen(FIRST, gone, None)[0].endswith("1 needs attention")


def test_topic_and_group_that_nobody_answers_for_are_unknown_and_not_0() -> None:
    silent = replace(SECOND, ends={"orders": {}}, progress={"billing": {}})

    [topic], [group] = topic_figures(FIRST, silent), group_figures(FIRST, silent)

    assert (topic.messages, topic.messages_per_s) == (None, None)
    assert (group.lag, group.messages_per_s) == (None, None)


def test_broker_group_that_answers_only_once_does_not_jump_into_the_rate() -> None:
    now = replace(SECOND, ends={"orders": {"a": 3_000, "b": 1_000_000}})

    assert topic_figures(FIRST, now)[0].messages_per_s == 1_000


def test_offsets_that_went_back_are_no_negative_rate() -> None:
    now = replace(SECOND, progress={"billing": {"a": progress(0, 3_000)}})

    assert group_figures(FIRST, now)[0].messages_per_s == 0


@pytest.mark.parametrize("lines", range(1, 40))
@pytest.mark.parametrize("columns", [1, 20, 80])
def test_screen_fits_every_terminal(columns: int, lines: int) -> None:
    many = replace(
        SECOND,
        ends={f"topic-{number:03d}": {"a": number} for number in range(30)},
        progress={f"group-{number:03d}": {"a": progress(1, number)} for number in range(30)},
        topics_left_out=3,
    )

    shown = screen(many, many, ScreenSize(columns, lines))

    assert len(shown) <= lines
    assert max(map(len, shown)) <= columns


def test_rows_that_do_not_fit_are_counted() -> None:
    many = replace(SECOND, ends={f"topic-{number:03d}": {"a": number} for number in range(30)}, topics_left_out=3, progress={})

    shown = screen(many, many, ScreenSize(80, 14))

    rows = sum(line.startswith("topic-") for line in shown)
    assert shown[-1] == f"… and {33 - rows} more"
    assert len(shown) == 14


def test_names_cannot_reach_the_terminal_as_control_characters() -> None:
    bad = replace(SECOND, ends={"x\x1b[2J": {"a": 1}})

    assert "\x1b" not in "".join(screen(bad, bad, None))


def test_document_has_null_for_unknown_and_the_seconds_between_the_looks() -> None:
    found = document(FIRST, replace(SECOND, epochs={"a/0": 7}))

    assert found["seconds"] == 2.0
    assert [(each["node"], each["epoch"], each["bytes_per_s"]) for each in found["nodes"]] == [  # type: ignore[attr-defined]
        ("a/0", 7, 2_048.0),
        ("a/1", None, 0.0),
    ]
    assert found["topics"][0] == {"topic": "orders", "messages": 3_000, "messages_per_s": 1_000.0}  # type: ignore[index]
