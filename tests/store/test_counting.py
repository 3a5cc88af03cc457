"""How many messages a stretch of the log holds."""

import errno
import random

from services.master.counting import count_messages
from tests.store.test_bad_pages import in_use
from tests.support.stores import SMALL, Machine, frame, open_epoch


def test_messages_are_counted_one_by_one_across_segments() -> None:
    store = Machine(random.Random(3)).open()
    open_epoch(store)
    begin = store.append([frame(b"before")], 1).end
    group = store.append([frame(*(b"x" * 3_000 for _ in range(20)))], 2)
    assert group.end > SMALL.segment_bytes

    assert count_messages(store, begin, group.end) == 20
    assert count_messages(store, group.end, group.end) == 0


def test_what_is_damaged_is_not_counted() -> None:
    machine = Machine(random.Random(3))
    store = machine.open()
    open_epoch(store)
    group = store.append([frame(*(b"x" * 3_000 for _ in range(20)))], 2)
    [first, *_] = sorted(path for path in machine.disk.names.files if path.startswith("commitlog/"))
    machine.disk.names.files[first].write(memoryview(b"?"), 5_000, machine.chance)

    assert count_messages(store, group.start, group.end) is None


def test_what_cannot_be_read_now_is_not_counted() -> None:
    machine, store, door = in_use()
    door.says, door.bad[f"commitlog/{0:020d}"] = errno.ENOMEM, set(range(machine.options.segment_bytes))

    assert count_messages(store, store.min_offset, store.end) is None
