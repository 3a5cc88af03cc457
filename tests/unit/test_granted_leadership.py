"""Who may lead with a grant, and what slaves have heard of others: rows of the rules in `dittomq.replication.leadership`."""

from dataclasses import replace

from dittomq.lineage import LineageEntry
from dittomq.offsets import Epoch, PhysicalOffset
from dittomq.replication.leadership_decisions import Follow, Lead, Refuse, TakeOver, Wait
from dittomq.replication.own_log import OwnLog, Stopped
from dittomq.routes import Opening
from tests.support.starts import ONE, RULES, TWO, asked, decided, hello, own, started


def granted(epoch: int, loss: str = "") -> OwnLog:
    return OwnLog("a/0", Stopped.WHOLE, PhysicalOffset(500), ONE, granted=Epoch(epoch), accepted_loss=loss)


def test_a_loss_that_was_accepted_with_the_grant_is_not_asked_for_again() -> None:
    knows_more = hello(1, end=900, lineage=TWO, confirmed=900)
    refused, accepted = started(RULES, granted(3), 0.0), started(RULES, granted(3, "a/1 has more"), 0.0)

    for leadership in (refused, accepted):
        leadership.slave_heard(knows_more)

    assert isinstance(refused.decide(0.0), Refuse)
    decision = decided(accepted, 0.0)
    assert isinstance(decision, Lead)
    assert decision.epoch == 3
    assert decision.accepted_loss.startswith("a/1 has more; a/1 knows 900 bytes to be confirmed")


def test_a_loss_that_was_accepted_with_an_older_grant_says_nothing_of_this_start() -> None:
    leadership = asked(RULES, replace(granted(1, "a/1 has more"), lineage=TWO, end=PhysicalOffset(600)), 0.0)
    leadership.slave_heard(replace(hello(1, end=900, confirmed=900), lineage=ONE))

    assert isinstance(leadership.decide(0.0), Refuse)


def test_a_slave_that_heard_of_this_grant_from_a_nameserver_raises_no_epoch() -> None:
    leadership = started(RULES, granted(3), 0.0)

    leadership.slave_heard(replace(hello(1, end=500), heard=Epoch(3)))

    assert decided(leadership, 0.0) == Lead(Epoch(3), "")


def test_a_granted_epoch_that_was_opened_and_lost_with_its_bytes_is_not_opened_again() -> None:
    lost = OwnLog("a/0", Stopped.POWER_LOSS, PhysicalOffset(500), ONE, granted=Epoch(3))
    opened = (*ONE, LineageEntry(Epoch(3), 0, 33, PhysicalOffset(500)))
    leadership = started(replace(RULES, replicas_expected=1), lost, 0.0)
    leadership.slave_heard(hello(1, end=900, lineage=opened))

    decision = leadership.decide(0.0)
    assert isinstance(decision, TakeOver)
    leadership.took_over(replace(lost, end=decision.end, lineage=decision.lineage))

    assert decided(leadership, 0.0) == Lead(Epoch(4), "")


def test_a_slave_that_heard_of_a_newer_epoch_and_not_whose_it_is_denies_nothing() -> None:
    rules = replace(RULES, replicas_expected=1)
    unknown, of_another, of_this = (started(rules, own(Stopped.WHOLE), 0.0) for _ in range(3))

    for leadership, opener in ((unknown, None), (of_another, 1), (of_this, 0)):
        leadership.slave_heard(replace(hello(1, end=900), heard=Epoch(2), heard_opener=opener))

    assert isinstance(unknown.decide(0.0), Wait)
    assert of_another.decide(0.0) == Follow(Epoch(2), 1)
    assert decided(of_this, 0.0) == Lead(Epoch(3), "")


def test_what_an_earlier_life_was_told_of_counts_at_the_next_start() -> None:
    log = own(Stopped.WHOLE)
    for granted_epoch in (None, Epoch(2)):
        told_before = replace(log, granted=granted_epoch, told=Opening(Epoch(2), 1))
        assert asked(RULES, told_before, 0.0).decide(0.0) == Follow(Epoch(2), 1)

    of_this = replace(log, told=Opening(Epoch(2), 0))
    outranked = replace(log, granted=Epoch(3), told=Opening(Epoch(2), 1))
    assert [decided(asked(RULES, each, 0.0), 0.0) for each in (of_this, outranked)] == [Lead(Epoch(3), "")] * 2
