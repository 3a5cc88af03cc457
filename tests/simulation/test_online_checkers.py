"""What a client is told while a run goes on: each promise that is broken at that moment is found, and what is honest is not."""

import asyncio
import random
from dataclasses import replace
from typing import Any

import pytest

from dittomq.broker.doors import BrokerDoors
from dittomq.client import Page
from dittomq.message import Ack, Copy, CopyState, PutStatus, Receipt, StoredMessage
from dittomq.offsets import Epoch, PhysicalOffset, QueueOffset
from services.master.config import Mode, ReplicationTable
from services.slave.config import FlushMode
from tests.simulation.disk import Deed, Inode, Operation
from tests.simulation.disk_snapshots import Copy as Log
from tests.simulation.history import Harm, History, Incident, Publish, Read, Reign
from tests.simulation.invariants import Invariant
from tests.simulation.online_checkers import RunningChecks
from tests.simulation.shapes import Shape
from tests.simulation.world import World

TWO_COPIES = Shape(2, ReplicationTable(mode=Mode.SYNC_MASTER, replicas_expected=2, min_in_sync_replicas=2), FlushMode.SYNC_FLUSH)
TABLE = "config/topics.json"


class Case:
    """A group of three whose disks are empty."""

    def __init__(self) -> None:
        self.world = World(0)
        for machine in TWO_COPIES.brokers:
            self.world.node(machine, nothing)
        self.world.nodes["a0"].may_lead = True
        self.history = History([Reign(0.0, "a/0")], syncs_matter=True, copies=2)
        self.checks = RunningChecks(self.world, TWO_COPIES, self.history, self._log)

    def _log(self, machine: str) -> Log:
        return Log(self.world.nodes[machine].disk, TWO_COPIES.segment_bytes)

    @property
    def found(self) -> set[Invariant]:
        return {problem.invariant for problem in self.checks.problems}

    def acknowledged(self, by: str, epoch: int, *, at: float = 1.0, **changes: Any) -> None:
        """A message is published at that time, and its receipt names two copies that have flushed it."""
        publish = Publish(at, "p", len(self.history.publishes), "t", b"body", ordered=True)
        self.history.incidents = [Incident(at, node, Harm.DISK_LOST) for node in ("a/0", "a/1", "a/2")]  # what disks hold is no matter here
        flushed = (Copy(by, CopyState.FLUSHED), Copy("a/2", CopyState.FLUSHED))
        receipt = Receipt(
            status=PutStatus.PUT_OK,
            asked=Ack.REPLICA_FLUSHED,
            levels_reached=frozenset(Ack),
            copies=flushed,
            epoch=epoch,
            broker="a",
            topic="t",
            queue=0,
            queue_offset=QueueOffset(0),
            physical_offset=PhysicalOffset(0),
            record_bytes=100,
            store_ms=0,
            token="",
            duplicate=False,
        )
        publish.stored(replace(receipt, **changes), at)
        self.checks.receipt(publish)

    def paged(self, *offsets: int, asked: int = 0, next_offset: int = 0, confirmed: int = 0, reads: tuple[Read, ...] = ()) -> None:
        """A reader gets the messages of these offsets from a/1."""
        messages = tuple(StoredMessage("t", 0, QueueOffset(at), PhysicalOffset(0), 100, b"body", (), "", {}, 0, 0, 0) for at in offsets)
        ends = QueueOffset(next_offset), QueueOffset(0), QueueOffset(next_offset)
        page = Page(messages, *ends, PhysicalOffset(confirmed), None, "a/1", Epoch(1))
        self.checks.page(reads, page, asked)

    def table(self, machine: str, epoch: int, counter: int, rows: str = "") -> None:
        """A machine's topics are replaced by this version."""
        content = f'{{"dataVersion":{{"counter":{counter},"stateVersion":{epoch},"timestamp":5}},"rows":"{rows}"}}'.encode()
        inode = Inode()
        inode.write(memoryview(content), 0, random.Random(0))
        inode.size = len(content)
        self.checks.renamed(machine, Operation(Deed.RENAMED, f"{TABLE}.tmp", inode, TABLE))


async def nothing(_: BrokerDoors, stop: asyncio.Event) -> None:
    await stop.wait()


@pytest.fixture
def case() -> Case:
    return Case()


def test_one_master_in_each_epoch_passes(case: Case) -> None:
    for by, epoch in (("a/0", 1), ("a/0", 1), ("a/1", 2), ("a/0", 3)):
        case.acknowledged(by, epoch)

    assert case.found == set()


def test_two_nodes_that_acknowledge_in_one_epoch_are_found(case: Case) -> None:
    case.acknowledged("a/0", 1)
    case.acknowledged("a/1", 1)

    assert case.found == {Invariant.I5}


def test_ack_of_an_older_epoch_after_a_newer_one_is_found(case: Case) -> None:
    """Unless the message was sent before."""
    case.acknowledged("a/1", 2)
    case.acknowledged("a/0", 1, at=-1.0)
    assert case.found == set()

    case.acknowledged("a/0", 1, at=2.0)
    assert case.found == {Invariant.I5}


def test_the_epoch_of_an_earlier_try_is_no_newer_acknowledgement(case: Case) -> None:
    case.acknowledged("a/0", 1)
    case.acknowledged("a/1", 1, duplicate=True)

    assert case.found == set()


@pytest.mark.parametrize(
    "changes",
    [
        {"copies": (Copy("a/0", CopyState.FLUSHED),)},
        {"copies": (Copy("a/0", CopyState.FLUSHED), Copy("a/0", CopyState.FLUSHED))},
        {"copies": (Copy("a/0", CopyState.FLUSHED), Copy("a/1", CopyState.RECEIVED))},
        {"copies": (Copy("a/0", CopyState.RECEIVED), Copy("a/1", CopyState.FLUSHED), Copy("a/2", CopyState.FLUSHED))},
        {"levels_reached": frozenset({Ack.MASTER_FLUSHED})},
    ],
    ids=["one copy", "one copy twice", "received only", "master received only", "status above levels"],
)
def test_a_receipt_that_claims_more_than_its_copies_is_found(case: Case, changes: dict[str, Any]) -> None:
    case.acknowledged("a/0", 1, **changes)

    assert case.found == {Invariant.I1}


def test_a_confirmed_end_that_goes_back_is_found_and_that_of_another_life_is_not(case: Case) -> None:
    case.paged(confirmed=400)
    case.world.nodes["a1"].lives += 1
    case.paged(confirmed=300)
    assert not [problem for problem in case.checks.problems if "and then" in problem.what]

    case.paged(confirmed=299)
    assert "a/1 said that 300 bytes are confirmed, and then 299" in case.checks.problems[-1].what


def test_what_is_served_as_confirmed_and_is_on_no_disk_is_found(case: Case) -> None:
    read = Read(1.0, "a/1", "t", 0, 0, 0, 100, b"body", may_be_undone=False)
    case.paged(0, next_offset=1, reads=(replace(read, may_be_undone=True),))
    assert case.found == set()

    case.paged(0, next_offset=1, reads=(read,))
    assert case.found == {Invariant.I6}


def test_a_confirmed_end_that_no_disk_has_reached_is_found(case: Case) -> None:
    case.paged(confirmed=100)

    assert case.found == {Invariant.I6}


def test_a_reader_that_is_led_past_a_message_is_found(case: Case) -> None:
    case.paged(3, 4, asked=3, next_offset=5)
    assert case.found == set()

    case.paged(3, 5, asked=3, next_offset=6)
    assert case.found == {Invariant.I12}


def test_a_table_that_goes_back_is_found(case: Case) -> None:
    for epoch, counter in ((1, 5), (1, 6), (2, 3)):
        case.table("a0", epoch, counter)
    assert case.found == set()

    case.table("a0", 1, 6)
    assert case.found == {Invariant.I11}


def test_a_table_that_a_slave_has_made_is_found(case: Case) -> None:
    case.table("a0", 1, 5)
    case.table("a1", 1, 5)
    assert case.found == set()

    case.table("a1", 1, 6)
    assert case.found == {Invariant.I11}


def test_two_copies_of_one_version_that_differ_are_found(case: Case) -> None:
    case.table("a0", 1, 5, "one")
    case.table("a1", 1, 5, "other")

    assert case.found == {Invariant.I11}
