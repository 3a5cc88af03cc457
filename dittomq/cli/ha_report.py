"""What all nodes of a cluster said about replication, put together and written down. Pure: no node is asked here."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from dittomq.cli.output import clock_time, human_age, human_bytes, table
from dittomq.errors import DittoError, OutOfReach
from dittomq.ha_status import HaStatus, NodeView
from dittomq.routes import Node, Role

Answers = Mapping[str, HaStatus | DittoError]

_WORKING = {"leading", "in sync"}
_HEADING = ("NODE", "ROLE", "STATE", "RECEIVED LAG", "FLUSHED LAG", "APPLIED LAG", "PROVEN EQUAL UP TO")


@dataclass(frozen=True, slots=True)
class NodeReport:
    """One node. `view` is its master's where that answers, otherwise its own, None when nobody knows.

    `role` is the registered one while nobody knows better. `problem` says why the node did not answer, `seen_ms` when the
    nameserver heard of it last.
    """

    node: str
    role: str
    view: NodeView | None
    problem: str
    seen_ms: int | None

    @property
    def needs_attention(self) -> bool:
        """Whether it does anything but work in its role."""
        return bool(self.problem) or self.view is None or self.view.state not in _WORKING


@dataclass(frozen=True, slots=True)
class GroupReport:
    """One broker group. `leader` is the answer of the master with the highest epoch, None when no master answers."""

    broker: str
    leader: HaStatus | None
    nodes: tuple[NodeReport, ...]

    @property
    def needs_attention(self) -> bool:
        """Whether anything is not as configured."""
        leader = self.leader
        return (
            leader is None
            or not leader.writable
            or leader.degraded
            or self.slaves_in_sync < leader.replicas_expected
            or any(node.needs_attention for node in self.nodes)
        )

    @property
    def slaves_in_sync(self) -> int:
        """Slaves that their master counts as in sync."""
        return sum(node.view is not None and node.view.role == "slave" and node.view.state == "in sync" for node in self.nodes)

    @property
    def in_sync(self) -> bool:
        """Whether the master takes writes and every slave that is configured is in sync."""
        return self.leader is not None and self.leader.writable and self.slaves_in_sync >= self.leader.replicas_expected


@dataclass(frozen=True, slots=True)
class ClusterReport:
    """All groups that nameservers know, by name."""

    cluster: str
    groups: tuple[GroupReport, ...]

    @property
    def needs_attention(self) -> bool:
        """Whether any group does, or there is none."""
        return not self.groups or any(group.needs_attention for group in self.groups)

    @property
    def in_sync(self) -> bool:
        """Whether every group is."""
        return bool(self.groups) and all(group.in_sync for group in self.groups)


def build_report(nodes: Sequence[Node], answers: Answers) -> ClusterReport:
    """Put together what the nodes that nameservers know answered, by node name."""
    brokers = sorted({node.broker for node in nodes})
    cluster = nodes[0].cluster if nodes else ""
    return ClusterReport(cluster, tuple(_group(broker, [node for node in nodes if node.broker == broker], answers) for broker in brokers))


def report_lines(report: ClusterReport, now_ms: int) -> list[str]:
    """The report as people read it."""
    if not report.groups:
        return ["no broker is registered with this nameserver"]
    ailing = sum(group.needs_attention for group in report.groups)
    verdict = f"{ailing} {'needs' if ailing == 1 else 'need'} attention" if ailing else "all in order"
    count = len(report.groups)
    lines = [f"{report.cluster} · {count} broker {'group' if count == 1 else 'groups'} · {verdict}"]
    for group in report.groups:
        lines.append(_headline(group))
        rows = [_row(node, now_ms) for node in group.nodes]
        heads = table([_HEADING, *(row[:-1] for row in rows)], indent="   ")
        lines += [heads[0], *(f"{line}{row[-1]}" for line, row in zip(heads[1:], rows, strict=True))]
    return lines


def report_document(report: ClusterReport) -> dict[str, object]:
    """The report for programs; null means unknown."""
    return {
        "cluster": report.cluster,
        "needs_attention": report.needs_attention,
        "in_sync": report.in_sync,
        "groups": [
            {
                "broker": group.broker,
                "needs_attention": group.needs_attention,
                "leader": _leader_document(group.leader),
                "nodes": [
                    {"node": node.node, "problem": node.problem or None, "seen_ms": node.seen_ms}
                    | (asdict(node.view) if node.view else {"role": node.role, "state": "unknown"})
                    for node in group.nodes
                ],
            }
            for group in report.groups
        ],
    }


def _leader_document(leader: HaStatus | None) -> dict[str, object] | None:
    if leader is None:
        return None
    return {name: value for name, value in asdict(leader).items() if name != "nodes"}


def _group(broker: str, nodes: Sequence[Node], answers: Answers) -> GroupReport:
    masters = [answer for node in nodes if isinstance(answer := answers.get(node.name), HaStatus) and answer.role != "SLAVE"]
    leader = max(masters, key=lambda status: status.epoch, default=None)
    seen = {view.node: view for view in leader.nodes} if leader else {}
    registered = {node.name: node for node in nodes}
    names = sorted({*registered, *seen}, key=lambda name: int(name.rpartition("/")[2]))
    return GroupReport(broker, leader, tuple(_node(name, registered.get(name), seen.get(name), answers.get(name)) for name in names))


def _node(name: str, registered: Node | None, seen: NodeView | None, answer: HaStatus | DittoError | None) -> NodeReport:
    own = next((view for view in answer.nodes if view.node == name), None) if isinstance(answer, HaStatus) else None
    seen_ms = registered.seen_ms if registered else None
    match answer:
        case OutOfReach(problem=why):
            problem = f"does not answer{f' since {clock_time(seen_ms)}' if seen_ms else ''}: {why}"
        case DittoError():
            problem = str(answer)
        case _:
            problem = "" if registered else "not registered with this nameserver"
    view = seen or own
    if seen is not None and own is not None and seen.applied_lag_bytes is None and own.applied is not None:
        # Its master has not heard how far it has applied; the node itself knows.
        view = replace(seen, applied=own.applied, applied_lag_bytes=own.applied_lag_bytes)
    return NodeReport(name, view.role if view else _role_of(registered), view, problem, seen_ms)


def _role_of(registered: Node | None) -> str:
    if registered is None:
        return "unknown"
    return "slave" if registered.role is Role.SLAVE else "master"


def _headline(group: GroupReport) -> str:
    leader = group.leader
    if leader is None:
        return f"{group.broker}  NO MASTER ANSWERS  no writes; slaves serve reads"
    level = "flushed " if leader.role == "SYNC_MASTER" else ""
    copies = f"asks {leader.in_sync_replicas} {level}copies, has {leader.in_sync_now}"
    line = f"{group.broker}  epoch {leader.epoch}  {leader.role}  {copies}  confirmed {leader.confirmed:,}"
    if not leader.writable:
        return f"{line}  NO WRITES: {leader.waiting_for or 'refused'}"
    if leader.degraded:
        since = f" since {clock_time(leader.degraded_since_ms)}" if leader.degraded_since_ms else ""
        return f"{line}  DEGRADED{since}, {leader.degraded_bytes:,} bytes on fewer copies than asked"
    return f"{line}  writes accepted"


def _row(node: NodeReport, now_ms: int) -> tuple[str, ...]:
    view = node.view
    silence = f"  {node.problem}" if node.problem else ""
    if view is None:
        return (node.node, node.role, "unknown", "unknown", "unknown", "unknown", "unknown", silence)
    age = f" {human_age((now_ms - view.since_ms) / 1000)}" if view.since_ms and view.state == "in sync" else ""
    if view.role == "master":
        return (node.node, view.role, view.state + age, "-", "-", _lag(view.applied_lag_bytes, None), "-", silence)
    proven = "not yet compared" if view.proven_equal is None else f"{view.proven_equal:,}"
    lags = (
        _lag(view.received_lag_bytes, view.received_lag_s),
        _lag(view.flushed_lag_bytes, view.flushed_lag_s),
        _lag(view.applied_lag_bytes, None),
    )
    return (node.node, view.role, view.state + age, *lags, proven, _catching_up(view) + silence)


def _lag(behind: int | None, seconds: float | None) -> str:
    if behind is None:
        return "unknown"
    return human_bytes(behind) if seconds is None else f"{human_bytes(behind):<8} {seconds:.1f} s"


def _catching_up(view: NodeView) -> str:
    notes = []
    if view.state == "catching up" and view.transfer_bytes_per_s > 0:
        notes.append(f"{human_bytes(view.transfer_bytes_per_s)}/s")
        if view.received_lag_bytes is not None:
            notes.append(f"about {human_age(view.received_lag_bytes / view.transfer_bytes_per_s)} to go")
    if view.state != "in sync" and view.last_drop_reason:
        notes.append(f"dropped: {view.last_drop_reason}")
    return f" · {', '.join(notes)}" if notes else ""
