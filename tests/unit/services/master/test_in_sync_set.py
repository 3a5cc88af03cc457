"""The driver of the in-sync set, against a coordination store in memory."""

import asyncio
import random
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, Final

from dittomq.broker.group_watch import GroupWatch
from dittomq.broker.pausing import set_paused
from dittomq.broker.role import RoleStart
from dittomq.doors.coordination import GroupKey, Versioned, Written
from dittomq.group_record import GroupRecord
from dittomq.offsets import Epoch
from dittomq.replication.confirmed_offset import ConfirmedOffset
from dittomq.replication.membership import Membership
from dittomq.wire.admin import PauseOrder
from services.master.history import HaHistory
from services.master.in_sync_set import InSyncSet, InSyncSetParts
from services.master.term import Opened, Term
from tests.simulation.clock import SimulatedClock
from tests.simulation.loop import SimulatedLoop
from tests.support.confirming_group import MASTER, RULES, at, member_of, record_of, replica_of
from tests.support.inline_lane import InlineLane
from tests.support.memory_coordination import Fate, MemoryCoordination
from tests.support.stores import Machine
from tests.support.virtual_time import played_by
from tests.unit.services.master.empty_queues import NoQueues

KEY: Final = GroupKey("c", "a")


class Leading:
    """A master of three nodes whose record names it alone; slaves come when a test lets them."""

    def __init__(self, clock: SimulatedClock, machine: Machine, coordination: MemoryCoordination) -> None:
        store = machine.open()
        store.take_birth("birth")
        self.clock = clock
        self.coordination = coordination
        self.record = record_of(revision=1)
        outcome = coordination.apply(KEY, self.record, None)
        assert isinstance(outcome, Written)
        self.confirm = ConfirmedOffset(
            RULES, own=replica_of(MASTER), node=MASTER, record=self.record, end=at(0), confirmed=at(0), now=clock.monotonic()
        )
        opened = Opened(Epoch(1), at(0), (), MASTER)
        self.term = Term(opened, self.confirm, None, NoQueues(), clock=clock)  # type: ignore[arg-type]  # nothing is written to a log here
        self.watch = GroupWatch(coordination.through(MASTER), KEY, store, InlineLane(), clock=clock)
        self.history = HaHistory(machine.beside(), InlineLane())
        self.deposed: list[tuple[str, RoleStart]] = []
        membership = Membership(RULES, self.confirm, Versioned(self.record, outcome.version), now=clock.monotonic())
        parts = InSyncSetParts(MASTER, 2, self.term, self.watch, self.history, self.step_down, clock, random.Random(3))
        self.set = InSyncSet(parts, membership)

    def step_down(self, why: str, start: RoleStart) -> None:
        self.term.end(why)
        self.deposed.append((why, start))

    def joins(self, node: str) -> None:
        """It streams, and has acknowledged all that there is."""
        self.term.stream_begins(node, replica_of(node), at(0), (), address=member_of(node).address)
        end = self.confirm.written
        self.term.slave_at(node, replica_of(node), end, end, adopted=True)

    def leaves(self, node: str) -> None:
        self.term.stream_ended(node, sent_goodbye=False)

    @property
    def stored(self) -> GroupRecord:
        found = self.coordination.now(KEY)
        assert found is not None
        return found.record

    def writes_meanwhile(self, record: GroupRecord) -> None:
        """Another writer changes the record."""
        assert isinstance(self.coordination.apply(KEY, record, self.coordination.now(KEY)), Written)


def members(record: GroupRecord) -> list[str]:
    return [member.node for member in record.members]


def play(story: Callable[[Leading], Coroutine[Any, Any, None]]) -> None:
    """With the driver and the watch under way."""
    loop = SimulatedLoop()

    async def told() -> None:
        leading = Leading(SimulatedClock(loop), Machine(random.Random(1)), MemoryCoordination())
        async with asyncio.TaskGroup() as tasks:
            driving = [tasks.create_task(work()) for work in (leading.watch.run, leading.set.run, leading.term.tick)]
            await story(leading)
            for task in driving:
                task.cancel()

    try:
        loop.run_until_complete(told())
    finally:
        loop.close()


@played_by(play)
async def test_a_slave_that_has_caught_up_becomes_a_member_and_the_history_says_so(leading: Leading) -> None:
    leading.joins("a/1")
    await asyncio.sleep(2)

    assert members(leading.stored) == ["a/0", "a/1"]
    assert leading.confirm.record == leading.stored
    assert [(each.revision, each.cause) for each in leading.history.changes] == [(2, "a/1 has caught up")]


@played_by(play)
async def test_a_write_whose_outcome_is_unknown_is_sent_again_until_it_is_known(leading: Leading) -> None:
    leading.coordination.fates += [Fate.LOST, Fate.LOST]
    leading.joins("a/1")
    await asyncio.sleep(0.5)
    before = leading.confirm.record
    await asyncio.sleep(5)

    assert members(before) == ["a/0"]
    assert members(leading.stored) == members(leading.confirm.record) == ["a/0", "a/1"]


@played_by(play)
async def test_a_write_that_took_place_unanswered_is_found_by_a_read_and_not_made_twice(leading: Leading) -> None:
    leading.coordination.fates += [Fate.UNANSWERED]
    leading.joins("a/1")
    await asyncio.sleep(5)

    assert leading.confirm.record == leading.stored
    assert [change.record.revision for change in leading.coordination.changes if change.record is not None] == [1, 2]


@played_by(play)
async def test_an_operators_pause_is_learned_and_the_master_goes_on(leading: Leading) -> None:
    other = GroupWatch(leading.coordination.through("a/2"), KEY, Machine(random.Random(2)).open(), InlineLane(), clock=leading.clock)
    assert await set_paused(other, PauseOrder("a", paused=True))
    await asyncio.sleep(1)
    leading.joins("a/1")
    await asyncio.sleep(2)

    assert leading.set.record.paused
    assert (members(leading.stored), leading.stored.paused, leading.deposed) == (["a/0", "a/1"], True, [])
    assert [each.cause for each in leading.history.changes] == ["failover was paused", "a/1 has caught up"]


@played_by(play)
async def test_a_pause_that_is_there_already_changes_nothing(leading: Leading) -> None:
    assert await set_paused(leading.watch, PauseOrder("a", paused=True, validate_only=True))
    assert not leading.stored.paused
    assert not await set_paused(leading.watch, PauseOrder("a", paused=False))


@played_by(play)
async def test_a_pause_at_the_same_time_as_a_change_of_members_loses_neither(leading: Leading) -> None:
    leading.coordination.delay_s = 0.2
    leading.joins("a/1")
    assert await set_paused(leading.watch, PauseOrder("a", paused=True))
    await asyncio.sleep(5)

    assert (members(leading.stored), leading.stored.paused, leading.deposed) == (["a/0", "a/1"], True, [])


@played_by(play)
async def test_a_master_that_another_one_has_replaced_in_the_record_leads_no_longer(leading: Leading) -> None:
    leading.joins("a/1")
    await asyncio.sleep(2)
    leading.writes_meanwhile(leading.stored.next("other", epoch=Epoch(2), master=replica_of("a/1")))
    await asyncio.sleep(1)

    assert leading.deposed == [("a/1 leads in epoch 2", RoleStart())]
    assert leading.set.writes_refused() is not None


@played_by(play)
async def test_a_record_of_another_birth_deposes_the_master(leading: Leading) -> None:
    await asyncio.sleep(1)
    leading.writes_meanwhile(replace(record_of(revision=9), birth="other"))
    await asyncio.sleep(2)

    assert [start for _, start in leading.deposed] == [RoleStart()]


@played_by(play)
async def test_writes_without_needed_members_wait_for_the_coordination_store(leading: Leading) -> None:
    """They are refused until it is back."""
    leading.joins("a/1")
    await asyncio.sleep(2)
    leading.coordination.is_down = True
    leading.leaves("a/1")
    refused = []
    for down in (True, False):
        leading.coordination.is_down = down
        await asyncio.sleep(RULES.isolation_s + 2)
        refused.append(leading.set.writes_refused() is not None)

    assert refused == [True, False]
    assert leading.deposed == []


@played_by(play)
async def test_a_lost_record_is_made_again_when_all_replicas_are_there(leading: Leading) -> None:
    leading.joins("a/1")
    await asyncio.sleep(2)
    leading.coordination.apply(KEY, None, leading.coordination.now(KEY))
    await asyncio.sleep(2)
    too_few = list(leading.deposed)
    leading.joins("a/2")
    await asyncio.sleep(7)

    assert too_few == []
    assert [start for _, start in leading.deposed] == [RoleStart(stands=True)]
