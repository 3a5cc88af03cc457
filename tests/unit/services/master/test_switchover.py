"""To whom a master gives its place."""

import pytest

from dittomq.errors import NotReady, PreconditionFailed
from services.master.switchover import best_target, check_target, is_all_on
from tests.support.confirming_group import MASTER, ConfirmingGroup, member_of, record_of


def group_of_three(*streaming: str) -> ConfirmingGroup:
    group = ConfirmingGroup(record=record_of("a/1", "a/2"), streaming=streaming)
    group.master(100)
    return group


def test_a_member_that_streams_may_be_the_target() -> None:
    assert check_target(group_of_three("a/1").confirmed, "a/1") == member_of("a/1")


def test_a_node_that_is_no_member_is_refused_by_name() -> None:
    with pytest.raises(PreconditionFailed, match="a/3 is not a member of the in-sync set, which is a/0, a/1, a/2"):
        check_target(group_of_three("a/1").confirmed, "a/3")


def test_the_master_itself_is_refused() -> None:
    with pytest.raises(PreconditionFailed, match="leads already"):
        check_target(group_of_three("a/1").confirmed, MASTER)


def test_a_member_without_a_stream_is_refused_for_now() -> None:
    with pytest.raises(NotReady, match="does not stream"):
        check_target(group_of_three("a/1").confirmed, "a/2")


def test_the_member_that_holds_most_is_the_best_target() -> None:
    group = group_of_three("a/1", "a/2")
    group.slave("a/1", 50)
    group.slave("a/2", 100)

    assert best_target(group.confirmed) == member_of("a/2")


def test_of_equal_members_the_first_by_name_is_the_best_target() -> None:
    assert best_target(group_of_three("a/2", "a/1").confirmed) == member_of("a/1")


def test_without_a_member_that_streams_there_is_no_target() -> None:
    assert best_target(group_of_three().confirmed) is None


def test_all_is_on_the_target_when_it_is_confirmed_and_the_target_itself_has_it() -> None:
    group = group_of_three("a/1", "a/2")
    found = list[bool]()
    for node in ("a/1", "a/2"):
        group.slave(node, 100)
        found.append(is_all_on(group.confirmed, member_of("a/2")))

    assert (group.confirmed.confirmed, found) == (100, [False, True])
