"""What `dittomq top` shows: two looks at a cluster as a screen of so many columns and lines, or as a document."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dittomq.cli.ha_report import ClusterReport, NodeReport
from dittomq.cli.ha_views import state_in_words
from dittomq.cli.output import human_age, human_bytes, printable, table
from dittomq.consumer_progress import GroupProgress

_UNKNOWN: Final = "unknown"

_Table = list[tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class ClusterSample:
    """One look. `at_s` on a clock that only goes ahead; `epochs` by node; `ends` by topic and broker group: messages ever stored there.

    `progress` by consumer group and broker group. Who did not answer is left out. `topics_left_out` and `groups_left_out` were not asked
    for.
    """

    at_s: float
    report: ClusterReport
    epochs: Mapping[str, int]
    ends: Mapping[str, Mapping[str, int]]
    progress: Mapping[str, Mapping[str, GroupProgress]]
    topics_left_out: int = 0
    groups_left_out: int = 0


@dataclass(frozen=True, slots=True)
class ScreenSize:
    """Columns and lines of a terminal."""

    columns: int
    lines: int


@dataclass(frozen=True, slots=True)
class NodeFigures:
    """A node. None is unknown; `bytes_per_s` were added to its log."""

    node: str
    role: str
    state: str
    epoch: int | None
    lag_bytes: int | None
    bytes_per_s: float | None
    problem: str


@dataclass(frozen=True, slots=True)
class TopicFigures:
    """A topic: messages ever stored, and stored in a second; None is unknown."""

    topic: str
    messages: int | None
    messages_per_s: float | None


@dataclass(frozen=True, slots=True)
class GroupFigures:
    """A consumer group: confirmed messages that it has not read, how long the oldest waits, and what it commits in a second."""

    group: str
    members: int
    lag: int | None
    oldest_unread_ms: int | None
    messages_per_s: float | None


def node_figures(before: ClusterSample | None, now: ClusterSample) -> list[NodeFigures]:
    """All nodes, in the order of the report."""
    old = {} if before is None else dict(_log_ends(before))
    seconds = _seconds(before, now)
    ends = dict(_log_ends(now))
    found = []
    for group in now.report.groups:
        for node in group.nodes:
            state = _UNKNOWN if node.view is None else state_in_words(node.view)
            lag = None if node.view is None else node.view.received_lag_bytes
            rate = _rate(old.get(node.node), ends.get(node.node), seconds)
            found.append(NodeFigures(node.node, node.role, state, now.epochs.get(node.node), lag, rate, node.problem))
    return found


def topic_figures(before: ClusterSample | None, now: ClusterSample) -> list[TopicFigures]:
    """All topics, the busiest first."""
    seconds = _seconds(before, now)
    found = [
        TopicFigures(
            topic, sum(ends.values()) if ends else None, _summed(None if before is None else before.ends.get(topic), ends, seconds)
        )
        for topic, ends in now.ends.items()
    ]
    return sorted(found, key=lambda each: (-(each.messages_per_s or 0.0), each.topic))


def group_figures(before: ClusterSample | None, now: ClusterSample) -> list[GroupFigures]:
    """All consumer groups, the one that is farthest behind first."""
    seconds = _seconds(before, now)
    found = []
    for name, by_broker in now.progress.items():
        queues = [queue for progress in by_broker.values() for queue in progress.queues]
        members = {member for progress in by_broker.values() for member in progress.members}
        oldest = max((queue.oldest_unread_ms for queue in queues if queue.oldest_unread_ms is not None), default=None)
        rate = _summed(None if before is None else _committed(before.progress.get(name)), _committed(by_broker) or {}, seconds)
        lag = sum(queue.lag for queue in queues) if by_broker else None
        found.append(GroupFigures(name, len(members), lag, oldest, rate))
    return sorted(found, key=lambda each: (-(each.lag or 0), each.group))


def screen(before: ClusterSample | None, now: ClusterSample, size: ScreenSize | None) -> list[str]:
    """The lines to be shown; with a `size` none is longer than its columns, and they are at most its lines."""
    ailing = sum(group.needs_attention for group in now.report.groups)
    verdict = f"{ailing} {'needs' if ailing == 1 else 'need'} attention" if ailing else "all in order"
    count = len(now.report.groups)
    head = [
        f"{printable(now.report.cluster) or 'no broker is registered'} · {count} broker {'group' if count == 1 else 'groups'} · {verdict}"
    ]
    nodes: _Table = [("NODE", "ROLE", "STATE", "EPOCH", "LAG", "LOG GROWS BY"), *map(_node_row, node_figures(before, now))]
    topics: _Table = [("TOPIC", "MESSAGES", "STORED"), *map(_topic_row, topic_figures(before, now))]
    groups: _Table = [("GROUP", "MEMBERS", "LAG", "OLDEST UNREAD", "READ"), *map(_group_row, group_figures(before, now))]
    room = None if size is None else max(0, size.lines - len(head) - len(nodes))
    shown = [*head, *table(nodes)]
    for rows, others, left_out in ((topics, groups, now.topics_left_out), (groups, None, now.groups_left_out)):
        if room is not None:
            wanted = min(len(others) + 2, room // 2) if others is not None and len(others) > 1 else 0
            lines = _fitting(rows, left_out, room - wanted)
            room -= len(lines)
        else:
            lines = _fitting(rows, left_out, None)
        shown += lines
    if size is None:
        return shown
    return [line[: size.columns] for line in shown[: size.lines]]


def document(before: ClusterSample, now: ClusterSample) -> dict[str, object]:
    """The same for programs; null means unknown."""
    return {
        "cluster": now.report.cluster,
        "seconds": round(now.at_s - before.at_s, 3),
        "needs_attention": now.report.needs_attention,
        "nodes": [
            {
                "node": each.node,
                "role": each.role,
                "state": each.state,
                "epoch": each.epoch,
                "received_lag_bytes": each.lag_bytes,
                "bytes_per_s": _rounded(each.bytes_per_s),
                "problem": each.problem or None,
            }
            for each in node_figures(before, now)
        ],
        "topics": [
            {"topic": each.topic, "messages": each.messages, "messages_per_s": _rounded(each.messages_per_s)}
            for each in topic_figures(before, now)
        ],
        "groups": [
            {
                "group": each.group,
                "members": each.members,
                "lag": each.lag,
                "oldest_unread_ms": each.oldest_unread_ms,
                "messages_per_s": _rounded(each.messages_per_s),
            }
            for each in group_figures(before, now)
        ],
        "topics_left_out": now.topics_left_out,
        "groups_left_out": now.groups_left_out,
    }


def _fitting(rows: _Table, left_out: int, room: int | None) -> list[str]:
    """A blank line, the table, and how many of its rows do not fit into so many lines; nothing where not even one row fits."""
    count = len(rows) - 1
    fits = count
    if room is not None:
        fits = min(count, room - 2)
        if fits < count or left_out:
            fits = min(count, room - 3)
    if fits < 1:
        return []
    hidden = count - fits + left_out
    more = [f"… and {hidden:,} more"] if hidden else []
    return ["", *table(rows[: fits + 1]), *more]


def _node_row(node: NodeFigures) -> tuple[str, ...]:
    lag = "-" if node.role == "master" else _UNKNOWN if node.lag_bytes is None else human_bytes(node.lag_bytes)
    rate = _UNKNOWN if node.bytes_per_s is None else f"{human_bytes(round(node.bytes_per_s))}/s"
    epoch = _UNKNOWN if node.epoch is None else f"{node.epoch}"
    state = node.state if not node.problem else f"{node.state}: no answer"
    return printable(node.node), node.role, printable(state), epoch, lag, rate


def _topic_row(topic: TopicFigures) -> tuple[str, ...]:
    return printable(topic.topic), _count(topic.messages), _per_second(topic.messages_per_s)


def _group_row(group: GroupFigures) -> tuple[str, ...]:
    age = "-" if group.oldest_unread_ms is None else human_age(group.oldest_unread_ms / 1_000)
    return printable(group.group), f"{group.members}", _count(group.lag), age, _per_second(group.messages_per_s)


def _count(number: int | None) -> str:
    return _UNKNOWN if number is None else f"{number:,}"


def _per_second(rate: float | None) -> str:
    return _UNKNOWN if rate is None else f"{rate:,.1f}/s" if rate < 10 else f"{rate:,.0f}/s"


def _log_ends(sample: ClusterSample) -> list[tuple[str, int]]:
    """Where each node's log ends, of those that say so."""
    found = []
    for group in sample.report.groups:
        for node in group.nodes:
            end = group.master.end if group.master is not None and group.master.node == node.node else _received(node)
            if end is not None:
                found.append((node.node, end))
    return found


def _received(node: NodeReport) -> int | None:
    return None if node.view is None or node.problem else node.view.received


def _committed(by_broker: Mapping[str, GroupProgress] | None) -> dict[str, int] | None:
    """What is read, by broker group."""
    if by_broker is None:
        return None
    return {broker: sum(queue.committed or 0 for queue in progress.queues) for broker, progress in by_broker.items()}


def _seconds(before: ClusterSample | None, now: ClusterSample) -> float:
    return 0.0 if before is None else now.at_s - before.at_s


def _summed(old: Mapping[str, int] | None, new: Mapping[str, int], seconds: float) -> float | None:
    """The rate of all broker groups that answered both times; None where none did."""
    both: Sequence[str] = [] if old is None else [broker for broker in new if broker in old]
    if old is None or not both:
        return None
    return _rate(0, sum(max(0, new[broker] - old[broker]) for broker in both), seconds)


def _rate(old: int | None, new: int | None, seconds: float) -> float | None:
    """None is unknown; what went back, as after a reset, grew by nothing."""
    if old is None or new is None or seconds <= 0:
        return None
    return max(0, new - old) / seconds


def _rounded(rate: float | None) -> float | None:
    return None if rate is None else round(rate, 1)
