"""The summary of a publish, and its exit code."""

from dataclasses import replace

import pytest

from dittomq.cli.exits import ExitCode
from dittomq.cli.stored_message import message_document, message_line
from dittomq.cli.tally import Outcome, Tally
from dittomq.errors import AckLevelNotReached, NotStored, OutcomeHandle, OutcomeUnknown, TopicNotFound, Unavailable
from dittomq.message import Ack, Copy, CopyState, PutStatus, Receipt, StoredMessage
from dittomq.offsets import PhysicalOffset, QueueOffset

THREE = (Copy("a/0", CopyState.FLUSHED), Copy("a/1", CopyState.FLUSHED), Copy("a/2", CopyState.RECEIVED))
STORED = Receipt(
    PutStatus.PUT_OK,
    Ack.REPLICA_FLUSHED,
    frozenset(Ack),
    THREE,
    1,
    "a",
    "t",
    0,
    QueueOffset(0),
    PhysicalOffset(0),
    100,
    0,
    "",
    duplicate=False,
)
WEAKER = AckLevelNotReached(replace(STORED, status=PutStatus.FLUSH_SLAVE_TIMEOUT))
UNKNOWN = OutcomeUnknown(OutcomeHandle("a", "p", 0, "t", 0), "no answer")
REFUSED = NotStored("t", TopicNotFound("t", "cluster prod"))
MESSAGE = StoredMessage("t", 3, QueueOffset(1), PhysicalOffset(9), 100, b"\x00\xff\x10\xab\x07", ("o-18",), "", {}, 0, 0, 1_800_000_000_204)


def tally(*outcomes: Outcome) -> Tally:
    counted = Tally()
    for outcome in outcomes:
        counted.add(outcome)
    return counted


def test_all_stored_as_asked_is_done() -> None:
    counted = tally(STORED, STORED)

    assert counted.exit() is ExitCode.DONE
    expected = "2 stored · 2 flushed on 2 or more copies · 0 weaker · 0 not stored · 0 unknown · 0.5 s, 4 messages/s"
    assert counted.summary(0.5) == expected


def test_the_fewest_copies_of_all_messages_are_named() -> None:
    one_copy = replace(STORED, copies=THREE[:1])

    assert "flushed on 1 or more copies" in tally(STORED, one_copy).summary(1.0)


def test_a_lower_level_is_named_as_what_it_is() -> None:
    assert "1 written by the master" in tally(replace(STORED, asked=Ack.MASTER_RECEIVED)).summary(1.0)
    assert "1 received by 3 or more copies" in tally(replace(STORED, asked=Ack.REPLICA_RECEIVED)).summary(1.0)


WRITTEN = replace(STORED, asked=Ack.MASTER_RECEIVED, copies=(Copy("b/0", CopyState.RECEIVED),), broker="b")
ON_DISK = replace(STORED, asked=Ack.MASTER_FLUSHED, copies=(Copy("b/0", CopyState.FLUSHED),), broker="b")
HELD = replace(STORED, asked=Ack.REPLICA_RECEIVED)


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        (STORED, WRITTEN, "2 written by the master"),
        (ON_DISK, WRITTEN, "2 written by the master"),
        (ON_DISK, STORED, "2 written by the master"),
        (HELD, STORED, "2 received by 2 or more copies"),
    ],
)
def test_of_groups_with_other_levels_only_what_holds_for_every_message_is_said(one: Receipt, other: Receipt, said: str) -> None:
    assert said in tally(one, other).summary(1.0)
    assert said in tally(other, one).summary(1.0)
    assert tally(one, other).document()["asked"] == tally(other, one).document()["asked"]


def test_no_level_is_named_where_nothing_is_stored() -> None:
    """Programs are told the one that was asked for."""
    asked = Tally(Ack.MASTER_FLUSHED)
    asked.add(REFUSED)

    assert "0 stored · 0 as asked" in asked.summary(1.0)
    assert "0 stored · 0 as asked" in tally(REFUSED).summary(1.0)
    assert asked.document()["asked"] == Ack.MASTER_FLUSHED


def test_where_all_is_stored_weaker_than_asked_no_level_is_named() -> None:
    asked = Tally(Ack.REPLICA_RECEIVED)
    asked.add(WEAKER)

    assert "1 stored · 0 as asked · 1 weaker" in asked.summary(1.0)
    assert asked.document()["asked"] is None


def test_weaker_than_asked_counts_as_stored_and_ends_with_3() -> None:
    counted = tally(STORED, WEAKER)

    assert (counted.stored, counted.weaker) == (2, 1)
    assert counted.exit() is ExitCode.PARTLY


def test_a_receipt_that_says_weaker_counts_like_the_error() -> None:
    assert tally(WEAKER.receipt).weaker == 1


def test_an_unknown_outcome_ends_with_4_whatever_else_happened() -> None:
    assert tally(STORED, WEAKER, REFUSED, UNKNOWN).exit() is ExitCode.UNKNOWN


def test_nothing_stored_ends_with_the_code_of_the_reason() -> None:
    assert tally(REFUSED, REFUSED).exit() is ExitCode.REFUSED
    assert tally(NotStored("t", Unavailable("a/0", "x"))).exit() is ExitCode.UNAVAILABLE


def test_stored_in_part_ends_with_3() -> None:
    assert tally(STORED, REFUSED).exit() is ExitCode.PARTLY


def test_a_message_is_printed_as_documented() -> None:
    line = message_line("a", MESSAGE)

    assert line.startswith("a 3@1  ")
    assert line.endswith(".204  o-18  <5 bytes, not text: 00 ff 10 ab 07>")


def test_a_message_for_programs_has_text_or_base64_never_both() -> None:
    assert message_document("a", MESSAGE)["body"] == "AP8Qqwc="
    assert "text" not in message_document("a", MESSAGE)
    assert message_document("a", MESSAGE._replace(body=b"paid"))["text"] == "paid"


def test_unanswered_message_is_unknown_when_a_publish_is_broken_off() -> None:
    counted = tally(STORED, WEAKER, REFUSED)
    counted.handed = 5

    counted.break_off()

    assert (counted.stored, counted.not_stored, counted.unknown, counted.exit()) == (2, 1, 2, ExitCode.UNKNOWN)
