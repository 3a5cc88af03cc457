"""What a master learns of half messages from a log that retention has shortened, or whose disk has harmed it."""

import itertools
import random
from collections.abc import Iterable

import pytest

from dittomq.commitlog.store import AppendBatch, Store
from dittomq.delays import OP_TOPIC
from dittomq.errors import CorruptRecord
from dittomq.message import Draft, StoredMessage
from dittomq.offsets import PhysicalOffset
from dittomq.transactions import HALF_TOPIC, TransactionEnd, half_of, op_of
from services.master.half_messages import HalfMessages
from services.master.system_queues import REPAIR_S
from tests.support.stores import SMALL, Machine

END = PhysicalOffset(1 << 62)


@pytest.fixture
def machine() -> Machine:
    return Machine(random.Random(1))


class Log:
    """A store that is led, and its half messages. `damaged`: what was told of."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.store: Store = machine.lead()
        self.damaged: list[int] = []
        self.halves = HalfMessages("a/0", self.store, self.damaged.append)
        self._ms = itertools.count(1_000)

    def append(self, drafts: Iterable[Draft]) -> None:
        for draft in drafts:
            self.store.append([AppendBatch([draft])], next(self._ms))
        self.store.sync()
        self.store.dispatch(self.store.end)
        self.store.persist_recovery_point(self.store.end, self.store.end)

    def begin(self, *bodies: bytes) -> list[StoredMessage]:
        self.append(half_of(Draft("orders", 0, 0, 1, body, b"", 0), "billing") for body in bodies)
        _, high = self.store.queue_range(HALF_TOPIC, 0)
        return self.store.read_queue(HALF_TOPIC, 0, high - len(bodies), len(bodies), 1 << 20).messages

    def end(self, *halves: StoredMessage) -> list[StoredMessage]:
        self.append(op_of(half, TransactionEnd.COMMIT, 1) for half in halves)
        _, high = self.store.queue_range(OP_TOPIC, 0)
        return self.store.read_queue(OP_TOPIC, 0, high - len(halves), len(halves), 1 << 20).messages

    def fill_segment(self) -> None:
        self.append(Draft("orders", 0, 0, 1, bytes(900), b"", 0) for _ in range(SMALL.segment_bytes // 900))

    def harm(self, message: StoredMessage) -> None:
        """A bit of its body turns over, behind the store's back."""
        base = message.physical_offset - message.physical_offset % SMALL.segment_bytes
        inode = self.machine.disk.names.files[f"commitlog/{base:020d}"]
        at = message.physical_offset - base + 90
        inode.write(memoryview(bytes([inode.read(1, at)[0] ^ 4])), at, self.machine.chance)

    def unseen(self, now_s: float = 0.0) -> list[bytes]:
        return [half.body for half in self.halves.unseen(END, now_s)]


def test_log_without_its_half_messages_is_learned_from(machine: Machine) -> None:
    log = Log(machine)
    log.end(*log.begin(b"0"))
    log.fill_segment()
    log.store.drop_before(SMALL.segment_bytes)
    assert log.store.queue_range(HALF_TOPIC, 0) == (1, 1)

    assert log.halves.ended(0) == set()
    assert log.unseen() == []
    log.begin(b"1")
    assert log.unseen() == [b"1"]


@pytest.mark.parametrize("harmed", ["half", "op"])
def test_what_has_ended_is_learned_over_a_damaged_record(machine: Machine, harmed: str) -> None:
    log = Log(machine)
    halves = log.begin(b"0", b"1", b"2")
    ops = log.end(halves[0], halves[1])
    log.harm(halves[2] if harmed == "half" else ops[0])

    assert log.halves.ended(0) == ({0, 1} if harmed == "half" else {1})


def test_damaged_half_message_is_told_of_and_passed_over_after_the_wait(machine: Machine) -> None:
    log = Log(machine)
    [_, broken, _] = log.begin(b"0", b"1", b"2")
    log.halves.ended(0)
    log.harm(broken)

    assert log.unseen() == [b"0"]
    assert log.unseen(1.0) == []
    assert log.unseen(REPAIR_S) == []
    assert log.damaged == [broken.physical_offset] * 2
    assert log.unseen(REPAIR_S + 1) == []
    assert log.unseen(REPAIR_S + 1) == [b"2"]


@pytest.mark.parametrize("harmed", ["half", "op"])
def test_transaction_of_a_damaged_record_is_called_unknown(machine: Machine, harmed: str) -> None:
    log = Log(machine)
    [half] = log.begin(b"0")
    [op] = log.end(half)
    assert log.halves.find(half.physical_offset) == (half, op)
    broken = half if harmed == "half" else op
    log.harm(broken)

    with pytest.raises(CorruptRecord) as raised:
        log.halves.find(half.physical_offset)

    assert raised.value.position == broken.physical_offset
    assert log.store.damaged == [(broken.physical_offset, broken.physical_offset + broken.record_bytes)]
