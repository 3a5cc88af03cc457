"""From where the queues are built again after a restart, and the two files that RocketMQ's tools look for.

`dittomq/checkpoint` holds the dispatched end and what every queue held there. The queue files are durable up to it. What they
hold beyond is not believed; the same goes for the key index. Damaged or missing, it costs a rebuild of them all from the log.
"""

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, NotRequired, TypedDict

from msgspec import Meta

from dittomq.commitlog.disk import state_file
from dittomq.commitlog.disk.state_file import Number
from dittomq.commitlog.disk.storage import Storage, read_file, replace_file
from dittomq.commitlog.queues.key_format import KeyMark, KeySizes
from dittomq.commitlog.records.format import FIXED_BYTES

_NAME = "checkpoint"
_KIND = b"CHEK"
_MINIMUMS_NAME = "queue-minimums"
_RESET_NAME = "queues-anew"
_RESET_KIND = b"QNEW"
_MINIMUMS_KIND = b"QMIN"
_ROCKETMQ_CHECKPOINT = "checkpoint"
_ROCKETMQ_ABORT = "abort"
_OUR_ABORT = b"dittomq\n"
# physic, logics, index message time; master's flushed, confirmed
_ROCKETMQ_FIELDS = struct.Struct(">qqqqq")
_ROCKETMQ_BYTES = 4_096
QUEUE_ROW_BYTES = 512
"""What is written of one queue, at most: its name and its numbers, in three files."""

QueueKey = tuple[str, int]


@dataclass(frozen=True, slots=True)
class QueueBound:
    """A queue of a deleted topic holds nothing below `low`; said when the log ended at `end`.

    `is_reset`: RocketMQ began the queue anew with the record at byte `end`, so that minimums up to `low` hide nothing any more.
    """

    low: int
    end: int
    is_reset: bool = False

    @property
    def hidden(self) -> int:
        """How many messages it hides."""
        return 0 if self.is_reset else self.low


@dataclass(frozen=True, slots=True)
class OffsetReservation:
    """Queues give no offset below `nexts`: whatever messages lie in the damaged `ranges` of the log, [start, end) each, have lower ones.

    `strange` are those of them that may hold messages of queues that nobody here knows. Such a queue begins at `begin`.
    None of them begins before byte `low`, not even those that `ranges` names no more; an older version did not keep it: 0.
    """

    nexts: Mapping[QueueKey, int] = field(default_factory=dict)
    ranges: Sequence[tuple[int, int]] = ()
    strange: Sequence[tuple[int, int]] = ()
    low: int = 0

    @property
    def begin(self) -> int:
        """Behind all offsets that messages of an unknown queue can have."""
        return most_messages(self.strange)

    def joined(self, other: "OffsetReservation") -> "OffsetReservation":
        """Both; where they name one queue, the other one's next offset counts."""
        starts = [each.low for each in (self, other) if each.nexts or each.ranges]
        nexts, ranges = {**self.nexts, **other.nexts}, [*self.ranges, *other.ranges]
        return OffsetReservation(nexts, ranges, [*self.strange, *other.strange], min(starts, default=0))

    def truncate(self, to: int) -> "OffsetReservation":
        """What is left where the log is cut at `to`: nothing when all that was leapt over goes."""
        return OffsetReservation() if to <= self.low else self

    def covers(self, start: int, end: int) -> bool:
        """Whether all of [start, end) lies in one of the ranges."""
        return any(low <= start and end <= high for low, high in self.ranges)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Queues and key index hold exactly the records that end at or below `end`; none of them was stored after `store_ms`.

    `ranges` are the queues' offsets, [min, max) for each. `reservation` is what a master left out when it led without damaged bytes.
    `unmade`: of some queues, how many files between are missing rightly. An older version did not keep it: none, or any in a store that
    has leapt.
    """

    end: int
    store_ms: int
    file_units: int
    ranges: Mapping[QueueKey, tuple[int, int]]
    keys: KeyMark
    reservation: OffsetReservation = field(default_factory=OffsetReservation)
    unmade: Mapping[QueueKey, int] = field(default_factory=dict)


class _SavedCheckpoint(TypedDict):
    """The file. Older versions left out what need not be there."""

    end: Number
    store_ms: Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
    file_units: Number
    queues: list[tuple[str, Number, Number, Number]]
    keys: NotRequired[tuple[Number, Number, list[str], Number, Number]]
    leap: NotRequired[tuple[list[tuple[str, Number, Number]], list[tuple[Number, Number]]]]
    leap_low: NotRequired[Number]
    strange: NotRequired[list[tuple[Number, Number]]]
    unmade: NotRequired[list[tuple[str, Number, Number]]]


def most_messages(ranges: Iterable[tuple[int, int]]) -> int:
    """How many messages lie in these bytes of the log at most."""
    return sum((end - start) // FIXED_BYTES for start, end in ranges)


def load(storage: Storage) -> Checkpoint | None:
    """None when there is none. Raises CorruptStateFile."""
    value = state_file.load_json(storage, _NAME, _KIND, _SavedCheckpoint)
    if value is None or "keys" not in value:  # written before there was a key index
        return None
    ranges = {(topic, queue): (low, high) for topic, queue, low, high in value["queues"]}
    slots, entries, files, count, last = value["keys"]
    keys = KeyMark(KeySizes(slots, entries), tuple(files), count, last)
    nexts, over = value.get("leap", ((), ()))
    strange = [(start, end) for start, end in value.get("strange", ())]
    reserved_below = {(topic, queue): offset for topic, queue, offset in nexts}
    reservation = OffsetReservation(reserved_below, [(start, end) for start, end in over], strange, value.get("leap_low", 0))
    unmade = {(topic, queue): count for topic, queue, count in value.get("unmade", ())}
    if "unmade" not in value and (reserved_below or over or strange):  # to build all again would forget what was leapt over
        unmade = {key: high for key, (_, high) in ranges.items()}
    return Checkpoint(value["end"], value["store_ms"], value["file_units"], ranges, keys, reservation, unmade)


def save(storage: Storage, checkpoint: Checkpoint) -> None:
    """Durably replace it; the caller has synced the queues and the key index."""
    rows = [[topic, queue, low, high] for (topic, queue), (low, high) in checkpoint.ranges.items()]
    keys = checkpoint.keys
    value = {
        "end": checkpoint.end,
        "store_ms": checkpoint.store_ms,
        "file_units": checkpoint.file_units,
        "queues": rows,
        "keys": [keys.sizes.slots, keys.sizes.entries, keys.files, keys.count, keys.end],
        "unmade": [[*key, count] for key, count in checkpoint.unmade.items()],
    }
    if checkpoint.reservation.nexts or checkpoint.reservation.ranges:
        value["leap"] = [[[*key, offset] for key, offset in checkpoint.reservation.nexts.items()], checkpoint.reservation.ranges]
        value["leap_low"] = checkpoint.reservation.low
    if checkpoint.reservation.strange:
        value["strange"] = checkpoint.reservation.strange
    state_file.save_json(storage, _NAME, _KIND, value)


def remove(storage: Storage) -> None:
    """Durably forget it: all queues are to be built anew, by RocketMQ too."""
    state_file.remove(storage, _NAME)
    remove_for_rocketmq(storage)


def order_queue_reset(storage: Storage) -> None:
    """Durably let whoever opens the store next build all queues from the log, whatever a checkpoint says by then."""
    state_file.save(storage, _RESET_NAME, _RESET_KIND, b"")


def is_ordered(storage: Storage) -> bool:
    """Whether it was, and no start has done it yet. What is in the file does not matter, only that it is there."""
    return storage.exists(f"{state_file.FOLDER}/{_RESET_NAME}")


def take_order(storage: Storage) -> bool:
    """Whether that was ordered; then there is no checkpoint now."""
    if not is_ordered(storage):
        return False
    remove(storage)
    state_file.remove(storage, _RESET_NAME)
    return True


def load_minimums(storage: Storage) -> dict[QueueKey, QueueBound]:
    """Raises CorruptStateFile."""
    rows = state_file.load_json(storage, _MINIMUMS_NAME, _MINIMUMS_KIND, list[tuple[str, Number, int, Number]]) or []
    return {(topic, queue): QueueBound(abs(low), end, low < 0) for topic, queue, low, end in rows}


def save_minimums(storage: Storage, minimums: Mapping[QueueKey, QueueBound]) -> None:
    """Durably replace them."""
    rows = [[*key, -minimum.low if minimum.is_reset else minimum.low, minimum.end] for key, minimum in minimums.items()]
    state_file.save_json(storage, _MINIMUMS_NAME, _MINIMUMS_KIND, rows)


def remove_for_rocketmq(storage: Storage) -> None:
    """Durably remove RocketMQ's own file, with which it would build only a part of the queues that are missing."""
    if storage.exists(_ROCKETMQ_CHECKPOINT):
        storage.unlink(_ROCKETMQ_CHECKPOINT)
        storage.sync_folder("")


def write_for_rocketmq(storage: Storage, log_ms: int, queues_ms: int, confirmed: int) -> None:
    """Durably say in RocketMQ's own file up to which store time all messages are in the log, and all in queues and key index."""
    fields = _ROCKETMQ_FIELDS.pack(log_ms, queues_ms, queues_ms, 0, confirmed)
    replace_file(storage, _ROCKETMQ_CHECKPOINT, fields.ljust(_ROCKETMQ_BYTES, b"\0"))


def set_abort(storage: Storage) -> None:
    """Durably tell RocketMQ's tools that the store is in use, or was left without a clean stop."""
    if not abort_is_ours(storage):
        replace_file(storage, _ROCKETMQ_ABORT, _OUR_ABORT)


def abort_is_ours(storage: Storage) -> bool:
    """Whether a process of ours set it and RocketMQ has not touched it since: 5.x puts its own in its place, a clean stop removes it."""
    return storage.exists(_ROCKETMQ_ABORT) and read_file(storage, _ROCKETMQ_ABORT) == _OUR_ABORT


def is_abort_set(storage: Storage) -> bool:
    """Whether the store is in use or was left without a clean stop, ours or RocketMQ's."""
    return storage.exists(_ROCKETMQ_ABORT)


def clear_abort(storage: Storage) -> None:
    """Durably tell them that it was left cleanly."""
    if storage.exists(_ROCKETMQ_ABORT):
        storage.unlink(_ROCKETMQ_ABORT)
        storage.sync_folder("")
