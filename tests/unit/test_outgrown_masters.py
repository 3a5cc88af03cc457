"""The start of a master that led in an epoch of its own while its slaves confirmed with another one."""

from dataclasses import replace

import pytest

from dittomq.lineage import Lineage, LineageEntry
from dittomq.offsets import Epoch, PhysicalOffset
from dittomq.replication.leadership import Stopped
from dittomq.replication.leadership_decisions import Follow, Lead, TakeOver, Wait
from dittomq.routes import NO_OPENING, Opening
from tests.support.starts import ONE, RULES, asked, decided, hello, own

THEIRS: Lineage = (*ONE, LineageEntry(Epoch(3), 1, 33, PhysicalOffset(900)))
OURS: Lineage = (*ONE, LineageEntry(Epoch(4), 0, 44, PhysicalOffset(900)))
GAVE_UP = replace(own(Stopped.INCOMPLETE, lineage=OURS), told=Opening(Epoch(4), 0))


@pytest.mark.parametrize("end", [900, 5_000], ids=["nothing written in it", "nothing confirmed in it"])
def test_who_gave_its_epoch_up_takes_the_longest_of_enough_slaves_and_opens_one_above_it(end: int) -> None:
    leadership = asked(RULES, replace(GAVE_UP, end=PhysicalOffset(end)), 0.0)
    leadership.slave_heard(hello(1, 1_000, lineage=THEIRS))
    assert isinstance(leadership.decide(0.0), Wait)

    leadership.slave_heard(hello(2, 1_200, lineage=THEIRS, confirmed=1_000))

    assert leadership.decide(0.0) == TakeOver("a/2", "a-2:10912", PhysicalOffset(900), PhysicalOffset(1_200), THEIRS)
    leadership.took_over(replace(GAVE_UP, end=PhysicalOffset(1_200), lineage=THEIRS))
    assert decided(leadership, 0.0) == Lead(Epoch(5), "")


def test_who_gave_its_epoch_up_follows_another_node_that_opened_one_of_that_number() -> None:
    for opening in (Opening(Epoch(4), 1), Opening(Epoch(5), 1)):
        leadership = asked(RULES, GAVE_UP, 0.0)
        leadership.slave_heard(replace(hello(2, 1_200, lineage=THEIRS), heard=Epoch(4), heard_opener=0))
        assert isinstance(leadership.decide(0.0), Wait)

        leadership.others_say([opening])

        assert leadership.decide(0.0) == Follow(opening.epoch, 1)


def test_a_part_of_a_log_that_gave_no_epoch_up_is_kept_where_it_outranks_the_slaves() -> None:
    leadership = asked(RULES, replace(GAVE_UP, end=PhysicalOffset(1_300), lineage=THEIRS, told=Opening(Epoch(4), 0)), 0.0)
    for broker_id in (1, 2):
        leadership.slave_heard(hello(broker_id, 1_200, lineage=THEIRS))

    assert decided(leadership, 0.0) == Lead(Epoch(5), "")


def test_an_epoch_without_a_byte_gives_way_to_an_older_one_unless_it_was_given_up_with_others_knowing_of_it() -> None:
    for found, leads in ((replace(GAVE_UP, stopped=Stopped.WHOLE, told=NO_OPENING), False), (GAVE_UP, True)):
        leadership = asked(RULES, found, 0.0)
        for broker_id in (1, 2):
            leadership.slave_heard(hello(broker_id, 900, lineage=THEIRS))
        decision = decided(leadership, 0.0)
        assert isinstance(decision, TakeOver) if leads else decision == Follow(Epoch(3), 1)
