"""Compares two digest files and says what differs and what to run next. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from dittomq.commitlog.offline.store_digest import Range, RecordDigest, SegmentLeaves, StoreDigest
from dittomq.errors import InvalidField


class StoreComparison(StrEnum):
    """What a comparison of two stores says."""

    PASS = "PASS"
    DIFFERS = "DIFFERS"
    INCOMPLETE = "INCOMPLETE"
    DIFFERS_AND_INCOMPLETE = "DIFFERS, INCOMPLETE"


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two stores, by the name its digest file was given."""

    name: str
    digest: StoreDigest


@dataclass(frozen=True, slots=True)
class DifferentRecord:
    """A record that the sides do not hold alike; None where a side has no record there. `blame` is in words."""

    first: RecordDigest | None
    second: RecordDigest | None
    blame: str

    @property
    def name(self) -> RecordDigest:
        found = self.second if self.first is None or (self.first.problem and self.second is not None) else self.first
        assert found is not None, "one side holds it"
        return found


@dataclass(frozen=True, slots=True)
class Comparison:
    """What two stores have in common. `normal` is not compared and nothing is wrong with that; `problems` make it incomplete."""

    compared_bytes: int
    compared_leaves: int
    leaf_bytes: int
    differing_leaves: int
    differing: tuple[Range, ...]
    records: tuple[DifferentRecord, ...]
    normal: tuple[str, ...]
    problems: tuple[str, ...]

    @property
    def outcome(self) -> StoreComparison:
        if self.differing and self.problems:
            return StoreComparison.DIFFERS_AND_INCOMPLETE
        if self.differing:
            return StoreComparison.DIFFERS
        return StoreComparison.INCOMPLETE if self.problems else StoreComparison.PASS

    @property
    def headline(self) -> str:
        """The first line."""
        unit = "MiB" if self.leaf_bytes == 1024 * 1024 else f"stretches of {self.leaf_bytes:,} bytes"
        if self.differing:
            verb = "is" if self.differing_leaves == 1 else "are"
            text = f"{self.differing_leaves:,} of {self.compared_leaves:,} {unit} compared {verb} not equal"
        else:
            text = f"{self.compared_bytes:,} bytes compared, all equal"
        if self.problems:
            text += f" · {self.problems[0]}" + (f" (and {len(self.problems) - 1} more)" if len(self.problems) > 1 else "")
        return f"{self.outcome}  {text}"

    @property
    def next_command(self) -> str:
        """What to run on both hosts to look closer; empty when there is nothing closer to look at."""
        if not self.differing or self.records or self.leaf_bytes < 1024 * 1024:
            return ""
        first = self.differing[0]
        return f"dittomq log digest STORE --bytes {first.start:,}..{first.end:,} -o FILE"


def compare(first: Side, second: Side) -> Comparison:
    """Compare what both stores hold; raises InvalidField when the files were not made alike."""
    a, b = first.digest, second.digest
    for field, one, other in (("segment size", a.segment_bytes, b.segment_bytes), ("--bytes", a.asked, b.asked)):
        if one != other:
            raise InvalidField(field, f"is {_shown(one)} in {first.name} and {_shown(other)} in {second.name}; make both with the same")
    work = _Work(first, second)
    work.run()
    differing = _joined(work.differing)
    records = tuple(_records(first, second, differing)) if a.asked else ()
    return Comparison(
        compared_bytes=work.compared_bytes,
        compared_leaves=work.compared_leaves,
        leaf_bytes=a.leaf_bytes,
        differing_leaves=len(work.differing),
        differing=differing,
        records=records,
        normal=tuple(work.normal),
        problems=tuple(work.problems),
    )


class _Work:
    """The comparison while it goes on."""

    def __init__(self, first: Side, second: Side) -> None:
        self._first = first
        self._second = second
        self._leaf_bytes = first.digest.leaf_bytes
        self._segment_bytes = first.digest.segment_bytes
        self._low = max(first.digest.low, second.digest.low)
        self._end = min(first.digest.readable_end, second.digest.readable_end)
        self.compared_bytes = 0
        self.compared_leaves = 0
        self.differing: list[Range] = []
        self.normal: list[str] = []
        self.problems: list[str] = []

    def run(self) -> None:
        ours, theirs = (self._by_segment(side.digest) for side in (self._first, self._second))
        asked = self._first.digest.asked
        for number in sorted(ours.keys() | theirs.keys()):
            start, segment_end = number * self._segment_bytes, (number + 1) * self._segment_bytes
            if segment_end <= self._low or (asked is not None and (asked.end <= start or segment_end <= asked.start)):
                continue
            one, other = ours.get(number), theirs.get(number)
            unread = [(side, each) for side, each in ((self._first, one), (self._second, other)) if each is not None and each.unreadable]
            self.problems += [_unread(side, leaves) for side, leaves in unread]
            if self._end <= (start if asked is None else max(start, asked.start)):
                continue
            if one is None or other is None:
                self._missing(self._first if one is None else self._second, number)
            elif not unread:
                self._segment(one, other)
        self._report_differences()
        if not self.compared_leaves and not self.problems and max(self._first.digest.end, self._second.digest.end) > self._low:
            self.problems.append("the stores have nothing in common that could be compared")

    def _by_segment(self, digest: StoreDigest) -> dict[int, SegmentLeaves]:
        return {each.start // digest.segment_bytes: each for each in digest.segments}

    def _missing(self, side: Side, number: int) -> None:
        start = number * self._segment_bytes
        self.compared_leaves += 1
        self.differing.append(Range(start, min(start + self._segment_bytes, self._end)))
        self.normal.append(f"{side.name} has no segment at byte {start:,}, though it has later ones")

    def _segment(self, one: SegmentLeaves, other: SegmentLeaves) -> None:
        same_end = one.end == other.end
        whole = min(len(one.leaves), len(other.leaves)) - (0 if same_end else 1)
        for index in range(whole):
            self._leaf(one.start + index * self._leaf_bytes, min(one.end, other.end), equal=one.leaves[index] == other.leaves[index])
        rest = one.start + whole * self._leaf_bytes
        shorter = min(one.end, other.end)
        if same_end or rest >= shorter:
            return
        ended = one if one.end == shorter else other
        if ended.closed:  # nothing can come behind it there any more, and the other one holds something
            self._leaf(rest, max(one.end, other.end), equal=False)
        else:
            self.normal.append(f"{shorter - rest:,} bytes newer than the last stretch that both hold whole, from byte {rest:,} on")

    def _more(self, side: Side) -> tuple[int, bool]:
        """How many bytes a side holds behind the other one's end; and whether both ends are known, or it may be more."""
        other = self._second if side is self._first else self._first
        surely = all(each.digest.readable_end == each.digest.end for each in (self._first, self._second))
        return side.digest.readable_end - other.digest.end, surely

    def _leaf(self, start: int, stop: int, *, equal: bool) -> None:
        end = min(start + self._leaf_bytes, stop)
        self.compared_leaves += 1
        self.compared_bytes += end - start
        if not equal:
            self.differing.append(Range(start, end))

    def _report_differences(self) -> None:
        for side in (self._first, self._second):
            if side.digest.low < self._low:
                self.normal.append(f"{side.name} holds {self._low - side.digest.low:,} older bytes that the other does not hold")
            more, surely = self._more(side)
            if more > 0:
                self.normal.append(f"{side.name} holds {'' if surely else 'at least '}{more:,} newer bytes")
            for start, end in side.digest.damaged:
                self.normal.append(f"{side.name} has no readable record in bytes {start:,} to {end:,}")
            if side.digest.damaged_left_out:
                places = f"{side.digest.damaged_left_out:,} more places behind byte {side.digest.damaged[-1].end:,}"
                self.normal.append(f"{side.name} has no readable record in {places}, which its digest file only counts")


def _unread(side: Side, leaves: SegmentLeaves) -> str:
    told = f"{side.name}: bytes {leaves.start:,} to {leaves.end:,} could not be read: {leaves.unreadable}"
    return f"{told}; where its log ends is not known" if leaves.end == side.digest.end else told


def _records(first: Side, second: Side, differing: tuple[Range, ...]) -> Iterator[DifferentRecord]:
    ours = {record.start: record for record in first.digest.records}
    theirs = {record.start: record for record in second.digest.records}
    for start in sorted(ours.keys() | theirs.keys()):
        one, other = ours.get(start), theirs.get(start)
        if one is not None and other is not None and one.digest == other.digest:
            continue
        known = one or other
        assert known is not None, "the key is from one of the two"
        if any(known.start < piece.end and piece.start < known.end for piece in differing):
            yield DifferentRecord(one, other, _blame(first.name, one, second.name, other))


def _blame(first: str, one: RecordDigest | None, second: str, other: RecordDigest | None) -> str:
    problems = [
        f"{name}: {'no record starts here' if record is None else record.problem}"
        for name, record in ((first, one), (second, other))
        if record is None or record.problem
    ]
    if not problems:
        return "both look whole; nothing here tells which one is wrong"
    return "; ".join(problems)


def _joined(pieces: list[Range]) -> tuple[Range, ...]:
    joined: list[Range] = []
    for piece in sorted(pieces):
        if joined and joined[-1].end == piece.start:
            joined[-1] = Range(joined[-1].start, piece.end)
        else:
            joined.append(piece)
    return tuple(joined)


def _shown(value: Range | int | None) -> str:
    if value is None:
        return "not given"
    return f"{value:,}" if isinstance(value, int) else f"{value.start:,}..{value.end:,}"
