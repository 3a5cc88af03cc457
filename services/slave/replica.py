"""⑤ One store that follows the master: what it holds, what is known of its bytes, and how a handshake describes it."""

from dataclasses import dataclass, replace

import structlog

from dittomq.broker.digesting import digest_of
from dittomq.broker.dispatcher import Dispatcher
from dittomq.broker.range_server import LogSource
from dittomq.broker.verified import VerifiedUpTo, load_verified, save_verified
from dittomq.commitlog.disk.storage import Storage
from dittomq.commitlog.store import Store
from dittomq.copies import LogStart
from dittomq.doors.traces import CopySpans, Traces
from dittomq.doors.workers import Executor
from dittomq.errors import DittoError
from dittomq.offsets import Epoch, PhysicalOffset
from dittomq.replication.consistency_check import Extent, Range, handshake_ranges
from dittomq.replication.events import PROTOCOL_VERSION, Handshake, RangeDigest
from dittomq.replication.slave_events import RecordCompared
from services.slave.config import FlushMode, SlaveConfig
from services.slave.missing_ranges import missing_ranges
from services.slave.replica_log_writer import ReplicaLogWriter
from services.slave.replication_stream import ReplicationStreamEnded

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class ReplicaParts:
    """A store and what works on it. `store_lane` is the only lane that writes the log; `storage` is the store's folder.

    `traces`: where spans of the messages that it copies go; None: nowhere.
    """

    config: SlaveConfig
    storage: Storage
    store: Store
    store_lane: Executor
    sync_lane: Executor
    reads: Executor
    files: Executor
    dispatcher: Dispatcher
    traces: Traces | None = None


class Replica:
    """Learns what streams tell. `copy` is its log, as streams write it."""

    def __init__(self, parts: ReplicaParts) -> None:
        self.parts = parts
        self.store = parts.store
        spans = CopySpans(parts.traces) if parts.traces is not None else None
        lanes = parts.store_lane, parts.sync_lane
        self.copy = ReplicaLogWriter(parts.store, *lanes, sync_each_group=not self.flushes_late, spans=spans)
        self.confirmed = PhysicalOffset(min(parts.store.confirmed_at_start, parts.store.end))
        self._verified = VerifiedUpTo()
        self._verified_kept: VerifiedUpTo | None = None  # what is written down; None: nothing, a full disk did not take it
        self._reverify_from: PhysicalOffset | None = None  # damage that was found, and that the master has not been told of
        self._differs: Range | None = None  # what was last found to be another than the master's, until it is cut or proven
        self._log_start: LogStart | DittoError | None = None  # where the master's log begins, or why that is not known

    @property
    def flushes_late(self) -> bool:
        """Whether what is written is flushed now and then only."""
        return self.parts.config.replication.flush_mode is FlushMode.ASYNC_FLUSH

    @property
    def applied(self) -> PhysicalOffset:
        """End of what is in the consume queues."""
        return self.parts.dispatcher.applied

    @property
    def known_confirmed(self) -> PhysicalOffset:
        """What is known to be confirmed of this store's own bytes."""
        return PhysicalOffset(min(self.confirmed, self.copy.received))

    @property
    def verified(self) -> PhysicalOffset:
        """Up to here this copy was verified against its master's; nothing behind what is damaged counts."""
        return PhysicalOffset(self.store.damage.whole_end(self._verified.end))

    def update_confirmed(self, confirmed: PhysicalOffset) -> None:
        """The group's confirmed end."""
        self.confirmed = max(self.confirmed, confirmed)

    def compared(self, found: RecordCompared) -> None:
        """A range of this copy and of a master's was compared. What differs is in the next handshake, whose answer finds where.

        What is equal counts when nothing before it is unproven; what was proven of another master's log proves nothing of this one's.
        """
        before = self._verified.end if self._verified.master == found.master else PhysicalOffset(0)
        if not found.equal:
            self._differs = found.start, found.end
            self._verified = VerifiedUpTo(min(before, found.start), found.master)
        elif found.start <= max(before, self.store.min_offset):
            self._verified = VerifiedUpTo(max(before, found.end), found.master)
            if self._differs is not None and self._differs[1] <= self._verified.end:
                self._differs = None

    def take_reverify_from(self) -> PhysicalOffset | None:
        """Where the first damage begins that was found since the last handshake, or since this was asked last."""
        reverify_from, self._reverify_from = self._reverify_from, None
        return reverify_from

    async def load(self) -> None:
        """Take up what was written down; where a cut has taken some of it since, that is written down before the next handshake."""
        parts = self.parts
        kept = self._verified_kept = await parts.files.call(lambda: load_verified(parts.storage))
        self._verified = replace(kept, end=min(kept.end, parts.store.end))

    async def keep_confirmed(self) -> None:
        """Durably remember now how far is known to be confirmed."""
        flushed, confirmed, generation = self.copy.flushed, self.known_confirmed, self.store.generation
        await self.parts.files.call(lambda: self.store.persist_recovery_point(flushed, confirmed, generation=generation))

    async def look_after(self) -> None:
        """What is to be done now and then: ASYNC_FLUSH flushes, what was verified is written down."""
        if self.flushes_late and self.copy.flushed < self.copy.received:
            await self.copy.flush()
        await self._keep_verified()

    async def _keep_verified(self) -> None:
        """Durably remember what is proven now. What was damaged is not, also when it is repaired: who gave the bytes was not the master."""
        store = self.store
        noted = await self.parts.files.call(store.take_reverify_from) if store.is_to_reverify else None
        if noted is not None:
            self._reverify_from = noted if self._reverify_from is None else min(self._reverify_from, noted)
        end = self.verified if noted is None else min(self.verified, noted)
        self._verified = verified = replace(self._verified, end=end)
        if verified != self._verified_kept:
            is_kept = await self.parts.files.call(lambda: save_verified(self.parts.storage, verified))
            self._verified_kept = verified if is_kept else None

    async def describe(self, own_address: str, *, birth: str, promised: Epoch) -> Handshake:
        """Who this slave is, where it serves ranges, what it belongs to and has promised, and what this store holds now."""
        config, store = self.parts.config, self.store
        await self.copy.flush()
        await self.copy.settle()
        self.confirmed = self.known_confirmed  # what a master confirmed of bytes that never came says nothing of another one's
        digests = await self._digests()
        await self._keep_verified()
        verified, self._reverify_from = self._verified, None
        return Handshake(
            cluster=config.node.cluster,
            broker=config.node.broker,
            broker_id=config.node.broker_id,
            replica_uuid=store.replica_uuid,
            protocol_version=PROTOCOL_VERSION,
            min_offset=store.min_offset,
            end=store.end,
            flushed=store.flushed,
            confirmed=self.known_confirmed,
            epoch_history=store.epoch_history,
            digests=digests,
            verified_offset=verified.end,
            verified_with=verified.master,
            missing_ranges=missing_ranges(store, store.end),
            replication_address=own_address,
            segment_bytes=config.store.segment_bytes,
            incarnation=store.replica.incarnation,
            birth=birth,
            adopted=store.adopted_epoch,
            promised=promised,
        )

    async def _digests(self) -> tuple[RangeDigest, ...]:
        """Of the newest ranges and of the one that is known to differ; none of those that are not whole here."""
        parts, store = self.parts, self.store
        extent = Extent(store.min_offset, store.end, self.known_confirmed, self.verified, store.segment_bytes)
        ranges = handshake_ranges(extent, parts.config.replication.verify_bytes_per_s)
        ranges += [self._differs] if self._differs is not None else []
        found = [await digest_of(store, parts.reads, start, end) for start, end in ranges]
        return tuple(digest for digest in found if digest is not None)

    async def truncate(self, to: PhysicalOffset, reason: str) -> None:
        """Cut the log and all that hangs on it, durably; raises InvalidField where a record lies over `to`."""
        end = self.copy.received
        self.confirmed = min(self.confirmed, to)  # before the cut, which goes on also when whoever asks for it is cancelled
        self._verified = replace(self._verified, end=min(self._verified.end, to))
        self._differs = None
        async with self.parts.dispatcher.truncating(to):
            await self.copy.truncate(to)
        log.warning("log_truncated", node=self.parts.config.name, to=to, end=end, reason=reason)

    @property
    def holds_nothing(self) -> bool:
        """Whether its master may tell it to begin elsewhere."""
        return self.store.end == self.store.min_offset

    async def ask_where_to_begin(self, master: LogSource) -> None:
        """To be done before the handshake of a log that holds nothing: behind the bytes that follow a handshake result the answer may come
        too late.
        """
        try:
            self._log_start = await master.log_start()
        except DittoError as problem:
            self._log_start = problem

    async def begin(self, at: PhysicalOffset) -> None:
        """What the master no longer has is not to be had: a log that holds nothing begins where the master's does, and its queues too.

        Raises ReplicationStreamEnded when where they begin is not known.
        """
        log_start = self._log_start if at else LogStart(at)
        if not isinstance(log_start, LogStart):
            raise ReplicationStreamEnded(f"the log is to begin at {at:,}, and where its queues begin is not known: {log_start}")
        if log_start.offset != at:
            raise ReplicationStreamEnded(f"the log is to begin at {at:,}, and a moment ago the master's began at {log_start.offset:,}")
        log.info("log_start_set", node=self.parts.config.name, at=at)
        async with self.parts.dispatcher.truncating(at):
            await self.copy.begin(log_start)
