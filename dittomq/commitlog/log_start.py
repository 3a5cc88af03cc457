"""Where a store begins: its log, when old segments are dropped or an empty log starts late; its queues, when topics are deleted.

And which queues it has.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace

from dittomq.commitlog import damage_report, log_start_state, queue_reset
from dittomq.commitlog.damage_report import NamedMessages
from dittomq.commitlog.disk import state_file
from dittomq.commitlog.disk.file_cache import OpenFiles
from dittomq.commitlog.disk.log import Log
from dittomq.commitlog.disk.storage import Storage, reading
from dittomq.commitlog.foreign_writes import first_record
from dittomq.commitlog.locks import StoreLocks
from dittomq.commitlog.options import StoreOptions
from dittomq.commitlog.queues import index_checkpoint
from dittomq.commitlog.queues.consume_queue import ConsumeQueue
from dittomq.commitlog.queues.indexes import DerivedIndexes
from dittomq.commitlog.records.format import store_ms_of
from dittomq.commitlog.retention import DiskUse, Segment
from dittomq.commitlog.state.damage_map import DamagedRanges
from dittomq.commitlog.state.recovery_point import RecoveryPoint
from dittomq.copies import LogStart
from dittomq.errors import DiskFull, InvalidField, NotReady
from dittomq.offsets import PhysicalOffset, QueueOffset

_AMPLE_BYTES = 256 * 1024 * 1024
"""More than a checkpoint writes, with as many producers as are remembered."""


class StoreWithLogStart(ABC):
    """What a store does at the beginnings of its log and its queues."""

    _storage: Storage
    _options: StoreOptions
    _files: OpenFiles
    _gate: StoreLocks
    _log: Log
    _derived: DerivedIndexes
    _mark: RecoveryPoint
    _damage: DamagedRanges
    _unread: DamagedRanges
    _checkpointed: tuple[int, int] | None

    @property
    def min_offset(self) -> PhysicalOffset:
        """First byte held."""
        return PhysicalOffset(self._log.min_offset)

    @property
    def settled(self) -> PhysicalOffset:
        """Up to here everything is durable, confirmed and in the queues, and after any stop this node knows that it was."""
        return PhysicalOffset(min(self._mark.flushed, self._mark.confirmed, self._derived.dispatch.applied))

    @property
    def newest_ms(self) -> int:
        """When its newest record was stored."""
        return self._derived.store_ms

    def stored_ms_at(self, position: int) -> int | None:
        """When the record there, or the one behind a mark there, was stored; None where nothing whole says so. Blocks."""
        with reading(self._options.node):
            record = first_record(self._log, position)
        return None if record is None else store_ms_of(record)

    def survey(self, start: int) -> Segment:
        """What retention asks of the segment that begins at `start`, not the newest one."""
        with reading(self._options.node):
            return log_start_state.survey(self._storage, self._log, start)

    def disk_use(self) -> DiskUse:
        """How full the disk is."""
        return DiskUse(self._storage.total_bytes(), self._storage.free_bytes())

    def checkpoint_if_room(self) -> bool:
        """Checkpoint, unless the disk is full: then the log is there to read again, and a start takes longer. Whether it was done."""
        try:
            self._check_room_to_checkpoint()
        except DiskFull:
            return False
        self.checkpoint()
        return True

    def check_room(self, size: int) -> None:
        """Raise DiskFull when the disk cannot take that many bytes and keep its reserve, and what a checkpoint or a drop writes."""
        if not self._has_ample_room(size):
            self.check_free(size + max(self._options.min_free_bytes, self._measure()))

    def check_free(self, needed: int) -> None:
        """Raise DiskFull when fewer bytes than that are free."""
        if (free := self._storage.free_bytes()) < needed:
            raise DiskFull(self._options.node, free, needed)

    def _has_ample_room(self, size: int) -> bool:
        """Whether nothing need be measured."""
        return self._storage.free_bytes() >= size + self._options.min_free_bytes + _AMPLE_BYTES

    def _check_room_to_checkpoint(self, queues: int = 0) -> None:
        """Raise DiskFull when the disk may not take what a checkpoint or a drop writes. What is written meanwhile leaves it that room.

        `queues` may be among them that are not known yet.
        """
        with self._gate.dispatching, self._gate.looking():
            needed = self._measure() + index_checkpoint.QUEUE_ROW_BYTES * queues
        with self._gate.guard("check_room_to_checkpoint"):
            self.check_free(needed)

    def _measure(self) -> int:
        """How many bytes a checkpoint, a drop or a cut writes at most, besides the tail that a cut saves. Nobody writes meanwhile."""
        derived = self._derived
        queues = index_checkpoint.QUEUE_ROW_BYTES * len(derived.index.queues)
        return state_file.ROOM_BYTES + derived.producers.saved_bytes + derived.dispatch.keys.waiting_bytes + queues

    def drop_before(self, offset: int, given: LogStart | None = None) -> PhysicalOffset:
        """Durably forget the segments that end at or below `offset` and are settled, all but the newest; returns `min_offset`.

        Queues, key index and producers follow. Readers of what is dropped get OffsetOutOfRange. Appends go on meanwhile. Unread ranges
        stay, for nobody would know any more which numbers their messages have, unless `given` says where queues begin behind them. Raises
        DiskFull, and NotReady where these are in the way, before anything is changed: it takes room to make room.
        """
        log, derived = self._log, self._derived
        to, _ = log.segment_of(min(offset, self.settled, log.stop - log.segment_bytes))
        if to <= log.min_offset:
            return self.min_offset
        to = self._before_unread(to, given)
        self._check_room_to_checkpoint(queues=0 if given is None else len(given.first_offsets) + len(given.reserved_below))
        with reading(self._options.node):
            first_offsets = log_start_state.first_offsets_at(derived.index, to)
        hidden = self._unread.touches(log.min_offset, to)
        if hidden and given is not None:
            first_offsets |= log_start_state.first_offsets_given(derived.index, first_offsets, given.first_offsets)
            if not self._damage.touches(to, log.end):  # all that is left has its place in a queue
                with reading(self._options.node):
                    first_offsets |= log_start_state.first_offsets_present(derived.index, first_offsets)
        gate = self._gate
        with gate.filing, gate.dispatching, gate.guard("drop_before"):
            # A deletion that a cut may still undo, or that was undone, needs the records before it, to know where its queues go on.
            if log is not self._log or any(
                each.end > self._mark.confirmed for each in index_checkpoint.load_minimums(self._storage).values()
            ):
                return self.min_offset
            if index_checkpoint.is_ordered(self._storage):
                return self.min_offset
            self._persist_queue_resets()
            before = log_start_state.load(self._storage)
            first_offsets = {**before.first_offsets, **first_offsets}
            self._clear_reservation()
            if hidden and given is not None:
                derived.index.apply_reservation(index_checkpoint.OffsetReservation(given.reserved_below))
            reserved_below = derived.index.reserved_below(to)
            log_start_state.save(self._storage, replace(before, min_offset=to, first_offsets=first_offsets, reserved_below=reserved_below))
            with gate.looking():
                log.min_offset = to
                if hidden:
                    derived.producers.mark_unsure(to)
                derived.producers.drop_before(to)
            doomed = [*log_start_state.segments_below(self._storage, to), *log_start_state.hide(derived.index, first_offsets)]
            doomed += derived.dispatch.keys.drop_before(to)
            self._checkpointed = None
        self.checkpoint()  # names none of the files that go now
        for path in doomed:
            with gate.filing, gate.guard("drop_before"):
                log_start_state.unlink(self._storage, self._files, [path])
        return self.min_offset

    def _reservation(self, applied: int) -> index_checkpoint.OffsetReservation:
        """What a checkpoint says of numbers that were left out."""
        self._clear_reservation()
        return self._derived.index.reservation(applied)

    def _clear_reservation(self) -> None:
        """Numbers that were left out are so no more once the log from there on is here, and whole: it tells them all."""
        log = self._log
        self._derived.index.clear_reservation(lambda low: log.min_offset <= low and not self._damage.touches(low, log.end))

    def _before_unread(self, to: int, given: LogStart | None) -> int:
        """The segment up to which nothing unread is dropped but what `given` knows of; NotReady where that is the first one."""
        known = 0 if given is None else given.offset
        begin = self._log.min_offset
        start = next((each.start for each in self._unread.ranges if each.end > max(known, begin)), to)
        before, _ = self._log.segment_of(min(to, start))
        if before <= begin:
            what = f"bytes from {start:,} on are damaged, and which numbers their messages have is not known"
            raise NotReady(self._options.node, f"it drops nothing of its log: {what}")
        return before

    def queues(self) -> list[tuple[str, int]]:
        """Every queue that the log holds messages of, or held."""
        return sorted(self._derived.index.queues)

    def queues_with_messages(self) -> list[tuple[str, int]]:
        """Every queue of which something can be read, in no order."""
        return [(queue.topic, queue.queue) for queue in list(self._derived.index.queues.values()) if queue.min < queue.max]

    def messages_in(self, ranges: Sequence[tuple[int, int]]) -> list[NamedMessages]:
        """Which messages lie in each of these ranges, as far as the queues name them. With 100,000 queues it blocks for seconds."""
        taken_in = self._derived.dispatch.applied
        try:
            with reading(self._options.node):
                found = damage_report.messages_in(self._derived.index, ranges)
        except OSError:  # the disk does not give a queue's units
            return [NamedMessages((), more=True) for _ in ranges]
        unread = self._unread
        return [
            each._replace(more=each.more or end > taken_in or unread.touches(start, end))
            for each, (start, end) in zip(found, ranges, strict=True)
        ]

    @property
    def queue_count(self) -> int:
        """How many queues ever held a message, as far as the log tells."""
        return len(self._derived.index.queues)

    def has_queue(self, topic: str, queue: int) -> bool:
        """Whether it is one of them."""
        return (topic, queue) in self._derived.index.queues

    def queue_range(self, topic: str, queue: int) -> tuple[QueueOffset, QueueOffset]:
        """Offsets [min, max) that can be read."""
        found = self._derived.index.queues.get((topic, queue))
        low, high = found.range if found else (0, 0)
        return QueueOffset(low), QueueOffset(high)

    def next_offsets(self, topic: str) -> dict[tuple[str, int], int]:
        """Of each queue of the topic that ever held a message, the offset that the next one gets once the topic is deleted."""
        with self._gate.looking():
            queues = [each for each in self._derived.index.queues.items() if each[1].topic == topic]
            return {key: max(queue.next, queue.outlived + 1 if queue.outlived else 0) for key, queue in queues}

    def queue_ends(self) -> dict[tuple[str, int], int]:
        """Of each queue that ever held a message, the offset that its next one gets, confirmed or not."""
        with self._gate.looking():
            return {key: max(queue.next, queue.min) for key, queue in self._derived.index.queues.items()}

    def minimums(self) -> dict[tuple[str, int], int]:
        """What `hide` was given, as far as no cut has taken the records that it spoke of."""
        with self._gate.filing:
            return {key: minimum.low for key, minimum in index_checkpoint.load_minimums(self._storage).items() if not minimum.is_reset}

    def hide(self, minimums: Mapping[tuple[str, int], int]) -> None:
        """Durably let each queue begin at its minimum at least, also when its records are still to come; none goes back.

        A minimum of a topic that RocketMQ has made again since hides nothing. Raises DiskFull before anything is changed.
        """
        gate, index = self._gate, self._derived.index
        if all(key in index.queues and _hides(index.queues[key], low) for key, low in minimums.items()):
            return
        with gate.filing, gate.dispatching, gate.writing("hide"):
            higher = {key: low for key, low in minimums.items() if not _hides(index.queue(*key), low)}
            kept = index_checkpoint.load_minimums(self._storage)
            kept |= {key: index_checkpoint.QueueBound(low, self.end) for key, low in higher.items()}
            self.check_free(state_file.ROOM_BYTES + index_checkpoint.QUEUE_ROW_BYTES * len(kept))
            index_checkpoint.save_minimums(self._storage, kept)
            for key, low in higher.items():
                index.raise_minimum(index.queues[key], low)
            self._checkpointed = None

    def show_again(self, minimums: Mapping[tuple[str, int], int]) -> bool:
        """Durably hide no more of deleted topics than these say, from the next start on; whether it was more.

        Raises DiskFull before anything is changed.
        """
        with self._gate.filing, self._gate.guard("show_again"):
            kept = index_checkpoint.load_minimums(self._storage)
            less = {key: minimums.get(key, 0) for key, each in kept.items() if each.hidden > minimums.get(key, 0)}
            if less:
                dropped = log_start_state.load(self._storage)
                self.check_free(4 * state_file.ROOM_BYTES + index_checkpoint.QUEUE_ROW_BYTES * (2 * len(kept) + len(dropped.first_offsets)))
                index_checkpoint.order_queue_reset(self._storage)
                if self._log.min_offset:
                    log_start_state.save(self._storage, dropped.unsure_of({key: kept[key].low for key in less}))
                left = {key: replace(each, low=less.get(key, each.low)) for key, each in kept.items()}
                index_checkpoint.save_minimums(self._storage, {key: each for key, each in left.items() if each.low})
        return bool(less)

    def log_start(self) -> LogStart:
        """Where this log and its queues begin, for a copy that is to begin there: without it, it would count anew in empty queues."""
        with self._gate.filing:
            minimums = index_checkpoint.load_minimums(self._storage)
            lasting = {key: each.low for key, each in minimums.items() if not each.is_reset and each.end <= self._mark.confirmed}
            found = {key: low for key, low in self._derived.index.guessed_minimums().items() if key not in minimums}
            dropped = log_start_state.load(self._storage)
            return LogStart(self.min_offset, {**dropped.first_offsets, **found}, lasting, dropped.reserved_below)

    def set_log_start(self, log_start: LogStart) -> None:
        """Durably let a log that holds nothing begin there, where a segment begins: what lies before cannot be had any more.

        Raises DiskFull before anything is changed.
        """
        gate, offset = self._gate, log_start.offset
        with gate.filing, gate.dispatching, gate.syncing, gate.writing("set_log_start"):
            if self._log.end > self._log.min_offset or offset % self._log.segment_bytes:
                raise InvalidField("offset", f"a log that ends at {self._log.end:,} cannot begin at {offset:,}")
            kept = index_checkpoint.load_minimums(self._storage)
            rows = len(kept) + len(log_start.deleted_below) + len(log_start.first_offsets) + len(log_start.reserved_below)
            self.check_free(state_file.ROOM_BYTES + index_checkpoint.QUEUE_ROW_BYTES * rows)
            if log_start.deleted_below:
                hidden = {key: index_checkpoint.QueueBound(low, offset) for key, low in log_start.deleted_below.items()}
                index_checkpoint.save_minimums(self._storage, kept | hidden)
            log_start_state.empty_from(
                self._storage,
                self._files,
                log_start_state.LogStartState(offset, log_start.first_offsets, reserved_below=log_start.reserved_below),
            )
            self._reload()

    def _persist_queue_resets(self) -> None:
        queue_reset.persist(self._storage, self._derived.index)

    @property
    @abstractmethod
    def end(self) -> PhysicalOffset:
        """One past the last whole record."""

    @abstractmethod
    def checkpoint(self) -> None:
        """Durably remember queues and producers as they are."""

    @abstractmethod
    def _reload(self) -> None:
        """Read the store anew from its disk. Every lock is held."""


def _hides(queue: ConsumeQueue, low: int) -> bool:
    """Whether the queue shows nothing that this minimum speaks of."""
    return max(queue.min, queue.outlived) >= low
