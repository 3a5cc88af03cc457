"""What of the log this copy does not hold whole, and how it becomes whole again.

    verify, or a master's word ▶ note the range, durably ▶ … another copy's bytes … ▶ verify ▶ write them in place, sync
        ▶ put into the queues what is missing there ▶ checkpoint ▶ take the range off the register, durably

A crash anywhere leaves the range on the register: to repair it again changes nothing. Reads never ask the register; they verify.
"""

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Final, NamedTuple

from dittomq.commitlog import log_start_state, offset_reservation
from dittomq.commitlog.deleted_files import DeletedFiles
from dittomq.commitlog.disk import state_file
from dittomq.commitlog.disk.log import Log
from dittomq.commitlog.disk.scanning import ReadablePages, Source, scan_at, scan_singly, skip_damage, start_before
from dittomq.commitlog.disk.storage import PAGE_BYTES, Storage, reading, speaks_of_bytes
from dittomq.commitlog.queues import index_checkpoint
from dittomq.commitlog.queues.consume_queue import QueueIndex
from dittomq.commitlog.queues.indexes import DerivedIndexes
from dittomq.commitlog.records.checksum_policy import ChecksumPolicy
from dittomq.commitlog.records.format import UNIT, IndexEntry, Scan
from dittomq.commitlog.records.record_scanner import HEADER_BYTES, View, span_at
from dittomq.commitlog.records.rocketmq_records import NotRead
from dittomq.commitlog.replica_append import ReplicaAppender
from dittomq.commitlog.state import damage_map
from dittomq.commitlog.state.damage_map import DamagedRange, DamagedRanges, DamageMap
from dittomq.copies import LEAF_BYTES
from dittomq.epoch_history import EpochHistory, master_ids_of
from dittomq.errors import CorruptRecord, DiskFull, InvalidField, NotReady, OffsetOutOfRange, StoreOpenFailed
from dittomq.offsets import PhysicalOffset

_NEAR_BYTES: Final = 4 * 1024 * 1024
"""How far behind a damaged record is looked: writers wait meanwhile."""


class VerifiedRange(NamedTuple):
    """Records of [start, end) were verified; `damaged` is what of them is on the register now, whole ranges."""

    start: PhysicalOffset
    end: PhysicalOffset
    damaged: tuple[DamagedRange, ...]


class RepairableStore(DeletedFiles):
    """A store's damage. `_unread` are bytes of `_damage`; `_repaired` is what is whole again and still on the register on disk."""

    epoch_history: EpochHistory
    _storage: Storage
    _seals: ChecksumPolicy
    _derived: DerivedIndexes
    _receiver: ReplicaAppender
    _damage: DamagedRanges
    _unread: DamagedRanges
    _repaired: DamageMap
    _checkpointed: tuple[int, int] | None
    _reverify_from: int | None = None

    @property
    def damage(self) -> DamagedRanges:
        """What of the log is known to be damaged, or missing, now."""
        return self._damage.clipped(self._log.min_offset, self._log.end) if self._damage.ranges else self._damage

    @property
    def known_damage(self) -> DamagedRanges:
        """The same, with what lay before the log or behind it; the same object until it changes."""
        return self._damage

    @property
    def damaged(self) -> list[DamagedRange]:
        """The same as a list of ranges."""
        return list(self.damage.ranges)

    @property
    def unread(self) -> DamagedRanges:
        """What of it no queue and no producer here knows: which offsets and sequences its messages have, only another copy can tell."""
        return self._unread.clipped(self._log.min_offset, self._log.end) if self._unread.ranges else self._unread

    @property
    def is_to_reverify(self) -> bool:
        """Whether damage was noted that `take_reverify_from` has not told of."""
        return self._reverify_from is not None

    def take_reverify_from(self) -> PhysicalOffset | None:
        """Where the first damage begins that was noted since the last call, also when it is repaired by now; None when there was none."""
        with self._gate.filing:
            reverify_from, self._reverify_from = self._reverify_from, None
        return None if reverify_from is None else PhysicalOffset(reverify_from)

    def reserve_offsets(self, others: Iterable[index_checkpoint.QueueKey], master_id: int) -> int:
        """Durably let all numbers go on behind those that unread ranges may hide; returns how many offsets a queue leaps over at most.

        For a master that is to lead without these ranges, which count as read from then on. `others` are queues that may have messages
        there and nowhere else: all that the tables name of the node `master_id`, which knew them before it wrote any. What others wrote
        may hold more, and a queue that is not known gives no offset of theirs until that is whole. Raises DiskFull before anything is
        changed.
        """
        gate, others = self._gate, list(others)
        with gate.filing, gate.dispatching, gate.writing("reserve_offsets"):
            unread = self.unread
            if not unread.ranges:
                return 0
            self.check_free(
                self._measure() + index_checkpoint.QUEUE_ROW_BYTES * len(others) + damage_map.ROW_BYTES * len(self._damage.ranges)
            )
            count = offset_reservation.reserve_offsets(self._log, self._seals, self._derived, unread, others=others)
            strange = [each for each in unread.ranges if master_ids_of(self.epoch_history, *each) != {master_id}]
            self._derived.index.apply_reservation(index_checkpoint.OffsetReservation(strange=strange))
            self._checkpointed = None
        self.checkpoint()
        with gate.filing, gate.guard("reserve_offsets"):
            self._unread = DamagedRanges()
            self._file(self._damage, self._repaired)
        return count

    def verify(self, start: int, end: int) -> VerifiedRange:
        """Verify what is flushed of the records that have a byte in [start, end); what is not whole is durably noted.

        What the disk does not give counts as damaged. [start, start) is verified when `start` is not in the log, or is dropped meanwhile.
        Raises NotReady where this process cannot read now, DiskFull where damage cannot be written down. For any thread; to be called for
        a slice of a few megabytes at a time.
        """
        log, source, flushed = self._log, ReadablePages(self._log), self.flushed
        nothing = VerifiedRange(PhysicalOffset(start), PhysicalOffset(start), ())
        if not log.min_offset <= start < min(end, flushed):
            return nothing
        try:
            with reading(self._options.node):
                begin = start_before(source, start, log.min_offset, flushed)
                at, found = self._damaged_from(source, begin, min(end, flushed), flushed)
                lowest = max(log.min_offset, log.segment_of(start)[0])
                if begin > lowest and self._widened(log, found) != self._damage:
                    begin = lowest  # a producer's body may have passed for the first start; this one is sure
                    at, found = self._damaged_from(source, begin, min(end, flushed), flushed)
        except OffsetOutOfRange:
            return nothing
        if found:
            self._persist_damage(log, found)
        return VerifiedRange(PhysicalOffset(begin), PhysicalOffset(at), self._damage.within(begin, at))

    def whole_leaves(self, start: int, end: int) -> list[bytes] | None:
        """`leaf_digests` of the range; None while not all of it is here, some is known to be damaged, or the disk does not give it.

        The last one is noted. For any thread; to be called for a slice of a few megabytes at a time.
        """
        if self._damage.touches(start, end):
            return None
        try:
            return self.leaf_digests(start, end)
        except OffsetOutOfRange:
            return None
        except OSError:
            self.verify(start, end)
            return None

    def skip_range(self, start: int, end: int) -> PhysicalOffset:
        """Durably note that [start, end), which begins where the log ends, cannot be had now, and go on behind it; returns `end`."""
        with self._gate.filing, self._gate.writing("skip_range"):
            if start != self._receiver.end or self._receiver.partial:
                raise OffsetOutOfRange("byte", start, self._receiver.end, self._receiver.end)
            if not start < end <= self._log.segment_of(start)[1]:
                raise InvalidField("end", f"a hole from {start:,} to {end:,} does not lie in one segment")
            self.check_room(0)
            self._unread = self._unread.with_range(start, end, self._log.segment_bytes)
            self._file(self._damage.with_range(start, end, self._log.segment_bytes), self._repaired)
            self._receiver.skip(start, end)
            return PhysicalOffset(end)

    def repair(self, start: int, data: bytes) -> PhysicalOffset:
        """Durably write whole records into a damaged range, and put into the queues what is missing there.

        Returns up to where that was done: those that end inside a page which the disk neither gives nor takes in parts are left, and what
        else such a page hides is noted; in a file that was removed nothing is done. That is looked at before: a removal behind that look
        costs what a later one costs, the whole segment. The caller knows that whoever gave them holds this very log. The range stays on the
        register until `file_repaired`. Raises CorruptRecord when they are not whole records, InvalidField when they do not lie in
        one damaged range, NotReady and DiskFull before anything is changed: what fills a hole takes room as an append does.
        """
        log, end = self._log, start + len(data)
        entries = self._check(start, data)
        with self._gate.filing, self._gate.dispatching, self._gate.guard("repair"):
            minimums = index_checkpoint.load_minimums(self._storage)
            if log is not self._log or not any(low <= start and end <= high for low, high in self.damage.ranges):
                raise InvalidField("start", f"bytes {start:,} to {end:,} are no part of a damaged range")
            with self._gate.looking(), reading(self._options.node):
                if not self._has_file(log.segment_of(start)[0]):
                    return PhysicalOffset(start)
                self._check_room_to_repair(start, end)
            with self._gate.syncing, self._gate.writing("repair"):  # a disk reports an error once: a sync beside this one would not hear it
                written = log.rewrite(start, data)
            whole = [entry for entry in entries if entry.end <= written]
            repaired = end if written == end else max((entry.end for entry in whole), default=start)
            lasting = [each for each in whole if not self._is_of_a_life_before(each, minimums)]
            self._derived.index.still_damaged(self._damage.without(start, repaired).touches)
            with self._gate.looking():
                self._derived.repair(lasting, log.end)
            queues = self._derived.index.queues
            began = {key: queues[key].min for entry in lasting if (key := (entry.topic, entry.queue)) in queues}
            for entry in lasting:
                self._fill(entry, minimums)
            if earlier := [key for key, low in began.items() if queues[key].min < low]:
                log_start_state.begin_with(self._storage, self._derived.index, earlier)
            if repaired > start:
                self._repaired = self._repaired.with_range(start, repaired, log.segment_bytes, unread=self._unread)
                self._damage, self._unread = self._damage.without(start, repaired), self._unread.without(start, repaired)
                self._checkpointed = None
        if repaired < end:
            self.verify(max(log.segment_of(start)[0], written - PAGE_BYTES), written + PAGE_BYTES)
        return PhysicalOffset(repaired)

    def salvage(self, start: int) -> bool:
        """Whether the damaged range that begins at `start` is whole on this disk after all, and so repaired. Raises NotReady, DiskFull.

        Of one that is not all is repaired that is whole near its beginning.

        CorruptRecord where the file of its segment was removed: all of that is noted then, and can be repaired. Another file in its place
        is verified and used.
        """
        found = next((each for each in self.damage.ranges if each.start == start), None)
        if found is not None:
            self._make_again(*self._log.segment_of(start))
        source = ReadablePages(self._log)
        while found is not None and start < found.end:
            with reading(self._options.node):
                scan = self._scan(source, start, found.end)
                data = source.read(start, scan.end - start)
            if scan.end == start or self.repair(start, data) < scan.end:
                with reading(self._options.node):
                    behind = list(_whole_behind(source, self._seals, self._derived.index, start, end=found.end))
                for at, whole in behind:
                    self.repair(at, whole)
                return False
            start = scan.end
        return found is not None

    def file_repaired(self) -> bool:
        """Durably take off the register all that was repaired before this was called; a checkpoint knows it then.

        Not while the disk is full: what is on the register is looked at again by the next start. Whether it was done.
        """
        repaired = self._repaired
        if not repaired.damage.ranges:
            return True
        if not self.checkpoint_if_room():
            return False
        with self._gate.filing, self._gate.guard("file_repaired"):
            self._file(self._damage, self._repaired.without_all(repaired))
        return True

    def _verify_around(self, to: int) -> None:
        """Note what is not whole around `to`, where the log is to be cut: of a page that the disk does not give no part can be kept."""
        self.verify(max(self._log.min_offset, min(to, self.flushed) - 1), to + 1)

    def _verify_end(self, *, is_truncated: bool) -> None:
        """The same where a start finds the log's end: a cut that it went on with may have left zeros there.

        Raises StoreOpenFailed where that cannot be read now, or, if it is to be cut there, cannot be noted.
        """
        try:
            self._verify_around(self._log.end)
        except NotReady as problem:
            raise StoreOpenFailed(self._options.path, str(problem)) from problem
        except DiskFull as full:
            if is_truncated:
                room = f"{full.free:,} bytes of its disk are left, and {full.needed:,} must be free"
                raise StoreOpenFailed(self._options.path, f"{room} to note what is damaged where the log ends; make room") from full

    def _check_room_to_repair(self, start: int, end: int) -> None:
        """In place the room is enough that appends leave: a master may wait for these bytes before it leads and drops old segments."""
        if self._log.is_hole(start, end):
            self.check_room(end - start)
        else:
            self.check_free(end - start + self._measure())

    def _scan(self, source: Source, start: int, limit: int) -> Scan:
        try:
            return scan_at(source, self._seals, start, limit)[1]
        except NotRead as problem:  # a start refuses such a store, so the record was another one then
            return Scan([], problem.position, str(problem))

    def _damaged_from(self, source: Source, at: int, stop: int, flushed: int) -> tuple[int, list[tuple[int, int]]]:
        """What is not whole of the records from `at` on that begin below `stop`; and where they end. Raises OffsetOutOfRange."""
        found: list[tuple[int, int]] = []
        while at < stop:
            scan = self._scan(source, at, stop)
            if scan.end == at and not scan.problem:  # the last one, which `stop` cuts off
                view = View(source.read(at, HEADER_BYTES, flushed), at, source.segment_of(at)[1])
                last = span_at(view, at)
                scan = self._scan(source, at, flushed if last is None else min(last.end, flushed))
            if scan.problem or scan.end == at:
                again = skip_damage(source, self._seals, scan.end, flushed)
                found.append((scan.end, again))
                at = again
            else:
                at = scan.end
        return at, found

    def _check(self, start: int, data: bytes) -> list[IndexEntry]:
        """The records that `data` is made of."""
        if not data:
            raise InvalidField("data", "there is nothing to repair with")
        found: list[IndexEntry] = []
        at, end, (_, segment_end) = start, start + len(data), self._log.segment_of(start)
        while at < end:
            sealed_range = self._seals.at(at)
            stop = min(end, sealed_range.end)
            try:
                _, scan = scan_singly(data[at - start : stop - start], at, segment_end, sealed_range.sealed)
            except NotRead as problem:
                raise CorruptRecord(self._options.node, problem.position, str(problem)) from problem
            if scan.problem or scan.end != stop:
                raise CorruptRecord(self._options.node, scan.end, scan.problem or "it is cut off")
            found += scan.entries
            at = stop
        return found

    def _is_of_a_life_before(self, entry: IndexEntry, minimums: dict[index_checkpoint.QueueKey, index_checkpoint.QueueBound]) -> bool:
        """Whether RocketMQ has made the record's topic again behind it: then its place in the queue is another message's."""
        queue = self._derived.index.queues.get((entry.topic, entry.queue))
        minimum = minimums.get((entry.topic, entry.queue))
        was_reset = queue.reset_at if queue is not None else -1
        return entry.start < was_reset or (minimum is not None and minimum.is_reset and entry.start < minimum.end)

    def _fill(self, entry: IndexEntry, minimums: dict[index_checkpoint.QueueKey, index_checkpoint.QueueBound]) -> None:
        """Put a record's unit where it is missing; what is not dispatched yet comes by itself, what is deleted never."""
        key = (entry.topic, entry.queue)
        if entry.queue < 0 or entry.end > self._derived.dispatch.applied:
            return
        if key in minimums and entry.queue_offset < minimums[key].hidden:
            return
        unit = UNIT.pack(entry.start, entry.end - entry.start, entry.tags_code)
        self._derived.index.fill(self._derived.index.queue(*key), entry.queue_offset, unit)

    def _persist_damage(self, log: Log, ranges: list[tuple[int, int]]) -> None:
        with self._gate.filing, self._gate.guard("note_damaged"):
            if log is not self._log:  # it was cut meanwhile
                return
            self._persist_damage_now(ranges)

    def _persist_damage_now(self, ranges: list[tuple[int, int]]) -> None:
        """The same, for who files."""
        damage = self._widened(self._log, ranges)
        if damage != self._damage:
            self.check_free(state_file.ROOM_BYTES + damage_map.ROW_BYTES * len(damage.ranges))
            self._file(damage, self._repaired)
            first = min(start for start, _ in ranges)
            self._reverify_from = first if self._reverify_from is None else min(first, self._reverify_from)

    def _widened(self, log: Log, ranges: Iterable[tuple[int, int]]) -> DamagedRanges:
        damage = self._damage
        for start, end in ranges:
            damage = damage.with_range(start, end, log.segment_bytes)
        return damage.clipped(log.min_offset, log.end)

    def _file(self, damage: DamagedRanges, repaired: DamageMap) -> None:
        """Durably write down both, then let them be in force. What was unread stays so on disk until the queues there know it."""
        register = DamageMap(damage, self._unread)
        for start, end in repaired.damage.ranges:
            register = register.with_range(start, end, self._log.segment_bytes, unread=repaired.unread)
        damage_map.save(self._storage, register)
        self._damage, self._repaired = damage, repaired

    @abstractmethod
    def leaf_digests(self, start: int, end: int, salt: int = 0, leaf_bytes: int = LEAF_BYTES) -> list[bytes]:
        """Digests of the range's leaves, counted from `start`."""

    @abstractmethod
    def checkpoint(self) -> None:
        """Durably remember queues and producers as they are."""

    @abstractmethod
    def checkpoint_if_room(self) -> bool:
        """Checkpoint, unless the disk is full; whether it was done."""

    @abstractmethod
    def check_free(self, needed: int) -> None:
        """Raise DiskFull when fewer bytes than that are free."""

    @abstractmethod
    def _measure(self) -> int:
        """How many bytes a checkpoint writes at most. Nobody writes meanwhile."""


def _whole_behind(source: Source, seals: ChecksumPolicy, index: QueueIndex, start: int, *, end: int) -> Iterator[tuple[int, bytes]]:
    """Runs of whole records that a disk gives near the one at `start` that is not, where they begin, and their bytes.

    Only what queues name there: the body of a damaged record may hold whole ones, too.
    """
    stop = min(end, start + _NEAR_BYTES)
    while (start := skip_damage(source, seals, start, stop)) < stop:
        try:
            _, scan = scan_at(source, seals, start, stop, scanner=scan_singly)
        except NotRead:
            return
        if not scan.entries:
            return
        data = source.read(start, scan.end - start)
        for is_named, run in groupby(scan.entries, lambda entry: _is_named(index, entry)):
            first, *rest = run
            if is_named:
                yield first.start, data[first.start - start : (rest[-1] if rest else first).end - start]
        start = scan.end - 1


def _is_named(index: QueueIndex, entry: IndexEntry) -> bool:
    """Whether the queues have the record where it lies."""
    queue = index.queues.get((entry.topic, entry.queue))
    if queue is None or not queue.min <= entry.queue_offset < queue.max:
        return False
    try:
        units = index.units(queue, entry.queue_offset, 1)
    except OSError as error:
        if not speaks_of_bytes(error):
            raise
        return False
    return bool(units) and units[0][0] == entry.start
