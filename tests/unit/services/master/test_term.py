"""A term: who is told what, and nothing when it is over."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from dittomq.errors import FencedEpoch
from dittomq.message import Ack
from dittomq.offsets import Epoch
from services.master.term import Opened, Term
from tests.simulation.clock import SimulatedClock
from tests.simulation.loop import SimulatedLoop
from tests.support.confirming_group import MASTER, ConfirmingGroup, at, record_of, replica_of
from tests.support.virtual_time import played_by
from tests.unit.services.master.empty_queues import NoQueues

SLAVE = "a/1"


class Leading:
    """A term of two members; the slave streams, and has acknowledged nothing."""

    def __init__(self, clock: SimulatedClock) -> None:
        self.group = ConfirmingGroup()
        self.queues = NoQueues()
        opened = Opened(Epoch(1), at(0), (), MASTER)
        self.term = Term(opened, self.group.confirmed, None, self.queues, clock=clock)  # type: ignore[arg-type]  # nothing is written to a log here
        self.term.stream_begins(SLAVE, replica_of(SLAVE), at(0), (), address="a-1:10912")

    def written(self, end: int) -> None:
        self.term.written = at(end)
        self.term.on_flushed(at(end))

    def acked(self, end: int, *, adopted: bool = True) -> None:
        self.term.slave_at(SLAVE, replica_of(SLAVE), at(end), at(end), adopted=adopted)


def play(story: Callable[[Leading], Coroutine[Any, Any, None]]) -> None:
    loop = SimulatedLoop()

    async def told() -> None:
        await story(Leading(SimulatedClock(loop)))

    try:
        loop.run_until_complete(told())
    finally:
        loop.close()


@played_by(play)
async def test_an_older_sync_that_is_told_behind_a_newer_one_takes_nothing_back(leading: Leading) -> None:
    leading.written(200)

    leading.term.on_flushed(at(100))

    assert leading.term.flushed == 200


@played_by(play)
async def test_readers_see_what_a_member_that_has_adopted_the_epoch_acknowledged(leading: Leading) -> None:
    leading.written(100)

    leading.acked(100, adopted=False)
    before = leading.queues.readable
    leading.acked(100)

    assert (before, leading.queues.readable) == (0, 100)


@played_by(play)
async def test_a_term_that_is_over_confirms_nothing_more_and_keeps_its_first_reason(leading: Leading) -> None:
    leading.written(100)

    leading.term.end("it promised epoch 2 to a/1")
    leading.term.end("a/1 leads in epoch 2")
    leading.acked(100)

    assert (leading.term.is_over, leading.term.why_over) == (True, "it promised epoch 2 to a/1")
    assert (leading.group.confirmed.confirmed, leading.queues.readable) == (0, 0)


@played_by(play)
async def test_producers_that_wait_when_the_term_ends_learn_that_the_outcome_is_unknown(leading: Leading) -> None:
    leading.written(100)
    waiting = asyncio.create_task(leading.term.acks.wait(at(0), at(100), Ack.REPLICA_FLUSHED, 60.0))
    await asyncio.sleep(0)

    leading.term.end("it promised epoch 2 to a/1")

    with pytest.raises(FencedEpoch, match="promised epoch 2"):
        await waiting


@played_by(play)
async def test_listeners_hear_that_the_term_ends(leading: Leading) -> None:
    heard = list[bool]()
    leading.term.listen(lambda: heard.append(leading.term.is_over))

    leading.term.end("it is shutting down")

    assert heard == [True]


@played_by(play)
async def test_group_is_degraded_from_the_record_with_too_few_members_on(leading: Leading) -> None:
    """Until the one with enough."""
    confirmed, times = leading.group.confirmed, list[bool]()
    for record in (record_of(revision=2), record_of(SLAVE, revision=3)):
        confirmed.record_known(record)
        leading.term.moved()
        times.append(leading.term.degraded_since_ms is not None)

    assert times == [True, False]


@played_by(play)
async def test_missing_bytes_are_lost_once_a_quorum_must_have_adopted_the_epoch(leading: Leading) -> None:
    before = leading.term.has_been_adopted
    leading.acked(0, adopted=False)
    streaming = leading.term.has_been_adopted
    leading.acked(0)

    assert (before, streaming, leading.term.has_been_adopted) == (False, False, True)
