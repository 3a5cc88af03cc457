"""Whose word counts at the start of a master that may lack what was confirmed: not a slave's whose disk is new."""

from dataclasses import replace

from dittomq.offsets import Epoch
from dittomq.replication.group_of_start import Others
from dittomq.replication.leadership_decisions import Lead, TakeOver, Wait
from dittomq.replication.own_log import Stopped
from dittomq.routes import Opening
from tests.support.starts import EMPTY, RULES, asked, decided, hello, own


def test_a_slave_that_began_on_an_empty_disk_and_never_caught_up_is_not_among_those_that_must_be_heard() -> None:
    """The disk before it may have been the other one with what was confirmed."""
    for found in (own(Stopped.FAILED_SYNC), EMPTY):
        leadership = asked(RULES, found, 0.0)
        leadership.slave_heard(hello(1, 900))
        leadership.slave_heard(replace(hello(2, 400), is_filling=True))

        waits = leadership.decide(1e6)
        assert isinstance(waits, Wait)
        assert "1 more of 2 slaves" in waits.why
        assert waits.why.endswith(
            "a/2 may lack what it acknowledged: its disk is new, or it gave up a copy or a part of one, "
            "and it cannot catch up before somebody leads: --accept-loss"
        )

        leadership.slave_heard(hello(2, 400))
        assert not isinstance(leadership.decide(1e6), Wait)


def test_what_an_operator_gave_up_is_named_without_the_advice_to_give_it_up() -> None:
    leadership = asked(RULES, own(Stopped.FAILED_SYNC), 0.0)
    leadership.slave_heard(hello(1, 900))
    leadership.slave_heard(replace(hello(2, 400), is_filling=True))
    leadership.decide(1e6)

    leadership.accept_loss()

    led = decided(leadership, 1e6)
    assert isinstance(led, Lead)
    assert led.accepted_loss == "a/2 may lack what it acknowledged: its disk is new, or it gave up a copy or a part of one"


def test_slaves_of_a_new_group_that_are_all_empty_are_heard_though_none_was_ever_filled() -> None:
    leadership = asked(RULES, EMPTY, 0.0)
    for number in (1, 2):
        leadership.slave_heard(replace(hello(number, 0, lineage=()), is_filling=True))

    assert isinstance(decided(leadership, 0.1), Lead)


def test_where_one_copy_is_enough_a_slave_that_is_being_filled_is_heard_like_any_other() -> None:
    leadership = asked(replace(RULES, in_sync_replicas=1), EMPTY, 0.0)
    leadership.slave_heard(hello(1, 900))
    leadership.slave_heard(replace(hello(2, 400), is_filling=True))

    assert isinstance(leadership.decide(1e6), TakeOver)


def test_a_slave_that_was_heard_of_and_is_not_there_is_named_among_what_may_be_lost() -> None:
    """Its stream has ended, or it was asked who leads and says no hello."""
    gone, was_asked, one_of_two = (asked(replace(RULES, replicas_expected=slaves), EMPTY, 0.0) for slaves in (2, 2, 3))
    for leadership in (gone, one_of_two):
        leadership.slave_heard(hello(2, 900))
        leadership.slave_gone("a/2")
    was_asked.others_say([], who=Others(known={"a/2": Opening(Epoch(1), 0)}))
    lost = []
    for leadership in (gone, was_asked, one_of_two):
        leadership.slave_heard(hello(1, 0, lineage=()))
        leadership.accept_loss()
        led = decided(leadership, 0.1)
        assert isinstance(led, Lead)
        lost.append(led.accepted_loss)

    assert lost == [
        *["what only slaves hold that are not heard: a/2"] * 2,
        "what only slaves hold that are not heard: 2 of 3, a/2 among them",
    ]
