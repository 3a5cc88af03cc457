"""Draws the conclusion of a group's audit from what the tasks brought, and of a run from the groups that were known. Pure."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from spark.audit.findings import merge
from spark.audit.model import GroupAudit, GroupPlan, LeafResult, NotCompared, RunResult, SliceResult
from spark.audit.semantics import join


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was brought for one group. `unread` counts differing leaves that were too many to read raw."""

    slices: Sequence[SliceResult]
    leaves: Sequence[LeafResult]
    unread: int
    changes: Sequence[str]


def conclude(plan: GroupPlan, evidence: Evidence) -> GroupAudit:
    """The result of a group. Whatever could not be read makes it incomplete, and nothing else does."""
    proved = [(result.slice, result.records) for result in evidence.slices if result.records is not None]
    joined = join(plan.bounds, proved) if len(proved) == len(plan.slices) else None
    damaged = joined.damaged if joined else tuple(damage for _, records in proved for damage in records.damaged)
    compared = sum(result.slice.end - result.slice.start for result in evidence.slices if result.compared)
    unreadable = tuple(_unreadable(evidence.slices))
    problems = [
        *plan.problems,
        *(f"{part.node}: {part.size:,} bytes could not be read: {part.why}" for part in unreadable),
        *_unsure(evidence),
        *evidence.changes,
    ]
    return GroupAudit(
        plan=plan,
        compared=compared,
        differing=tuple(result.leaf for result in evidence.leaves if result.findings),
        unexplained=evidence.unread,
        findings=merge([finding for result in evidence.leaves for finding in result.findings]),
        damaged=damaged,
        records=sum(records.records for _, records in proved),
        records_node=proved[0][1].node if joined and proved else "",
        rehashed=sum(records.rehashed for _, records in proved),
        queues=joined.queues if joined else 0,
        topics=joined.topics if joined else 0,
        ignored=sum(result.ignored for result in evidence.leaves),
        transients=sum(result.transient for result in evidence.leaves),
        not_compared=(*plan.not_compared, *unreadable),
        problems=tuple(dict.fromkeys(problems)),
    )


def account(result: RunResult, known: Collection[str], *, only: bool = False, forget: Collection[str] = ()) -> RunResult:
    """The result of a run that had to see all `known` groups but those to `forget`, unless it was asked for one `only`."""
    accounted = {*forget, *(group.plan.broker for group in result.groups)}
    unseen = tuple(sorted({*known} - accounted))
    problems = () if only else map(_missing, unseen)
    return replace(result, unseen=unseen, problems=(*result.problems, *problems))


def _missing(broker: str) -> str:
    return f"no node of {broker} is registered, and an earlier audit saw it; if it is gone for good, audit with --forget {broker}"


def _unreadable(slices: Sequence[SliceResult]) -> Iterator[NotCompared]:
    sizes: dict[tuple[str, str], int] = defaultdict(int)
    for result in slices:
        for node, why in result.unreadable:
            sizes[node, why] += result.slice.end - result.slice.start
    for (node, why), size in sizes.items():
        yield NotCompared(node, size, why, normal=False)


def _unsure(evidence: Evidence) -> Iterator[str]:
    for leaf in evidence.leaves:
        if leaf.unreadable:
            yield f"digests differ at bytes {leaf.leaf.start:,} to {leaf.leaf.end:,} and not every copy gave them: {leaf.unreadable}"
    for result in evidence.slices:
        records = result.records
        if records is not None and not records.rehash_equal:
            where = f"[{result.slice.start:,}, {result.slice.end:,})"
            yield f"{records.node} gave digests of {where} that the bytes it sent do not have"
