"""Replicas whose log starts late, and their queues."""

import struct

from dittomq.commitlog.records.format import UNIT_BYTES
from dittomq.commitlog.store import Store
from tests.support.foreign_records import foreign_log, foreign_record, put_file, put_log
from tests.support.stores import Machine, draft, frame, open_epoch, places
from tests.unit.commitlog.dropped_logs import SEGMENT, log_from

EARLY = ("early", 0)


def copy_of(source: Store, machine: Machine) -> Store:
    """A slave's store that began when its master's already began late."""
    copy = machine.open()
    copy.set_log_start(source.log_start())
    fill(copy, source)
    return copy


def fill(copy: Store, source: Store) -> None:
    """Copy what the master has and the copy has not."""
    copy.replace_epoch_history(source.epoch_history)
    log = log_from(source, source.min_offset)
    for at in range(copy.end, source.end, 4_096):
        copy.write_chunk(at, log[at - source.min_offset : min(at + 4_096, source.end) - source.min_offset])
    copy.persist_recovery_point(copy.sync(), copy.end)
    copy.dispatch(copy.end)


def ranges(store: Store) -> dict[tuple[str, int], tuple[int, int]]:
    return {key: store.queue_range(*key) for key in store.queues()}


def next_offset(store: Store, topic: str) -> int:
    """The offset that a message gets which is stored now."""
    open_epoch(store)
    [placed] = store.append([frame(b"later", topic=topic)], 1_000).placed
    return places(placed)[0].queue_offset


def queue_file(*units: tuple[int, int]) -> bytes:
    """A file of a queue as RocketMQ leaves it, with room for more."""
    return b"".join(struct.pack(">qiq", position, size, 0) for position, size in units).ljust(40 * UNIT_BYTES, b"\0")


def rocketmqs(machine: Machine) -> None:
    """A store of RocketMQ that has dropped its first segment. `early` had its last message there, `orders` goes on behind it."""
    held = foreign_log([draft(body=b"x" * 900)] * 5, SEGMENT, SEGMENT, {("orders", 0): 3})
    put_log(machine, held, SEGMENT)
    size = len(foreign_record(draft(body=b"x" * 900), 3, SEGMENT))
    storage = machine.storage()
    for folder in ("consumequeue/early/0", "consumequeue/orders/0", "consumequeue/never/0"):
        storage.make_folder(folder)
    put_file(machine, f"consumequeue/early/0/{0:020d}", queue_file(*((at * 200, 200) for at in range(40))))
    put_file(machine, f"consumequeue/early/0/{40 * UNIT_BYTES:020d}", queue_file((9_000, 200), (9_200, 200)))
    put_file(machine, f"consumequeue/orders/0/{0:020d}", queue_file((0, 0x7FFFFFFF), (1_000, size), (2_000, size), (SEGMENT, size)))
    put_file(machine, f"consumequeue/never/0/{0:020d}", queue_file())
    for folder in ("", "consumequeue", "consumequeue/early", "consumequeue/orders", "consumequeue/never"):
        machine.storage().sync_folder(folder)
