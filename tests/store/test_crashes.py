"""A store is used at random on a disk that dies anywhere; every restart must find what was promised."""

import random
from dataclasses import dataclass, field

import pytest

from dittomq.commitlog.store import Frame, StopKind, Store
from dittomq.errors import Refused
from tests.simulation.life import SimCrashed
from tests.support.stores import SMALL, Machine, draft, open_epoch, queues_of, whole_log

LIVES = 12
SEEDS = 40


@dataclass(slots=True)
class Promises:
    """What the store has said so far, and the log as it was last seen whole."""

    log: bytes = b""
    flushed: int = 0
    dispatched: int = 0
    minimums: dict[tuple[str, int], int] = field(default_factory=dict)
    sent: dict[str, int] = field(default_factory=dict)
    cutting_to: int | None = None
    deleting: str = ""
    generation: int = 0


class Chaos:
    """Uses one store for many lives."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.machine = Machine(self.chance)
        self.promises = Promises()

    def live(self) -> None:
        """Open, check, use, and end in one of the ways in which a process ends."""
        self.machine.life.end()
        try:
            store = self.open()
            self.check(store)
            if not self.chance.randrange(3):
                self.machine.faults.operations_to_live = self.chance.randrange(300)
            open_epoch(store)
            for _ in range(self.chance.randrange(1, 30)):
                self.use(store)
            if not self.chance.randrange(3):
                store.close(clean=True)
                self.promises.flushed = len(self.promises.log)
        except SimCrashed:
            pass
        if self.chance.random() < 0.5:
            self.machine.kill()
        else:
            self.machine.lose_power()

    def open(self) -> Store:
        while True:
            storage = self.machine.storage()
            if self.chance.random() < 0.4:
                self.machine.faults.operations_to_live = self.chance.randrange(120)
            try:
                store = Store.open(storage, SMALL, chance=self.chance, wall_ms=1_000)
            except SimCrashed:
                if self.chance.random() < 0.5:
                    self.machine.lose_power()
                continue
            self.machine.faults.operations_to_live = None
            return store

    def use(self, store: Store) -> None:
        deeds = (
            self.append,
            self.append,
            self.append,
            self.sync,
            self.dispatch,
            self.mark,
            self.checkpoint,
            self.cut,
            self.zero,
            self.delete,
        )
        self.chance.choices(deeds, (8, 8, 8, 6, 6, 2, 2, 1, 1, 1))[0](store)

    def append(self, store: Store) -> None:
        frames = [self.frame() for _ in range(self.chance.randrange(1, 4))]
        before = len(self.promises.log)
        group = store.append(frames, 1_000)
        assert group.start == before
        for offset, data in group.pieces:
            assert offset == len(self.promises.log)
            self.promises.log += data
        assert group.end == len(self.promises.log) == store.end
        for each, placed in zip(frames, group.placed, strict=True):
            if isinstance(placed, Refused):
                raise placed
            if each.producer_id:
                self.promises.sent[each.producer_id] = max(self.promises.sent[each.producer_id], each.first_sequence + len(each.drafts))

    def frame(self) -> Frame:
        topic, count = self.chance.choice(("orders", "events")), self.chance.randrange(1, 6)
        bodies = [self.chance.randbytes(self.chance.choice((0, 3, 200, 1_500))) for _ in range(count)]
        if self.chance.random() < 0.4:
            return Frame([draft(topic, self.chance.randrange(3), body) for body in bodies])
        producer = self.chance.choice("abc")
        sent = self.promises.sent.setdefault(producer, 0)
        first = sent - self.chance.randrange(min(sent, 4) + 1)
        return Frame(
            [draft(topic, self.chance.randrange(3), body, identity=(producer, first + at)) for at, body in enumerate(bodies)],
            producer,
            first,
        )

    def sync(self, store: Store) -> None:
        self.promises.flushed = store.sync()
        assert self.promises.flushed == store.end

    def dispatch(self, store: Store) -> None:
        upto = self.chance.randrange(store.end + 1)
        applied = store.dispatch(upto)
        assert applied <= max(upto, self.promises.dispatched)
        self.promises.dispatched = applied

    def mark(self, store: Store) -> None:
        store.persist_watermark(store.flushed, min(store.flushed, store.applied))

    def checkpoint(self, store: Store) -> None:
        store.checkpoint()
        self.promises.flushed = store.end

    def zero(self, store: Store) -> None:
        store.ahead.zero(2_048)

    def cut(self, store: Store) -> None:
        borders = [0, *(start for entries in queues_of(self.promises.log, SMALL.segment_bytes).values() for _, start in entries)]
        to = self.chance.choice(sorted(borders)[-12:])
        self.promises.cutting_to = to
        store.cut(to)
        self.forget_tail(to)
        assert store.end == store.flushed == to
        open_epoch(store)

    def delete(self, store: Store) -> None:
        self.promises.deleting = "events"
        store.hide(store.next_offsets("events"))
        self.promises.deleting = ""
        for (topic, queue), entries in queues_of(self.promises.log, SMALL.segment_bytes).items():
            if topic == "events":
                self.promises.minimums[topic, queue] = entries[-1][0] + 1

    def forget_tail(self, to: int) -> None:
        self.promises.log = self.promises.log[:to]
        self.promises.flushed = min(self.promises.flushed, to)
        self.promises.dispatched = min(self.promises.dispatched, to)
        self.promises.cutting_to = None
        self.promises.sent.clear()
        self.lower_minimums()

    def lower_minimums(self) -> None:
        queues = queues_of(self.promises.log, SMALL.segment_bytes)
        for key, low in self.promises.minimums.items():
            self.promises.minimums[key] = min(low, queues[key][-1][0] + 1 if key in queues else 0)

    def check(self, store: Store) -> None:
        """Everything promised is there, nothing else is, and what is derived equals what the log says."""
        promises = self.promises
        log = whole_log(store)
        if promises.cutting_to is not None:
            if len(log) <= promises.cutting_to:
                self.forget_tail(promises.cutting_to)
            promises.cutting_to = None
        assert len(log) >= promises.flushed, f"{promises.flushed - len(log)} flushed bytes are gone"
        common = min(len(log), len(promises.log))
        assert log[:common] == promises.log[:common]
        assert store.flushed == store.end == len(log)
        assert store.generation >= promises.generation
        assert (store.stopped is StopKind.EMPTY) == (not log)
        promises.log, promises.flushed, promises.generation = log, len(log), store.generation
        promises.dispatched = store.applied
        self.lower_minimums()
        self.check_queues(store)
        self.check_producers(store)

    def check_queues(self, store: Store) -> None:
        store.dispatch(store.end)
        assert store.applied == store.end
        self.promises.dispatched = store.applied
        expected = queues_of(self.promises.log, SMALL.segment_bytes)
        for (topic, queue), entries in expected.items():
            assert [offset for offset, _ in entries] == list(range(len(entries))), f"queue offsets of {topic}/{queue} are not dense"
            low, high = store.queue_range(topic, queue)
            assert high == len(entries)
            if not self.promises.deleting:
                assert low == min(self.promises.minimums.get((topic, queue), 0), high)
            self.promises.minimums[topic, queue] = low
            at, seen = low, []
            while at < high:
                part = store.read_queue(topic, queue, at, 100, 10_000)
                seen += [(message.queue_offset, message.physical_offset) for message in part.messages]
                at = part.next_offset
            assert seen == entries[low:]
        self.promises.deleting = ""
        for key in store.queues():
            assert key in expected or store.queue_range(*key)[1] == 0

    def check_producers(self, store: Store) -> None:
        self.promises.sent.clear()
        for producer in "abc":
            sequence = 0
            positions = []
            while (found := store.find_sequence(producer, sequence)) is not None:
                positions.append(found.physical_offset)
                sequence += 1
            assert positions == sorted(positions)
            self.promises.sent[producer] = sequence
        known = sum(self.promises.sent.values())
        assert known == self.promises.log.count(b"PID\x01")


@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_stop_loses_what_was_flushed_or_bends_what_follows_from_the_log(seed: int) -> None:
    chaos = Chaos(seed)

    for _ in range(LIVES):
        chaos.live()
