"""Who may be promoted: each row of the rules in `dittomq.replication.promotion`."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from dittomq.lineage import Lineage, LineageEntry
from dittomq.offsets import Epoch, PhysicalOffset
from dittomq.replication.promotion import (
    AskToStepDown,
    Promote,
    PromotionDecision,
    PromotionOrder,
    RefusePromotion,
    Surroundings,
    decide_promotion,
)
from dittomq.replication.standings import GroupRules, Stance, Standing
from dittomq.routes import NO_OPENING, DataVersion, Opening

RULES = GroupRules("SYNC_MASTER", replicas_expected=2, in_sync_replicas=2)
FULL_RULES = replace(RULES, min_in_sync_replicas=2, flush_mode="SYNC_FLUSH", release_level="flushed")
ONE: Lineage = (LineageEntry(Epoch(1), 0, 11, PhysicalOffset(0)),)
TWO: Lineage = (*ONE, LineageEntry(Epoch(2), 0, 22, PhysicalOffset(500)))
BY_A2: Lineage = (*ONE, LineageEntry(Epoch(5), 2, 55, PhysicalOffset(500)))
SAID = PromotionOrder()
STOPPED = PromotionOrder(old_master_is_stopped=True)
ACCEPTED = PromotionOrder(accept_loss=True)


def standing(node_id: int, stance: Stance = Stance.FOLLOWING, *, end: int = 900, lineage: Lineage = ONE, **more: object) -> Standing:
    known = Standing(
        node=f"a/{node_id}",
        node_id=node_id,
        wire_id=node_id,
        replica_uuid=f"u{node_id}",
        stance=stance,
        lineage=lineage,
        end=PhysicalOffset(end),
        confirmed=PhysicalOffset(0),
        granted=Epoch(0),
        stepped_down_at=None,
        rules=RULES,
        topics=DataVersion(),
    )
    return replace(known, **more)  # type: ignore[arg-type]  # named by each test


def demoted(*, for_node: str, **more: object) -> Standing:
    """The old master, a/0, which stepped down at 900."""
    return standing(0, stepped_down_at=PhysicalOffset(900), successor=for_node, **more)  # type: ignore[arg-type]


def decided(
    target: Standing, *others: Standing, order: PromotionOrder = SAID, known: Opening = NO_OPENING, **more: Any
) -> PromotionDecision:
    heard: Mapping[str, Standing] = {other.node: other for other in others}
    return decide_promotion(target, heard, known, order, Surroundings(**more))


def refused(decision: PromotionDecision) -> str:
    assert isinstance(decision, RefusePromotion)
    return decision.why


def promoted(decision: PromotionDecision) -> Promote:
    assert isinstance(decision, Promote)
    return decision


def test_a_master_that_leads_is_asked_to_step_down_whatever_the_operator_says() -> None:
    for order in (SAID, STOPPED, ACCEPTED):
        assert decided(standing(1), standing(0, Stance.LEADING), standing(2), order=order) == AskToStepDown("a/0")


def test_a_target_that_holds_all_of_a_master_that_stepped_down_is_enough() -> None:
    old = demoted(for_node="a/1")

    decision = decided(standing(1), old)

    assert promoted(decision) == Promote(Epoch(2), "a/0", ("a/0",), "", made_room=old)


def test_a_target_that_lacks_something_of_a_master_that_stepped_down_is_refused_and_told_how_much() -> None:
    old = demoted(for_node="a/1")

    assert "a/0 stepped down at 900 and a/1 holds its log up to 800" in refused(decided(standing(1, end=800), old))
    accepted = promoted(decided(standing(1, end=800), old, order=ACCEPTED))
    assert accepted.may_be_lost == "a/0 stepped down at 900 and a/1 holds its log up to 800"


def test_a_target_with_bytes_that_a_newer_master_never_had_is_refused_for_what_that_one_told_of_them() -> None:
    lineage: Lineage = (*ONE, LineageEntry(Epoch(4), 1, 44, PhysicalOffset(500)))
    old = standing(1, lineage=lineage, end=500, stepped_down_at=PhysicalOffset(500), successor="a/2")
    stale, heir = standing(0), standing(2, lineage=(*ONE, LineageEntry(Epoch(2), 2, 22, PhysicalOffset(500))))

    why = "a/0 has 400 bytes that a/1 did not have when it stepped down. Promote one whose log ends there, or a/1 itself"
    assert why in refused(decided(stale, old, heir))
    assert "a/2 has 400 bytes that a/1 did not have" in refused(decided(heir, old, stale))
    assert promoted(decided(standing(0, end=500), old, heir)).may_be_lost == ""
    assert promoted(decided(old, stale, heir)).may_be_lost == ""


def test_a_target_that_has_more_of_the_epoch_whose_master_stepped_down_after_a_power_loss_is_promoted() -> None:
    old = standing(0, end=800, stepped_down_at=PhysicalOffset(800), successor="a/1")

    assert promoted(decided(standing(1), old)).may_be_lost == ""


def test_a_master_that_stepped_down_may_be_promoted_again_while_the_one_it_made_room_for_is_there_and_never_led() -> None:
    again = demoted(for_node="a/1")

    assert promoted(decided(again, standing(1))) == Promote(Epoch(2), "a/1", ("a/1",), "", made_room=again)


@pytest.mark.parametrize("others", [[], [standing(2)]], ids=["alone", "another slave"])
def test_a_demotion_counts_no_more_when_the_one_it_made_room_for_may_have_led_since(others: list[Standing]) -> None:
    doubt = "a/0 made room for a/1, which may have led since and may still be writing"
    first, then = "Look at dittomq ha-status first", "where a/1 neither leads nor comes back, stop it, then add --old-master-is-stopped"

    assert f"{doubt}. {first}: another change may be under way; {then}" in refused(decided(demoted(for_node="a/1"), *others))


def test_who_is_promoted_past_a_silent_successor_outranks_what_that_one_was_granted() -> None:
    again = promoted(decided(demoted(for_node="a/1"), standing(2), order=STOPPED))

    assert again == Promote(Epoch(3), "a/1", ("a/2",), "", must_note=2)
    assert "1 of the 2 slaves answer" in refused(decided(demoted(for_node="a/1"), order=STOPPED))


def test_a_demotion_counts_no_more_when_anybody_has_heard_of_a_newer_epoch() -> None:
    for heard in (demoted(for_node="a/1", granted=Epoch(6)), demoted(for_node="a/1")):
        assert "a/0 made room for a/1" in refused(decided(heard, standing(1, granted=Epoch(6))))


def test_two_masters_that_gave_way_to_each_other_write_no_more_and_the_one_that_has_all_is_promoted_without_a_word() -> None:
    by_a1: Lineage = (*ONE, LineageEntry(Epoch(5), 1, 51, PhysicalOffset(800)))
    told: dict[str, Any] = {"granted": Epoch(6), "granted_to": 1}
    one = standing(1, lineage=by_a1, end=850, stepped_down_at=PhysicalOffset(850), successor="a/2", **told)
    two = standing(2, lineage=BY_A2, stepped_down_at=PhysicalOffset(900), successor="a/1", **told)
    third = standing(0, lineage=BY_A2, **told)

    assert promoted(decided(two, one, third)) == Promote(Epoch(7), "a/1", ("a/0",), "", must_note=2)
    assert promoted(decided(third, one, two)).may_be_lost == ""
    assert "a/2 has 400 bytes that a/1 lacks" in refused(decided(one, two, third))
    for doubtful in (
        decided(two, third),  # one of them is silent
        decided(two, replace(one, seeks_place=None), third),
        decided(two, one, replace(third, granted=Epoch(7), granted_to=None)),
        decided(two, one, replace(third, granted=Epoch(7), granted_to=3)),
    ):
        assert "may still be writing. Look at dittomq ha-status first" in refused(doubtful)
    for other_disk in (replace(one, is_filling=True), replace(one, lineage=())):
        assert "a/1, which may have led and answers without the log that it led with" in refused(decided(two, other_disk, third))


@pytest.mark.parametrize("known", [NO_OPENING, Opening(Epoch(2), 0), Opening(Epoch(2), 1), Opening(Epoch(2), None)])
def test_of_two_that_opened_one_epoch_the_silent_one_may_be_writing_whomever_nameservers_know_of(known: Opening) -> None:
    by_0, by_1 = ((*ONE, LineageEntry(Epoch(2), opener, opener, PhysicalOffset(500))) for opener in (0, 1))
    target, gave_way = standing(2, lineage=by_1), standing(0, lineage=by_0, end=600)

    assert "a/1 has not confirmed its demotion and may still be writing" in refused(decided(target, gave_way, known=known))
    assert promoted(decided(target, gave_way, known=known, order=STOPPED)).other == "a/1"


@pytest.mark.parametrize("known", [NO_OPENING, Opening(Epoch(2), 1)])
def test_who_has_made_room_is_enough_though_another_one_that_opened_its_epoch_is_silent(known: Opening) -> None:
    by_0, by_1 = ((*ONE, LineageEntry(Epoch(2), opener, opener, PhysicalOffset(500))) for opener in (0, 1))
    old = standing(0, lineage=by_0, stepped_down_at=PhysicalOffset(900), successor="a/2")

    assert promoted(decided(standing(2, lineage=by_0), old, standing(3, lineage=by_1, end=600), known=known)).made_room == old


def test_who_led_last_counts_among_those_who_answer_when_it_is_a_slave_with_its_log() -> None:
    old, lonely = standing(0), replace(RULES, in_sync_replicas=1)

    assert promoted(decided(standing(1), old)).may_be_lost == ""
    assert "1 of the 2 slaves answer" in refused(decided(standing(1), replace(old, seeks_place=None), order=STOPPED))
    alone = [replace(each, rules=lonely) for each in (standing(1), old, standing(2))]
    assert promoted(decided(*alone)) == Promote(Epoch(2), "a/0", ("a/0", "a/2"), "", must_note=3)
    assert "2 of the 3 slaves answer" in refused(decided(*alone[:2]))


@pytest.mark.parametrize("order", [SAID, STOPPED, ACCEPTED])
def test_of_two_slaves_that_are_told_to_lead_each_that_hears_of_the_other_is_refused(order: PromotionOrder) -> None:
    for master in ([], [standing(0, Stance.LEADING)], [demoted(for_node="a/1")]):
        assert refused(decided(standing(1), *master, standing(2, seeks_place=True), order=order)).startswith("a/2 is told to lead just now")


def test_a_node_that_holds_nothing_is_not_promoted_before_all_others_say_that_they_hold_nothing() -> None:
    def empty(node: int) -> Standing:
        return standing(node, end=0, lineage=())

    assert refused(decided(empty(1), empty(2))) == (
        "a/1 holds nothing and hears 1 of the other 2 nodes of its group. Start the others, and promote one that has messages"
    )
    assert promoted(decided(empty(1), empty(2), empty(0))).may_be_lost == ""
    assert promoted(decided(empty(1), empty(2), order=ACCEPTED)).may_be_lost == (
        "a/1 holds nothing and hears 1 of the other 2 nodes of its group"
    )


def test_a_step_down_of_long_ago_is_no_word_of_the_master_that_came_after() -> None:
    old = standing(0, lineage=BY_A2, stepped_down_at=PhysicalOffset(500), successor="a/1")

    assert "a/2 has not confirmed its demotion" in refused(decided(standing(1, lineage=BY_A2), old))


def test_an_epoch_is_noted_by_as_many_where_only_a_doubt_is_accepted_and_by_nobody_where_too_few_answer() -> None:
    assert promoted(decided(standing(1), standing(2), order=ACCEPTED)).must_note == 2
    assert promoted(decided(standing(1), order=ACCEPTED)).must_note == 0
    assert promoted(decided(demoted(for_node="a/1"), standing(1), order=ACCEPTED)).must_note == 0


@pytest.mark.parametrize(
    ("rules", "has"),
    [
        (FULL_RULES, True),
        (replace(FULL_RULES, min_in_sync_replicas=1), False),
        (replace(FULL_RULES, flush_mode="ASYNC_FLUSH"), False),
        (replace(FULL_RULES, release_level="received"), False),
        (replace(FULL_RULES, mode="ASYNC_MASTER"), False),
        (replace(FULL_RULES, in_sync_replicas=1, min_in_sync_replicas=1), False),
        (RULES, False),
    ],
)
def test_only_where_every_confirmed_byte_is_on_several_disks_have_slaves_a_say_in_what_was_not(rules: GroupRules, *, has: bool) -> None:
    assert rules.witnesses_of_all == (2 if has else 0)


def test_where_a_group_may_degrade_nobody_says_that_what_a_silent_master_confirmed_alone_is_there() -> None:
    lax = [standing(node, rules=replace(FULL_RULES, min_in_sync_replicas=1)) for node in (1, 2)]
    unknown = "what a/0 confirmed on fewer than 2 copies, if anything: only that one knows"

    assert refused(decided(*lax)).endswith(". a/1 lacks nothing confirmed by 2 copies")
    assert promoted(decided(*lax, order=STOPPED)) == Promote(Epoch(2), "a/0", ("a/2",), "", unknown, must_note=2)
    stepped_down = replace(demoted(for_node="a/1"), rules=lax[0].rules)
    assert promoted(decided(*lax, stepped_down)).not_heard == ""

    strict = [standing(node, rules=FULL_RULES) for node in (1, 2)]
    assert refused(decided(*strict)).endswith(". a/1 lacks nothing confirmed")
    assert promoted(decided(*strict, order=STOPPED)).not_heard == ""


def test_what_an_async_master_confirmed_is_on_its_own_disk_only_however_many_copies_are_asked_for() -> None:
    slaves = [standing(node, rules=replace(FULL_RULES, mode="ASYNC_MASTER", min_in_sync_replicas=1)) for node in (1, 2)]

    assert refused(decided(*slaves, order=STOPPED)) == (
        "under ASYNC_MASTER, what was confirmed is surely on the disk of a/0 only. Start that one again"
    )


def test_an_old_master_that_lost_its_disk_is_none_of_the_slaves_that_must_be_heard() -> None:
    by_a1: Lineage = (*ONE, LineageEntry(Epoch(2), 1, 21, PhysicalOffset(500)))
    target, lost = standing(0, lineage=by_a1), standing(1, end=0, lineage=())

    assert "1 of the 2 slaves answer" in refused(decided(target, lost, order=STOPPED))
    assert promoted(decided(target, lost, standing(2, lineage=by_a1), order=STOPPED)).may_be_lost == ""


def test_with_every_copy_asked_for_two_of_three_slaves_are_not_asked_for() -> None:
    all_copies = GroupRules("SYNC_MASTER", replicas_expected=2, in_sync_replicas=3)

    assert promoted(decided(standing(1, rules=all_copies), order=STOPPED)).may_be_lost == ""


def test_what_one_copy_confirmed_is_not_promised_by_any_slave() -> None:
    alone = GroupRules("ASYNC_MASTER", replicas_expected=2, in_sync_replicas=1)

    why = refused(decided(standing(1, rules=alone), standing(2, rules=alone), order=STOPPED))

    assert "with one copy asked for, what was confirmed is surely on the disk of a/0 only" in why


@pytest.mark.parametrize(
    ("other", "more"), [(standing(2, end=950), "50 bytes"), (standing(2, end=600, lineage=TWO), "100 bytes")], ids=["longer", "newer"]
)
def test_a_slave_that_another_one_outranks_is_refused_in_its_favour(other: Standing, more: str) -> None:
    why = refused(decided(standing(1), other, order=STOPPED))

    assert why == f"a/2 has {more} that a/1 lacks. Promote it: dittomq role lead a/2"


def test_confirmed_bytes_on_an_older_lineage_are_not_passed_over_in_silence() -> None:
    other = standing(2, end=700, lineage=ONE, confirmed=PhysicalOffset(700))

    assert "a/2 knows 700 bytes to be confirmed, a/1 agrees with it only up to 500" in refused(
        decided(standing(1, lineage=TWO), other, order=STOPPED)
    )


def test_an_epoch_that_only_nameservers_know_of_is_missing_here() -> None:
    why = refused(decided(standing(1), standing(2), known=Opening(Epoch(5), 2), order=STOPPED))

    assert "nameservers know of epoch 5, opened by a/2, and the newest of a/1 is 1. Promote one that has it" in why


@pytest.mark.parametrize("other", [0, 2])
def test_an_epoch_that_nobody_has_any_more_though_every_node_answers_is_one_to_give_up(other: int) -> None:
    """The disk of who was promoted is gone, and it is a slave again."""
    everybody = [standing(0), standing(2, end=0, lineage=())]
    known = Opening(Epoch(5), 2)

    assert "none has it any more: --accept-loss" in refused(decided(standing(1), *everybody, known=known, order=STOPPED))
    everybody[other // 2] = standing(other, lineage=BY_A2)
    assert "Promote one that has it" in refused(decided(standing(1), *everybody, known=known, order=STOPPED))


def test_a_copy_that_began_on_an_empty_disk_is_no_witness_of_what_was_confirmed_until_it_has_caught_up() -> None:
    """What its old disk had may be on that of the silent master only."""
    for new in (standing(2, end=0, lineage=(), is_filling=True), standing(2, end=100, is_filling=True)):
        why = refused(decided(standing(1), new, order=STOPPED))
        assert why.startswith(
            "1 of the 2 slaves answer that together hold all that was confirmed; "
            "a/2 may lack what it acknowledged: its disk is new, or it gave up a copy or a part of one."
        )

    assert promoted(decided(standing(1), standing(2), order=STOPPED)).may_be_lost == ""
    lost = promoted(decided(standing(1), standing(2, end=0, lineage=(), is_filling=True), order=ACCEPTED)).may_be_lost
    assert "a/2 may lack what it acknowledged" in lost


def test_where_nobody_has_anything_empty_disks_keep_nobody_from_leading() -> None:
    nothing = [standing(number, end=0, lineage=(), is_filling=True) for number in range(3)]

    assert promoted(decided(nothing[1], nothing[0], nothing[2], order=STOPPED)).may_be_lost == ""


def test_the_granted_epoch_is_above_all_that_anybody_knows_also_of_grants_that_were_never_opened() -> None:
    decision = decided(standing(1), standing(2, granted=Epoch(8)), known=Opening(Epoch(1), 0), order=STOPPED)

    assert promoted(decision).epoch == 9


def test_two_masters_or_one_that_recovers_are_in_the_way_of_every_promotion() -> None:
    both = PromotionOrder(accept_loss=True, old_master_is_stopped=True)

    two = decided(standing(1), standing(0, Stance.LEADING), standing(2, Stance.LEADING), order=both)
    recovering = decided(standing(1), standing(0, Stance.RECOVERING), order=both)

    assert "a/0 and a/2 both lead" in refused(two)
    assert "a/0 is there as a master and recovers" in refused(recovering)


def test_a_node_that_would_lead_another_kind_of_group_is_refused() -> None:
    alone = replace(standing(1), rules=GroupRules("ASYNC_MASTER", 0, 1))
    other = replace(standing(1), rules=GroupRules("SYNC_MASTER", 2, 3))

    assert "a/1 is configured for a group without slaves" in refused(decided(alone, standing(0, Stance.LEADING)))
    assert "a/1 would lead as SYNC_MASTER, 2 slaves, 3 copies and a/0 says SYNC_MASTER, 2 slaves, 2 copies" in refused(
        decided(other, standing(0, Stance.LEADING))
    )


@pytest.mark.parametrize(
    ("lax", "words"),
    [
        (replace(FULL_RULES, min_in_sync_replicas=1), "2 copies, 1 at least, SYNC_FLUSH, flushed"),
        (replace(FULL_RULES, flush_mode="ASYNC_FLUSH"), "2 copies, 2 at least, ASYNC_FLUSH, flushed"),
        (replace(FULL_RULES, release_level="received"), "2 copies, 2 at least, SYNC_FLUSH, received"),
    ],
    ids=["min_in_sync_replicas", "flush_mode", "release_level"],
)
def test_a_node_that_would_promise_less_than_its_group_is_refused(lax: GroupRules, words: str) -> None:
    target, master = standing(1, rules=lax), standing(0, Stance.LEADING, rules=FULL_RULES)

    assert f"a/1 would lead as SYNC_MASTER, 2 slaves, {words} and a/0 says SYNC_MASTER, 2 slaves, 2 copies, 2 at least" in refused(
        decided(target, master)
    )


def test_what_an_older_node_does_not_say_of_its_rules_is_no_difference() -> None:
    for ours, theirs in ((FULL_RULES, RULES), (RULES, FULL_RULES)):
        decision = decided(standing(1, rules=ours), standing(0, Stance.LEADING, rules=theirs))
        assert isinstance(decision, AskToStepDown)


def test_only_slaves_that_hold_as_much_count_as_in_sync_at_first() -> None:
    decision = decided(standing(1), standing(2, end=800), demoted(for_node="a/1"))

    assert promoted(decision).in_sync == ("a/0",)
