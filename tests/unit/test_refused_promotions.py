"""What somebody reads whose promotion is refused, or costs something: what is missing, by name, and what to do about it."""

from dataclasses import replace

from dittomq.offsets import Epoch, PhysicalOffset
from dittomq.replication.promotion import AskToStepDown, Promote, PromotionOrder, loss_changed
from dittomq.replication.standings import Stance
from dittomq.routes import Opening
from tests.unit.test_promotion import ACCEPTED, RULES, STOPPED, decided, demoted, promoted, refused, standing


def test_one_that_led_and_answers_with_a_new_disk_is_not_to_be_stopped() -> None:
    new, advice = standing(1, end=0, lineage=()), "Make sure that nothing runs on the disk it had, then add --old-master-is-stopped"

    made_room = refused(decided(demoted(for_node="a/1"), new))
    assert f"a/0 made room for a/1, which may have led and answers without the log that it led with. {advice}" in made_room
    by_a1 = Opening(Epoch(5), 1)
    for target, other in ((standing(2), replace(new, is_filling=True)), (replace(new, is_filling=True), standing(2))):
        why = refused(decided(target, other, known=by_a1))
        assert f"a/1 may have led and answers without the log that it led with. {advice}" in why
        assert "stop it" not in why


def test_a_silent_master_is_not_replaced_before_the_operator_says_that_it_is_stopped() -> None:
    silence, remedy, lacks = refused(decided(standing(1), standing(2))).split(". ")

    assert silence == "a/0 has not confirmed its demotion and may still be writing"
    assert remedy == (
        "Look at dittomq ha-status first: another change may be under way; "
        "where a/0 neither leads nor comes back, stop it, then add --old-master-is-stopped"
    )
    assert lacks == "a/1 lacks nothing confirmed"
    assert promoted(decided(standing(1), standing(2), order=STOPPED)) == Promote(Epoch(2), "a/0", ("a/2",), "", must_note=2)


GIVE_UP = "or add --accept-loss: what only those hold that do not answer may be lost then"
ALL_ACCEPTED = PromotionOrder(accept_loss=True, old_master_is_stopped=True)


def test_fewer_slaves_than_hold_all_that_was_confirmed_are_not_enough_and_who_is_missing_is_named_where_that_is_known() -> None:
    few = "1 of the 2 slaves answer that together hold all that was confirmed"

    for names, whom, lost in (
        ((), "1 more", "1 of 2"),
        (("a/0", "a/1", "a/2"), "a/2", "a/2"),
        (("a/2", "a/3"), "1 more of a/2, a/3", "1 of 2"),
    ):
        assert refused(decided(standing(1), order=STOPPED, names=names)) == f"{few}. Start {whom}, {GIVE_UP}"
        accepted = promoted(decided(standing(1), order=ALL_ACCEPTED, names=names))
        assert accepted.may_be_lost == f"what only slaves hold that are not heard: {lost}"


def test_where_every_slave_answers_and_the_disk_of_one_is_new_the_old_master_is_to_be_started() -> None:
    new = standing(2, end=0, lineage=(), is_filling=True)

    assert refused(decided(standing(1), new, order=STOPPED, names=("a/0",))).endswith(f". Start a/0 again, {GIVE_UP}")
    lost = "a/2 may lack what it acknowledged: its disk is new, or it gave up a copy or a part of one"
    assert promoted(decided(standing(1), new, order=ALL_ACCEPTED)).may_be_lost == lost


def test_of_those_that_are_heard_once_more_only_who_has_noted_the_epoch_is_a_witness() -> None:
    """Any other one may acknowledge more to a master that lives on; what it holds and does counts all the same."""
    one, two, three = (standing(node, rules=replace(RULES, replicas_expected=3, in_sync_replicas=3)) for node in (1, 2, 3))

    assert promoted(decided(one, two, three, order=STOPPED, noted=["a/3"])).must_note == 2
    for order, noted in ((STOPPED, ["a/2"]), (STOPPED, [])):
        assert refused(decided(one, three, order=order, noted=noted)) == (
            "1 of the 2 slaves answer that together hold all that was confirmed, and have noted the epoch. "
            "Give the command again when the others answer"
        )
    assert promoted(decided(one, three, order=ALL_ACCEPTED, noted=["a/2"])).may_be_lost.startswith("what only slaves hold")
    longer = replace(two, end=PhysicalOffset(950))
    assert "a/2 has 50 bytes that a/1 lacks" in refused(decided(one, longer, three, order=STOPPED, noted=["a/3"]))
    assert isinstance(decided(one, replace(two, stance=Stance.LEADING), three, noted=["a/3"]), AskToStepDown)


def test_nobody_is_asked_to_step_down_where_an_epoch_that_was_noted_would_keep_the_target_from_its_place() -> None:
    leader, noted = standing(0, Stance.LEADING), standing(2, granted=Epoch(3), granted_to=3)
    known = "a/2 has noted epoch 3 of a/3, of which a/0 was not told, which leads in epoch 1"

    for others in ((standing(1), leader, noted), (noted, leader, standing(1))):
        assert refused(decided(*others)) == f"{known}. Let a/2 reach a/0, which gives way then, and give the command again"
    assert decided(standing(1), leader, noted, order=PromotionOrder(accept_loss=True)) == AskToStepDown("a/0")
    assert "may still be writing" in refused(decided(standing(1), demoted(for_node="a/1"), noted))


def test_a_target_with_damage_that_hides_newest_messages_is_refused_before_its_master_is_asked_to_step_down() -> None:
    harmed = standing(1, unread_bytes=1_234)

    for others in ([standing(0, Stance.LEADING)], [standing(2)]):
        why = refused(decided(harmed, *others, order=STOPPED))
        assert why.startswith("1,234 bytes are damaged on a/1 and may hold the newest messages of queues. Wait until it has them back")


def test_an_operator_may_promote_it_all_the_same_and_is_told_what_may_be_lost() -> None:
    harmed = standing(1, unread_bytes=1_234)

    assert isinstance(decided(harmed, standing(0, Stance.LEADING), order=ACCEPTED), AskToStepDown)
    assert "1,234 bytes are damaged on a/1" in promoted(decided(harmed, standing(2), order=ACCEPTED)).may_be_lost


def test_where_less_may_be_lost_than_was_decided_nobody_is_told_that_it_is_more() -> None:
    assert loss_changed("") == "since it was decided what may be lost has changed: nothing"
