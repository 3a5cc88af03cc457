"""Bits that flip on a disk at rest, and pages that it does not give any more, of records that another disk holds whole."""

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from dittomq.message import Ack, CopyState
from tests.simulation.disk import PAGE
from tests.simulation.disk_snapshots import Copy
from tests.simulation.history import History, Publish
from tests.simulation.parser import Malformed

_SETTLED_S = 3.0  # a watermark says so by then
_LACKED = 0.5  # of the flips hit what another copy still lacks, where one does: it will be read once more


class Spoil(Protocol):
    """`flip`, `fail` or `remove`: what was spoiled, "" for nothing."""

    def __call__(
        self, history: History, nodes: Sequence[str], copy_on: Callable[[str], Copy], chance: random.Random, *, now: float
    ) -> str: ...


def flip(history: History, nodes: Sequence[str], copy_on: Callable[[str], Copy], chance: random.Random, *, now: float) -> str:
    """Flip a bit of a record that lies still on the first node's disk, and note which; what was done, "" when there is no such record."""
    node = nodes[0]
    for publish, at, size in _held_elsewhere(history, nodes, copy_on, chance, now=now):
        position = at + chance.randrange(size)
        if copy_on(node).flip(position, 1 << chance.randrange(8)):
            history.rotten[node, at] = size
            return f"{publish.name} at {at}, byte {position}"
    return ""


def fail(history: History, nodes: Sequence[str], copy_on: Callable[[str], Copy], chance: random.Random, *, now: float) -> str:
    """Let the first node's disk not give a page of records that lie still; what was done, "" when there is no such page."""
    node = nodes[0]
    found = list(_held_elsewhere(history, nodes, copy_on, chance, now=now))
    last = max((at for _, at, _ in found), default=0)
    for publish, at, size in found:
        position = at + chance.randrange(size)
        if position - position % PAGE + PAGE <= last and copy_on(node).fail(position):
            spans = copy_on(node).spans(position)
            history.rotten.update(((node, start), length) for start, length, is_record in spans if is_record)
            history.withheld += [(start, start + length) for start, length, _ in spans]
            return f"{publish.name} at {at}, the page of byte {position}"
    return ""


def remove(history: History, nodes: Sequence[str], copy_on: Callable[[str], Copy], chance: random.Random, *, now: float) -> str:
    """Remove a file of the first node's log, neither the first nor the newest, that another node holds whole; which, "" for none.

    The first one is not missed: the log may have been dropped up to its end.
    """
    copy, rest = copy_on(nodes[0]), nodes[1:]
    starts = sorted({copy.segment_of(at) for _, at, _ in _held_elsewhere(history, nodes, copy_on, chance, now=now)})
    inner = [start for start in starts[:-1] if start > copy.begin]
    chance.shuffle(inner)
    for start in inner:
        spans = [(at, size) for at, size, is_record in copy.spans_of(start) if is_record]
        if any(all(_holds(copy_on(other), at, size) for at, size in spans) for other in rest):
            history.rotten.update(((nodes[0], at), size) for at, size in spans)
            history.withheld.append(copy.remove(start))
            return f"the file that begins at {start}"
    return ""


def _held_elsewhere(
    history: History, nodes: Sequence[str], copy_on: Callable[[str], Copy], chance: random.Random, *, now: float
) -> Iterator[tuple[Publish, int, int]]:
    """Messages that lie still on the first node's disk and on another one, where they lie, and their size."""
    node, *rest = nodes
    lying = [publish for publish in history.publishes if _lies_still(history, publish, node, now)]
    chance.shuffle(lying)
    if chance.random() < _LACKED:
        lying.sort(key=lambda publish: all(_has(copy_on(other), publish) for other in rest))
    for publish in lying:
        receipt = publish.receipt
        assert receipt is not None
        at, size = receipt.physical_offset, receipt.record_bytes
        others = [copy.node for copy in receipt.copies if copy.node != node and copy.state is CopyState.FLUSHED]
        if any(_holds(copy_on(other), at, size) for other in others) and _holds(copy_on(node), at, size):
            yield publish, at, size


def _lies_still(history: History, publish: Publish, node: str, now: float) -> bool:
    receipt = publish.receipt
    if (
        receipt is None
        or publish.told_at is None
        or publish.told_at > now - _SETTLED_S
        or Ack.REPLICA_FLUSHED not in receipt.levels_reached
    ):
        return False
    held = any(copy.node == node and copy.state is CopyState.FLUSHED for copy in receipt.copies)
    return held and receipt.physical_offset >= history.kept_from


def _has(copy: Copy, publish: Publish) -> bool:
    receipt = publish.receipt
    return receipt is not None and _holds(copy, receipt.physical_offset, receipt.record_bytes)


def _holds(copy: Copy, offset: int, size: int) -> bool:
    try:
        copy.record(offset, size, durable=True)
    except Malformed:
        return False
    return True
