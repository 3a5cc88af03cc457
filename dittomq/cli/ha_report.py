"""What all nodes of a cluster said about replication, put together and written down. Pure: no node is asked here."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from dittomq.cli.audited import LastAudit
from dittomq.cli.ha_views import ABSENT, Ends, joined, state_in_words, with_own_report, without_lags
from dittomq.cli.output import clock_date, clock_time, human_age, human_bytes, printable, table
from dittomq.errors import DittoError, Unavailable
from dittomq.ha_status import HaStatus, NodeState, NodeView, WaitKind, not_in_sync
from dittomq.routes import Node, Role

Answers = Mapping[str, HaStatus | DittoError]

_WORKING = {NodeState.LEADING, NodeState.IN_SYNC}
_FOLLOWING = {*_WORKING, NodeState.FOLLOWING}  # why it did not before holds no more
_CATCHING_UP = {NodeState.CATCHING_UP, NodeState.FULL_RESYNC}
_LEAST_LAG_WIDTH = 8
_DAY_MS = 86_400_000
_HEADING = ("NODE", "ROLE", "STATE", "RECEIVED LAG", "FLUSHED LAG", "APPLIED LAG", "VERIFIED UP TO")


@dataclass(frozen=True, slots=True)
class NodeReport:
    """One node. `view` is its master's where that hears it, otherwise its own, None for neither; pins and damage are always its own.

    `role` is the registered one while no node says another. `problem` says why the node did not answer, `seen_ms` when the
    nameserver heard it last. `complaint`: why it follows no master now, in its own words where the view is its master's; empty for none.
    """

    node: str
    role: str
    view: NodeView | None
    problem: str
    seen_ms: int | None
    complaint: str = ""

    @property
    def needs_attention(self) -> bool:
        """Whether it does anything but work in its role on a whole log."""
        return bool(self.problem) or self.view is None or self.view.state not in _WORKING or bool(self.view.damaged_bytes)


@dataclass(frozen=True, slots=True)
class GroupReport:
    """One broker group. `master` is the answer of the master with the highest epoch, None when no master answers.

    `waits`: what the nodes that answer wait for where there is no master, in words; empty elsewhere.
    """

    broker: str
    master: HaStatus | None
    nodes: tuple[NodeReport, ...]
    waits: str = ""

    @property
    def needs_attention(self) -> bool:
        """Whether anything is not as configured."""
        master = self.master
        return (
            master is None
            or not master.writable
            or master.degraded
            or bool(master.uncounted)
            or bool(master.coordination_problem)
            or bool(master.data_loss)
            or self.slaves_in_sync < master.replicas_expected
            or any(node.needs_attention for node in self.nodes)
        )

    @property
    def slaves_in_sync(self) -> int:
        """Slaves that their master counts as in sync."""
        return sum(node.view is not None and node.view.role == "slave" and node.view.state is NodeState.IN_SYNC for node in self.nodes)

    @property
    def in_sync(self) -> bool:
        """Whether the master takes writes and every slave that is configured is in sync."""
        return not self.missing

    @property
    def missing(self) -> str:
        """What keeps the group from being in sync, as a clause; empty when nothing does."""
        master = self.master
        if master is None:
            return f"no master of {self.broker} answers{f': {self.waits}' if self.waits else ''}"
        if not master.writable:
            return f"{master.node} takes no writes: {master.why_not_writable}"
        if self.slaves_in_sync >= master.replicas_expected:
            return ""
        late = [_lateness(node) for node in self.nodes if node.role != "master" and node.needs_attention]
        return ", ".join([not_in_sync(self.broker, self.slaves_in_sync, master.replicas_expected), *late])


@dataclass(frozen=True, slots=True)
class ClusterReport:
    """All groups that nameservers know, by name. `last_audit` is None when none is known."""

    cluster: str
    groups: tuple[GroupReport, ...]
    last_audit: LastAudit | None = None

    @property
    def needs_attention(self) -> bool:
        """Whether any group does, or there is none."""
        return not self.groups or any(group.needs_attention for group in self.groups)

    @property
    def in_sync(self) -> bool:
        """Whether every group is, and there is one."""
        return not self.missing

    @property
    def missing(self) -> str:
        """What keeps the groups from being in sync, in one sentence; empty when nothing does."""
        if not self.groups:
            return "no broker is registered with this nameserver"
        return "; ".join(group.missing for group in self.groups if group.missing)


def build_report(nodes: Sequence[Node], answers: Answers) -> ClusterReport:
    """Put together what the nodes that nameservers know answered, by node name."""
    brokers = sorted({node.broker for node in nodes})
    groups = tuple(_group(broker, [node for node in nodes if node.broker == broker], answers) for broker in brokers)
    return ClusterReport(nodes[0].cluster if nodes else "", groups)


def report_lines(report: ClusterReport, now_ms: int) -> list[str]:
    """The report as people read it."""
    if not report.groups:
        return ["no broker is registered with this nameserver"]
    ailing = sum(group.needs_attention for group in report.groups)
    verdict = f"{ailing} {'needs' if ailing == 1 else 'need'} attention" if ailing else "all in order"
    audit = report.last_audit
    audited = [f"last audit: {audit.verdict.lower()}, {human_age(max(0, now_ms - audit.ended_ms) / 1000)} ago"] if audit else []
    count = len(report.groups)
    lines = [" · ".join([report.cluster, f"{count} broker {'group' if count == 1 else 'groups'}", verdict, *audited])]
    for group in report.groups:
        lines += [_headline(group, now_ms), *_rows(group, now_ms), *_warnings(group.master)]
        if group.missing and not any(node.needs_attention for node in group.nodes):  # who is missing may be in no list
            lines.append(f"   {group.missing}")
    return lines


def report_document(report: ClusterReport) -> dict[str, object]:
    """The report for programs; null means unknown."""
    return {
        "cluster": report.cluster,
        "needs_attention": report.needs_attention,
        "in_sync": report.in_sync,
        "missing": report.missing or None,
        "last_audit": asdict(report.last_audit) if report.last_audit else None,
        "groups": [
            {
                "broker": group.broker,
                "needs_attention": group.needs_attention,
                "master": _master_document(group.master),
                "nodes": [
                    {"node": node.node, "problem": node.problem or None, "complaint": node.complaint or None, "seen_ms": node.seen_ms}
                    | (asdict(node.view) if node.view else {"role": node.role, "state": "unknown"})
                    for node in group.nodes
                ],
            }
            for group in report.groups
        ],
    }


def _master_document(master: HaStatus | None) -> dict[str, object] | None:
    if master is None:
        return None
    unknown: dict[str, object] = {name: None for name in ("epoch", "in_sync_now") if not getattr(master, name)}
    return {name: value for name, value in (asdict(master) | unknown).items() if name != "nodes"}


def _group(broker: str, nodes: Sequence[Node], answers: Answers) -> GroupReport:
    masters = [answer for node in nodes if isinstance(answer := answers.get(node.name), HaStatus) and answer.role != "SLAVE"]
    master = max(masters, key=lambda status: status.epoch, default=None)
    seen = [view.node for view in master.nodes] if master else []
    registered = {node.name: node for node in nodes}
    names = sorted({*registered, *seen}, key=lambda name: int(name.rpartition("/")[2]))
    reports = tuple(_node(name, registered.get(name), master, answers.get(name)) for name in names)
    return GroupReport(broker, master, reports, "" if master else _waits([answers.get(node.name) for node in nodes]))


def _waits(answers: Sequence[HaStatus | DittoError | None]) -> str:
    """What the nodes wait for that answer, each with its name."""
    waiting = [answer for answer in answers if isinstance(answer, HaStatus) and answer.waiting_for]
    return "; ".join(f"{answer.node} waits for {answer.waiting_for}" for answer in waiting)


def _warnings(master: HaStatus | None) -> list[str]:
    """What is not as it should be of the group as a whole."""
    if master is None:
        return []
    warnings = []
    if master.uncounted:
        names, count = ", ".join(master.uncounted), len(master.uncounted)
        follow = "follows and does not count as a copy" if count == 1 else "follow and do not count as copies"
        warnings.append(f"   {names} {follow}: set replication.replicas_expected to {count} on every node")
    if master.coordination_problem:
        warnings.append(printable(f"   no failover while {master.coordination_store} cannot be used: {master.coordination_problem}"))
    if master.data_loss:
        warnings.append(printable(f"   data loss in epoch {master.epoch}: {master.data_loss}"))
    return warnings


def _node(name: str, registered: Node | None, master: HaStatus | None, answer: HaStatus | DittoError | None) -> NodeReport:
    seen = _view_of(name, master)
    own = _view_of(name, answer) if isinstance(answer, HaStatus) else None
    seen_ms = registered.seen_ms if registered else None
    match answer:
        case Unavailable(problem=why):
            problem = f"does not answer{f' since {clock_time(seen_ms)}' if seen_ms else ''}: {why}"
        case DittoError():
            problem = str(answer)
        case _:
            problem = "" if registered else "not registered with this nameserver"
    view = seen or own
    complaint = ""
    if seen is not None and own is not None and own.state is NodeState.WAITING and own.last_drop_reason != seen.last_drop_reason:
        complaint = "" if isinstance(answer, HaStatus) and answer.waiting_kind is WaitKind.MASTER_WAITS else own.last_drop_reason
    if own is not None and isinstance(answer, HaStatus) and own.role == "slave":
        view = without_lags(own) if master is None else joined(seen, own, Ends(master, answer.epoch))
    elif own is not None and seen is not None:
        view = with_own_report(seen, own)
    return NodeReport(name, view.role if view else _role_of(registered), view, problem, seen_ms, complaint)


def _view_of(name: str, status: HaStatus | None) -> NodeView | None:
    return next((view for view in status.nodes if view.node == name), None) if status is not None else None


def _role_of(registered: Node | None) -> str:
    if registered is None:
        return "unknown"
    return "slave" if registered.role is Role.SLAVE else "master"


def _lateness(node: NodeReport) -> str:
    view = node.view
    if view is None or _is_silent(node):
        return f"{node.node} does not answer"
    behind = f" and {human_bytes(view.received_lag_bytes)} behind" if view.received_lag_bytes else ""
    reason = (node.complaint or view.last_drop_reason) if view.state is NodeState.WAITING else ""
    return printable(f"{node.node} is {state_in_words(view)}{behind}{f': {reason}' if reason else ''}")


def _headline(group: GroupReport, now_ms: int) -> str:
    master = group.master
    if master is None:
        serves = any(node.view is not None and node.view.role == "slave" and not node.problem for node in group.nodes)
        waits = f"; {group.waits}" if group.waits else ""
        return printable(f"{group.broker}  NO MASTER ANSWERS  no writes; {'slaves serve reads' if serves else 'no slave answers'}{waits}")
    members = f"in sync {master.in_sync_now or 'unknown'} of {master.replicas_expected + 1}, in_sync_replicas {master.in_sync_replicas}"
    line = f"{group.broker}  epoch {master.epoch or 'unknown'}  {master.role}  {members}  confirmed {master.confirmed:,}"
    if master.failover and master.failover != "none":
        line = f"{line}  failover {master.failover}"
    if not master.writable:
        return f"{line}  NO WRITES: {master.why_not_writable}"
    if master.degraded:
        since = f" since {_moment(master.degraded_since_ms, now_ms)}" if master.degraded_since_ms else ""
        return f"{line}  DEGRADED{since}"
    return f"{line}  writes accepted"


def _rows(group: GroupReport, now_ms: int) -> list[str]:
    """One line a node, below a heading. What is said of a node that no node hears stands where its figures would."""
    names = table([_HEADING[:3], *((node.node, node.role, _state(node, now_ms)) for node in group.nodes)])
    width = _lag_width(group.nodes)
    figures = [_figures(node, width) for node in group.nodes]
    heading, *lines = table([_HEADING[3:], *filter(None, figures)])
    named, told = max(map(len, names)), iter(lines)
    rows = [heading]
    for node, known in zip(group.nodes, figures, strict=True):
        notes = _notes(node, now_ms)
        rows.append(" · ".join([next(told), *notes]) if known else " · ".join([node.problem or "unknown", *notes]))
    return [f"   {name.ljust(named)}  {row}" for name, row in zip(names, rows, strict=True)]


def _state(node: NodeReport, now_ms: int) -> str:
    view = node.view
    if view is None or _is_silent(node):
        return "unknown"
    if view.state is NodeState.IN_SYNC and view.since_ms:
        return f"{view.state} {human_age((now_ms - view.since_ms) / 1000)}"
    return state_in_words(view)


def _is_silent(node: NodeReport) -> bool:
    """Whether neither we nor its master hear it."""
    return node.view is None or (bool(node.problem) and node.view.state in ABSENT)


def _figures(node: NodeReport, width: int) -> tuple[str, ...] | None:
    view = node.view
    if view is None or _is_silent(node):
        return None
    if view.role == "master":
        return ("-", "-", _lag(view.applied_lag_bytes, None, width), "-")
    lags = (
        _lag(view.received_lag_bytes, view.received_lag_s, width),
        _lag(view.flushed_lag_bytes, view.flushed_lag_s, width),
        _lag(view.applied_lag_bytes, view.applied_lag_s, width),
    )
    return (*lags, "not yet compared" if view.verified_offset is None else f"{view.verified_offset:,}")


def _lag_width(nodes: Sequence[NodeReport]) -> int:
    """How wide the bytes of lags are that stand before seconds."""
    views = [node.view for node in nodes if node.view is not None]
    lags = [(view.received_lag_bytes, view.received_lag_s) for view in views]
    lags += [(view.flushed_lag_bytes, view.flushed_lag_s) for view in views]
    lags += [(view.applied_lag_bytes, view.applied_lag_s) for view in views]
    return max([_LEAST_LAG_WIDTH, *(len(human_bytes(behind)) for behind, seconds in lags if behind is not None and seconds is not None)])


def _lag(behind: int | None, seconds: float | None, width: int) -> str:
    if behind is None:
        return "unknown"
    if seconds is None:
        return human_bytes(behind)
    return f"{human_bytes(behind):<{width}} {f'{seconds:.1f} s' if seconds < 10 else human_age(seconds)}"


def _notes(node: NodeReport, now_ms: int) -> list[str]:
    """What else is known of a node."""
    view = node.view
    if view is None:
        return []
    notes = [node.problem] if node.problem and not _is_silent(node) else []
    if view.state in _CATCHING_UP and view.received_bytes_per_s > 0:
        left = "" if view.received_lag_bytes is None else f", about {human_age(view.received_lag_bytes / view.received_bytes_per_s)} to go"
        notes.append(f"{human_bytes(view.received_bytes_per_s)}/s{left}")
    if view.state is NodeState.SWITCHING_OVER and view.since_ms is not None:
        notes.append(f"since {_moment(view.since_ms, now_ms)}")
    if view.state not in _FOLLOWING and view.last_drop_reason:
        when = "" if view.last_drop_ms is None else f"dropped {_moment(view.last_drop_ms, now_ms)}: "
        notes.append(printable(f"{when}{view.last_drop_reason}"))
    if node.complaint:
        notes.append(printable(f"it says: {node.complaint}"))
    if view.damaged_bytes:
        notes.append(f"{human_bytes(view.damaged_bytes)} damaged, fetched from other copies as soon as one has them")
    notes += (printable(f"held from {pin.start:,} by audit {pin.run} until {_moment(pin.until_ms, now_ms)}") for pin in view.pins)
    return notes


def _moment(moment_ms: int, now_ms: int) -> str:
    """The time of day, with the date when that is not within a day of now."""
    if abs(now_ms - moment_ms) < _DAY_MS:
        return clock_time(moment_ms)
    return f"{clock_date(moment_ms)} {clock_time(moment_ms)}".lstrip()
