"""What a task makes of copies some of which do not give their bytes."""

import asyncio
import random
from dataclasses import replace

import pytest

from spark.audit.model import Bounds, Leaf, LeafResult, LeafTask, Slice, SliceResult, SliceTask
from spark.audit.tasks import compare_slice, explain_leaf
from tests.simulation.loop import SimulatedLoop
from tests.support.synthetic_log import Copies, SyntheticLog, address

MIB = 1024 * 1024
SEGMENT = 8 * MIB
NODES = ("a/0", "a/1", "a/2")


@pytest.fixture(scope="module")
def log() -> SyntheticLog:
    return SyntheticLog(SEGMENT).fill(random.Random(3), 9_000)


def copies_of(log: SyntheticLog, **flipped: int) -> Copies:
    """Three copies; "a_2"=position flips a byte of a/2."""
    copies = {node: bytearray(log.data) for node in NODES}
    for node, position in flipped.items():
        copies[node.replace("_", "/")][position] ^= 0x40
    return Copies({node: bytes(data) for node, data in copies.items()})


def compared(source: Copies, start: int = 0, end: int = 2 * MIB, *, proof: bool = False) -> SliceResult:
    part = Slice("a", start, end, 0, SEGMENT)
    task = SliceTask(part, tuple(map(address, NODES)), address("a/0") if proof else None, bounds(source), 7)
    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        return runner.run(compare_slice(source, task))


def explained(source: Copies, start: int, *nodes: str) -> LeafResult:
    """The leaf that begins at `start`, in a slice of three leaves around it."""
    leaf = Leaf(Slice("a", start - MIB, start + 2 * MIB, 0, SEGMENT), start, start + MIB)
    task = LeafTask(leaf, tuple(map(address, nodes or NODES)), bounds(source), 1.0)
    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        return runner.run(explain_leaf(source, task))


def bounds(source: Copies) -> Bounds:
    return Bounds(0, len(source.copies["a/0"]), 0)


def test_a_slice_names_the_copies_whose_digests_were_compared(log: SyntheticLog) -> None:
    whole = copies_of(log, a_2=3 * MIB)
    partly = replace(whole, bad={"a/2": range(5, 6)})

    assert compared(whole).digested == NODES
    assert compared(partly).digested == ("a/0", "a/1")
    later = compared(partly, 2 * MIB, 4 * MIB)
    assert (later.digested, [leaf.start for leaf in later.leaves]) == (NODES, [3 * MIB])


def test_a_difference_is_found_beside_bytes_that_its_copy_does_not_give(log: SyntheticLog) -> None:
    record = log.record_at(3 * MIB + 500_000)
    position = record.body_start
    source = replace(copies_of(log, a_2=position), bad={"a/2": range(MIB, MIB + 1)})

    result = explained(source, 3 * MIB)

    (finding,) = result.findings
    assert (finding.node, finding.first, result.transient, result.unreadable) == ("a/2", position, False, "")


def test_two_copies_that_differ_are_found_though_a_third_is_not_read(log: SyntheticLog) -> None:
    position = log.record_at(3 * MIB + 500_000).body_start
    source = replace(copies_of(log, a_1=position), bad={"a/2": range(3 * MIB, 3 * MIB + 1)})

    result = explained(source, 3 * MIB)

    (finding,) = result.findings
    assert (finding.node, finding.first) == ("a/1", position)
    assert "a/2" in result.unreadable


def test_a_difference_is_gone_only_when_every_copy_of_it_was_read_again(log: SyntheticLog) -> None:
    whole = copies_of(log)
    partly = replace(whole, bad={"a/2": range(3 * MIB, 3 * MIB + 1)})

    assert explained(whole, 3 * MIB).transient
    assert not explained(partly, 3 * MIB).transient
    assert "a/2" in explained(partly, 3 * MIB).unreadable
    assert "a/2" in explained(partly, 3 * MIB, "a/0", "a/2").unreadable


def test_a_node_whose_queue_is_full_is_asked_again_until_it_answers(log: SyntheticLog) -> None:
    position = log.record_at(3 * MIB + 500_000).body_start
    busy = replace(copies_of(log, a_2=position), refusals={"a/0": 5, "a/1": 9})

    result = compared(busy, 2 * MIB, 4 * MIB, proof=True)

    assert (result.digested, result.unreadable) == (NODES, ())
    assert result.records is not None
    (finding,) = explained(replace(busy, refusals={"a/2": 7}), 3 * MIB).findings
    assert finding.first == position


def test_a_node_whose_queue_stays_full_is_unreadable_within_the_deadline(log: SyntheticLog) -> None:
    stuck = replace(copies_of(log), refusals={"a/1": 1_000_000})

    result = compared(stuck)

    assert result.digested == ("a/0", "a/2")
    ((node, why),) = result.unreadable
    assert (node, "is full" in why) == ("a/1", True)
    assert 1_000_000 - stuck.refusals["a/1"] < 200
