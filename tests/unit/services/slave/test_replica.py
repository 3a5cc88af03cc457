"""What a slave keeps of its masters beyond one stream, and what it forgets: what it promised and adopted, what they said is confirmed, what
was verified against whom."""

import asyncio
import random
from dataclasses import replace

import pytest

from dittomq.broker.config import ReadingTable
from dittomq.broker.verified import VerifiedUpTo, load_verified, save_verified
from dittomq.offsets import Epoch, PhysicalOffset
from dittomq.replication.events import (
    Goodbye,
    Handshake,
    Heartbeat,
    LeafDigests,
    LeafProbe,
    RangeDigest,
    SlaveAck,
    SyncAction,
)
from tests.simulation.disk import BOUNDLESS
from tests.support.metadata_node import LoopClock, run
from tests.support.scripted_master import ScriptedMaster
from tests.support.stores import SMALL, Machine, chain_digest
from tests.support.virtual_time import under
from tests.unit.services.slave.following_slave import CONFIG, MASTERS, at, chunk, entry, flushed, following, handshake, next_border, stream

SILENCE_S = CONFIG.failover.peer_timeout_ms / 1000


class StoppedClock(LoopClock):
    """The clock of a process that was stopped for `stopped_s`."""

    stopped_s = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.stopped_s


async def acked(master: ScriptedMaster) -> SlaveAck:
    """The next ack; handshakes before it are passed over."""
    while not isinstance(said := await master.said.get(), SlaveAck):
        pass
    return said


async def digested(master: ScriptedMaster) -> None:
    """Return when the slave has answered a heartbeat with its own digest."""
    while not (isinstance(said := await master.said.get(), SlaveAck) and said.digest is not None):
        pass


@under(run)
async def test_slave_promises_its_masters_epoch_before_it_holds_a_byte_of_it() -> None:
    """It keeps its birth."""
    machine, said = Machine(random.Random(2)), []
    async with following(machine) as (master, _):
        said.append(await handshake(master))
        master.say(replace(stream((entry(1, 0), entry(5, 1_000_000)), 0), birth="b1"))
        master.leave()
        said.append(await handshake(master))
    machine.kill()
    async with following(machine) as (master, _):
        said.append(await handshake(master))
    assert [(each.promised, each.adopted, each.birth) for each in said] == [(0, 0, ""), (5, 0, "b1"), (5, 0, "b1")]


@under(run)
async def test_slave_adopts_the_epoch_once_it_has_flushed_all_before_it() -> None:
    """Also for its next start."""
    one = next_border(0)
    two, machine, adopted = next_border(one), Machine(random.Random(2)), []
    epochs = (entry(1, 0), entry(2, two))
    async with following(machine) as (master, _):
        await handshake(master)
        master.say(stream(epochs, 0), chunk(1, 0, one, confirmed=0))
        await flushed(master, one)
        master.leave()
        adopted.append((await handshake(master)).adopted)
        master.say(stream(epochs, one), chunk(1, one, two, confirmed=0))
        while (await acked(master)).adopted < 2:
            pass
    machine.kill()
    async with following(machine) as (master, _):
        adopted.append((await handshake(master)).adopted)
    assert adopted == [0, 2]


@under(run)
async def test_slave_that_promised_a_newer_epoch_refuses_an_older_master() -> None:
    """It says so in its handshake."""
    one = next_border(0)
    async with following(Machine(random.Random(2))) as (master, slave):
        await handshake(master)
        master.say(stream((entry(1, 0),), 0), chunk(1, 0, one, confirmed=0))
        await flushed(master, one)
        [store] = slave.stores()

        slave.promised(Epoch(7))
        await slave.end_stream()
        end = store.end
        store.promise(Epoch(7))
        said = await handshake(master)
        master.say(stream((entry(1, 0),), one), chunk(1, one, next_border(one), confirmed=0))
        await handshake(master)
        assert (said.promised, PhysicalOffset(store.end - end), slave.problem) == (
            7,
            0,
            "epoch 1 is older than 7, which this replica has promised",
        )


@under(run)
async def test_no_stream_begins_while_another_part_of_the_node_writes_the_log() -> None:
    async with following(Machine(random.Random(2))) as (master, slave):
        await handshake(master)
        async with slave.without_stream():
            await asyncio.sleep(10)
            inside = master.said.empty()
        await asyncio.sleep(10)
        assert (inside, master.said.empty()) == (True, False)


@under(run)
async def test_a_slave_that_leaves_says_goodbye_and_dials_nobody_from_then_on() -> None:
    async with following(Machine(random.Random(2))) as (master, slave):
        await handshake(master)
        await slave.leave(sends_goodbye=True)
        said = [await master.said.get()]
        master.leave()
        await asyncio.sleep(10)
        assert [*said, master.said.empty()] == [Goodbye(), True]


@under(run)
async def test_a_slave_hears_its_master_until_the_stream_ends_or_is_silent_for_long_enough() -> None:
    heard = []
    async with following(Machine(random.Random(2))) as (master, slave):
        await handshake(master)
        heard.append((slave.sees_master, slave.silent_s >= SILENCE_S))
        master.say(stream((entry(1, 0),), 0), Heartbeat(Epoch(1), at(0), at(0), None, None))
        await acked(master)
        heard.append((slave.sees_master, slave.silent_s >= SILENCE_S))
        await asyncio.sleep(SILENCE_S)
        heard.append((slave.sees_master, slave.silent_s >= SILENCE_S))
        await handshake(master)
        master.say(stream((entry(1, 0),), 0), Heartbeat(Epoch(1), at(0), at(0), None, None))
        await acked(master)
        master.leave()
        await handshake(master)
        heard.append((slave.sees_master, slave.silent_s >= SILENCE_S))
    assert heard == [(False, False), (True, False), (False, True), (False, False)]


@under(run)
async def test_confirmed_offset_of_missing_bytes_does_not_cover_the_next_masters() -> None:
    one = next_border(0)
    two = next_border(one)
    async with following(Machine(random.Random(3))) as (master, _):
        await handshake(master)
        master.say(stream((entry(1, 0),), 0), chunk(1, 0, one, confirmed=1_000_000))
        await flushed(master, one)
        master.leave()
        second = await handshake(master)
        master.say(stream((entry(1, 0), entry(2, one)), one), chunk(2, one, two, confirmed=one))
        await flushed(master, two)
        master.leave()
        third = await handshake(master)
    assert (second.end, third.end) == (one, two)
    assert (second.confirmed - one, third.confirmed - one) == (0, 0)


@pytest.mark.parametrize("turns", range(12))
@under(run)
async def test_slave_told_to_resync_while_it_is_asked_to_end_ends(turns: int) -> None:
    one = next_border(0)
    async with following(Machine(random.Random(6))) as (master, _):
        await handshake(master)
        master.say(stream((entry(1, 0),), 0), chunk(1, 0, one, confirmed=0))
        await flushed(master, one)
        master.leave()
        await handshake(master)
        master.say(replace(stream((entry(2, 0),), 1_000_000), action=SyncAction.RESYNC, end=at(2_000_000)))
        for _ in range(turns):
            await asyncio.sleep(0)


@under(run)
async def test_the_time_for_which_a_slave_was_stopped_itself_is_no_silence_of_its_master() -> None:
    one, clock, readable = next_border(0), StoppedClock(), []
    config = replace(CONFIG, reading=ReadingTable(master_timeout_ms=10_000))
    async with following(Machine(random.Random(5)), config, clock) as (master, slave):
        await handshake(master)
        master.say(stream((entry(1, 0),), 0), chunk(1, 0, one, confirmed=0))
        await flushed(master, one)
        master.leave()
        await handshake(master)
        clock.stopped_s = 3_600.0
        for sleep_s in (0.0, 7.0, 4.0):
            await asyncio.sleep(sleep_s)
            readable.append(slave.readable().end)
    assert [end // one for end in readable] == [0, 0, 1]


@under(run)
async def test_what_was_verified_with_one_master_counts_for_no_other() -> None:
    size = SMALL.segment_bytes
    told: list[tuple[int, str]] = []
    async with following(Machine(random.Random(4))) as (master, _):
        await handshake(master)
        master.say(stream((entry(1, 0),), 0), chunk(1, 0, size, 0), chunk(1, size, 2 * size, 0))
        await flushed(master, 2 * size)
        for segments in ((0, 1), (0,)):
            for segment in segments:
                start, end = segment * size, (segment + 1) * size
                digest = RangeDigest(at(start), at(end), chain_digest(MASTERS, start, end))
                master.say(Heartbeat(Epoch(1), at(2 * size), at(0), digest, None))
                await digested(master)
            master.leave()
            said = await handshake(master)
            told.append((said.verified_offset // size, said.verified_with))
            master.say(stream((entry(1, 0),), 2 * size, "m2"))
    assert told == [(2, "m1"), (1, "m2")]


@under(run)
async def test_truncated_verification_is_durably_forgotten_before_new_bytes() -> None:
    """Also where the node died."""
    machine = Machine(random.Random(7))
    save_verified(machine.storage(), VerifiedUpTo(at(100_000), "m1"))  # the log was longer then
    async with following(machine) as (master, _):
        said = await handshake(master)
        written = load_verified(machine.beside())
    assert written.end == said.verified_offset == 0


@under(run)
async def test_difference_is_in_every_handshake_until_it_is_verified_equal() -> None:
    def compare(master: ScriptedMaster, start: int, end: int, *, as_here: bool = True) -> None:
        ours = chain_digest(MASTERS, start, end) if as_here else b"another"
        master.say(Heartbeat(Epoch(1), at(2 * size), at(0), RangeDigest(at(start), at(end), ours), None))

    size = SMALL.segment_bytes
    newest = (2 * size - 4_096, 2 * size)
    told: list[tuple[int, list[tuple[int, int]]]] = []
    few = replace(CONFIG, replication=replace(CONFIG.replication, verify_bytes_per_s=4_096))
    async with following(Machine(random.Random(4)), few) as (master, _):
        await handshake(master)
        master.say(stream((entry(1, 0),), 0), chunk(1, 0, size, 2 * size), chunk(1, size, 2 * size, 2 * size))
        await flushed(master, 2 * size)
        for as_here in (True, False, True):
            compare(master, 0, size)
            await digested(master)
            compare(master, 1_000, 2_000, as_here=as_here)
            await digested(master)
            master.leave()
            said = await handshake(master)
            told.append((said.verified_offset, [(digest.start, digest.end) for digest in said.digests]))
            master.say(stream((entry(1, 0),), 2 * size))
    assert told == [(size, [newest]), (1_000, [newest, (1_000, 2_000)]), (size, [newest])]


@under(run)
async def test_damaged_range_is_no_longer_verified_though_repaired_at_once() -> None:
    """Also after a restart."""
    size = SMALL.segment_bytes
    second = next_border(0)
    third = next_border(second)
    machine = Machine(random.Random(5))
    async with following(machine) as (master, slave):
        await handshake(master)
        master.say(stream((entry(1, 0),), 0), chunk(1, 0, size, 0))
        await flushed(master, size)
        master.say(Heartbeat(Epoch(1), at(size), at(0), RangeDigest(at(0), at(size), chain_digest(MASTERS, 0, size)), None))
        await digested(master)
        proven = slave.newest.verified
        [store] = slave.stores()
        machine.disk.names.files[f"commitlog/{0:020d}"].write(memoryview(b"\xee"), second + 60, machine.chance)
        assert store.verify(second, second + 1).damaged == ((second, third),)
        store.repair(second, MASTERS.read_records(at(second), at(third), third - second))
        master.leave()
        after = (await handshake(master)).verified_offset
    machine.kill()
    async with following(machine) as (master, _):
        assert (proven, after, (await handshake(master)).verified_offset) == (size, second, second)


@under(run)
async def test_what_a_full_disk_did_not_take_is_written_down_when_there_is_room() -> None:
    size = SMALL.segment_bytes
    machine = Machine(random.Random(5))
    async with following(machine) as (master, _):
        await handshake(master)
        master.say(stream((entry(1, 0),), 0), chunk(1, 0, size, 0))
        await flushed(master, size)
        machine.disk.capacity_bytes = machine.disk.used_bytes()
        master.say(Heartbeat(Epoch(1), at(size), at(0), RangeDigest(at(0), at(size), chain_digest(MASTERS, 0, size)), None))
        await digested(master)
        await asyncio.sleep(1)
        machine.disk.capacity_bytes = BOUNDLESS
        await asyncio.sleep(1)
    machine.kill()
    async with following(machine) as (master, _):
        assert (await handshake(master)).verified_offset == size


@under(run)
async def test_damage_before_a_probed_range_is_no_reason_to_answer_no_probe() -> None:
    size = SMALL.segment_bytes
    second = next_border(0)
    machine = Machine(random.Random(6))
    async with following(machine) as (master, slave):
        await handshake(master)
        master.say(stream((entry(1, 0),), 0), chunk(1, 0, size, 0))
        await flushed(master, size)
        machine.disk.names.files[f"commitlog/{0:020d}"].write(memoryview(b"\xee"), 60, machine.chance)
        assert slave.stores()[0].verify(0, 1).damaged == ((0, second),)
        master.leave()
        await handshake(master)
        master.say(LeafProbe(at(second), at(size)))
        while not isinstance(said := await asyncio.wait_for(master.said.get(), 10), LeafDigests):
            assert not isinstance(said, Handshake)
    assert (said.start, said.end) == (second, size)
    assert list(said.digests) == MASTERS.leaf_digests(second, size, leaf_bytes=said.leaf_bytes)


@under(run)
async def test_a_slave_dials_again_when_its_stream_is_given_up_before_its_handshake_is_out() -> None:
    """Whoever asks the same node in vain closes the channel that both share."""

    async with following(Machine(random.Random(3))) as (master, slave):
        master.gives_up = True
        said = await handshake(master)
    assert (slave.problem, said.end) == ("a-0:10912 does not answer: its connection was given up meanwhile", 0)
