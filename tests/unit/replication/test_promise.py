"""When a replica promises, and when it refuses."""

from dataclasses import replace

import pytest

from dittomq.offsets import Epoch
from dittomq.replication.election_events import Position, SentBy
from dittomq.replication.promise import PromiseRequest, decide_ask, decide_promise
from tests.support.candidacy import position
from tests.support.confirming_group import replica_of

OWN = position("a/1", adopted=3, promised=4)
REQUEST = PromiseRequest("a/2", replica_of("a/2"), Epoch(5), "birth", SentBy.NOBODY)
HEARS = replace(OWN, sees_master=True, master="a/0")


def test_a_replica_promises_what_is_above_its_promise() -> None:
    assert decide_promise(OWN, REQUEST)


@pytest.mark.parametrize("epoch", [1, 3, 4])
def test_a_replica_refuses_an_epoch_that_it_has_promised_or_passed(epoch: int) -> None:
    assert not decide_promise(OWN, replace(REQUEST, epoch=Epoch(epoch)))


def test_a_replica_refuses_an_epoch_that_it_has_adopted() -> None:
    own = replace(OWN, adopted=Epoch(6))

    assert not decide_promise(own, replace(REQUEST, epoch=Epoch(6)))


@pytest.mark.parametrize(
    ("own", "request_", "answer"),
    [
        (OWN, replace(REQUEST, birth="another"), False),
        (OWN, replace(REQUEST, birth=""), True),
        (replace(OWN, birth=""), REQUEST, True),
        (replace(OWN, birth=""), replace(REQUEST, birth=""), True),
    ],
)
def test_a_replica_promises_within_its_birth_or_leaves_it(own: Position, request_: PromiseRequest, answer: bool) -> None:
    assert decide_promise(own, request_) is answer


@pytest.mark.parametrize("own", [HEARS, replace(OWN, leads=True)])
def test_a_replica_that_hears_its_master_or_leads_promises_no_candidate(own: Position) -> None:
    assert not decide_promise(own, REQUEST)
    assert [decide_ask(own, "a/2", sent_by) for sent_by in SentBy] == [False, True, True]


def test_a_replica_promises_the_master_that_it_hears() -> None:
    assert decide_promise(HEARS, replace(REQUEST, candidate="a/0"))
