"""From where the queues are built again after a restart, and the two files that RocketMQ's tools look for.

`dittomq/checkpoint` holds the dispatched end and what every queue held there. The queue files are durable up to it. What they
hold beyond is not believed. Damaged or missing, it costs a rebuild of all queues from the log.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass

from dittomq.commitlog import side_file
from dittomq.commitlog.storage import Storage, replace_file

_NAME = "checkpoint"
_KIND = b"CHEK"
_MINIMUMS_NAME = "queue-minimums"
_MINIMUMS_KIND = b"QMIN"
_ROCKETMQ_CHECKPOINT = "checkpoint"
_ROCKETMQ_ABORT = "abort"
# physic, logics, index message time; master's flushed, confirmed
_ROCKETMQ_FIELDS = struct.Struct(">qqqqq")
_ROCKETMQ_BYTES = 4_096

QueueKey = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Minimum:
    """A queue of a deleted topic holds nothing below `low`; said when the log ended at `end`."""

    low: int
    end: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The queues hold exactly the records that end at or below `end`: [min, max) for each; `store_ms` is the newest among them."""

    end: int
    store_ms: int
    file_units: int
    ranges: Mapping[QueueKey, tuple[int, int]]


def load(storage: Storage) -> Checkpoint | None:
    """None when there is none. Raises DamagedSideFile."""
    value = side_file.load_json(storage, _NAME, _KIND)
    if value is None:
        return None
    ranges = {(topic, queue): (low, high) for topic, queue, low, high in value["queues"]}
    return Checkpoint(value["end"], value["store_ms"], value["file_units"], ranges)


def save(storage: Storage, checkpoint: Checkpoint) -> None:
    """Durably replace it; the caller has synced the queues."""
    rows = [[topic, queue, low, high] for (topic, queue), (low, high) in checkpoint.ranges.items()]
    value = {"end": checkpoint.end, "store_ms": checkpoint.store_ms, "file_units": checkpoint.file_units, "queues": rows}
    side_file.save_json(storage, _NAME, _KIND, value)


def remove(storage: Storage) -> None:
    """Durably forget it: all queues are to be built anew, by RocketMQ too."""
    side_file.remove(storage, _NAME)
    forget_for_rocketmq(storage)


def load_minimums(storage: Storage) -> dict[QueueKey, Minimum]:
    """Raises DamagedSideFile."""
    rows = side_file.load_json(storage, _MINIMUMS_NAME, _MINIMUMS_KIND) or []
    return {(topic, queue): Minimum(low, end) for topic, queue, low, end in rows}


def save_minimums(storage: Storage, minimums: Mapping[QueueKey, Minimum]) -> None:
    """Durably replace them."""
    rows = [[topic, queue, minimum.low, minimum.end] for (topic, queue), minimum in minimums.items()]
    side_file.save_json(storage, _MINIMUMS_NAME, _MINIMUMS_KIND, rows)


def forget_for_rocketmq(storage: Storage) -> None:
    """Durably remove RocketMQ's own file, with which it would build only a part of the queues that are missing."""
    if storage.exists(_ROCKETMQ_CHECKPOINT):
        storage.unlink(_ROCKETMQ_CHECKPOINT)
        storage.sync_folder("")


def write_for_rocketmq(storage: Storage, checkpoint: Checkpoint, confirmed: int) -> None:
    """Durably say in RocketMQ's own file how new the messages in log and queues are."""
    fields = _ROCKETMQ_FIELDS.pack(checkpoint.store_ms, checkpoint.store_ms, 0, 0, confirmed)
    replace_file(storage, _ROCKETMQ_CHECKPOINT, fields.ljust(_ROCKETMQ_BYTES, b"\0"))


def set_abort(storage: Storage) -> None:
    """Durably tell RocketMQ's tools that the store is in use, or was left without a clean stop."""
    if not storage.exists(_ROCKETMQ_ABORT):
        replace_file(storage, _ROCKETMQ_ABORT, b"dittomq\n")


def clear_abort(storage: Storage) -> None:
    """Durably tell them that it was left cleanly."""
    if storage.exists(_ROCKETMQ_ABORT):
        storage.unlink(_ROCKETMQ_ABORT)
        storage.sync_folder("")
