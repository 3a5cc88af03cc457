"""③ One replica's store: the commit log, its queues, and what is known of both, under one lock on its data directory.

Every call blocks. Writers (append, write_chunk, cut, replace_epoch_history …) wait for each other; `sync`, `dispatch` and the side files
may run beside them, each one at a time; reads run beside everything. Positions are published as plain numbers after their bytes
are there: applied ≤ end, flushed ≤ end, and `end` is always the end of a record.

What reads raises NotReady where this process cannot read now (too many open files): that says nothing of the bytes.
After a StorageFailure the store takes no more writes and syncs nothing more: what was in flight is unknown, and the node must stop.
"""

import contextlib
import random
from collections.abc import Sequence
from typing import Self

from dittomq.commitlog import recovery, rocketmq_import, store_swap, truncation
from dittomq.commitlog.append import AppendBatch, Appender, AppendGroup
from dittomq.commitlog.disk import state_file
from dittomq.commitlog.disk.file_cache import OpenFiles
from dittomq.commitlog.disk.segment import FOLDER
from dittomq.commitlog.disk.segment_maker import SegmentMaker
from dittomq.commitlog.disk.storage import HeldLock, Storage, reading
from dittomq.commitlog.foreign_writes import newest_ms_before
from dittomq.commitlog.locks import StoreLocks, confessed, reported
from dittomq.commitlog.log_start import StoreWithLogStart
from dittomq.commitlog.lookups import KeyMatches, KeySearch, StoreLookups
from dittomq.commitlog.options import StoreOptions
from dittomq.commitlog.queues import index_checkpoint, producer_state
from dittomq.commitlog.reading import QueueSlice, ReadRequest, StoreReader
from dittomq.commitlog.records import digest
from dittomq.commitlog.records.decoding import message_of
from dittomq.commitlog.records.format import MAX_RECORD_BYTES, Host
from dittomq.commitlog.recovery import Recovered, StoreLayout
from dittomq.commitlog.repair import RepairableStore
from dittomq.commitlog.replica_append import ReplicaAppender
from dittomq.commitlog.segment_preallocation import Ahead
from dittomq.commitlog.state import damage_map, epoch_history_file, first_release, identity, recovery_point, replica, shutdown_marker
from dittomq.commitlog.state.damage_map import DamageMap
from dittomq.commitlog.state.replica import OwnReplica
from dittomq.commitlog.state.shutdown_marker import LastUse, StopKind
from dittomq.commitlog.truncation import TruncationReport
from dittomq.commitlog.writeback_check import has_whole_behind, is_torn, write_again
from dittomq.copies import LEAF_BYTES
from dittomq.epoch_history import EpochHistory, epoch_at, grows, newest_epoch, start_of_later_epochs
from dittomq.errors import DiskFull, InvalidField, LogTruncated, NotReady, OffsetOutOfRange, StorageFailure, StoreOpenFailed
from dittomq.group_record import ReplicaId
from dittomq.message import StoredMessage
from dittomq.offsets import LAST_EPOCH, Epoch, PhysicalOffset, QueueOffset
from dittomq.places import AppendResult
from dittomq.reads import ALL, ReadableRange

__all__ = ["AppendBatch", "AppendGroup", "KeyMatches", "KeySearch", "QueueSlice", "StopKind", "Store", "StoreOptions", "TruncationReport"]


class Store(StoreWithLogStart, RepairableStore):
    """An open store; made by `open`."""

    generation: int
    epoch_history: EpochHistory
    flushed: PhysicalOffset
    confirmed_at_start: PhysicalOffset

    def __init__(self, storage: Storage, options: StoreOptions, lock: HeldLock, chance: random.Random) -> None:
        self.stopped = StopKind.EMPTY
        self.dropped_torn_tail = False  # this start cut away what looked like a torn tail, and may have been acknowledged
        self.notes: list[str] = []  # what recovery noticed, in sentences
        self.recovery_truncation: TruncationReport | None = None
        self._storage = storage
        self._options = options
        self._lock = lock
        self._chance = chance
        self._files = OpenFiles(storage, options.open_files)
        self._maker = SegmentMaker(storage, options.segment_bytes)
        self._gate = StoreLocks()
        self._replica = OwnReplica(storage, self._gate, chance)
        self._layout = StoreLayout(storage, self._files, self._maker, options, self._replica)
        self.ahead = Ahead(storage, options, self._gate, self._maker, log=lambda: self._log)

    @classmethod
    def open(cls, storage: Storage, options: StoreOptions, *, chance: random.Random, wall_ms: int) -> Self:
        """Take the lock, find out how the store was left, bring it in order. All that is in the log afterwards is durable.

        A replica that may lack bytes which it acknowledged has drawn a new incarnation before that.

        Raises StoreLocked, StoreOpenFailed (the log was not changed), StorageFailure.
        """
        try:
            identity.refuse_newer(storage, options.path)  # before anything is made, the lock's file included
            storage.make_folder("")
            store = cls(storage, options, storage.lock("lock"), chance)
        except OSError as error:
            raise StoreOpenFailed(options.path, str(error)) from error
        try:
            store._recover()
        except BaseException as error:
            if isinstance(error, StorageFailure):
                with contextlib.suppress(StorageFailure):  # a disk that takes nothing more keeps the stamp of a dead process
                    store.clear_boot_stamp()
            store.close(clean=False)
            if isinstance(error, state_file.CorruptStateFile):
                raise StoreOpenFailed(options.path, f"{error}; restore it, or empty the data_dir to copy all from the group") from error
            if isinstance(error, OSError):
                raise StoreOpenFailed(options.path, str(error)) from error
            raise
        ahead_ms = store._derived.store_ms - wall_ms
        if ahead_ms > 0:
            store.notes.append(f"the newest record was stored {ahead_ms:,} ms in the future; store times stand still until then")
        return store

    def close(self, clean: bool) -> None:
        """Release the store. `clean`: sync and checkpoint all and say so on disk for the next start; if that fails, StorageFailure.

        On a full disk there is no checkpoint: the next start reads more of the log, and so does RocketMQ's.
        """
        try:
            if clean:
                with confessed(self.clear_boot_stamp), self._gate.guard("close"):
                    self._end_cleanly()
        finally:
            self._maker.close()
            self._files.close()
            self._lock.release()

    @property
    def replica(self) -> ReplicaId:
        """Its id."""
        return self._replica.state.id

    @property
    def replica_uuid(self) -> str:
        """The id's first part."""
        return self._replica.state.uuid

    @property
    def birth(self) -> str:
        """Of the group record that it belongs to; "" for none."""
        return self._replica.state.birth

    @property
    def adopted_epoch(self) -> Epoch:
        """Of the last master whose log this one matches, and holds up to where that epoch begins; or the one that it opened itself."""
        return Epoch(self._replica.state.adopted)

    @property
    def promised_epoch(self) -> Epoch:
        """The highest that it promised; never below the adopted one."""
        return Epoch(self._replica.state.promised)

    @property
    def record_revision(self) -> int:
        """The greatest revision that it knows of the group record of its birth."""
        return self._replica.state.revision

    def promise(self, epoch: Epoch) -> None:
        """Durably promise that epoch; a higher promise stays. Needs no room. Raises StorageFailure."""
        self._replica.promise(epoch)

    def adopt_epoch(self, epoch: Epoch) -> None:
        """Durably adopt that epoch, which promises it too; a higher one stays. Needs no room. Raises StorageFailure."""
        self._replica.adopt(epoch)

    def take_birth(self, birth: str) -> None:
        """Durably belong to the group record of that birth, "" for none: another one's revision is 0. Needs no room. Raises
        StorageFailure.
        """
        self._replica.take_birth(birth)

    def persist_revision(self, revision: int) -> None:
        """Durably know that revision of the group record; a higher one stays. Needs no room. Raises StorageFailure."""
        self._replica.persist_revision(revision)

    @property
    def end(self) -> PhysicalOffset:
        """Written: the end of the last whole record."""
        return PhysicalOffset(self._receiver.end)

    @property
    def written_raw(self) -> PhysicalOffset:
        """End of the bytes written: beyond `end` where a chunk ended inside a record."""
        return PhysicalOffset(self._log.end)

    @property
    def applied(self) -> PhysicalOffset:
        """Up to where the queues are built."""
        return PhysicalOffset(self._derived.dispatch.applied)

    @property
    def segment_bytes(self) -> int:
        """Size of every segment."""
        return self._options.segment_bytes

    def append(self, batches: Sequence[AppendBatch], now_ms: int) -> AppendGroup:
        """Write the batches at the end; not synced. A batch that is refused leaves nothing. Raises DiskFull and StorageFailure."""
        with self._gate.writing("append"):
            assert self.epoch_history, "a master opens its epoch before it appends"
            assert not self._receiver.partial, "a log that ends inside a record is recovered before it is appended to"
            assert not self.unread.ranges, "numbers that damage hides are known, or leapt over, before others are given"
            self._check_room_for(batches)
            group = self._appender.append(batches, now_ms)
            self._receiver.end = group.end
            return group

    def write_chunk(self, offset: int, data: bytes) -> PhysicalOffset:
        """Verify and write bytes of the master's log at `written_raw`; not synced. Returns `end`. Raises CorruptRecord, DiskFull."""
        with self._gate.writing("write_chunk"):
            self.check_room(len(data))
            return PhysicalOffset(self._receiver.write(offset, data))

    def sync(self) -> PhysicalOffset:
        """Make durable what was written when this was called; returns `flushed`. A failure is final: StorageFailure."""
        with self._gate.syncing, self._gate.guard("sync"):
            target = self.end
            self._log.sync()
            self.flushed = max(self.flushed, target)
            return self.flushed

    def dispatch(self, upto: int) -> PhysicalOffset:
        """Build the queues for records that end at or below `upto`; returns `applied`."""
        with self._gate.dispatching, self._gate.guard("dispatch"):
            return PhysicalOffset(self._derived.dispatch.run(min(upto, self.end)))

    def dispatch_grown(self, upto: int) -> tuple[PhysicalOffset, list[tuple[str, int]]]:
        """As `dispatch`; also topic and queue of each queue that grew since this was asked last."""
        with self._gate.dispatching, self._gate.guard("dispatch"):
            return PhysicalOffset(self._derived.dispatch.run(min(upto, self.end))), self._derived.dispatch.take_grown()

    def read(self, start: int, length: int) -> bytes:
        """Raw bytes, up to the segment's end and to `end`, unverified. Raises OffsetOutOfRange, OSError for bytes the disk withholds."""
        with reading(self._options.node):
            return self._log.read(start, length, self.end)

    def read_records(self, start: int, limit: int, max_bytes: int) -> bytes:
        """Whole records in [start, limit) of one segment, its mark with all behind it included; every checksum is verified.

        `start` is a record's start. At most `max_bytes`, or one record that is larger; b"" when none fits. Raises CorruptRecord.
        """
        with reading(self._options.node):
            return self._reader.records(start, min(limit, self.end), max_bytes)

    def read_queue(  # noqa: PLR0917 - one call of the wire, field by field
        self,
        topic: str,
        queue: int,
        offset: int,
        max_messages: int,
        max_bytes: int,
        tags: frozenset[str] = frozenset(),
        readable: ReadableRange = ALL,
        *,
        as_records: bool = False,
    ) -> QueueSlice:
        """Readable messages of a queue from `offset` on, verified; at least one, if any. Raises OffsetOutOfRange, CorruptRecord."""
        with reading(self._options.node):
            return self._reader.queue(topic, queue, ReadRequest(offset, max_messages, max_bytes, tags, readable, as_records))

    def message_at(self, position: int, end: int) -> tuple[StoredMessage, Host] | None:
        """The message whose record begins there and ends at or below `end`, and the host that stored it; None when there is none.

        Raises CorruptRecord where it is damaged, or its place in its queue; damage of the log is noted then. MessageTooLarge where it
        inflates beyond the limit.
        """
        with reading(self._options.node):
            try:
                return self._lookups.message_at(position, end)
            except OffsetOutOfRange:  # dropped or cut meanwhile
                return None

    def find_by_key(self, search: KeySearch, end: int) -> KeyMatches:
        """Messages of a topic with a key that end at or below `end`. One that is damaged is a suspect; none is verified."""
        with reading(self._options.node):
            return self._lookups.find_by_key(search, end)

    def offset_at(self, topic: str, queue: int, time_ms: int, end: int) -> QueueOffset | None:
        """The first message of a queue, of those that end at or below `end`, that was stored at or after that time.

        One past the last where there is none; None for no such queue.
        """
        with reading(self._options.node):
            return self._lookups.offset_at(topic, queue, time_ms, end)

    def queue_range_below(self, topic: str, queue: int, end: int) -> tuple[int, int]:
        """Offsets [min, max) of a queue, none from its first message on that ends above the byte `end`. Raises NotReady."""
        with reading(self._options.node):
            return self._reader.range_below(topic, queue, end)

    def check_not_rewritten(self, topic: str, queue: int, offset: int, epoch: int) -> None:
        """Raise LogTruncated where the message before `offset` is not the one that was read: the newest that was read is of that epoch.

        Raises NotReady also where this log is the older one, though it is as long.
        Two logs with one epoch are equal up to where it ends in either; where that epoch is not here, nobody can tell how far they are.
        Source: KIP-320, whose fetch requests carry the epoch that was fetched last.
        """
        history = self.epoch_history
        if epoch == newest_epoch(history):
            return
        with reading(self._options.node):
            position = self._reader.position_before(topic, queue, offset)
            if position is None:
                return
            later = start_of_later_epochs(history, epoch)
            if later is None:
                raise NotReady(self._options.node, "its log is older than the one that was read")
            if epoch and epoch_at(history, PhysicalOffset(later - 1)) != epoch:
                raise LogTruncated(topic, queue, offset, self._reader.range_below(topic, queue, 0)[0])
            if position >= later:
                raise LogTruncated(topic, queue, offset, self._reader.queue_end_at(topic, queue, later, offset))

    def find_sequence(self, producer_id: str, sequence: int, sent_since: int | None = None) -> AppendResult | None:
        """Where a message lies, never below `sent_since`; None when it is not in the log. Raises UnknownProducerId when that is not
        known.
        """
        with self._gate.looking():
            position = self._derived.producers.find(producer_id, sequence, sent_since)
        return None if position is None else self._place(position)

    def last_delivered(self, producer_id: str) -> int | None:
        """The greatest sequence of a system producer that is in the log; None when none is."""
        with self._gate.looking():
            return self._derived.producers.last_sequence(producer_id)

    def segment_of(self, offset: int) -> tuple[PhysicalOffset, PhysicalOffset]:
        """Start and end of the segment in which a byte lies."""
        start, end = self._log.segment_of(offset)
        return PhysicalOffset(start), PhysicalOffset(end)

    def leaf_digests(self, start: int, end: int, salt: int = 0, leaf_bytes: int = LEAF_BYTES) -> list[bytes]:
        """Digests of the range's leaves, counted from `start` and anew from each segment's start. Raises OffsetOutOfRange."""
        if not self.min_offset <= start <= end <= self.end:
            raise OffsetOutOfRange("byte", end if start >= self.min_offset else start, self.min_offset, self.end)
        return list(digest.leaves_of(self.read, start, end, salt, leaf_bytes=leaf_bytes))

    def replace_epoch_history(self, epoch_history: EpochHistory) -> None:
        """Durably take this epoch history for ours, once all before its newest epoch is durable: no lossy copy outranks one. Raises
        DiskFull.
        """
        if epoch_history == self.epoch_history:
            return
        if not grows(epoch_history):
            raise InvalidField("epoch_history", f"epochs and starts must grow, and no epoch follows {LAST_EPOCH:,}")
        if self.flushed < self.end:
            self.sync()
        with self._gate.writing("replace_epoch_history"):
            self.check_free(state_file.ROOM_BYTES + epoch_history_file.ROW_BYTES * len(epoch_history))
            epoch_history_file.save(self._storage, epoch_history)
            self.epoch_history = epoch_history
            self._seals.adopt(epoch_history)

    def truncate(self, to: int) -> TruncationReport:
        """Durably forget every byte at or behind `to`, a record's end, after saving them in a side file.

        Queues, producers and epoch history follow; the generation grows; readers of what is cut get OffsetOutOfRange. DiskFull changes
        nothing.
        """
        gate = self._gate
        self._verify_around(to)
        with gate.filing, gate.dispatching, gate.syncing, gate.writing("cut"):
            if not self.min_offset <= to <= self.end:
                raise OffsetOutOfRange("byte", to, self.min_offset, self.end)
            if to < self.end and self._damage.end_over(to) is None and not self._reader.begins_at(to):
                raise InvalidField("to", f"no record begins at {to:,}")
            if to == self.written_raw:
                return TruncationReport(PhysicalOffset(to), 0, "")
            self.check_free(self.written_raw - to + self._measure())
            applied = self.applied
            report = self._truncate(to, self.written_raw)
            self._sync_all()
            self._derived.dispatch.run(min(applied, to))
            return report

    def persist_recovery_point(self, flushed: int, confirmed: int, *, generation: int | None = None) -> bool:
        """Durably remember these; recovery never ends the log below `flushed`. Whether all is: of a `generation` cut since nothing is."""
        with self._gate.filing, self._gate.guard("persist_recovery_point"):
            if generation in (None, self.generation):
                self._save_mark(min(flushed, self.flushed), min(confirmed, self.end))
            return (self._mark.flushed, self._mark.confirmed) == (flushed, confirmed)

    def checkpoint(self) -> None:
        """Durably remember queues and producers as they are, so that a restart reads the log from here only."""
        gate = self._gate
        with gate.filing, gate.guard("checkpoint"):
            with gate.dispatching, gate.looking():
                now = (self.applied, self.end)
                if now == self._checkpointed:
                    return
                self._persist_queue_resets()
                ranges, unmade = self._derived.index.held()
                keys = self._derived.dispatch.keys
                units, reservation, newest_ms = self._options.queue_file_units, self._reservation(self.applied), self._derived.store_ms
                queues_ms = newest_ms if self.applied == self.end else newest_ms_before(self._log, self.applied)
                held = index_checkpoint.Checkpoint(self.applied, newest_ms, units, ranges, keys.mark, reservation, unmade)
                table = self._derived.producers.to_bytes(self.end)
            self.sync()  # what is saved below must not know more than the disk
            self._save_mark(self.flushed, self._mark.confirmed)
            self._derived.index.sync()
            keys.sync()
            producer_state.save(self._storage, table)
            index_checkpoint.save(self._storage, held)
            index_checkpoint.write_for_rocketmq(self._storage, newest_ms, queues_ms, self._mark.confirmed)
            self._checkpointed = now

    def clear_boot_stamp(self) -> None:
        """Durably take that back after a failed write or sync: the next start is told so. Raises StorageFailure."""
        with reported("clear_boot_stamp"):
            shutdown_marker.mark_failed(self._storage)

    def _end_cleanly(self) -> None:
        self.sync()
        is_checkpointed = self.checkpoint_if_room()
        self._save_mark(self.end, self._mark.confirmed, closed=True)
        if is_checkpointed:
            index_checkpoint.clear_abort(self._storage)
        shutdown_marker.stamp(self._storage, clean=True, acks_unsynced=False)

    def _check_room_for(self, batches: Sequence[AppendBatch]) -> None:
        if not self._has_ample_room(MAX_RECORD_BYTES * sum(len(batch.drafts) for batch in batches)):
            self.check_room(sum(len(draft.body) + len(draft.properties) for batch in batches for draft in batch.drafts))

    def _recover(self) -> None:
        storage = self._storage
        identity.refuse_newer(storage, self._options.path)  # again: who held the lock until now may have raised the format
        self.notes += [str(swapped)] if (swapped := store_swap.finish(storage)) else []
        found, intent = identity.load(storage), truncation.load_intent(storage)
        rocketmq_import.refuse_unread(storage, self._options.path, ours=found is not None)
        if intent is None and found is not None:
            recovery.refuse_misfits(self._layout)
        last = self._be_a_replica(found)
        for folder in ("", state_file.FOLDER, FOLDER):  # names that a killed process gave are seen, and may yet be lost
            storage.sync_folder(folder)
        if last.has_lost:
            self._replica.draw_incarnation()
        shutdown_marker.begin_recovery(storage, last)
        state_file.remove_unfinished(storage)
        if intent is not None:
            truncation.finish(storage, intent)
            self.generation = intent.generation
        truncation.remove_unfinished(storage, self.generation)
        tail_end = self._settle(last)
        self._verify_end(is_truncated=tail_end > self._log.end)
        if tail_end > self._log.end:
            self.recovery_truncation = self._truncate(self._log.end, tail_end)
            self.dropped_torn_tail = True
        self.stopped = self.stopped if self.end > self.min_offset else StopKind.EMPTY
        self._sync_all()
        shutdown_marker.stamp(storage, clean=False, acks_unsynced=self._options.acks_unsynced)
        self.confirmed_at_start = PhysicalOffset(self._mark.confirmed)
        index_checkpoint.set_abort(storage)
        self._derived.dispatch.run(self.confirmed_at_start)

    def _be_a_replica(self, found: identity.StoreIdentity | None) -> LastUse:
        """Know who this replica is, durably; a new one, and one of an earlier version, is named here. Tells how the store was left."""
        storage, chance = self._storage, self._chance
        if found is not None and found.format >= identity.REPLICA_FORMAT:
            state = replica.settle(storage)
            if state is None:
                raise state_file.CorruptStateFile("dittomq/replica is missing")
            self._replica.begin(state, is_drawn=False)
            last = shutdown_marker.read(storage)
        elif found is not None:
            replica.create(storage, state := first_release.state_of(storage, found.replica_uuid, chance))
            self._replica.begin(state, is_drawn=True)
            identity.raise_format(storage, identity.REPLICA_FORMAT)
            last = shutdown_marker.read(storage)
        else:
            adopted = rocketmq_import.adopt(self._layout) if storage.list_folder(FOLDER) else None
            for folder in (state_file.FOLDER, FOLDER):
                storage.make_folder(folder)
            storage.sync_folder("")
            replica.create(storage, state := replica.new_state(chance))
            self._replica.begin(state, is_drawn=True)
            found = identity.create(storage)
            last = LastUse(adopted, has_lost=False) if adopted else shutdown_marker.read(storage)
        first_release.remove_files(storage)
        self.generation = found.generation
        return last

    def _settle(self, last: LastUse) -> int:
        """Find out what the log holds, and make sure of it. Where what is behind its end says so, this replica becomes a stranger.

        Returns one past the last byte behind the log's end.
        """
        self.stopped = stopped = last.stopped
        is_killed = stopped is StopKind.KILLED
        is_clean = stopped is StopKind.CLEAN and not index_checkpoint.is_abort_set(self._storage)  # RocketMQ's
        power_lost = not (is_killed or is_clean) or (is_killed and last.is_derived_in_doubt)
        self._load(recovery.recover(self._layout, power_lost=power_lost))
        seen = self._mark.confirmed if is_killed else 0  # a kill takes nothing that readers may have seen
        stands = stopped is StopKind.CLEAN or (write_again(self._log, self._seals, self._damage, self.flushed) and seen <= self._log.end)
        if not stands:
            self._load(recovery.recover(self._layout, power_lost=power_lost))
        tail_end = recovery.tail_end(self._log, power_lost=power_lost or not stands)
        is_dropped = is_killed and not (stands and is_torn(self._log, tail_end))
        if is_dropped or has_whole_behind(self._log, self._seals, tail_end):
            self._replica.draw_incarnation()  # before the traces are cut away
            what = "what is damaged there may have been acknowledged"
            self.notes.append(
                f"whole records lie behind byte {self._log.end:,}, or pages are gone: {what}, so this replica begins a new incarnation"
            )
        if is_dropped:
            self.stopped = StopKind.FAILED_SYNC
            self._load(recovery.recover(self._layout, power_lost=True))
        return tail_end

    def _load(self, found: Recovered) -> None:
        self._log = found.log
        self._derived = found.derived
        self._mark = found.mark
        self.epoch_history = epoch_history_file.load(self._storage)
        self.flushed = PhysicalOffset(min(found.mark.flushed, found.log.end))
        register = found.register.clipped(found.log.min_offset, found.log.end)
        (self._damage, self._unread), self._repaired = register, DamageMap()
        self._derived.index.still_damaged(self._damage.touches)
        if register != damage_map.load(self._storage):
            damage_map.save(self._storage, register)
        self.notes += found.notes
        self._seals = found.seals
        self._reader = StoreReader(found.log, found.seals, found.derived.index, self._options.node)
        self._lookups = StoreLookups(
            self._options.node, found.log, found.derived.index, found.derived.dispatch.keys, self._reader, self._is_damaged_at
        )
        self._receiver = ReplicaAppender(found.log, found.seals, found.derived, self._options.node)
        self._appender = Appender(found.log, found.derived, self._options.host, self._place)
        self._checkpointed = None

    def _reload(self) -> None:
        self._load(recovery.recover(self._layout, power_lost=False))
        self._sync_all()

    def _truncate(self, to: int, tail_end: int) -> TruncationReport:
        intent, report = truncation.begin(self._storage, self._log, (to, tail_end), self.generation + 1, keeps_epoch=to == self.end)
        self._log.truncate_to(to)
        self._files.forget("")
        truncation.finish(self._storage, intent)
        self._files.forget("")
        self.generation = intent.generation
        self._load(recovery.recover(self._layout, power_lost=False))
        assert self._log.end == to, f"the log was cut to {to} and ends at {self._log.end}"
        return report

    def _sync_all(self) -> None:
        """Make the log durable as it is, and remember that. Nobody writes meanwhile."""
        self._log.sync()
        self.flushed = self.end
        self._save_mark(self.end, min(self._mark.confirmed, self.end))

    def _place(self, position: int) -> AppendResult:
        with reading(self._options.node):
            found = message_of(record := self._reader.record(position))
        return AppendResult(
            found.topic, found.queue, found.queue_offset, found.physical_offset, [len(record)], found.store_ms, duplicate=True
        )

    def _is_damaged_at(self, position: int) -> bool:
        """Whether the record that holds this byte is not whole. That is noted, unless the disk is full."""
        if not self.known_damage.touches(position, position + 1):
            try:
                self.verify(position, position + 1)
            except DiskFull:
                return True
        return self.known_damage.touches(position, position + 1)

    def _save_mark(self, flushed: int, confirmed: int, *, closed: bool = False) -> None:
        mark = recovery_point.RecoveryPoint(self._mark.number + 1, flushed, confirmed, closed)
        if self._mark.number == 0 or self._mark.closed:  # a closed end must never be read again once we write behind it
            recovery_point.reset(self._storage, mark)
        else:
            recovery_point.save(self._storage, mark)
        self._mark = mark
