"""Bugs between a store and its disk."""

from typing import Any

from dittomq.commitlog import reading, truncation
from dittomq.commitlog.disk.log import Log
from dittomq.commitlog.queues.producer_state import Producers
from dittomq.commitlog.replica_append import ReplicaAppender
from dittomq.commitlog.state import epoch_history_file, shutdown_marker
from dittomq.commitlog.store import Store
from dittomq.errors import StorageFailure
from dittomq.offsets import PhysicalOffset
from services.slave.replica_log_writer import ReplicaLogWriter
from tests.simulation.bugs.patches import Patches, always
from tests.simulation.cluster import Cluster
from tests.simulation.disk_snapshots import Files
from tests.simulation.parser import parse_log
from tests.simulation.storage import SimulatedStorage


def skip_fsync_of_master(_: Patches, cluster: Cluster) -> None:
    cluster.world.nodes["a0"].faults.skips_syncs = True


def skip_fsync_of_slaves(_: Patches, cluster: Cluster) -> None:
    for name in cluster.brokers[1:]:
        cluster.world.nodes[name].faults.skips_syncs = True


def retry_failed_fsync(patches: Patches, _: Cluster) -> None:
    def again(honest: Any) -> Any:
        def sync(log: Log) -> None:
            starts = list(log._unsynced)
            try:
                honest(log)
            except StorageFailure:
                log._unsynced.update(dict.fromkeys(starts))
                honest(log)

        return sync

    patches.put(Log, "sync", again)


def _without_syncs(honest: Any) -> Any:
    def work(storage: SimulatedStorage, *args: object) -> Any:
        before, storage.faults.skips_syncs = storage.faults.skips_syncs, True
        try:
            return honest(storage, *args)
        finally:
            storage.finish()
            storage.faults.skips_syncs = before

    return work


def epoch_history_not_saved(patches: Patches, _: Cluster) -> None:
    """A part of one that lies on the disk would be refused at the next start, before a checker can see what comes of it."""
    patches.put(epoch_history_file, "save", always(None))


def cut_not_fsynced(patches: Patches, _: Cluster) -> None:
    patches.put(truncation, "finish", _without_syncs)


def cut_too_short(patches: Patches, _: Cluster) -> None:
    """Of what a slave is to cut, the first record stays. A single byte would be the first of a length, which is 0 anyway."""

    def make(honest: Any) -> Any:
        async def keep_one(copy_log: ReplicaLogWriter, to: PhysicalOffset) -> None:
            storage = copy_log._store._storage
            assert isinstance(storage, SimulatedStorage)
            kept = [record for record in parse_log(Files(storage.disk)).records if record.physical_offset == to]
            await honest(copy_log, PhysicalOffset(to + kept[0].size) if kept else to)

        return keep_one

    patches.put(ReplicaLogWriter, "truncate", make)


def watermark_above_flushed(patches: Patches, _: Cluster) -> None:
    def make(_: Any) -> Any:
        def persist(store: Store, _flushed: int, confirmed: int, **_: object) -> bool:
            with store._gate.filing, store._gate.guard("persist_recovery_point"):
                store._save_mark(store.end, min(confirmed, store.end))
            return True

        return persist

    patches.put(Store, "persist_recovery_point", make)


def recovery_cuts_one_record_too_many(patches: Patches, _: Cluster) -> None:
    def make(honest: Any) -> Any:
        def recover(store: Store) -> None:
            honest(store)
            if store.stopped is shutdown_marker.StopKind.POWER_LOSS:
                storage = store._storage
                assert isinstance(storage, SimulatedStorage)
                records = parse_log(Files(storage.disk)).records
                if records:
                    store.truncate(records[-1].physical_offset)

        return recover

    patches.put(Store, "_recover", make)


def damage_is_served(patches: Patches, _: Cluster) -> None:
    patches.put(reading, "intact", always(True))


def sync_takes_in_what_came_meanwhile(patches: Patches, _: Cluster) -> None:
    """What is written while the log is synced counts as flushed."""

    def make(_: Any) -> Any:
        def sync(store: Store) -> PhysicalOffset:
            with store._gate.syncing, store._gate.guard("sync"):
                store._log.sync()
                store.flushed = max(store.flushed, store.end)
                return store.flushed

        return sync

    patches.put(Store, "sync", make)


def sync_forgets_what_came_meanwhile(patches: Patches, _: Cluster) -> None:
    """A segment that is written while it is synced is not synced again before it is written once more."""

    def make(honest: Any) -> Any:
        def sync(log: Log) -> None:
            starts = list(log._unsynced)
            honest(log)
            for start in starts:
                log._unsynced.pop(start, None)

        return sync

    patches.put(Log, "sync", make)


def chunk_counts_before_it_is_written(patches: Patches, _: Cluster) -> None:
    """The end of a chunk is published before its bytes are there."""

    def make(honest: Any) -> Any:
        def write(log: Log, data: Any, *, gap: int = 0) -> None:
            end = log.end
            for receiver in _receivers_of(log):
                receiver.end = end + len(data) + gap
            honest(log, data, gap=gap)

        return write

    receivers: list[ReplicaAppender] = []

    def _receivers_of(log: Log) -> list[ReplicaAppender]:
        return [each for each in receivers if each._log is log and not each.partial]

    def remember(honest: Any) -> Any:
        def init(receiver: ReplicaAppender, *parts: Any, **named: Any) -> None:
            honest(receiver, *parts, **named)
            receivers.append(receiver)

        return init

    patches.put(ReplicaAppender, "__init__", remember)
    patches.put(Log, "write", make)


def checkpoint_forgets_a_producer(patches: Patches, _: Cluster) -> None:
    """A checkpoint lacks the producer that stored something last."""

    def make(honest: Any) -> Any:
        def to_bytes(table: Producers, end: int) -> bytes:
            held = table._producers.copy()
            if table._producers:
                table._producers.popitem()
            try:
                found: bytes = honest(table, end)
            finally:
                table._producers = held
            return found

        return to_bytes

    patches.put(Producers, "to_bytes", make)
