"""A deletion is undone on a copy that has dropped the beginning of its log meanwhile."""

import random

import pytest

from tests.support.stores import Machine
from tests.unit.commitlog.dropped_logs import SEGMENT, read_all, settled
from tests.unit.commitlog.late_logs import EARLY, copy_of, next_offset, ranges

ORDERS = ("orders", 0)


@pytest.mark.parametrize("drops", ["before", "between"])
@pytest.mark.parametrize("stops", ["closed", "killed", "checkpoint lost"])
def test_queue_shown_again_begins_with_the_first_message_still_held(stops: str, drops: str) -> None:
    """So it does on a copy that never hid it: one of which nothing is left goes on behind what was dropped."""
    machine = Machine(random.Random(5))
    store, other = settled(machine), settled(Machine(random.Random(5)))
    other.drop_before(SEGMENT)
    assert 0 < other.queue_range(*ORDERS)[0] < other.queue_range(*ORDERS)[1]
    if drops == "before":
        store.drop_before(SEGMENT)
    store.hide({key: store.queue_range(*key)[1] for key in (ORDERS, EARLY)})
    store.persist_recovery_point(store.end, store.end)
    if drops == "between":
        store.drop_before(SEGMENT)
    assert store.show_again({})

    for _ in range(2):
        if stops == "closed":
            store.close(clean=True)
        else:
            machine.kill()
        if stops == "checkpoint lost":
            machine.disk.names.files.pop("dittomq/checkpoint", None)
        store = machine.open()
        store.dispatch(store.end)
        assert ranges(store) == ranges(other)
        assert read_all(store) == read_all(other)
    assert ranges(copy_of(store, Machine(random.Random(9)))) == ranges(other)
    assert next_offset(store, "early") == 1


def test_a_copy_that_is_to_show_messages_again_drops_none_before_it_comes_back() -> None:
    machine = Machine(random.Random(5))
    store = settled(machine)
    store.hide({ORDERS: store.queue_range(*ORDERS)[1]})
    store.persist_recovery_point(store.end, store.end)
    assert store.show_again({})
    assert store.drop_before(SEGMENT) == 0
    store.close(clean=True)

    store = machine.open()
    store.dispatch(store.end)
    assert store.drop_before(SEGMENT) == SEGMENT
    other = settled(Machine(random.Random(5)))
    other.drop_before(SEGMENT)
    assert ranges(store) == ranges(other)
