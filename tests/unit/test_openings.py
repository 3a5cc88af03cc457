"""What a nameserver remembers of each group's epochs, and what of that is still to be written down."""

import pytest

from dittomq.offsets import Epoch
from dittomq.routes import NO_OPENING, Opening
from services.nameserver import openings as module
from services.nameserver.openings import Openings

SEVEN = Opening(Epoch(7), 0)
EIGHT = Opening(Epoch(8), 1)


def test_what_a_start_found_is_known_at_once() -> None:
    assert Openings([("a", SEVEN)]).newest("a") == SEVEN


def test_what_a_start_found_counts_as_kept_when_it_was_written_once_more() -> None:
    openings = Openings([("a", SEVEN)])
    assert not openings.is_kept("a")

    rows, number = openings.to_keep()
    openings.kept(number)

    assert (rows, openings.is_kept("a"), openings.unkept) == ((("a", SEVEN),), True, 0)


def test_of_a_group_of_which_nothing_is_known_nothing_is_to_be_kept() -> None:
    openings = Openings()
    openings.learn("a", NO_OPENING, ())

    assert (openings.is_kept("a"), openings.to_keep()[0]) == (True, ())


@pytest.mark.parametrize("heard", [SEVEN, Opening(Epoch(7), None), Opening(Epoch(7), 3), Opening(Epoch(6), 1)])
def test_what_is_no_news_is_not_to_be_written_again(heard: Opening) -> None:
    openings = Openings([("a", SEVEN)])
    openings.kept(openings.to_keep()[1])

    assert openings.learn("a", heard, ()) == SEVEN
    assert openings.is_kept("a")


def test_who_opened_the_newest_epoch_is_news_where_it_was_unknown() -> None:
    openings = Openings([("a", Opening(Epoch(7), None))])
    openings.kept(openings.to_keep()[1])

    assert openings.learn("a", SEVEN, ()) == SEVEN
    assert not openings.is_kept("a")


def test_what_is_learned_while_others_are_written_is_not_kept_by_that() -> None:
    openings = Openings()
    openings.learn("a", SEVEN, ())
    openings.learn("b", SEVEN, ())
    _, number = openings.to_keep()
    openings.learn("a", EIGHT, ())

    openings.kept(number)

    assert (openings.is_kept("a"), openings.is_kept("b")) == (False, True)


def test_of_too_many_groups_one_without_members_is_forgotten_and_no_longer_to_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_GROUPS", 2)
    openings = Openings([("living", SEVEN), ("gone", SEVEN)])

    openings.learn("new", EIGHT, {"living": ...})

    assert openings.to_keep()[0] == (("living", SEVEN), ("new", EIGHT))
    assert (openings.is_kept("gone"), openings.unkept) == (True, 2)


def test_of_a_file_with_too_many_groups_those_that_were_told_of_last_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_GROUPS", 2)

    assert Openings([("a", SEVEN), ("b", SEVEN), ("c", EIGHT)]).to_keep()[0] == (("b", SEVEN), ("c", EIGHT))


def test_a_group_that_is_forgotten_is_so_for_good_when_the_disk_has_it_no_more() -> None:
    openings = Openings([("a", SEVEN), ("b", EIGHT)])
    openings.kept(openings.to_keep()[1])

    openings.forget("a")
    openings.forget("c")

    rows, number = openings.to_keep()
    assert (openings.newest("a"), openings.is_kept("a"), rows) == (NO_OPENING, False, (("b", EIGHT),))
    openings.kept(number)
    assert openings.is_kept("a")
    assert openings.learn("a", Opening(Epoch(1), 0), ()) == Opening(Epoch(1), 0)
