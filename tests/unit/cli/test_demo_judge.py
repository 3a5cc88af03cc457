"""The demo's verdict must fail whenever a promise is broken."""

from collections.abc import Sequence

import pytest

from dittomq.cli.demo.flights import Flight
from dittomq.cli.demo.judge import DemoMessageId, Judge, Judgement, MessageLocation, Unreceipted, body_of, identity_of

FLIGHTS = [Flight(b"2013,1,1,UA,N1", "N1"), Flight(b"2013,1,1,AA,N2", "N2"), Flight(b"2013,1,2,UA,N1", "N1")]
A, B, C = DemoMessageId(1, 0), DemoMessageId(1, 1), DemoMessageId(1, 2)
ALL_STORED = (MessageLocation(0, 0), MessageLocation(1, 0), MessageLocation(0, 1))


def verdict(told: Sequence[MessageLocation | Unreceipted], *read: tuple[DemoMessageId, MessageLocation]) -> Judgement:
    judge = Judge({1: told}, FLIGHTS)
    for identity, place in read:
        judge.count(place, body_of(identity, FLIGHTS[identity.line].line))
    return judge.judge()


def test_all_there_once_and_in_order_holds() -> None:
    judgement = verdict(ALL_STORED, (A, MessageLocation(0, 0)), (C, MessageLocation(0, 1)), (B, MessageLocation(1, 0)))

    assert judgement.holds
    assert (judgement.acknowledged, judgement.read) == (3, 3)


@pytest.mark.parametrize(
    ("told", "read", "sentence"),
    [
        (ALL_STORED, [(A, MessageLocation(0, 0)), (C, MessageLocation(0, 1))], "line 1 of publish 1 was acknowledged and is not there"),
        (
            ALL_STORED,
            [(A, MessageLocation(0, 0)), (C, MessageLocation(0, 1)), (B, MessageLocation(1, 0)), (B, MessageLocation(1, 1))],
            "twice",
        ),
        ([Unreceipted.NOT_STORED, MessageLocation(1, 0)], [(B, MessageLocation(0, 0))], "its receipt says queue 1 offset 0"),
        ([Unreceipted.UNKNOWN], [(A, MessageLocation(0, 0)), (A, MessageLocation(0, 1))], "twice"),
        ([Unreceipted.NOT_STORED], [(A, MessageLocation(0, 0))], "line 0 of publish 1 was refused and is there"),
        ([], [(A, MessageLocation(0, 0))], "never sent"),
        (
            [MessageLocation(0, 0), Unreceipted.NOT_STORED, MessageLocation(0, 2)],
            [(A, MessageLocation(0, 0)), (C, MessageLocation(0, 2))],
            "1 was next",
        ),
        ([MessageLocation(0, 1)], [(A, MessageLocation(0, 1))], "0 was next"),
        (
            [MessageLocation(0, 1), Unreceipted.NOT_STORED, MessageLocation(0, 0)],
            [(C, MessageLocation(0, 0)), (A, MessageLocation(0, 1))],
            "behind line",
        ),
        (
            [MessageLocation(0, 0), Unreceipted.NOT_STORED, MessageLocation(1, 0)],
            [(A, MessageLocation(0, 0)), (C, MessageLocation(1, 0))],
            "in queue 0",
        ),
    ],
)
def test_each_broken_promise_is_named(
    told: Sequence[MessageLocation | Unreceipted], read: list[tuple[DemoMessageId, MessageLocation]], sentence: str
) -> None:
    assert any(sentence in each for each in verdict(told, *read).wrong)


def test_an_unknown_one_may_be_there_or_not() -> None:
    judgement = verdict([Unreceipted.UNKNOWN, Unreceipted.UNKNOWN], (A, MessageLocation(0, 0)))

    assert judgement.holds
    assert (judgement.unknown_present, judgement.unknown_absent) == (1, 1)


def test_a_changed_body_counts_as_never_sent() -> None:
    judge = Judge({1: [MessageLocation(0, 0)]}, FLIGHTS)
    judge.count(MessageLocation(0, 0), body_of(A, b"2013,1,1,UA,N9"))

    assert "never sent" in judge.judge().wrong[0]


def test_a_body_of_another_shape_counts_as_never_sent() -> None:
    judge = Judge({}, FLIGHTS)
    judge.count(MessageLocation(0, 0), b"\xff\x00")

    assert "never sent" in judge.judge().wrong[0]


def test_a_body_carries_its_identity() -> None:
    assert identity_of(body_of(DemoMessageId(2, 336_775), b"2013,9,30")) == DemoMessageId(2, 336_775)
