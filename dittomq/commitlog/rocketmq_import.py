"""Takes over a store that only RocketMQ wrote.

From then on it is ours: it has an identity and a durable recovery point. Its log is left as it is and gets no epoch: what lies before the
first epoch that a master opens at its end is foreign. The recovery point, below which damage is isolated and nothing is cut, is

    after RocketMQ's clean stop    the end of the last whole record: it had flushed everything
    after its kill                 the segment where its checkpoint lets its own recovery begin

Source: Apache RocketMQ 5.3.3, CommitLog#recoverAbnormally, StoreCheckpoint#getMinTimestamp.
"""

import contextlib
import struct
from collections.abc import Iterator

from dittomq.commitlog.disk import state_file
from dittomq.commitlog.disk.log import Log
from dittomq.commitlog.disk.scanning import ReadablePages, scan_at, skip_damage
from dittomq.commitlog.disk.segment import FOLDER
from dittomq.commitlog.disk.storage import Storage, read_file
from dittomq.commitlog.queues.consume_queue import FOLDER as QUEUES_FOLDER
from dittomq.commitlog.records.checksum_policy import ChecksumPolicy
from dittomq.commitlog.records.format import MAGIC_1, MAGIC_2, START, store_ms_of
from dittomq.commitlog.records.rocketmq_records import NotRead
from dittomq.commitlog.recovery import StoreLayout, open_log
from dittomq.commitlog.state import recovery_point
from dittomq.commitlog.state.shutdown_marker import StopKind
from dittomq.errors import StoreOpenFailed

# Folders of RocketMQ that hold what we do not read.
_UNREAD = {
    "batchconsumequeue": "batch queues",
    "compaction/compactionLog": "compacted topics",
    "consumequeue_ext": "queue extensions",
    "consumequeue_rocksdb": "RocksDB queues",
    "rocksdbstore": "RocksDB queues",
    "tieredStore": "a tiered store",
}
# A log of DLedger; its node's name follows.
_DLEDGER_PREFIX = "dledger-"
# Where the rest of a tiered store lies, its settings say; this it always leaves.
_TIERED_FILE = "config/tieredStoreMetadata.json"
_LMQ_PREFIX = "%LMQ%"
# A file of every RocksDB database; RocketMQ puts that of its queues where others have a folder for each topic, and those of its tables
# into folders beside its config files.
_ROCKSDB_FILE = "CURRENT"
_CONFIG = "config"
# What RocketMQ builds from a log, and keeps there also where its log lies elsewhere (storePathCommitLog).
_BUILT = (QUEUES_FOLDER, "index")
_ABORT = "abort"
_CHECKPOINT = "checkpoint"
# When the newest messages in log and queues were stored, in ms.
_CHECKPOINT_FRONT = struct.Struct(">qq")
_MARGIN_MS = 3_000
_HEAD_BYTES = 76


def refuse_unread(storage: Storage, name: str, *, ours: bool) -> None:
    """Raise StoreOpenFailed for what this version does not read; a topic of ours may be called as LMQ queues are."""
    for folder, what in _unread(storage, ours=ours):
        if storage.list_folder(folder):
            raise StoreOpenFailed(name, f"{folder}/ holds {what}, which this version does not read; use another data_dir")
    if storage.exists(_TIERED_FILE):
        raise StoreOpenFailed(name, f"{_TIERED_FILE} belongs to a tiered store, which this version does not read; use another data_dir")
    if ours or storage.list_folder(FOLDER):
        return
    for folder in _BUILT:
        if storage.list_folder(folder):
            change = f"bring here as {FOLDER}/ what storePathCommitLog names, or empty the data_dir"
            raise StoreOpenFailed(name, f"{folder}/ was built from a log, and {FOLDER}/ holds none; {change}")


def _unread(storage: Storage, *, ours: bool) -> Iterator[tuple[str, str]]:
    """Folders that may be there, and what is in them then."""
    yield from _UNREAD.items()
    yield from ((each, "a log of DLedger") for each in storage.list_folder("") if each.startswith(_DLEDGER_PREFIX))
    queues = storage.list_folder(QUEUES_FOLDER)
    if _ROCKSDB_FILE in queues:
        yield QUEUES_FOLDER, "RocksDB queues"
    if not ours and any(each.startswith(_LMQ_PREFIX) for each in queues):
        yield QUEUES_FOLDER, "LMQ queues"
    tables = (f"{_CONFIG}/{each}" for each in storage.list_folder(_CONFIG))
    yield from ((each, "RocksDB tables") for each in tables if storage.exists(f"{each}/{_ROCKSDB_FILE}"))


def adopt(layout: StoreLayout) -> StopKind:
    """Durably say where the recovery point of RocketMQ's store is, and tell how it was left; nothing else is changed.

    May be repeated. Raises StoreOpenFailed.
    """
    if layout.storage.exists(f"{state_file.FOLDER}/lineage"):
        raise StoreOpenFailed(layout.name, "dittomq/identity is missing; restore it, or empty the data_dir to copy all from the group")
    log = open_log(layout)
    clean = not layout.storage.exists(_ABORT)
    try:
        flushed = _last_whole_end(log) if clean else _recovery_start(layout.storage, log)
    except NotRead as problem:
        raise StoreOpenFailed(layout.name, f"{problem}; use another data_dir") from problem
    recovery_point.reset(layout.storage, recovery_point.RecoveryPoint(1, flushed, 0))
    return StopKind.CLEAN if clean else StopKind.POWER_LOSS


def _last_whole_end(log: Log) -> int:
    """The end of the last whole record or mark; looks no further back than the segment that holds it."""
    foreign, source = ChecksumPolicy(()), ReadablePages(log)
    for start in range(log.stop - log.segment_bytes, log.min_offset - 1, -log.segment_bytes):
        stop = start + log.segment_bytes
        at = found = start
        while at < stop:
            _, scan = scan_at(source, foreign, at, stop)
            found = max(found, scan.end)
            at = scan.end if scan.end > at and not scan.problem else skip_damage(source, foreign, scan.end, stop)
        if found > start:
            return found
    return log.min_offset


def _recovery_start(storage: Storage, log: Log) -> int:
    """Where the last segment begins whose first record is surely older than what RocketMQ had flushed; the first one, if none is."""
    newest_ms = 0
    with contextlib.suppress(FileNotFoundError, struct.error):
        newest_ms = min(_CHECKPOINT_FRONT.unpack_from(read_file(storage, _CHECKPOINT))) - _MARGIN_MS
    for start in range(log.stop - log.segment_bytes, log.min_offset - 1, -log.segment_bytes):
        head = ReadablePages(log).read(start, _HEAD_BYTES, log.stop)
        if START.unpack_from(head)[1] in {MAGIC_1, MAGIC_2} and 0 < store_ms_of(head) <= newest_ms:
            return start
    return log.min_offset
