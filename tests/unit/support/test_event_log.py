"""The checker of real clusters bites."""

import pytest

from tests.support.event_log import (
    Acked,
    Fate,
    Place,
    Told,
    lost_from,
    undone_reads,
    wrong_copies,
    wrong_epochs,
    wrong_holders,
    wrong_losses,
    wrong_order,
    wrong_reads,
)

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


def acked(*acks: Acked) -> Told:
    """Messages a, b, c, ... in one queue, in the order of the log."""
    bodies = [bytes([ord("a") + number]) for number in range(len(acks))]
    places = {body: Place(0, number) for number, body in enumerate(bodies)}
    return Told({**places}, acks=dict(zip(bodies, acks, strict=True)))


def ack(at: int, *, sent: int, told: int, epoch: int = 1, opening: int = 7, acker: str = "a/0", at_once: bool = True) -> Acked:
    return Acked(1, sent, told, epoch, opening, acker, at, at_once)


def test_epochs_that_follow_one_another_are_right() -> None:
    sent_before_and_told_after = acked(ack(0, sent=0, told=3), ack(100, sent=1, told=2, epoch=2, opening=8, acker="a/1"))
    duplicate_of_an_earlier_epoch = acked(ack(0, sent=0, told=1), ack(100, sent=2, told=5, acker=""), ack(200, sent=3, told=4, epoch=2))

    assert list(wrong_epochs(sent_before_and_told_after)) == []
    assert list(wrong_epochs(duplicate_of_an_earlier_epoch)) == []


@pytest.mark.parametrize(
    ("told", "complaint"),
    [
        (
            acked(ack(0, sent=0, told=1), ack(100, sent=2, told=3, acker="a/1")),
            "b'a' and b'b' were acknowledged in epoch 1 by a/0 and a/1",
        ),
        (
            acked(ack(0, sent=0, told=1, acker=""), ack(50, sent=2, told=3), ack(100, sent=4, told=5, acker="a/1")),
            "b'b' and b'c' were acknowledged in epoch 1 by a/0 and a/1",
        ),
        (
            acked(ack(0, sent=0, told=1), ack(100, sent=2, told=3, opening=8)),
            "b'a' and b'b' were acknowledged in two openings of epoch 1",
        ),
        (
            acked(ack(0, sent=0, told=3, epoch=2), ack(100, sent=1, told=2)),
            "b'b' of epoch 1 lies behind b'a' of epoch 2",
        ),
        (
            acked(ack(0, sent=2, told=3), ack(100, sent=0, told=1, epoch=2)),
            "b'a' was acknowledged in epoch 1, and sent after b'b' was in epoch 2",
        ),
        (
            acked(ack(0, sent=4, told=5), ack(50, sent=0, told=1), ack(100, sent=2, told=3, epoch=2)),
            "b'a' was acknowledged in epoch 1, and sent after b'c' was in epoch 2",
        ),
    ],
)
def test_receipts_that_two_masters_gave_where_one_may_are_named(told: Told, complaint: str) -> None:
    assert list(wrong_epochs(told)) == [complaint]


def test_receipts_of_what_is_lost_with_its_only_disk_say_nothing_of_epochs_and_order() -> None:
    told = acked(ack(0, sent=2, told=3), ack(100, sent=0, told=1, epoch=2))
    told.holders.update({b"a": ("a/0",), b"b": ("a/0", "a/1")})

    told.lost_with("a/0")

    assert list(wrong_epochs(told)) == list(wrong_order(told)) == []


def test_what_a_stream_sent_later_and_lies_before_is_named() -> None:
    in_turn = acked(ack(0, sent=0, told=3), ack(100, sent=1, told=2))
    out_of_turn = acked(ack(0, sent=1, told=3), ack(100, sent=0, told=2))

    assert list(wrong_order(in_turn)) == []
    assert list(wrong_order(out_of_turn)) == [f"b'a' was sent after b'b', and is at {Place(0, 0)}, not behind {Place(0, 1)}"]


def test_the_order_of_other_streams_and_of_what_was_unknown_first_is_nobodys_promise() -> None:
    others = acked(ack(0, sent=1, told=3), ack(100, sent=0, told=2)._replace(stream=2))
    unknown_first = acked(ack(0, sent=1, told=2), ack(100, sent=0, told=3, at_once=False))

    assert list(wrong_order(others)) == list(wrong_order(unknown_first)) == []
