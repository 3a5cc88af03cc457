"""Logs to which RocketMQ appended."""

from dittomq.commitlog.store import Store
from dittomq.epoch_history import FOREIGN
from tests.support.stores import SMALL, draft

SEGMENT = SMALL.segment_bytes
THEIRS = [draft(queue=at % 3, body=b"theirs %d" % at + b"." * 500) for at in range(40)]


def stretches(store: Store) -> list[tuple[int, bool, int]]:
    return [(entry.epoch, entry.master_id == FOREIGN, entry.start) for entry in store.epoch_history]
