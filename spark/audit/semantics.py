"""Proves on one copy that the log is whole: records tile it, checksums match, queue offsets are dense. Pure.

A slice owns the records that start in it, so slices can be read in any order and joined afterwards.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from dittomq.commitlog.records.format import MAX_RECORD_BYTES, scan
from dittomq.commitlog.records.record_scanner import HEADER_BYTES, Sort, Span, View, fields_of, next_start, problem_for_node, spans
from spark.audit.model import Bounds, Damage, QueueRun, Records, Slice


class Checked(NamedTuple):
    """What one slice holds; see Records."""

    records: int
    first: int | None
    next: int | None
    damaged: tuple[Damage, ...]
    runs: tuple[QueueRun, ...]


class Joined(NamedTuple):
    """What all slices of a group hold together."""

    records: int
    queues: int
    topics: int
    damaged: tuple[Damage, ...]


def missing_tail(view: View, part: Slice, bounds: Bounds) -> tuple[int, int] | None:
    """The bytes behind the slice that are still needed to judge its records; None for none.

    They are the rest of its last record, and the header behind that: only what follows shows that a size is right.
    """
    limit = min(part.segment_end, bounds.cut)
    last: Span | None = None
    for last in _owned(view, part, bounds):  # noqa: B007  # the last one is wanted
        pass
    if last is not None and (last.sort is Sort.MARK or last.end + HEADER_BYTES < part.end):
        return None
    # Where no record ends, or its size cannot be right, one may still begin in the slice's last bytes.
    is_record = last is not None and last.sort is Sort.RECORD and last.end <= min(limit, last.start + MAX_RECORD_BYTES)
    reached = last.end if last is not None and is_record else part.end
    needed = min(limit, reached + HEADER_BYTES)
    return (view.end, needed) if needed > view.end else None


def check(node: str, view: View, part: Slice, bounds: Bounds) -> Checked:
    """Check the records that start in the slice; `view` holds the slice and, behind it, the rest of its last record.

    Queue offsets are followed in sealed epochs only: RocketMQ gives some of its records none.
    """
    start = _first(view, part, bounds)
    if start is None:
        return Checked(0, None, None, (), ())
    if start >= bounds.sealed_from and not bounds.foreign_between(start, part.end):
        scanned = scan(view.data[start - view.base :], start, part.segment_end)
        if not scanned.problem and scanned.end >= part.end:
            own = [entry for entry in scanned.entries if entry.start < part.end]
            records = [entry for entry in own if entry.queue >= 0]
            runs = _runs((entry.topic, entry.queue, entry.queue_offset, entry.start) for entry in records)
            return Checked(len(records), start, own[-1].end, (), runs) if own else Checked(0, None, None, (), ())
    return _check_damaged(node, view, part, bounds)


def _check_damaged(node: str, view: View, part: Slice, bounds: Bounds) -> Checked:
    records = 0
    damaged: list[Damage] = []
    followed: list[tuple[str, int, int, int]] = []
    first = end = None
    for span in _owned(view, part, bounds):
        first = span.start if first is None else first
        # Where damage ends behind its slice the next one says: a header that begins there need not be all in this view.
        # So it does of a record that is not all in view: its size cannot be right.
        ends_here = span.sort is Sort.MARK or (span.sort is Sort.RECORD and span.end <= view.end)
        end = span.end if ends_here else min(span.end, part.end)
        sealed = bounds.is_sealed(span.start)
        problem = problem_for_node(view, span, sealed=sealed)
        fields = fields_of(view, span) if sealed and not problem else None
        if problem:
            damaged.append(Damage(node, span.start, end, problem))
        elif span.sort is Sort.RECORD:
            records += 1
        if fields is not None:
            followed.append((fields.topic, fields.queue, fields.queue_offset, span.start))
    return Checked(records, first, end, tuple(damaged), _runs(followed))


def _runs(records: Iterable[tuple[str, int, int, int]]) -> tuple[QueueRun, ...]:
    """Records (topic, queue, queue offset, position) in the order of the log as runs without a gap."""
    done: list[QueueRun] = []
    running: dict[tuple[str, int], list[int]] = {}
    for topic, queue, offset, position in records:
        run = running.get((topic, queue))
        if run is not None and run[1] == offset:
            run[1] += 1
            continue
        if run is not None:
            done.append(QueueRun(topic, queue, *run))
        running[topic, queue] = [offset, offset + 1, position]
    return (*done, *(QueueRun(topic, queue, *run) for (topic, queue), run in running.items()))


def join(bounds: Bounds, parts: Sequence[tuple[Slice, Records]]) -> Joined:
    """Join slices in the order of the log: they must meet without a gap, and every queue must go on where it was."""
    damaged: list[Damage] = []
    expected = bounds.low
    runs: list[QueueRun] = []
    node = parts[0][1].node if parts else ""
    for part, records in sorted(parts, key=lambda each: each[0].start):
        begins = records.first if records.first is not None else part.end
        if begins > expected and part.start <= expected:
            gap = Damage(node, expected, begins, "no record starts here")
            if damaged and damaged[-1].end == expected and damaged[-1].problem == gap.problem:
                gap = replace(damaged.pop(), end=begins)
            damaged.append(gap)
        damaged += records.damaged
        runs += records.runs
        expected = max(expected, begins if records.next is None else records.next)
    if parts and expected < bounds.cut:
        damaged.append(Damage(node, expected, bounds.cut, "the last record is not whole"))
    broken = _queue_gaps(node, runs, [*((each.start, each.end) for each in damaged), *bounds.foreign])
    keys = {(run.topic, run.queue) for run in runs}
    total = sum(records.records for _, records in parts)
    ordered = tuple(sorted([*damaged, *broken], key=lambda each: (each.start, each.end)))
    return Joined(total, len(keys), len({topic for topic, _ in keys}), ordered)


def _first(view: View, part: Slice, bounds: Bounds) -> int | None:
    return part.start if part.start in {part.segment_start, bounds.low} else next_start(view, part.start)


def _owned(view: View, part: Slice, bounds: Bounds) -> Iterator[Span]:
    start = _first(view, part, bounds)
    if start is None:
        return
    for span in spans(view, start):
        if span.start >= part.end:
            return
        yield span


def _queue_gaps(node: str, runs: Sequence[QueueRun], unknown: Sequence[tuple[int, int]]) -> Iterator[Damage]:
    """Queues that skip or repeat an offset, by the position where that shows; an `unknown` range in between explains it already."""
    newest: dict[tuple[str, int], QueueRun] = {}
    for run in sorted(runs, key=lambda each: each.position):
        key = (run.topic, run.queue)
        before = newest.get(key)
        newest[key] = run
        if before is None or before.next == run.first:
            continue
        if not any(before.position < end and start < run.position for start, end in unknown):
            problem = f"queue {run.queue} of {run.topic} goes on at offset {run.first:,}, {before.next:,} was next"
            yield Damage(node, run.position, run.position, problem)
