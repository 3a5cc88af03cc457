"""The start of a master that led in an epoch of its own while its slaves confirmed with another one."""

from dataclasses import replace

import pytest

from dittomq.lineage import Lineage, LineageEntry
from dittomq.offsets import Epoch, PhysicalOffset
from dittomq.replication.events import Hello
from dittomq.replication.group_of_start import LeadershipRules, Others
from dittomq.replication.leadership import Leadership
from dittomq.replication.leadership_decisions import Decision, Follow, GiveUp, Lead, Refuse, TakeOver, Wait
from dittomq.replication.own_log import OwnLog, Stopped
from dittomq.replication.parted import Parted
from dittomq.routes import NO_OPENING, Claim, Opening
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


def test_who_gave_its_epoch_up_follows_another_node_that_opened_a_newer_one_or_leads_in_one_of_that_number() -> None:
    for opening, who in ((Opening(Epoch(5), 1), Others()), (Opening(Epoch(4), 1), Others(leading=(Opening(Epoch(4), 1),)))):
        leadership = asked(RULES, GAVE_UP, 0.0)
        leadership.slave_heard(replace(hello(2, 1_200, lineage=THEIRS), heard=Epoch(4), heard_opener=0))
        assert isinstance(leadership.decide(0.0), Wait)

        leadership.others_say([opening], who=who)

        assert leadership.decide(0.0) == Follow(opening.epoch, 1)


def test_who_gave_its_epoch_up_follows_one_that_a_nameserver_refuses_for_it_and_that_leads_in_one_of_that_number() -> None:
    leadership = asked(RULES, GAVE_UP, 0.0)
    leadership.nameservers_say(Opening(Epoch(4), 1), settled=True, id_taken="", rivals=(Claim(Opening(Epoch(4), 1), None),))

    assert leadership.decide(0.0) == Follow(Epoch(4), 1)


def test_who_gave_its_epoch_up_leads_where_who_was_granted_one_of_that_number_is_silent_and_enough_slaves_are_heard() -> None:
    """That one may follow this node, which each would do for ever."""
    leadership = asked(RULES, GAVE_UP, 0.0)
    leadership.others_say([Opening(Epoch(4), 1)])
    leadership.slave_heard(hello(2, 1_200, lineage=THEIRS))
    assert "1 more of 2 slaves" in str(leadership.decide(0.0))

    leadership.slave_heard(hello(1, 1_000, lineage=THEIRS))

    assert leadership.decide(0.0) == TakeOver("a/2", "a-2:10912", PhysicalOffset(900), PhysicalOffset(1_200), THEIRS)
    leadership.took_over(replace(GAVE_UP, end=PhysicalOffset(1_200), lineage=THEIRS))
    assert decided(leadership, 0.0) == Lead(Epoch(5), "")


def test_who_took_over_an_epoch_of_the_number_that_it_gave_up_has_it_and_goes_on() -> None:
    of_that_number: Lineage = (*ONE, LineageEntry(Epoch(4), 1, 41, PhysicalOffset(900)))
    leadership = asked(RULES, GAVE_UP, 0.0)
    leadership.others_say([], who=Others(following=frozenset({1, 2})))
    for broker_id in (1, 2):
        leadership.slave_heard(hello(broker_id, 1_200, lineage=of_that_number))
    assert isinstance(leadership.decide(0.0), TakeOver)

    leadership.took_over(replace(GAVE_UP, end=PhysicalOffset(1_200), lineage=of_that_number))

    assert decided(leadership, 0.0) == Lead(Epoch(5), "")


def test_who_gave_its_epoch_up_asks_before_it_follows_and_follows_nobody_that_is_a_slave_itself() -> None:
    leadership = Leadership(RULES, GAVE_UP, 0.0)
    leadership.nameservers_say(Opening(Epoch(5), 1), settled=True, id_taken="")
    assert isinstance(leadership.decide(0.0), Wait)

    leadership.others_say([Opening(Epoch(5), 1)], who=Others(following=frozenset({1})))
    assert isinstance(leadership.decide(0.0), Wait)

    leadership.others_say([Opening(Epoch(5), 1)], who=Others())
    assert leadership.decide(0.0) == Follow(Epoch(5), 1)


@pytest.mark.parametrize(
    ("found", "theirs"),
    [
        (own(Stopped.WHOLE, end=500), ONE),
        (own(Stopped.WHOLE, end=900, lineage=OURS), THEIRS),
        (own(Stopped.POWER_LOSS, end=900, lineage=OURS), THEIRS),
    ],
    ids=["an old disk", "nothing written in its epoch", "the same after a power loss"],
)
def test_a_log_of_which_a_slave_has_all_and_more_that_is_confirmed_is_given_up_before_it_leads(found: OwnLog, theirs: Lineage) -> None:
    leadership = asked(RULES, found, 0.0)
    leadership.slave_heard(replace(hello(2, 1_200, lineage=theirs, confirmed=1_100), heard=found.newest.epoch, heard_opener=0))
    lacks = f"a/2 knows 1,100 bytes to be confirmed and this log agrees with it only up to {found.end}"
    assert leadership.decide(5.0) == GiveUp(found.newest, lacks)

    leadership.gave_up(replace(found, stopped=Stopped.INCOMPLETE, told=found.newest))

    assert isinstance(leadership.decide(5.0), Wait)
    leadership.slave_heard(hello(1, 1_100, lineage=theirs))
    taken = leadership.decide(5.0)
    assert isinstance(taken, TakeOver)
    assert (taken.source, taken.start, taken.end) == ("a/2", found.end, 1_200)


def test_what_none_of_enough_slaves_has_was_never_confirmed_and_is_given_up_with_the_rest() -> None:
    strict, found = replace(RULES, witnesses=2), own(Stopped.WHOLE, end=950, lineage=OURS)
    ahead, other = hello(2, 1_200, lineage=THEIRS, confirmed=1_100), hello(1, 1_100, lineage=THEIRS)

    def heard(rules: LeadershipRules, found: OwnLog, *hellos: Hello) -> Decision:
        leadership = asked(rules, found, 0.0)
        for each in hellos:
            leadership.slave_heard(replace(each, heard=Epoch(4), heard_opener=0))
        return leadership.decide(5.0)

    assert isinstance(heard(strict, found, ahead, other), GiveUp)
    assert isinstance(heard(RULES, found, ahead, other), Refuse)
    assert isinstance(heard(strict, found, ahead), Refuse)
    assert isinstance(heard(strict, found, ahead, replace(other, is_filling=True)), Refuse)
    assert isinstance(heard(strict, replace(found, confirmed=PhysicalOffset(920)), ahead, other), Refuse)
    assert isinstance(heard(strict, found, ahead, hello(1, 930, lineage=OURS)), Refuse)


def test_slaves_whose_logs_part_from_their_masters_tell_together_what_was_never_confirmed() -> None:
    parted = Parted(2)
    assert parted.at("a/1", PhysicalOffset(300)) is None
    assert parted.at("a/1", PhysicalOffset(400)) is None
    assert parted.at("a/2", PhysicalOffset(200)) == 400

    parted.forget("a/1")
    assert parted.at("a/2", PhysicalOffset(200)) is None

    nobody = Parted(0)
    assert nobody.at("a/1", PhysicalOffset(300)) is None
    assert nobody.at("a/2", PhysicalOffset(300)) is None


@pytest.mark.parametrize(
    "found",
    [
        own(Stopped.WHOLE, end=950, lineage=OURS),
        replace(own(Stopped.WHOLE, end=500), granted=Epoch(7)),
        replace(own(Stopped.WHOLE, end=500), told=Opening(Epoch(1), 2)),
        replace(own(Stopped.WHOLE, end=500), node_id=3),
    ],
    ids=["it has more", "just granted", "another one opened that epoch too", "another one opened it"],
)
def test_an_operator_decides_where_more_may_be_given_up_than_an_epoch_without_a_byte(found: OwnLog) -> None:
    leadership = asked(RULES, found, 0.0)
    leadership.slave_heard(hello(2, 1_200, confirmed=1_100))

    assert isinstance(leadership.decide(5.0), Refuse)


def test_who_starts_beside_a_node_that_leads_in_an_epoch_of_the_number_of_its_own_is_its_slave_unless_it_was_granted_that() -> None:
    theirs = Others(leading=(Opening(Epoch(4), 1),))
    for stopped in (Stopped.WHOLE, Stopped.FAILED_SYNC):
        found = own(stopped, end=950, lineage=OURS)
        for start, follows in (
            (found, True),
            (replace(found, granted=Epoch(4)), False),
            (replace(found, granted=Epoch(5)), False),
            (replace(found, lineage=(*OURS, LineageEntry(Epoch(5), 0, 55, PhysicalOffset(940)))), False),
        ):
            leadership = asked(RULES, start, 0.0)
            leadership.others_say([Opening(Epoch(4), 1)], who=theirs)
            assert (leadership.decide(0.0) == Follow(Epoch(4), 1)) == follows


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
