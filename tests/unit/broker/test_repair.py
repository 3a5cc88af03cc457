"""Damaged ranges fetched from other copies: whose bytes are taken, and whose are not."""

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace

import pytest

from dittomq.broker.range_server import MAX_FETCHES, RangeServer
from dittomq.broker.repair import Repairer, RepairerParts, RepairSource
from dittomq.commitlog.records.decoding import decode
from dittomq.copies import RangeOutcome
from dittomq.errors import CorruptRecord, LimitReached, Unavailable
from dittomq.offsets import PhysicalOffset
from dittomq.replication.events import RangePiece
from tests.support.inline_lane import InlineLane
from tests.support.metadata_node import run
from tests.support.record_damage import HARMS, entries
from tests.support.stores import SMALL, Machine, dispatched, frame, open_epoch, whole_log
from tests.support.virtual_time import under
from tests.unit.broker.repair_sources import copy_of, copy_of_log, damage, repair_damage, serving
from tests.unit.commitlog.repaired_stores import rot


class Silent:
    """A peer that is out of reach; counts how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0

    async def fetch(self, start: PhysicalOffset, end: PhysicalOffset, *, skip_damaged: bool = False) -> AsyncGenerator[RangePiece, None]:
        self.asked += 1
        raise Unavailable("a/7", "nobody is there")
        yield


class Changing:
    """A peer whose pieces come from elsewhere, or change on their way."""

    def __init__(self, peer: RangeServer, **changes: int) -> None:
        self._peer = peer
        self._changes = changes

    async def fetch(self, start: PhysicalOffset, end: PhysicalOffset, *, skip_damaged: bool = False) -> AsyncGenerator[RangePiece, None]:
        async for piece in self._peer.fetch(start, end, skip_damaged=skip_damaged):
            yield replace(piece, **self._changes)  # type: ignore[arg-type]


def test_what_one_copy_does_not_hold_whole_the_next_one_does() -> None:
    machine, other, third = (Machine(random.Random(seed)) for seed in (1, 2, 3))
    store = dispatched(machine)
    log = whole_log(store)
    second, last = copy_of(store, other), copy_of(store, third)
    first_range, second_range = damage(store, machine, 20, 30)
    damage(second, other, 30)

    outcomes = repair_damage(store, [RepairSource("a/2", serving(second)), RepairSource("a/3", serving(last))])

    assert outcomes == [RangeOutcome(*first_range, "a/2"), RangeOutcome(*second_range, "a/3")]
    assert whole_log(store) == log
    machine.lose_power(all_unsynced=True)
    assert machine.open().damaged == []


def test_damage_that_every_copy_has_stays_and_each_is_named_with_its_reason() -> None:
    machine, other = (Machine(random.Random(seed)) for seed in (1, 2))
    store = dispatched(machine)
    second = copy_of(store, other)
    (found,) = damage(store, machine, 20)
    damage(second, other, 20)
    silent = Silent()

    (outcome,) = repair_damage(store, [RepairSource("a/7", silent), RepairSource("a/2", serving(second))])

    assert (outcome.start, outcome.end, outcome.source) == (*found, "")
    assert "a/7: a/7 does not answer" in outcome.problem
    assert f"damaged at byte {found[0]:,}" in outcome.problem
    assert store.damaged == [found]


def test_a_record_that_no_copy_has_hides_none_of_those_beside_it_that_one_has() -> None:
    machines = [Machine(random.Random(seed)) for seed in (1, 2, 3)]
    store = dispatched(machines[0])
    log = whole_log(store)
    copies = [store, *(copy_of(store, machine) for machine in machines[1:])]
    rotten = ((2, *range(6, 17)), (6, 10, 11, 16), (2, 8, 11))
    for copy, machine, numbers in zip(copies, machines, rotten, strict=True):
        for start, end in (entries(log)[number] for number in numbers):
            rot(machine, whole_log(copy), HARMS["magic"], start, end=end)
        copy.verify(0, copy.end)
    whole, lost = ((PhysicalOffset(start), PhysicalOffset(end)) for start, end in store.damaged)

    first, *parts = repair_damage(store, [RepairSource("a/2", serving(copies[1])), RepairSource("a/3", serving(copies[2]))])

    assert first == RangeOutcome(*whole, "a/2")
    assert [(each.start, each.end, each.source) for each in parts] == [
        (lost[0], entries(log)[11][0], "a/2, a/3"),
        (*entries(log)[11], ""),
        (entries(log)[11][1], lost[1], "a/2, a/3"),
    ]
    assert store.damaged == [entries(log)[11]], "of eleven records side by side only one is damaged on all copies"
    start, end = entries(log)[11]
    assert (whole_log(store)[:start], whole_log(store)[end:]) == (log[:start], log[end:])
    store.file_repaired()
    machines[0].lose_power(all_unsynced=True)
    assert machines[0].open().damaged == [(start, end)]


def test_missing_range_is_fetched_except_what_its_source_lacks() -> None:
    """The queues have all the rest."""
    machines = [Machine(random.Random(seed)) for seed in (1, 2)]
    source = dispatched(machines[0])
    log = whole_log(source)
    first, last = entries(log)[2][0], entries(log)[12][1]
    slave = machines[1].open()
    slave.replace_epoch_history(source.epoch_history)
    slave.write_chunk(0, log[:first])
    slave.skip_range(first, last)
    slave.write_chunk(last, log[last : source.segment_bytes])
    slave.sync()
    slave.dispatch(slave.end)
    (rotten,) = damage(source, machines[0], 2)

    outcomes = repair_damage(slave, [RepairSource("a/0", serving(source))])

    assert [(each.start, each.end, each.source) for each in outcomes] == [(first, rotten[1], ""), (rotten[1], last, "a/0")]
    assert slave.damaged == [rotten]
    assert list(slave.unread.ranges) == [rotten]
    assert slave.read(rotten[1], last - rotten[1]) == log[rotten[1] : last]
    for start, end in entries(log)[3:13]:
        record = decode(log[start:end], start)
        [message] = slave.read_queue(record.topic, record.queue, record.queue_offset, 1, 1_000_000).messages
        assert message.physical_offset == start


class Counted:
    """A peer that counts how often it was asked."""

    def __init__(self, peer: RangeServer) -> None:
        self.asked = 0
        self._peer = peer

    async def fetch(self, start: PhysicalOffset, end: PhysicalOffset, *, skip_damaged: bool = False) -> AsyncGenerator[RangePiece, None]:
        self.asked += not skip_damaged
        assert self.asked < 100
        async for piece in self._peer.fetch(start, end, skip_damaged=skip_damaged):
            yield piece


def test_two_copies_that_lack_the_same_record_ask_each_other_ever_more_seldom() -> None:
    machines = [Machine(random.Random(seed)) for seed in (1, 2)]
    store = dispatched(machines[0])
    stores = [store, copy_of(store, machines[1])]
    for copy, machine in zip(stores, machines, strict=True):
        damage(copy, machine, 20)
    peers: list[Counted] = []

    async def story() -> None:
        lane = InlineLane()

        def mender_of(at: int) -> Repairer:
            async def other() -> Sequence[RepairSource]:
                return [RepairSource(f"a/{1 - at}", peers[1 - at])]

            return Repairer(RepairerParts(f"a/{at}", stores[at], lane, lane, lane, random.Random(at)), other)

        menders = [mender_of(0), mender_of(1)]
        for copy, mender in zip(stores, menders, strict=True):
            peers.append(Counted(RangeServer(lambda copy=copy: (copy,), lane, "test", "a", damaged=mender.suspect)))  # type: ignore[misc]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(300), asyncio.TaskGroup() as tasks:
                for mender in menders:
                    tasks.create_task(mender.run())

    run(story())
    assert all(5 <= peer.asked <= 15 for peer in peers)


def test_a_peer_that_is_unavailable_is_asked_once_for_all_ranges() -> None:
    machine, other = (Machine(random.Random(seed)) for seed in (1, 2))
    store = dispatched(machine)
    second = copy_of(store, other)
    damage(store, machine, 4, 20, 30)
    silent = Silent()

    outcomes = repair_damage(store, [RepairSource("a/7", silent), RepairSource("a/2", serving(second))])

    assert [each.source for each in outcomes] == ["a/2"] * 3
    assert silent.asked == 1


def test_bytes_of_another_master_or_that_changed_on_their_way_are_not_taken() -> None:
    machine, other = (Machine(random.Random(seed)) for seed in (1, 2))
    store = dispatched(machine)
    second = serving(copy_of(store, other))
    (found,) = damage(store, machine, 20)
    peers = [
        RepairSource("other epoch", Changing(second, epoch=9)),
        RepairSource("other start", Changing(second, incarnation=9)),
        RepairSource("changed", Changing(second, crc=9)),
        RepairSource("elsewhere", Changing(second, offset=9)),
    ]

    (outcome,) = repair_damage(store, peers)

    assert outcome.source == ""
    assert outcome.problem.count("written under another master") == 2
    assert outcome.problem.count("changed on their way") == 2
    assert store.damaged == [found]


def test_repair_takes_nothing_beyond_the_end_of_an_epoch() -> None:
    """In the source, that epoch goes on."""
    machine, others = Machine(random.Random(1)), [Machine(random.Random(seed)) for seed in (2, 3)]
    store = machine.lead()
    store.append([frame(bytes(300)), frame(bytes(300))], 1)
    old = copy_of(store, others[0])  # of the master that wrote on when the other one was promoted past it
    old.append([frame(b"g" * 300)], 2)
    border = store.end
    open_epoch(store, opener=1)
    store.append([frame(b"h" * 300)], 2)
    store.sync()
    old.sync()
    log = whole_log(store)
    start, end = entries(log)[1][0], entries(log)[2][1]
    for low, high in entries(log)[1:3]:
        rot(machine, whole_log(store), HARMS["body"], low, end=high)
    store.verify(0, store.end)
    assert store.damaged == [(start, end)]

    (outcome,) = repair_damage(store, [RepairSource("a/0", serving(old))])

    assert outcome.source == ""
    assert f"damaged at byte {border:,} (what the other copy has there was written under another master)" in outcome.problem
    assert (
        repair_damage(store, [RepairSource("a/0", serving(old)), RepairSource("a/2", serving(copy_of_log(store, log, others[1])))])[
            0
        ].source
        == "a/2"
    )
    assert whole_log(store) == log


def test_damage_that_the_disk_has_got_over_needs_nobody() -> None:
    machine = Machine(random.Random(1))
    store = dispatched(machine)
    log = whole_log(store)
    ((start, end),) = damage(store, machine, 20)
    rot(machine, log, lambda *_: None, start, end=end)

    assert repair_damage(store, []) == [RangeOutcome(start, end, "a/1")]
    assert store.damaged == []


def test_a_log_is_served_up_to_what_is_damaged_and_told_of_the_damage() -> None:
    machine = Machine(random.Random(1))
    store = dispatched(machine)
    met: list[int] = []
    ((start, end),) = damage(store, machine, 20)
    ranges = RangeServer(lambda: (store,), InlineLane(), "test", "a", damaged=met.append)

    async def fetch(low: int, high: int) -> int:
        return sum([len(piece.data) async for piece in ranges.fetch(PhysicalOffset(low), PhysicalOffset(high))])

    assert asyncio.run(fetch(0, start)) == start
    with pytest.raises(CorruptRecord, match=f"{start:,}"):
        asyncio.run(fetch(start, end))
    assert met == [start]


def test_what_another_one_has_repaired_by_its_turn_is_nobodys_work() -> None:
    machine, other = (Machine(random.Random(seed)) for seed in (1, 2))
    store = dispatched(machine)
    peers = [RepairSource("a/2", serving(copy_of(store, other)))]
    rotten = damage(store, machine, 4, 20)

    async def found() -> Sequence[RepairSource]:
        await asyncio.sleep(0)
        return peers

    async def story() -> Sequence[list[RangeOutcome]]:
        lane = InlineLane()
        mender = Repairer(RepairerParts("a/1", store, lane, lane, lane, random.Random(1)), found)
        return await asyncio.gather(mender.repair_ranges(store.damaged), mender.repair_ranges(store.damaged))

    first, second = asyncio.run(story())
    assert first == [RangeOutcome(*each, "a/2") for each in rotten]
    assert second == []


def test_a_range_that_retention_drops_while_it_is_fetched_was_repaired_by_nobody() -> None:
    machine, other = (Machine(random.Random(seed)) for seed in (1, 2))
    store = dispatched(machine)
    store.persist_recovery_point(store.end, store.end)
    second = copy_of(store, other)
    damage(store, machine, 4)

    class Dropping:
        """A peer that takes so long that the range is gone."""

        async def fetch(
            self, start: PhysicalOffset, end: PhysicalOffset, *, skip_damaged: bool = False
        ) -> AsyncGenerator[RangePiece, None]:
            store.drop_before(SMALL.segment_bytes)
            raise Unavailable("a/2", "nobody is there")
            yield

    assert repair_damage(store, [RepairSource("a/2", Dropping()), RepairSource("a/3", serving(second))]) == []
    assert store.damaged == []


@under(asyncio.run)
async def test_so_many_ranges_are_fetched_at_a_time_and_no_more() -> None:
    store = dispatched(Machine(random.Random(7)))
    ranges, end = serving(store), store.end

    async def first_piece(fetching: AsyncGenerator[RangePiece, None]) -> RangePiece:
        return await anext(fetching)

    under_way = [ranges.fetch(PhysicalOffset(0), end) for _ in range(MAX_FETCHES)]
    for fetching in under_way:
        await first_piece(fetching)
    with pytest.raises(LimitReached):
        await first_piece(ranges.fetch(PhysicalOffset(0), end))
    await under_way[0].aclose()
    assert (await first_piece(ranges.fetch(PhysicalOffset(0), end))).offset == 0
