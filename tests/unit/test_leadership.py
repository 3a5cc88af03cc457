"""Who may lead: each row of the rules in `dittomq.replication.leadership`."""

from dataclasses import replace

from dittomq.lineage import Lineage, LineageEntry
from dittomq.offsets import Epoch, PhysicalOffset
from dittomq.replication.events import Hello
from dittomq.replication.group_of_start import forget_least
from dittomq.replication.leadership import Leadership
from dittomq.replication.leadership_decisions import Follow, Lead, Refuse, TakeOver, Wait
from dittomq.replication.own_log import OwnLog, Stopped
from dittomq.routes import NO_OPENING, Opening
from tests.support.starts import EMPTY, ONE, RULES, TWO, asked, decided, hello, own, started


def test_a_whole_log_leads_at_once_with_the_next_epoch() -> None:
    assert decided(asked(RULES, own(Stopped.WHOLE), 0.0), 0.0) == Lead(Epoch(2), "")


def test_a_whole_log_with_a_table_that_may_lack_a_change_waits_a_while_for_slaves_but_takes_no_tail() -> None:
    leadership = asked(RULES, replace(own(Stopped.WHOLE), tables_restored=True), 0.0)
    leadership.slave_heard(hello(1, 950))
    assert leadership.decide(4.9) == Wait("slaves with a newer table: 0.1 s more")

    leadership.slave_heard(hello(2, 900))
    assert decided(leadership, 4.9) == Lead(Epoch(2), "")


def test_a_master_without_slaves_never_waits() -> None:
    rules = replace(RULES, replicas_expected=0, in_sync_replicas=1)

    for found in (EMPTY, replace(own(Stopped.WHOLE), tables_restored=True)):
        assert isinstance(decided(asked(rules, found, 0.0), 0.0), Lead)


def test_the_epoch_is_above_what_slaves_and_nameservers_know() -> None:
    leadership = asked(RULES, own(Stopped.WHOLE), 0.0)
    leadership.nameservers_say(Opening(Epoch(7), 0), settled=True, id_taken="")

    assert decided(leadership, 0.0) == Lead(Epoch(8), "")


def test_after_power_loss_a_flushing_master_waits_for_slaves_and_then_leads_alone() -> None:
    leadership = asked(RULES, own(Stopped.POWER_LOSS), 0.0)

    assert isinstance(leadership.decide(4.9), Wait)
    assert isinstance(decided(leadership, 5.0), Lead)


def test_what_a_slave_knew_to_be_confirmed_is_not_forgotten_when_its_node_comes_with_another_disk() -> None:
    leadership = asked(RULES, own(Stopped.POWER_LOSS), 0.0)
    leadership.slave_heard(hello(1, 1_000, confirmed=1_000))
    leadership.slave_heard(hello(2, 900))
    assert isinstance(leadership.decide(0.0), TakeOver)
    leadership.took_a_part(own(Stopped.POWER_LOSS))
    leadership.slave_gone("a/1")

    leadership.slave_heard(replace(hello(1, 0, lineage=()), replica_uuid="another"))

    assert isinstance(leadership.decide(6.0), Refuse)


def test_after_power_loss_the_wait_ends_when_all_slaves_came() -> None:
    leadership = asked(RULES, own(Stopped.POWER_LOSS), 0.0)
    leadership.slave_heard(hello(1, 900))
    assert isinstance(leadership.decide(0.1), Wait)

    leadership.slave_heard(hello(2, 800))

    assert isinstance(decided(leadership, 0.1), Lead)


def test_after_power_loss_the_longest_tail_of_the_newest_lineage_is_taken() -> None:
    leadership = asked(RULES, own(Stopped.POWER_LOSS, end=900), 0.0)
    leadership.slave_heard(hello(1, 2_000, lineage=ONE))
    leadership.slave_heard(hello(2, 600, lineage=TWO))

    decision = leadership.decide(0.1)

    assert decision == TakeOver("a/2", "a-2:10912", PhysicalOffset(500), PhysicalOffset(600), TWO)


def test_power_loss_without_fsync_must_hear_enough_slaves_however_long_it_takes() -> None:
    leadership = started(replace(RULES, sync_flush=False), own(Stopped.POWER_LOSS), 0.0)
    leadership.slave_heard(hello(1, 900))

    assert isinstance(leadership.decide(1e6), Wait)
    leadership.slave_heard(hello(2, 900))
    assert isinstance(decided(leadership, 1e6), Lead)


def test_beyond_the_slaves_that_must_be_heard_the_others_are_waited_for_a_while() -> None:
    for stopped in (Stopped.POWER_LOSS, Stopped.FAILED_SYNC, Stopped.EMPTY):
        rules = replace(RULES, in_sync_replicas=3, sync_flush=False)  # one slave has all that was confirmed, unless the group was degraded
        leadership = asked(rules, own(stopped, end=0, lineage=()) if stopped is Stopped.EMPTY else own(stopped), 0.0)
        leadership.slave_heard(hello(1, 950))

        waits = leadership.decide(4.9)

        assert isinstance(waits, Wait)
        assert waits.why == "slaves with a longer tail: 0.1 s more"
        assert isinstance(leadership.decide(5.0), TakeOver)
        leadership.slave_heard(hello(2, 990))
        taken = leadership.decide(4.9)
        assert isinstance(taken, TakeOver)
        assert taken.source == "a/2"


def test_a_failed_fsync_must_hear_enough_slaves_too() -> None:
    assert isinstance(asked(RULES, own(Stopped.FAILED_SYNC), 0.0).decide(1e6), Wait)


def test_with_one_copy_asked_a_failed_fsync_takes_what_it_finds() -> None:
    rules = replace(RULES, in_sync_replicas=1)

    assert isinstance(decided(asked(rules, own(Stopped.FAILED_SYNC), 0.0), 5.0), Lead)


def test_of_slaves_that_hold_as_much_the_tail_of_the_one_is_taken_whose_log_begins_first() -> None:
    leadership = asked(RULES, own(Stopped.POWER_LOSS, end=500), 0.0)
    for broker_id, begin in ((1, 600), (2, 300)):
        leadership.slave_heard(replace(hello(broker_id, 900), min_offset=PhysicalOffset(begin)))

    assert leadership.decide(5.0) == TakeOver("a/2", "a-2:10912", PhysicalOffset(500), PhysicalOffset(900), ONE)


def test_an_empty_master_among_full_slaves_copies_the_longest_first() -> None:
    leadership = asked(RULES, EMPTY, 0.0)
    leadership.slave_heard(hello(1, 700))
    assert isinstance(leadership.decide(1e6), Wait)

    leadership.slave_heard(hello(2, 900))

    assert leadership.decide(0.1) == TakeOver("a/2", "a-2:10912", PhysicalOffset(0), PhysicalOffset(900), ONE)


def test_an_empty_master_that_confirmed_alone_copies_its_slaves_when_all_were_heard() -> None:
    leadership = started(replace(RULES, replicas_expected=1, in_sync_replicas=1), EMPTY, 0.0)
    assert isinstance(leadership.decide(1e6), Wait)

    leadership.slave_heard(hello(1, 700))

    assert leadership.decide(1e6) == TakeOver("a/1", "a-1:10912", PhysicalOffset(0), PhysicalOffset(700), ONE)


def test_a_loss_that_was_accepted_is_named_also_after_a_tail_was_taken_over() -> None:
    leadership = asked(RULES, EMPTY, 0.0)
    leadership.slave_heard(hello(1, 700))
    leadership.accept_loss()

    assert isinstance(leadership.decide(0.1), TakeOver)
    leadership.took_over(replace(EMPTY, end=PhysicalOffset(700), lineage=ONE))

    decision = decided(leadership, 0.2)
    assert isinstance(decision, Lead)
    assert decision.accepted_loss == "what only slaves hold that are not heard: 1 of 2"


def test_an_empty_master_that_heard_one_empty_slave_is_not_a_new_group_yet() -> None:
    leadership = asked(RULES, EMPTY, 0.0)
    leadership.slave_heard(hello(1, 0, lineage=()))

    assert isinstance(leadership.decide(1e6), Wait)


def test_an_empty_master_that_heard_all_slaves_empty_opens_the_first_epoch() -> None:
    leadership = asked(RULES, EMPTY, 0.0)
    leadership.slave_heard(hello(1, 0, lineage=()))
    leadership.slave_heard(hello(2, 0, lineage=()))

    assert decided(leadership, 0.1) == Lead(Epoch(1), "")


def test_a_slave_that_left_does_not_count_as_heard() -> None:
    leadership = asked(RULES, EMPTY, 0.0)
    leadership.slave_heard(hello(1, 0, lineage=()))
    leadership.slave_heard(hello(2, 0, lineage=()))
    leadership.slave_gone("a/1")

    assert isinstance(leadership.decide(0.1), Wait)


def test_after_taking_over_the_master_leads_from_the_new_end() -> None:
    leadership = asked(RULES, EMPTY, 0.0)
    leadership.slave_heard(hello(1, 700))
    leadership.slave_heard(hello(2, 900))
    leadership.decide(0.1)

    leadership.took_over(own(Stopped.EMPTY, end=900))

    assert decided(leadership, 0.1) == Lead(Epoch(2), "")


def test_confirmed_data_that_is_missing_here_is_refused_until_the_operator_accepts_the_loss() -> None:
    leadership = asked(RULES, own(Stopped.WHOLE, end=600, lineage=TWO), 0.0)
    leadership.slave_heard(hello(1, 900, confirmed=900))
    decision = leadership.decide(0.0)
    assert isinstance(decision, Refuse)
    assert "a/1 knows 900" in decision.why

    leadership.accept_loss()

    lead = decided(leadership, 0.0)
    assert isinstance(lead, Lead)
    assert "a/1 knows 900" in lead.accepted_loss


def test_accepted_loss_says_what_was_not_waited_for() -> None:
    leadership = asked(RULES, EMPTY, 0.0)

    leadership.accept_loss()

    decision = decided(leadership, 0.0)
    assert isinstance(decision, Lead)
    assert decision.accepted_loss == "what only slaves hold that are not heard: 2 of 2"


def test_an_empty_master_begins_where_the_slave_does_and_an_older_one_never_leaves_a_gap() -> None:
    late = replace(hello(1, 900_000), min_offset=PhysicalOffset(655_360))
    rules = replace(RULES, replicas_expected=1)
    empty, older = asked(rules, EMPTY, 0.0), asked(rules, own(Stopped.POWER_LOSS), 0.0)
    for leadership in (empty, older):
        leadership.slave_heard(late)

    assert empty.decide(0.1) == TakeOver("a/1", "a-1:10912", PhysicalOffset(655_360), PhysicalOffset(900_000), ONE)
    refused = older.decide(0.1)
    assert isinstance(refused, Refuse)
    assert "empty the data_dir of a/0" in refused.why


BY_A1: Lineage = (*ONE, LineageEntry(Epoch(5), 1, 55, PhysicalOffset(900)))


def told(leadership: Leadership, newest: Opening = NO_OPENING, *, settled: bool = False) -> Leadership:
    leadership.nameservers_say(newest, settled=settled, id_taken="")
    return leadership


def test_a_whole_log_leads_only_when_a_settled_nameserver_or_all_slaves_deny_that_another_node_leads() -> None:
    unheard = started(RULES, own(Stopped.WHOLE), 0.0)
    assert isinstance(unheard.decide(1_000.0), Wait)
    assert isinstance(told(unheard).decide(1_000.0), Wait)
    unheard.slave_heard(hello(1, 900))
    assert isinstance(unheard.decide(1_000.0), Wait)
    unheard.slave_gone("a/1")

    unheard.slave_heard(hello(2, 900))

    assert isinstance(decided(unheard, 1_000.0), Lead)
    assert isinstance(decided(told(started(RULES, own(Stopped.WHOLE), 0.0), settled=True), 0.0), Lead)


def test_an_operator_who_accepts_the_loss_ends_the_waiting_for_a_denial() -> None:
    leadership = started(RULES, own(Stopped.WHOLE), 0.0)
    leadership.accept_loss()

    decision = decided(leadership, 0.0)

    assert isinstance(decision, Lead)
    assert "what another node confirms, if one leads" in decision.accepted_loss


def test_an_epoch_of_another_node_that_is_newer_makes_this_one_its_slave_whoever_tells_of_it() -> None:
    from_nameserver = told(started(RULES, own(Stopped.WHOLE), 0.0), Opening(Epoch(5), 1))
    from_slave = started(RULES, own(Stopped.POWER_LOSS), 0.0)
    from_slave.slave_heard(hello(2, 900, lineage=BY_A1))
    empty = told(started(RULES, EMPTY, 0.0), Opening(Epoch(5), 1))
    accepting = told(started(RULES, own(Stopped.WHOLE), 0.0), Opening(Epoch(5), 1))
    accepting.accept_loss()

    for leadership in (from_nameserver, from_slave, empty, accepting):
        assert leadership.decide(0.0) == Follow(Epoch(5), 1)


def test_a_newer_epoch_of_this_very_node_or_of_nobody_known_makes_it_nobodys_slave() -> None:
    for opener in (0, None):
        leadership = told(started(RULES, own(Stopped.WHOLE), 0.0), Opening(Epoch(5), opener), settled=True)

        assert decided(leadership, 0.0) == Lead(Epoch(6), "")


def test_the_epoch_is_above_the_versions_that_tables_have_unless_it_was_granted() -> None:
    found = replace(own(Stopped.WHOLE), tables_epoch=Epoch(100))

    assert decided(told(started(RULES, found, 0.0), Opening(Epoch(5), 0), settled=True), 0.0) == Lead(Epoch(101), "")
    promoted = OwnLog("a/1", Stopped.WHOLE, PhysicalOffset(900), ONE, node_id=1, granted=Epoch(5), tables_epoch=Epoch(100))
    assert decided(told(started(RULES, promoted, 0.0), Opening(Epoch(2), 0)), 0.0) == Lead(Epoch(5), "")


def test_a_node_that_was_just_promoted_opens_the_epoch_it_was_granted_without_asking() -> None:
    promoted = OwnLog("a/1", Stopped.WHOLE, PhysicalOffset(900), ONE, node_id=1, granted=Epoch(5))
    for log in (promoted, replace(promoted, stopped=Stopped.EMPTY, end=PhysicalOffset(0), lineage=())):
        leadership = told(started(RULES, log, 0.0), Opening(Epoch(2), 0))

        assert decided(leadership, 0.0) == Lead(Epoch(5), "")


def test_a_promotion_that_another_one_has_overtaken_opens_nothing() -> None:
    promoted = OwnLog("a/1", Stopped.WHOLE, PhysicalOffset(900), ONE, node_id=1, granted=Epoch(5))

    for epoch in (5, 6):
        assert told(started(RULES, promoted, 0.0), Opening(Epoch(epoch), 2)).decide(0.0) == Follow(Epoch(epoch), 2)


def test_a_promoted_node_that_opened_its_epoch_asks_like_any_other_when_it_starts_again() -> None:
    again = OwnLog("a/1", Stopped.WHOLE, PhysicalOffset(950), BY_A1, node_id=1, granted=Epoch(5))

    assert isinstance(started(RULES, again, 0.0).decide(0.0), Wait)
    assert told(started(RULES, again, 0.0), Opening(Epoch(6), 2)).decide(0.0) == Follow(Epoch(6), 2)


def test_an_epoch_without_bytes_gives_way_to_one_of_the_same_number_that_another_node_opened() -> None:
    died_over_it = OwnLog("a/0", Stopped.EMPTY, PhysicalOffset(0), ONE)
    later = OwnLog("a/0", Stopped.WHOLE, PhysicalOffset(500), TWO)

    assert told(started(RULES, died_over_it, 0.0), Opening(Epoch(1), 1)).decide(0.0) == Follow(Epoch(1), 1)
    assert told(started(RULES, later, 0.0), Opening(Epoch(2), 1)).decide(0.0) == Follow(Epoch(2), 1)


def test_an_epoch_that_holds_bytes_or_was_granted_gives_way_to_newer_ones_alone() -> None:
    with_bytes = OwnLog("a/0", Stopped.WHOLE, PhysicalOffset(501), TWO)
    granted = OwnLog("a/0", Stopped.WHOLE, PhysicalOffset(500), TWO, granted=Epoch(2))

    for log in (with_bytes, granted):
        assert decided(told(started(RULES, log, 0.0), Opening(Epoch(2), 1), settled=True), 0.0) == Lead(Epoch(3), "")
        assert told(started(RULES, log, 0.0), Opening(Epoch(3), 1)).decide(0.0) == Follow(Epoch(3), 1)


def test_an_epoch_without_bytes_is_not_opened_again() -> None:
    assert decided(asked(RULES, OwnLog("a/0", Stopped.WHOLE, PhysicalOffset(500), TWO), 0.0), 0.0) == Lead(Epoch(3), "")


def test_while_another_replica_holds_its_id_a_master_opens_no_epoch() -> None:
    leadership = asked(RULES, own(Stopped.WHOLE), 0.0)
    leadership.nameservers_say(NO_OPENING, settled=True, id_taken="a/0 is held by another")
    assert leadership.decide(0.0) == Wait("its id: a/0 is held by another")

    assert isinstance(decided(told(leadership), 0.0), Lead)


def test_a_take_over_that_broke_off_is_followed_by_none_of_a_log_that_lacks_what_is_known_here_to_be_confirmed() -> None:
    others: Lineage = (*ONE, LineageEntry(Epoch(2), 2, 44, PhysicalOffset(400)))
    before = replace(own(Stopped.POWER_LOSS, lineage=TWO), confirmed=PhysicalOffset(600))
    leadership = asked(RULES, before, 0.0)
    rival, best = hello(2, 5_000, lineage=others), hello(1, 1_000, lineage=(*TWO, LineageEntry(Epoch(3), 0, 33, PhysicalOffset(700))))
    leadership.slave_heard(rival)
    leadership.slave_heard(best)
    taken = decided(leadership, 5.0)
    assert isinstance(taken, TakeOver)
    assert (taken.source, taken.start) == ("a/1", 700)

    leadership.took_a_part(replace(before, stopped=Stopped.INCOMPLETE, end=PhysicalOffset(700)))
    leadership.slave_gone("a/1")
    leadership.slave_heard(hello(3, 650, lineage=TWO))

    decision = decided(leadership, 5.0)
    assert isinstance(decision, Refuse)
    assert decision.why.startswith("600 bytes are known here to be confirmed and the newer log of a/2 has only 400 of them")
    leadership.slave_heard(best)
    assert decided(leadership, 5.0) == taken
    leadership.took_over(replace(before, stopped=Stopped.INCOMPLETE, end=best.end, lineage=best.lineage))
    assert isinstance(decided(leadership, 5.0), Lead)


def test_of_disks_that_came_once_by_the_thousand_the_one_that_knew_more_to_be_confirmed_is_not_forgotten() -> None:
    leadership = asked(RULES, own(Stopped.POWER_LOSS), 0.0)
    leadership.slave_heard(hello(1, 1_000, confirmed=1_000))
    leadership.slave_gone("a/1")
    for number in range(1_000):
        leadership.slave_heard(replace(hello(2, 900, confirmed=900), replica_uuid=f"disk {number}"))

    assert isinstance(leadership.decide(6.0), Refuse)


def test_of_disks_that_came_once_64_are_remembered() -> None:
    heard: dict[str, Hello] = {}
    for number in range(1_000):
        heard[f"disk {number}"] = hello(2, 900, confirmed=900)
        forget_least(heard, lambda _: False)

    assert list(heard) == [f"disk {number}" for number in range(936, 1_000)]
