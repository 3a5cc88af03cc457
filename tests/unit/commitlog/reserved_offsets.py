"""Masters that lead without damaged messages, and the offsets that they give."""

from dittomq.commitlog.store import Store
from tests.support.record_damage import entries, loses
from tests.support.stores import Machine, filled, frame, open_epoch, places, whole_log
from tests.unit.commitlog.repaired_stores import rot


def lost(machine: Machine, count: int = 1, *, before: int = 0) -> tuple[Store, bytes, tuple[int, int]]:
    """A store that starts with its newest `count` records rotted, those left out that come after them; its log as it was, and where."""
    store = filled(machine)
    log = whole_log(store)
    machine.kill()
    at = entries(log)
    start, end = at[-count - before][0], at[-1 - before][1]
    rot(machine, log, loses(0, end - start), start, end=end)
    return machine.open(), log, (start, end)


def given(store: Store, queue: int = 2) -> int:
    """The offset that the next message of the queue gets."""
    (answer,) = store.append([frame(b"new", queue=queue)], 99).placed
    return int(places(answer)[0].queue_offset)


def lead(store: Store, opener: int = 0) -> int:
    """As a master does that nobody can give the bytes."""
    reserved = store.reserve_offsets([("orders", queue) for queue in range(5)], opener)
    open_epoch(store, opener)
    return reserved
