"""How much of the beginning of a log may go. Pure.

    ├── segments that are older than the rule, or that the disk has no room for ──┤ wanted
    ├── the same, below what a slave or an audit still wants ──┤                    held back
    ├── what even a hold does not keep, when the disk is nearly full ──┤            forced

Whole segments only, never the newest, and nothing that is not settled: durable, confirmed, in the queues. Ages go by store times,
never by those of files; disk use is counted in blocks, never by apparent sizes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from dittomq.offsets import PhysicalOffset


@dataclass(frozen=True, slots=True)
class Segment:
    """Bytes [start, end) of the log, in a file that takes `disk_bytes` of blocks.

    `newest_ms`: no record in it was stored later; None when that cannot be read.
    """

    start: PhysicalOffset
    end: PhysicalOffset
    newest_ms: int | None
    disk_bytes: int


@dataclass(frozen=True, slots=True)
class DiskUse:
    """The file system of the log. Bytes that only root may use count as used."""

    total_bytes: int
    free_bytes: int


@dataclass(frozen=True, slots=True)
class RetentionRules:
    """Each rule lets segments go by itself; 0 turns it off, and with all of them off everything is kept."""

    max_age_ms: int = 0
    max_used_percent: int = 0
    # Above it holds are overridden.
    forced_used_percent: int = 0

    @property
    def keep_all(self) -> bool:
        """Whether nothing is ever dropped."""
        return not (self.max_age_ms or self.max_used_percent or self.forced_used_percent)


@dataclass(frozen=True, slots=True)
class RetentionFloor:
    """Somebody wants the log from `offset` on: while it begins no later, that is at most `max_bytes` before its end, and until `until_ms`.

    None: no limit.
    """

    name: str
    offset: PhysicalOffset
    max_bytes: int | None = None
    until_ms: int | None = None


@dataclass(frozen=True, slots=True)
class LogFacts:
    """A log at one moment. `segments` are neighbours from the first one held, the newest of the log among them or behind them.

    `settled`: up to here everything is durable, confirmed and in the queues, and known to be after any stop.
    """

    segments: Sequence[Segment]
    settled: PhysicalOffset
    end: PhysicalOffset
    disk: DiskUse
    now_ms: int


@dataclass(frozen=True, slots=True)
class Decision:
    """The log may begin at `min_offset`. `held`: bytes on disk that are kept for a hold only. `lost`: who wanted what goes."""

    min_offset: PhysicalOffset
    held: tuple[tuple[str, int], ...] = ()
    lost: tuple[str, ...] = ()


def decide(facts: LogFacts, rules: RetentionRules, floors: Sequence[RetentionFloor]) -> Decision:
    """Where the log is to begin."""
    begin = facts.segments[0].start
    free = [each for each in facts.segments if each.end <= facts.settled and each.end < facts.end]
    if not free:
        return Decision(begin)
    forced = _end_of(begin, _surplus(free, facts.disk, rules.forced_used_percent))
    wanted = max(_end_of(begin, _expired(free, facts, rules)), _end_of(begin, _surplus(free, facts.disk, rules.max_used_percent)), forced)
    active = [each for each in floors if _is_active(each, facts)]
    floor = min((each.offset for each in active), default=wanted)
    allowed = _end_of(begin, list(takewhile(lambda each: each.end <= min(wanted, floor), free)))
    min_offset = max(allowed, forced)
    kept = [each for each in free if min_offset <= each.start and each.end <= wanted]
    held = [(one.name, sum(each.disk_bytes for each in kept if each.end > one.offset)) for one in active]
    return Decision(
        min_offset,
        tuple((name, size) for name, size in held if size),
        tuple(each.name for each in floors if begin <= each.offset < min_offset),
    )


def _expired(free: list[Segment], facts: LogFacts, rules: RetentionRules) -> list[Segment]:
    """Segments up to the last that is too old: store times grow along the log, so those before it are too."""
    if not rules.max_age_ms:
        return []
    oldest_ms = facts.now_ms - rules.max_age_ms
    old = [number for number, each in enumerate(free) if each.newest_ms is not None and each.newest_ms < oldest_ms]
    return free[: old[-1] + 1] if old else []


def _surplus(free: list[Segment], disk: DiskUse, percent: int) -> list[Segment]:
    """As many segments as must go for the disk to be no fuller than that."""
    if not percent:
        return []
    surplus = disk.total_bytes - disk.free_bytes - disk.total_bytes * percent // 100
    chosen: list[Segment] = []
    for each in free:
        if surplus <= 0:
            break
        chosen.append(each)
        surplus -= each.disk_bytes
    return chosen


def _is_active(floor: RetentionFloor, facts: LogFacts) -> bool:
    in_time = floor.until_ms is None or facts.now_ms < floor.until_ms
    is_here = floor.offset >= facts.segments[0].start  # otherwise its holder must copy the log anew, and the rest of it helps nobody
    return is_here and in_time and (floor.max_bytes is None or facts.end - floor.offset <= floor.max_bytes)


def _end_of(begin: PhysicalOffset, segments: list[Segment]) -> PhysicalOffset:
    return segments[-1].end if segments else begin
