"""Stores on simulated disks that die where a test wants, and logs to fill them with."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from dittomq.commitlog.disk.storage import Storage
from dittomq.commitlog.options import StoreOptions
from dittomq.commitlog.queues.key_format import KeySizes
from dittomq.commitlog.records.digest import root_digest
from dittomq.commitlog.records.format import scan
from dittomq.commitlog.store import AppendBatch, Store
from dittomq.epoch_history import EpochEntry, newest_epoch, truncate_history
from dittomq.errors import Refused
from dittomq.message import Draft
from dittomq.offsets import Epoch
from dittomq.places import AppendResult
from dittomq.properties import tags_code
from tests.simulation.disk import Disk
from tests.simulation.simulated_process import Life, SimCrashed
from tests.simulation.storage import Faults, SimulatedStorage

SMALL = StoreOptions(
    segment_bytes=16 * 1024, queue_file_units=25, key_sizes=KeySizes(slots=7, entries=12), min_free_bytes=0, zero_window_bytes=4_096
)


def draft(topic: str = "orders", queue: int = 0, body: bytes = b"body", tag: str = "", *, identity: tuple[str, int] | None = None) -> Draft:
    """A checked message; `identity` is a producer's id and sequence."""
    properties = f"PID\x01{identity[0]}\x02SEQ\x01{identity[1]}\x02" if identity else ""
    properties += f"TAGS\x01{tag}\x02" if tag else ""
    return Draft(topic, queue, 0, 1_000, body, properties.encode(), tags_code(tag) if tag else 0)


def frame(*bodies: bytes, topic: str = "orders", queue: int = 0, producer: str = "", first: int = -1) -> AppendBatch:
    """Messages of one queue."""
    drafts = [draft(topic, queue, body, identity=(producer, first + at) if producer else None) for at, body in enumerate(bodies)]
    return AppendBatch(drafts, producer, first)


def places(answer: list[AppendResult] | Refused) -> list[AppendResult]:
    """Where the messages of a stored frame lie, one by one."""
    assert not isinstance(answer, Refused), answer
    return [one for run in answer for one in run.each()]


def begin_epoch(store: Store, entry: EpochEntry) -> None:
    """Open this one at the end of the log, as a starting master does; one that holds no bytes is replaced."""
    store.sync()
    store.replace_epoch_history((*truncate_history(store.epoch_history, store.end), entry))


def chain_digest(store: Store, start: int, end: int, salt: int = 0) -> bytes:
    """One digest over those of the range's leaves."""
    return root_digest(store.leaf_digests(start, end, salt), salt)


def open_epoch(store: Store, opener: int = 0) -> None:
    """Open the next epoch at the end of the log, as a starting master does."""
    epoch = Epoch(newest_epoch(store.epoch_history) + 1)
    begin_epoch(store, EpochEntry(epoch, opener, 7_000 + epoch, store.end))


def led(storage: Storage, options: StoreOptions, *, chance: random.Random, wall_ms: int) -> Store:
    """Open the store, and the next epoch in it."""
    store = Store.open(storage, options, chance=chance, wall_ms=wall_ms)
    open_epoch(store)
    return store


@dataclass(slots=True)
class Machine:
    """A machine with one disk on which one process after the other opens the same store."""

    chance: random.Random
    options: StoreOptions = SMALL
    disk: Disk = field(init=False)
    faults: Faults = field(init=False)
    life: Life = field(init=False)

    def __post_init__(self) -> None:
        self.disk = Disk(self.chance)
        self.life = Life("store")
        self.faults = Faults()

    def storage(self) -> SimulatedStorage:
        """The door for a new process; the one before is over."""
        self.life.end()
        self.life = life = Life("store")
        self.faults = Faults()
        return SimulatedStorage(self.disk, life, self.faults, life.end)

    def beside(self) -> SimulatedStorage:
        """A door for a look at the disk while the process goes on."""
        life = Life("look")
        return SimulatedStorage(self.disk, life, Faults(), life.end)

    def open(self) -> Store:
        """Open the store in a new process."""
        return Store.open(self.storage(), self.options, chance=self.chance, wall_ms=1_000)

    def lead(self) -> Store:
        """The same, and open the next epoch in it."""
        return led(self.storage(), self.options, chance=self.chance, wall_ms=1_000)

    def kill(self, *, all_unsynced: bool = False) -> None:
        """The process is gone; what it wrote stays in the page cache. What a failed sync marked clean goes as chance decides, or all."""
        self.life.end()
        self.disk.drop_cache(all_unsynced=all_unsynced)

    def lose_power(self, *, all_unsynced: bool = False) -> None:
        """The process is gone and so is what was not synced: as chance decides, or all of it."""
        self.life.end()
        self.disk.lose_power(all_unsynced=all_unsynced)

    def files(self) -> dict[str, bytes]:
        """What the disk shows now, by path."""
        return {path: inode.read(inode.size, 0) for path, inode in self.disk.names.files.items()}


def whole_log(store: Store) -> bytes:
    """All bytes of a log that starts at 0, blanks included."""
    parts, at = [], 0
    while at < store.end:
        parts.append(store.read(at, 1 << 20))
        at += len(parts[-1])
    return b"".join(parts)


def queues_of(log: bytes, segment_bytes: int) -> dict[tuple[str, int], list[tuple[int, int]]]:
    """What the queues of a whole log must hold: for each message its offset and position. Fails on a record that is not whole."""
    found: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for base in range(0, len(log), segment_bytes):
        seen = scan(log[base : base + segment_bytes], base, base + segment_bytes)
        assert not seen.problem, f"{seen.problem} at {seen.end}"
        for entry in seen.entries:
            if entry.queue >= 0:
                found.setdefault((entry.topic, entry.queue), []).append((entry.queue_offset, entry.start))
    return found


def filled(machine: Machine, frames: int = 30) -> Store:
    """A store with several segments, synced, dispatched by half, checkpointed, and in use."""
    store = machine.lead()
    for at in range(frames):
        store.append([frame(b"x" * 900, b"y" * 100, queue=at % 3, producer="p", first=at * 2)], at)
        if at == frames // 2:
            store.dispatch(store.end)
            store.checkpoint()
    store.sync()
    store.persist_recovery_point(store.flushed, store.flushed)
    return store


def dispatched(machine: Machine) -> Store:
    """The same, and all of it is in the queues."""
    store = filled(machine)
    store.dispatch(store.end)
    return store


def dies(work: Callable[[], object]) -> bool:
    """Run until the end or the death of the process; whether it came to its end."""
    try:
        work()
    except SimCrashed:
        return False
    return True
