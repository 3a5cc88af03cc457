"""Acts a script on a store and keeps account of what the store promises meanwhile."""

import contextlib
import random
from collections.abc import Callable
from dataclasses import replace

from dittomq.broker.config_files import ConfigFiles
from dittomq.commitlog import store_swap
from dittomq.commitlog.records.format import scan
from dittomq.commitlog.store import AppendBatch, Store
from dittomq.copies import LogStart
from dittomq.epoch_history import EpochEntry, EpochHistory, newest_epoch, truncate_history
from dittomq.errors import StorageFailure
from dittomq.message import Draft
from dittomq.metadata.formats import TOPICS
from dittomq.metadata.tables import Table, sorted_rows
from dittomq.metadata.topics import TopicConfig
from dittomq.offsets import Epoch, PhysicalOffset
from dittomq.routes import DataVersion
from tests.crash.promises import Copy, Cut, Known, Promises
from tests.simulation.disk import SECTOR
from tests.support.failing_storage import CrashingStorage, Harm
from tests.support.stores import SMALL, Machine, begin_epoch, draft, queues_of

OPTIONS = replace(SMALL, acks_unsynced=True)
"""All that is written counts as acknowledged."""

BODY_BYTES = 700
_COPY_BYTES = SMALL.segment_bytes // 4


class Actor:
    """One process after the other on one machine. Every method is a deed of the broker, promise included."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.chance = random.Random(1)
        self._tears = random.Random(machine.chance.random())
        self.promises = Promises()
        self.door = self._new_door()
        self._store: Store | None = None
        self._bodies = 0

    @property
    def store(self) -> Store:
        assert self._store is not None, "a script opens its store first"
        return self._store

    def open(self) -> None:
        """Start; what is in the log afterwards is durable."""
        self._store = store = Store.open(self.door, OPTIONS, chance=self.chance, wall_ms=1_000)
        promises = self.promises
        if promises.copy is not None and promises.swap_intended:
            promises.take_copy(promises.copy)
        promises.replica, promises.generation, promises.epoch_histories = store.replica, store.generation, [store.epoch_history]
        promises.known = [known_to(store)]
        held = promises.log[: store.min_offset] + _held(store)
        for start, end in promises.rotten:
            held = held[:start] + promises.log[start:end] + held[end:]
        promises.log = held
        promises.begins = [store.min_offset]
        promises.flushed = len(promises.log)
        promises.confirmed = store.confirmed_at_start
        promises.trying_bodies, promises.trying_bytes, promises.cutting = [], b"", None
        promises.power_lost = promises.disk_failed = promises.marked_failed = promises.disk_died = promises.tampered = False

    def close(self) -> None:
        """Stop cleanly."""
        store, self._store = self.store, None
        try:
            store.close(clean=True)
        except StorageFailure:
            self.promises.marked_failed = self.door.harm is Harm.ERROR
            raise
        self.promises.flushed = len(self.promises.log)

    def broke(self) -> None:
        """Do what a broker does when its disk fails: say so on disk, if it still can, and end."""
        store, self._store = self._store, None
        self.promises.disk_failed = True
        self.promises.disk_died = self.door.harm is Harm.DEAD
        if store is None:
            return
        with contextlib.suppress(StorageFailure):
            store.clear_boot_stamp()
            self.promises.marked_failed = True
        store.close(clean=False)

    def know(self, known: Known) -> None:
        """Belong to that birth, promise, adopt and note what it says: each is a change of its own."""
        store, states = self.store, self.promises.known
        changes: list[tuple[dict[str, object], Callable[[], None]]] = [
            (
                {"birth": known.birth, "revision": states[0].revision if known.birth == states[0].birth else 0},
                lambda: store.take_birth(known.birth),
            ),
            ({"promised": known.promised}, lambda: store.promise(Epoch(known.promised))),
            ({"adopted": known.adopted}, lambda: store.adopt_epoch(Epoch(known.adopted))),
            ({"revision": known.revision}, lambda: store.persist_revision(known.revision)),
        ]
        for values, write in changes:
            states.append(replace(states[0], **values))  # type: ignore[arg-type]
            write()
            del states[0]

    def epoch(self) -> None:
        """Open the next epoch at the end of the log."""
        store, promises = self.store, self.promises
        epoch = Epoch(newest_epoch(store.epoch_history) + 1)
        entry = EpochEntry(epoch, 0, 7_000 + epoch, store.end)
        promises.epoch_histories.append((*(each for each in store.epoch_history if each.start < entry.start), entry))
        begin_epoch(store, entry)
        promises.flushed = len(promises.log)
        promises.epoch_histories = promises.epoch_histories[-1:]

    def adopt(self, epoch_history: EpochHistory) -> None:
        self.promises.epoch_histories.append(epoch_history)
        self.store.replace_epoch_history(epoch_history)
        self.promises.epoch_histories, self.promises.flushed = [epoch_history], self.store.flushed

    def append(self, count: int, *, topic: str = "orders", queues: int = 3, producer: bool = False, tag: str = "") -> None:
        """Messages in one group: one frame for each queue, or one of an idempotent producer for queue 0. Every third has keys."""
        store, promises = self.store, self.promises
        first = self._bodies
        self._bodies += count
        bodies = [f"{number:06d}".encode() * (BODY_BYTES // 6) for number in range(first, first + count)]
        if producer:
            drafts = [draft(topic, 0, body, tag, identity=(f"p{first}", at)) for at, body in enumerate(bodies)]
            frames = [AppendBatch([_keyed(each, first + at) for at, each in enumerate(drafts)], f"p{first}", 0)]
        else:
            drafts = [draft(topic, number % queues, body, tag) for number, body in enumerate(bodies)]
            frames = [AppendBatch([_keyed(each, first + at)]) for at, each in enumerate(drafts)]
        promises.trying_bodies = bodies
        group = store.append(frames, 1_000 + 700 * first)
        promises.log += b"".join(data for _, data in group.pieces)
        promises.trying_bodies = []
        assert len(promises.log) == group.end

    def receive(self, data: bytes) -> None:
        """A slave's append, at the end of the bytes written."""
        self.promises.trying_bytes += data
        self.store.write_chunk(self.store.written_raw, data)
        done = self.store.end - len(self.promises.log)
        self.promises.log += self.promises.trying_bytes[:done]
        self.promises.trying_bytes = self.promises.trying_bytes[done:]

    def skip_range(self, data: bytes) -> None:
        """A slave's append of what its master cannot give."""
        promises, start = self.promises, self.store.end
        promises.trying_bytes = data
        promises.rotten.append((start, start + len(data)))
        self.store.skip_range(start, start + len(data))
        promises.log += data
        promises.trying_bytes = b""

    def rot(self, start: int, end: int) -> None:
        """Bytes change on the disk, durably, behind the store's back."""
        base = start - start % SMALL.segment_bytes
        inode = self.machine.disk.names.files[f"commitlog/{base:020d}"]
        inode.sync()
        inode.write(memoryview(bytes(end - start)), start - base, self.machine.chance)
        inode.sync()
        self.promises.rotten.append((start, end))

    def find_rot(self) -> None:
        """Verify all that is flushed."""
        self.store.verify(self.store.min_offset, self.store.end)
        assert self.store.damaged

    def repair(self) -> None:
        """Mend all that is known to be damaged, in two pieces each where there are two records."""
        mend_all(self.store, self.promises.log)

    def sync(self) -> None:
        self.promises.flushed = self.store.sync()

    def dispatch(self) -> None:
        self.store.dispatch(self.store.end)

    def mark(self) -> None:
        """Persist the watermark."""
        confirmed = min(self.store.flushed, self.store.applied)
        self.store.persist_recovery_point(self.store.flushed, confirmed)
        self.promises.confirmed = confirmed

    def checkpoint(self) -> None:
        self.store.checkpoint()
        self.promises.flushed = len(self.promises.log)

    def prepare(self) -> None:
        """Make the next segment ahead of need."""
        self.store.ahead.prepare_segment()

    def zero(self) -> None:
        self.store.ahead.zero(2_048)

    def cut(self, records: int) -> None:
        """Cut off the last records of the log; all of it when there are no more."""
        store, promises = self.store, self.promises
        starts = sorted(start for entries in queues_of(promises.log, SMALL.segment_bytes).values() for _, start in entries)
        to = starts[-records] if records < len(starts) else 0
        promises.cutting = cut = Cut(to, promises.log[:to] + _held(store)[to - store.min_offset :])
        promises.epoch_histories.append(truncate_history(store.epoch_history, PhysicalOffset(to)))
        report = store.truncate(to)
        assert report.saved_bytes == len(cut.log) - to
        promises.forget_tail(to)
        promises.cuts.append(cut)
        promises.epoch_histories = promises.epoch_histories[-1:]
        promises.minimums.clear()

    def drop(self, segments: int) -> None:
        """Drop so many of the lowest segments."""
        to = self.promises.begins[0] + segments * SMALL.segment_bytes
        self.promises.begins.append(to)
        assert self.store.drop_before(to) == to
        self.promises.begins = [to]

    def delete(self, topic: str) -> None:
        """Empty the topic's queues for good."""
        self.promises.trying_deletion = True
        self.store.hide(self.store.next_offsets(topic))
        self.promises.trying_deletion = False
        for (name, queue), entries in queues_of(self.promises.log, SMALL.segment_bytes).items():
            if name == topic:
                self.promises.minimums[name, queue] = entries[-1][0] + 1

    def copy_anew(self, log: bytes, epoch_history: EpochHistory, start: int) -> None:
        """Fill a copy beside the store with the log from `start` on, and close it."""
        store_swap.make(self.door, self.chance)
        copy = self._open_copy()
        lows = {key: sum(at < start for _, at in entries) for key, entries in queues_of(log, SMALL.segment_bytes).items()}
        copy.set_log_start(LogStart(PhysicalOffset(start), {key: low for key, low in lows.items() if low}))
        copy.replace_epoch_history(epoch_history)
        for at in range(start, len(log), _COPY_BYTES):
            copy.write_chunk(at, log[at : at + _COPY_BYTES])
        copy.sync()
        copy.close(clean=False)
        copy = self._open_copy()
        copy.dispatch(copy.end)
        copy.close(clean=True)
        self.promises.copy = Copy(start, log, epoch_history, copy.replica)

    def swap(self) -> None:
        """Let the copy take the store's place at the next start."""
        store_swap.intend(self.door, store_swap.StoreSwap(self.store.min_offset, self.store.end))
        self.promises.swap_intended = True

    def throw_copy_away(self) -> None:
        self.promises.copy = None
        store_swap.discard(self.door)

    def _open_copy(self) -> Store:
        return Store.open(store_swap.copy_of(self.door), OPTIONS, chance=self.chance, wall_ms=1_000)

    def save_table(self, rows: int) -> None:
        """Replace a config file."""
        counter = len(self.promises.tables) + 1
        table = Table(DataVersion(1, counter, counter), sorted_rows(TopicConfig(f"topic-{number}") for number in range(rows)))
        self.promises.trying_table = table
        self.promises.tables.append(table)
        for _ in ConfigFiles(self.door, "a/0").save(TOPICS, table):
            pass
        self.promises.table, self.promises.trying_table = table, None

    def is_killed(self, *, all_unsynced: bool = False) -> None:
        self.machine.kill(all_unsynced=all_unsynced)
        self._ended()

    def loses_power(self, *, all_unsynced: bool = False) -> None:
        self.machine.lose_power(all_unsynced=all_unsynced)
        self.promises.power_lost = True
        self._ended()

    def _ended(self) -> None:
        self._store = None
        self.door = self._new_door()

    def _new_door(self) -> CrashingStorage:
        storage = self.machine.storage()
        faults = self.machine.faults

        def break_sync() -> None:
            faults.failing_syncs = 1

        return CrashingStorage(storage, tear=self._torn, break_sync=break_sync)

    def _torn(self, size: int) -> int:
        """How much of a write is left: nothing, all, whole sectors, or any part."""
        return self._tears.choice((0, size, size // 2 // SECTOR * SECTOR, self._tears.randint(0, size)))

    def damage(self, path: str) -> None:
        """Flip a bit in a file of a store that nobody uses."""
        self.promises.tampered = True
        inode = self.machine.disk.names.files[path]
        for at in range(30, inode.size, 4_096):
            inode.write(memoryview(bytes([inode.read(1, at)[0] ^ 1])), at, self.machine.chance)
        inode.sync()


def known_to(store: Store) -> Known:
    """What the store has not forgotten."""
    return Known(store.birth, store.adopted_epoch, store.promised_epoch, store.record_revision)


def mend_all(store: Store, log: bytes) -> None:
    """Mend what is noted with the bytes of `log`, record by record."""
    for low, high in store.damaged:
        segment_end = low - low % SMALL.segment_bytes + SMALL.segment_bytes
        for entry in scan(log[low:high], low, segment_end).entries:
            store.repair(entry.start, log[entry.start : entry.end])
    store.file_repaired()


def _keyed(message: Draft, number: int) -> Draft:
    return message if number % 3 else message._replace(properties=message.properties + f"KEYS\x01all n{number}\x02".encode())


def _held(store: Store) -> bytes:
    """All bytes from the log's beginning to its end, blanks included."""
    parts, at = [], int(store.min_offset)
    while at < store.end:
        parts.append(store.read(at, 1 << 20))
        at += len(parts[-1])
    return b"".join(parts)
