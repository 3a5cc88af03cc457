"""A master that starts beside another one that leads in the epoch that it was granted: the one with the higher claim leads on."""

from dataclasses import replace

import pytest

from dittomq.lineage import Lineage, LineageEntry
from dittomq.offsets import Epoch, PhysicalOffset
from dittomq.replication.group_of_start import Others
from dittomq.replication.leadership import Leadership
from dittomq.replication.leadership_decisions import Follow, Lead, TakeOver, Wait
from dittomq.replication.own_log import OwnLog, Stopped
from dittomq.routes import NO_OPENING, Claim, Opening
from tests.support.starts import ONE, RULES, TWO, asked, decided, hello, own, started

TAKEN = "the id of a/0 belongs to a/1 since a change of roles, until that one stops"


def granted(epoch: int | None, *, is_noted: bool = True) -> OwnLog:
    return replace(own(Stopped.WHOLE, lineage=TWO), granted=None if epoch is None else Epoch(epoch), is_noted=is_noted)


def beside(log: OwnLog, *rivals: Claim) -> Leadership:
    """A start that each nameserver refuses for those, who say that they lead."""
    leadership = started(RULES, log, 0.0)
    leadership.nameservers_say(NO_OPENING, settled=True, id_taken=TAKEN, rivals=rivals)
    leadership.others_say((), who=Others(leading=tuple(rival.opening for rival in rivals)))
    return leadership


def leads_in(epoch: int, opener: int, *, granted: int | None) -> Claim:
    return Claim(Opening(Epoch(epoch), opener), None if granted is None else Epoch(granted))


@pytest.mark.parametrize("rival", [leads_in(2, 1, granted=None), leads_in(2, 1, granted=1), leads_in(2, 1, granted=2)])
def test_who_was_granted_its_epoch_opens_the_next_one_beside_one_that_has_its_id_by_a_lower_claim(rival: Claim) -> None:
    leadership = beside(granted(2), rival)

    assert decided(leadership, 0.0) == Lead(Epoch(3), "")


def test_it_waits_for_its_id_while_nobody_says_by_which_claim_another_one_has_it() -> None:
    assert beside(granted(2)).decide(0.0) == Wait(f"its id: {TAKEN}")


def test_it_waits_for_its_id_where_the_other_one_may_have_confirmed_with_those_who_had_not_noted_its_promotion() -> None:
    assert beside(granted(2, is_noted=False), leads_in(2, 1, granted=None)).decide(0.0) == Wait(f"its id: {TAKEN}")


def test_it_gives_up_an_epoch_without_a_byte_that_too_few_had_noted_to_whoever_leads_in_one_of_that_number() -> None:
    log = replace(granted(2, is_noted=False), lineage=(*ONE, LineageEntry(Epoch(2), 0, 44, PhysicalOffset(900))))
    assert log.end == 900

    assert beside(log, leads_in(2, 1, granted=None)).decide(0.0) == Follow(Epoch(2), 1)
    assert decided(beside(replace(log, is_noted=True), leads_in(2, 1, granted=None)), 0.0) == Lead(Epoch(3), "")


def test_it_follows_who_leads_in_the_same_epoch_by_a_higher_claim() -> None:
    log = replace(granted(2), node="a/2", node_id=2, lineage=(TWO[0], replace(TWO[1], opener_id=2)))

    assert beside(log, leads_in(2, 1, granted=2)).decide(0.0) == Follow(Epoch(2), 1)


@pytest.mark.parametrize("earlier", [None, 1])
def test_who_was_not_granted_its_epoch_follows_whoever_leads_in_it(earlier: int | None) -> None:
    assert beside(granted(earlier), leads_in(2, 1, granted=None)).decide(0.0) == Follow(Epoch(2), 1)


def test_it_needs_no_nameserver_to_deny_that_another_node_leads_where_all_replicas_are_asked() -> None:
    rival = leads_in(2, 1, granted=None)
    leadership = started(RULES, granted(2), 0.0)
    leadership.nameservers_say(NO_OPENING, settled=False, id_taken=TAKEN, rivals=(rival,))
    for known in ({}, {"a/2": Opening(Epoch(3), None)}):
        leadership.others_say((), who=Others(leading=(rival.opening,), known={"a/1": rival.opening, **known}))
        why = "an answer whether another node leads: from 1 more of 2 slaves, or a nameserver up for its broker_expiry_ms"
        assert leadership.decide(0.0) == Wait(why)

    leadership.others_say((), who=Others(leading=(rival.opening,), known={"a/1": rival.opening, "a/2": Opening(Epoch(2), 0)}))

    assert decided(leadership, 0.0) == Lead(Epoch(3), "")


def test_who_leads_in_no_epoch_that_it_was_granted_waits_for_hellos_or_a_nameserver() -> None:
    leadership = started(RULES, own(Stopped.WHOLE), 0.0)
    leadership.others_say((), who=Others(known={"a/1": Opening(Epoch(1), 0), "a/2": Opening(Epoch(1), 0)}))

    assert isinstance(leadership.decide(0.0), Wait)


def opened_by(opener: int, start: int) -> Lineage:
    """A log whose second epoch that node opened there."""
    return (*ONE, LineageEntry(Epoch(2), opener, 30 + opener, PhysicalOffset(start)))


def after_power_loss(*, confirmed: int, is_noted: bool = False) -> Leadership:
    """A start of a/0, which was granted epoch 2 and wrote [500, 600) in it; a/2 has all of that, and a/1 the epoch 2 of its own."""
    log = replace(own(Stopped.POWER_LOSS, end=600, lineage=TWO), granted=Epoch(2), confirmed=PhysicalOffset(confirmed), is_noted=is_noted)
    leadership = asked(RULES, log, 0.0)
    leadership.slave_heard(hello(2, 600, lineage=TWO))
    return leadership


def test_a_log_that_ends_with_an_epoch_without_a_byte_does_not_displace_what_another_master_wrote_in_one_of_that_number() -> None:
    leadership = after_power_loss(confirmed=500)
    leadership.slave_heard(hello(1, 900, lineage=opened_by(1, 900)))

    assert decided(leadership, 6.0) == Lead(Epoch(3), "")


@pytest.mark.parametrize(("confirmed", "is_noted"), [(501, False), (500, True)])
def test_a_longer_log_of_another_master_does_not_displace_what_was_confirmed_in_an_epoch_of_that_number(
    confirmed: int, is_noted: bool
) -> None:
    leadership = after_power_loss(confirmed=confirmed, is_noted=is_noted)
    leadership.slave_heard(hello(1, 900, lineage=opened_by(1, 800)))

    assert decided(leadership, 6.0) == Lead(Epoch(3), "")


def test_of_two_masters_of_one_epoch_whose_promotion_too_few_noted_the_longer_log_is_taken() -> None:
    leadership = after_power_loss(confirmed=500)
    leadership.slave_heard(hello(1, 900, lineage=opened_by(1, 800)))

    assert decided(leadership, 6.0) == TakeOver("a/1", "a-1:10912", PhysicalOffset(500), PhysicalOffset(900), opened_by(1, 800))


def test_who_opened_an_epoch_above_its_grant_follows_nobody_whom_it_was_promoted_past() -> None:
    opened = (*ONE, LineageEntry(Epoch(4), 0, 44, PhysicalOffset(900)))  # it was killed before the first byte
    for granted, follows in ((3, False), (None, True)):
        log = replace(own(Stopped.WHOLE, lineage=opened), granted=None if granted is None else Epoch(granted))
        leadership = asked(RULES, log, 0.0)
        leadership.others_say([Opening(Epoch(2), 2)])

        assert decided(leadership, 0.0) == (Follow(Epoch(2), 2) if follows else Lead(Epoch(5), ""))
