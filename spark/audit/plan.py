"""Decides what is compared: the cut, the slices, and what cannot be compared. Pure."""

from collections.abc import Iterator

from dittomq.commitlog.records.checksum_policy import ChecksumPolicy
from dittomq.copies import ReplicaDescription
from dittomq.routes import Role
from spark.audit.model import Bounds, GroupPlan, GroupSurvey, NotCompared, Slice, Surveyed

SLICE_BYTES = 32 * 1024 * 1024
NORMAL_LAG_BYTES = 16 * 1024 * 1024
NEVER = 2**63 - 1


def plan(survey: GroupSurvey) -> GroupPlan:
    """What an audit of one group compares: from the highest first byte to the lowest confirmed end of its copies."""
    copies = tuple(node for node in survey.nodes if node.held is not None)
    held = [copy.held for copy in copies if copy.held is not None]
    problems = [*_absent(survey), *_masterless(survey.broker, held), *_unlike(held)]
    if not held:
        return GroupPlan(survey.broker, survey.cluster, (), Bounds(0, 0, NEVER), 0, (), (), tuple(problems))
    low = max(copy.min_offset for copy in held)
    frontier = max(copy.confirmed for copy in held)
    cut = max(low, min(_comparable_end(copy) for copy in held))
    apart = tuple(_apart(held, low, cut))
    problems += [f"{part.node}: {part.size:,} bytes {part.why}" for part in apart if not part.normal]
    problems += _behind(held, frontier)
    if cut <= low and not problems and any(copy.end > copy.min_offset for copy in held):
        problems.append(f"{survey.broker}: nothing is confirmed yet, so nothing can be compared")
    segment_bytes = held[0].segment_bytes
    slices = tuple(_slices(survey.broker, low, cut, segment_bytes)) if len({copy.segment_bytes for copy in held}) == 1 else ()
    sealed_ranges = ChecksumPolicy(held[0].epoch_history).sealed_ranges
    sealed_from = next((sealed_range.start for sealed_range in sealed_ranges if sealed_range.sealed), NEVER)
    foreign = tuple(
        (sealed_range.start, sealed_range.end)
        for sealed_range in sealed_ranges
        if not sealed_range.sealed and sealed_range.start > sealed_from
    )
    bounds = Bounds(low, cut, sealed_from, foreign)
    return GroupPlan(survey.broker, survey.cluster, copies, bounds, frontier, slices, apart, tuple(problems))


def changes(before: tuple[Surveyed, ...], after: tuple[Surveyed, ...]) -> list[str]:
    """What happened to the copies during the run that makes its result unsafe."""
    now = {node.node: node for node in after}
    found = []
    for copy in before:
        then = copy.held
        later = now.get(copy.node)
        if then is None:
            continue
        if later is None or later.held is None:
            found.append(f"{copy.node} did not answer at the end of the run: {later.problem if later else 'no longer registered'}")
            continue
        found += [f"{copy.node}: {what}" for what in _changed(then, later.held)]
    return found


def late(plan: GroupPlan, after: tuple[Surveyed, ...]) -> list[str]:
    """Which copies still lack at the end of the run what was confirmed at its start: all that was in flight then has arrived since."""
    planned = {copy.node for copy in plan.copies}
    copies = [node.held for node in after if node.held is not None and node.node in planned]
    return [_lateness(copy, plan.frontier) for copy in copies if _comparable_end(copy) < plan.frontier]


def _lateness(copy: ReplicaDescription, frontier: int) -> str:
    if copy.end < frontier:
        return f"{copy.node} still lacks {frontier - copy.end:,} bytes at the end of the run that were confirmed at its start"
    known = f"{copy.node} knows of nothing confirmed beyond byte {copy.confirmed:,} at the end of the run"
    return f"{known}, others knew up to {frontier:,} at its start"


def _changed(then: ReplicaDescription, now: ReplicaDescription) -> Iterator[str]:
    if then.replica_uuid != now.replica_uuid:
        yield "another store took its place during the run"
    if then.epoch_history != now.epoch_history:
        yield f"its epoch changed from {then.epoch} to {now.epoch} during the run"
    if then.generation != now.generation:
        yield "bytes of it were cut or replaced during the run"
    if then.min_offset != now.min_offset:
        yield f"its first byte moved from {then.min_offset:,} to {now.min_offset:,} during the run"


def _comparable_end(copy: ReplicaDescription) -> int:
    return min(copy.confirmed, copy.end)


def _absent(survey: GroupSurvey) -> Iterator[str]:
    for node in survey.nodes:
        if node.held is None:
            yield f"{node.node} is registered and could not be read: {node.problem}"
    if survey.slaves_expected is None:
        yield f"not every node of {survey.broker} said how many copies there should be"
    elif len(survey.nodes) < survey.slaves_expected + 1:
        yield f"{survey.broker} is configured with {survey.slaves_expected + 1} copies and {len(survey.nodes)} are registered"


def _masterless(broker: str, held: list[ReplicaDescription]) -> Iterator[str]:
    if held and all(copy.role == Role.SLAVE for copy in held):
        yield f"{broker}: no master is among the copies that could be read, and it may hold what they lack"


def _unlike(held: list[ReplicaDescription]) -> Iterator[str]:
    if len({copy.segment_bytes for copy in held}) > 1:
        yield "the copies have segments of different sizes: " + ", ".join(f"{copy.node} {copy.segment_bytes:,}" for copy in held)


def _apart(held: list[ReplicaDescription], low: int, cut: int) -> Iterator[NotCompared]:
    for copy in held:
        if copy.min_offset < low:
            yield NotCompared(copy.node, low - copy.min_offset, "older than the first byte of another copy", normal=False)
        if copy.end > cut:
            yield NotCompared(copy.node, copy.end - cut, "newer than the cut", normal=True)


def _behind(held: list[ReplicaDescription], frontier: int) -> Iterator[str]:
    for copy in held:
        missing = frontier - copy.end
        if missing > NORMAL_LAG_BYTES or (missing > 0 and copy.end <= copy.min_offset):
            yield f"{copy.node} lacks {missing:,} confirmed bytes: it is still catching up"
        elif frontier - copy.confirmed > NORMAL_LAG_BYTES or (frontier > copy.min_offset and copy.confirmed <= copy.min_offset):
            yield f"{copy.node} knows of nothing confirmed beyond byte {copy.confirmed:,}, others up to {frontier:,}"


def _slices(broker: str, low: int, cut: int, segment_bytes: int) -> Iterator[Slice]:
    at = low
    while at < cut:
        segment_start = at - at % segment_bytes
        segment_end = segment_start + segment_bytes
        end = min(cut, segment_end, at + SLICE_BYTES)
        yield Slice(broker, at, end, segment_start, segment_end)
        at = end
