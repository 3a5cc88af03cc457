"""The checker of real clusters bites."""

import pytest

from tests.support.told import Fate, Place, Told, lost_from, undone_reads, wrong_copies, wrong_holders, wrong_losses, wrong_reads

TOLD = Told({b"a": Place(0, 0), b"b": Place(0, 1), b"c": Place(1, 0), b"u": Fate.UNKNOWN, b"n": Fate.NOT_STORED})
READ = {0: [(0, b"a"), (1, b"b")], 1: [(0, b"c")]}


def test_what_was_told_and_nothing_else_is_right() -> None:
    assert list(wrong_reads(TOLD, READ)) == []


def test_an_unknown_message_may_be_there_once() -> None:
    assert list(wrong_reads(TOLD, {**READ, 1: [(0, b"c"), (1, b"u")]})) == []


@pytest.mark.parametrize(
    ("read", "complaint"),
    [
        ({0: [(0, b"a")], 1: [(0, b"c")]}, "b'b' was acknowledged and is not there"),
        ({0: [(0, b"a"), (1, b"b")], 1: [(0, b"c"), (1, b"b")]}, "b'b' is there 2 times"),
        ({**READ, 1: [(0, b"c"), (1, b"u"), (2, b"u")]}, "b'u' is there 2 times"),
        ({**READ, 1: [(0, b"c"), (1, b"n")]}, "b'n' was refused and is at"),
        ({**READ, 1: [(0, b"c"), (1, b"x")]}, "b'x', which nobody sent"),
        ({0: [(0, b"b"), (1, b"a")], 1: [(0, b"c")]}, "b'b' is at Place(queue=0, queue_offset=0), its receipt says"),
        ({0: [(0, b"a"), (1, b"b")], 2: [(0, b"c")]}, "b'c' is at Place(queue=2, queue_offset=0), its receipt says"),
        ({0: [(0, b"a"), (2, b"b")], 1: [(0, b"c")]}, "queue 0 goes on at offset 2 where 1 is next"),
    ],
)
def test_every_broken_promise_of_a_read_is_named(read: dict[int, list[tuple[int, bytes]]], complaint: str) -> None:
    assert any(complaint in line for line in wrong_reads(TOLD, read))


def test_only_what_was_last_in_its_queue_may_be_lost_at_one_moment() -> None:
    told = Told({b"a": Place(0, 0), b"b": Place(0, 1), b"c": Place(0, 2), b"d": Place(1, 0), b"again": Place(0, 1)})

    tail = lost_from(told, {0: [(0, b"a"), (1, b"again")], 1: [(0, b"d")]})
    hole = lost_from(told, {0: [(0, b"a"), (2, b"c")], 1: [(0, b"d")]})

    assert (tail, list(wrong_losses(told, tail))) == ([b"b", b"c"], [])
    assert hole == [b"b", b"again"]
    assert [line.partition(" is at")[0] for line in wrong_losses(told, hole)] == ["b'c'"]
    assert list(wrong_losses(told, [])) == []


def test_copies_may_differ_only_behind_the_confirmed_end() -> None:
    assert list(wrong_copies({"a/0": b"sameX", "a/1": b"sameYZ"}, 4)) == []


@pytest.mark.parametrize(
    ("log", "complaint"), [(b"sbme", "a/1 and a/0 differ at byte 1"), (b"sam", "a/1 ends at 3, before the confirmed end 4")]
)
def test_a_copy_that_lacks_or_differs_is_named(log: bytes, complaint: str) -> None:
    assert complaint in list(wrong_copies({"a/0": b"same", "a/1": log}, 4))


def test_a_message_that_is_not_where_its_receipt_says_is_named() -> None:
    told = Told({b"a": Place(0, 0), b"b": Place(0, 1)}, {b"a": ("a/0", "a/1"), b"b": ("a/0",)})

    assert list(wrong_holders(told, {"a/0": {b"a", b"b"}, "a/1": {b"a"}})) == []
    assert list(wrong_holders(told, {"a/0": {b"a", b"b"}, "a/1": {b"b"}})) == ["b'a' is not on a/1, which its receipt names"]


def test_what_was_shown_once_and_is_something_else_later_is_named() -> None:
    assert list(undone_reads({(0, 1): b"b", (1, 0): b"c"}, READ)) == []
    assert list(undone_reads({(0, 1): b"x"}, READ)) == ["b'x' was shown at Place(queue=0, queue_offset=1), where b'b' is now"]
    assert list(undone_reads({(1, 1): b"d"}, READ)) == ["b'd' was shown at Place(queue=1, queue_offset=1), where None is now"]
