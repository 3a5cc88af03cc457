"""When "not in the log" is proof."""

from dittomq.client.in_doubt import InDoubtSends


def test_a_master_of_a_newer_epoch_than_all_that_were_sent_to_is_proof() -> None:
    assert InDoubtSends().is_certain("p", epoch=2, sent=1)
    assert not InDoubtSends().is_certain("p", epoch=1, sent=1)
    assert not InDoubtSends().is_certain("p", epoch=2, sent=None)


def test_message_resent_in_vain_may_be_with_the_next_master_that_answers() -> None:
    unknowns = InDoubtSends()
    unknowns.resent_in_vain("p", 1)
    before = unknowns.is_certain("p", epoch=2, sent=1)

    unknowns.master_answered(2)

    assert not before
    assert not unknowns.is_certain("p", epoch=2, sent=1)
    assert unknowns.is_certain("p", epoch=3, sent=1)
    assert unknowns.is_certain("q", epoch=2, sent=1)


def test_a_master_older_than_the_one_to_which_it_was_sent_again_bounds_nothing() -> None:
    unknowns = InDoubtSends()
    unknowns.resent_in_vain("p", 3)
    unknowns.master_answered(2)
    while_it_may_be_in_3 = unknowns.is_certain("p", epoch=3, sent=1)
    unknowns.master_answered(4)
    unknowns.resent_in_vain("p", 2)
    unknowns.master_answered(2)

    assert not while_it_may_be_in_3
    assert not unknowns.is_certain("p", epoch=5, sent=1)
    unknowns.master_answered(4)
    assert not unknowns.is_certain("p", epoch=4, sent=1)
    assert unknowns.is_certain("p", epoch=5, sent=1)


def test_a_sequence_behind_absent_ones_is_cut_off_only_when_all_between_are_absent() -> None:
    unknowns = InDoubtSends()
    unknowns.is_absent("p", 5)
    one_known = unknowns.is_cut_off("p", expected=5, sequence=7)

    unknowns.is_absent("p", 6)

    assert not one_known
    assert unknowns.is_cut_off("p", expected=5, sequence=7)
    assert not unknowns.is_cut_off("p", expected=4, sequence=7)
    assert not unknowns.is_cut_off("q", expected=5, sequence=7)
    assert not unknowns.is_cut_off("p", expected=7, sequence=7)
