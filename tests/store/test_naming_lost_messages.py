"""Which messages a repair calls lost where the queues do not name them all."""

import random

from dittomq.copies import RepairOrder
from dittomq.offsets import PhysicalOffset
from tests.store.test_damage import HARMS, entries
from tests.store.test_mender import store_of
from tests.store.test_mending import rot
from tests.store.test_repairing import messages_of, named, repair
from tests.support.stores import Machine, whole_log


def test_messages_that_are_not_in_the_queues_yet_are_not_named_and_that_is_said() -> None:
    source, machine = store_of(Machine(random.Random(1))), Machine(random.Random(2))
    log = whole_log(source)
    slave = machine.open()
    slave.adopt_lineage(source.lineage)
    slave.write_chunk(0, log[: slave.segment_bytes])
    slave.sync()
    start, end = entries(log)[6]
    slave.dispatch(PhysicalOffset(start))
    rot(machine, whole_log(slave), HARMS["magic"], start, end)

    [waiting] = repair(slave, RepairOrder("a/1")).ranges
    slave.dispatch(slave.end)
    [outcome] = repair(slave, RepairOrder("a/1")).ranges

    assert (waiting.start, waiting.messages, waiting.more_messages) == (start, (), True)
    assert (named(outcome), outcome.more_messages) == (messages_of(log, start, end), False)
