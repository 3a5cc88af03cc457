"""Finds the first wrong byte of a differing leaf, the message it belongs to, and the copy that is wrong. Pure.

Blame goes by checksum where one decides, then by majority; where neither does, no copy is blamed.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dittomq.commitlog.records.format import MARK_BYTES, MAX_RECORD_BYTES
from dittomq.commitlog.records.record_scanner import Sort, Span, View, fields_of, next_start, problem_for_node, span_at, spans
from spark.audit.model import Bounds, DamageKind, Finding, Leaf, MessageName, Sample

MIN_ZEROS = 8
SAMPLE_BYTES = 16

Mask = NDArray[np.bool_]


class Window(NamedTuple):
    """The bytes to read around a leaf, so that every record that touches it is whole in them."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Explained:
    """A leaf's findings. `ignored` differing bytes mean nothing: they follow an end-of-file mark."""

    findings: tuple[Finding, ...]
    ignored: int


def window_of(leaf: Leaf, bounds: Bounds) -> Window:
    """What must be read to explain a leaf."""
    start = max(leaf.slice.segment_start, bounds.low, leaf.start - MAX_RECORD_BYTES)
    return Window(start, min(leaf.slice.segment_end, bounds.cut, leaf.end + MAX_RECORD_BYTES))


def differences(copies: Sequence[bytes]) -> Mask:
    """Which bytes are not the same in all copies, which are of one length."""
    arrays = [np.frombuffer(data, dtype=np.uint8) for data in copies]
    unequal: Mask = np.zeros(len(arrays[0]), dtype=np.bool_)
    for one, other in pairwise(arrays):
        unequal |= one != other
    return unequal


def explain(leaf: Leaf, window: Window, copies: Mapping[str, bytes], bounds: Bounds) -> Explained:
    """Say what is wrong in a leaf; `copies` holds each node's bytes of the window.

    Damage that goes on in the next record is one finding.
    """
    reading = _LeafReading(leaf, window, copies, bounds)
    found = merge([reading.finding(hit) for hit in reading.hits()])
    return Explained(tuple(reading.classified(finding) for finding in found), reading.ignored)


def merge(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Findings in the order of the log; of one copy, those whose records follow each other are one."""
    merged: list[Finding] = []
    for finding in sorted(findings, key=lambda each: (each.broker, each.node, each.first)):
        last = merged[-1] if merged else None
        if last is None or (last.broker, last.node) != (finding.broker, finding.node) or finding.begin > last.reach:
            merged.append(finding)
            continue
        again = 1 if finding.begin < last.reach and finding.messages and last.messages else 0
        ended = last.kind is DamageKind.GAP_ZERO and finding.kind is DamageKind.MISSING_TAIL
        merged[-1] = replace(
            last,
            end=finding.end,
            reach=max(last.reach, finding.reach),
            differing=last.differing + finding.differing,
            messages=last.messages + finding.messages - again,
            kind=DamageKind.MISSING_TAIL if ended else last.kind,
        )
    return tuple(sorted(merged, key=lambda each: (each.broker, each.first, each.node)))


class _Difference(NamedTuple):
    """What one difference is judged by: the record around it, and the copies that hold a whole one there."""

    start: int
    end: int
    record: Span | None
    whole: dict[str, Span]


class _Hit(NamedTuple):
    """Wrong bytes [first, end) of one copy in one stretch."""

    node: str
    first: int
    end: int
    differing: int
    difference: _Difference
    blame: str
    believed: tuple[str, ...]


class _LeafReading:
    """One leaf as all copies hold it."""

    def __init__(self, leaf: Leaf, window: Window, copies: Mapping[str, bytes], bounds: Bounds) -> None:
        self._leaf = leaf
        self._window = window
        self._bounds = bounds
        self._views = {node: View(data, window.start, leaf.slice.segment_end) for node, data in copies.items()}
        self._spans = {node: _walked(view, leaf, bounds) for node, view in self._views.items()}
        self._starts = {node: [span.start for span in walked] for node, walked in self._spans.items()}
        self.ignored = 0

    def hits(self) -> Iterator[_Hit]:
        """Wrong bytes in the order of the log."""
        cut_out = [self._bytes(node, self._leaf.start, self._leaf.end) for node in self._views]
        positions = np.flatnonzero(differences(cut_out)) + self._leaf.start
        index = 0
        while index < len(positions):
            at = int(positions[index])
            difference = self._difference_at(at)
            if difference is None:
                self.ignored += len(positions) - index  # a mark ends the segment
                return
            stop = min(difference.end, self._leaf.end)
            yield from self._judged(at, stop, difference)
            index = int(np.searchsorted(positions, stop))

    def finding(self, hit: _Hit) -> Finding:
        """The finding of one hit, with the message's name from a copy that holds it whole."""
        difference = hit.difference
        name = None
        if difference.record is not None and difference.record.sort is Sort.RECORD:
            source = next(iter(difference.whole), next(iter(self._views)))
            name = self._name(source, difference.record)
        samples = tuple(self._sample(node, hit.first) for node in self._views)
        return Finding(
            broker=self._leaf.slice.broker,
            node=hit.node,
            first=hit.first,
            end=hit.end,
            begin=min(difference.start, hit.first),
            reach=max(difference.end, hit.end),
            differing=hit.differing,
            kind=self._kind(hit),
            message=name,
            messages=1 if name is not None else 0,
            blame=hit.blame,
            whole_on=hit.believed,
            samples=samples,
        )

    def classified(self, finding: Finding) -> Finding:
        """The same finding, called a gap or a missing tail where the wrong copy holds zeros only."""
        cut = self._bounds.cut
        if not finding.node or finding.end - finding.first < MIN_ZEROS or any(self._bytes(finding.node, finding.first, finding.end)):
            return finding
        to_the_end = self._window.end == cut == self._leaf.end and not any(self._bytes(finding.node, finding.first, cut))
        return replace(finding, kind=DamageKind.MISSING_TAIL if to_the_end else DamageKind.GAP_ZERO)

    def _difference_at(self, at: int) -> _Difference | None:
        """What the difference at `at` is judged by; None when it lies behind an end-of-file mark."""
        covering = {node: span for node in self._views if (span := self._covering(node, at)) is not None}
        whole = {node: span for node, span in covering.items() if not self._problem(node, span)}
        meaning = {node: span for node, span in whole.items() if at < _meaningful_end(span)}
        if not meaning and whole:
            return None
        if meaning:
            first = next(iter(meaning.values()))
            return _Difference(first.start, max(map(_meaningful_end, meaning.values())), first, meaning)
        headed = [span for span in covering.values() if span.sort is Sort.RECORD]
        if headed:
            return _Difference(headed[0].start, headed[0].end, headed[0], {})
        later = [start for starts in self._starts.values() for start in starts[bisect_right(starts, at) :][:1]]
        return _Difference(at, min(later, default=self._leaf.end), None, {})

    def _judged(self, at: int, stop: int, difference: _Difference) -> Iterator[_Hit]:
        contents = {node: self._bytes(node, difference.start, difference.end) for node in self._views}
        sizes = Counter(contents.values())
        believed = {contents[node] for node in difference.whole}
        by_checksum = len(believed) == 1
        top, votes = sizes.most_common(1)[0]
        if not by_checksum and votes * 2 <= len(contents):
            reference = self._bytes(next(iter(self._views)), at, stop)
            others = [self._bytes(node, at, stop) for node in self._views]
            wrong = np.flatnonzero(differences([reference, *others])) + at
            yield _Hit("", at, int(wrong[-1]) + 1, len(wrong), difference, "no checksum and no majority tells which copy is wrong", ())
            return
        truth = believed.pop() if by_checksum else top
        agreed = tuple(node for node, content in contents.items() if content == truth)
        for node, content in contents.items():
            if content == truth:
                continue
            wrong = np.flatnonzero(differences([self._bytes(node, at, stop), self._bytes(agreed[0], at, stop)])) + at
            if len(wrong):
                blame = self._blame(node, difference, agreed, by_checksum=by_checksum)
                yield _Hit(node, int(wrong[0]), int(wrong[-1]) + 1, len(wrong), difference, blame, agreed)

    def _blame(self, node: str, difference: _Difference, agreed: tuple[str, ...], *, by_checksum: bool) -> str:
        if not by_checksum:
            return f"{node}: {len(agreed)} of {len(self._views)} copies agree against it; no checksum decides"
        assert difference.record is not None, "a copy is whole, so there is a record"
        verb = "agree and match" if len(agreed) > 1 else "matches"
        return f"{node}: {self._problem_there(node, difference.record)}; {' and '.join(agreed)} {verb}"

    def _kind(self, hit: _Hit) -> DamageKind:
        record = hit.difference.record
        if record is None:
            return DamageKind.UNCLASSIFIED
        own = self._covering(hit.node, hit.first) if hit.node else None
        if own is not None and not self._problem(hit.node, own) and (own != record or self._is_sealed(own.start)):
            return DamageKind.DIVERGED
        if not hit.node and len(set(hit.difference.whole.values())) > 1:
            return DamageKind.DIVERGED
        if record.sort is Sort.MARK:
            return DamageKind.CORRUPT_MARK
        source = next(iter(hit.difference.whole), hit.believed[0] if hit.believed else next(iter(self._views)))
        fields = fields_of(self._views[source], record)
        if fields is None or hit.first < fields.body_start:
            return DamageKind.CORRUPT_HEADER
        return DamageKind.CORRUPT_BODY if hit.first < fields.body_end else DamageKind.CORRUPT_PROPERTIES

    def _name(self, node: str, record: Span) -> MessageName | None:
        fields = fields_of(self._views[node], record)
        if fields is None:
            return None
        return MessageName(fields.topic, fields.queue, fields.queue_offset, fields.keys, fields.store_ms, record.start, record.end)

    def _sample(self, node: str, first: int) -> Sample:
        start = max(self._window.start, first - first % SAMPLE_BYTES)
        return Sample(node, start, self._bytes(node, start, start + SAMPLE_BYTES))

    def _covering(self, node: str, at: int) -> Span | None:
        index = bisect_right(self._starts[node], at) - 1
        span = self._spans[node][index] if index >= 0 else None
        return span if span is not None and span.start <= at < span.end else None

    def _problem(self, node: str, span: Span) -> str:
        return problem_for_node(self._views[node], span, sealed=self._is_sealed(span.start))

    def _problem_there(self, node: str, span: Span) -> str:
        """What is wrong on `node` where another copy holds the whole record or mark `span`."""
        own = span_at(self._views[node], span.start)
        if own is None:
            return f"no {span.sort.value} starts at byte {span.start:,}"
        return self._problem(node, own) or "another whole record is in its place"

    def _is_sealed(self, at: int) -> bool:
        return self._bounds.is_sealed(at)

    def _bytes(self, node: str, start: int, end: int) -> bytes:
        return self._views[node].data[start - self._window.start : end - self._window.start]


def _walked(view: View, leaf: Leaf, bounds: Bounds) -> list[Span]:
    """The stretches of a copy that touch the leaf."""
    start = view.base if view.base in (leaf.slice.segment_start, bounds.low) else next_start(view, view.base)
    if start is None:
        return []
    found = []
    for span in spans(view, start):
        if span.start >= leaf.end:
            break
        if span.end > leaf.start:
            found.append(span)
    return found


def _meaningful_end(span: Span) -> int:
    return span.start + MARK_BYTES if span.sort is Sort.MARK else span.end
