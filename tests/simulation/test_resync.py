"""A slave that its master cannot continue copies the log anew, beside its old store, whatever happens meanwhile."""

import asyncio
import contextlib

import pytest

from dittomq.errors import DittoError
from dittomq.ha_status import NodeState
from tests.simulation.disk import BOUNDLESS
from tests.simulation.parser import ParsedLog, parse_log
from tests.simulation.short_retention import HOLD_BYTES, OLD_S, SEGMENT, Group, play
from tests.simulation.world import Power, World
from tests.support.virtual_time import played_by

HALF_OPERATIONS = 20


def log_of(world: World, name: str, folder: str = "") -> ParsedLog:
    """What lies on a node's disk."""
    prefix = f"{folder}commitlog/"
    names = world.nodes[name].disk.names.files
    return parse_log({path.removeprefix(folder): inode.read(inode.size, 0) for path, inode in names.items() if path.startswith(prefix)})


def told(world: World, event: str, node: str = "a/1") -> list[str]:
    """The slave's log lines of that event."""
    return [line for line in world.transcript.lines if f" {event} node={node}" in line]


async def away_for_too_long(group: Group) -> None:
    """The slave comes back to a master that has dropped what comes next for it, and has five segments left."""
    group.world.nodes["a1"].crash(Power.KILL)
    await group.publish(10)
    await asyncio.sleep(OLD_S)
    await group.publish(4)
    assert (await group.status("a0")).min_offset > HOLD_BYTES
    group.world.nodes["a1"].start()


async def copying(world: World, times: int = 1, node: str = "a/1") -> None:
    """Wait until the slave begins to copy anew, so many times."""
    async with asyncio.timeout(60):
        while len(told(world, "full_resync_began", node)) < times:  # noqa: ASYNC110  # nobody tells when a log line is written
            await asyncio.sleep(0.0001)


def segments_of_the_copy(world: World, name: str = "a1") -> list[str]:
    return [path for path in world.nodes[name].disk.names.files if path.startswith("dittomq/resync/commitlog/")]


async def half_made(group: Group, power: Power = Power.KILL, name: str = "a1") -> ParsedLog:
    """The slave ends inside its copying, and comes back without a way to its master; returns what the copy holds."""
    world, node = group.world, group.world.nodes[name]
    async with asyncio.timeout(60):
        while not segments_of_the_copy(world, name):  # noqa: ASYNC110  # nobody tells when a file is made
            await asyncio.sleep(0.0001)
    node.crash_within(HALF_OPERATIONS, power)
    async with asyncio.timeout(60):
        while node.running:  # noqa: ASYNC110  # nobody tells when it dies
            await asyncio.sleep(0.1)
    await world.buried()
    world.network.cut("a0", "a1")
    node.start()
    await asyncio.sleep(10)
    found = log_of(world, name, "dittomq/resync/")
    assert found.start < found.end < log_of(world, "a0" if name == "a1" else "a1").end
    return found


async def copied(group: Group) -> None:
    """Let the slave reach its master, and wait until it has all in its own place."""
    group.world.network.heal("a0", "a1")
    await group.equal()
    master, slave = log_of(group.world, "a0"), log_of(group.world, "a1")
    assert slave.content[max(0, master.start - slave.start) :] == master.content[max(0, slave.start - master.start) :]
    left = [
        path for path in group.world.nodes["a1"].disk.names.files if path.startswith(("dittomq/resync", "dittomq/aside", "dittomq/swap"))
    ]
    assert left == []
    page = await group.mq.reader("orders", 0, broker="a", node="a/1").pull(group.sent - 1)
    assert [message.body[:8] for message in page.messages] == [b"%08d" % (group.sent - 1)]


async def serves_what_it_had(group: Group) -> None:
    page = await group.mq.reader("orders", 0, broker="a", node="a/1").pull(0)
    assert page.messages[0].body[:8] == b"%08d" % 0


@pytest.mark.parametrize("power", Power)
@played_by(play)
async def test_interrupted_resync_resumes_and_the_old_store_serves_until_it_ends(group: Group, /, world: World, power: Power) -> None:
    await away_for_too_long(group)
    copy = await half_made(group, power)
    await serves_what_it_had(group)
    assert (await group.status("a1")).nodes[0].resync_done_bytes is not None

    await copied(group)
    assert (await group.status("a1")).min_offset == copy.start
    assert len(told(world, "full_resync_began")) == len(told(world, "full_resync_ended")) == 1
    assert "bytes 0 to 65,360, which the master does not have any more" in told(world, "full_resync_ended")[0]
    assert any("bytes 0 to 65,360 of the old one" in note for note in told(world, "store_reported"))


@played_by(play)
async def test_resync_progress_is_unknown_before_the_masters_end_is_known(group: Group, /, world: World) -> None:
    await away_for_too_long(group)
    copy = await half_made(group)
    [away] = (await group.status("a1")).nodes
    assert (away.received, away.received_lag_bytes) == (copy.end, None)

    world.network.heal("a0", "a1")
    world.network.link("a0", "a1").slowness = 100.0
    lacks, lags = (await group.status("a0")).end - copy.end, set[int]()
    while not told(world, "full_resync_ended"):
        [view] = (await group.status("a1")).nodes
        lags.add(lacks if view.received_lag_bytes is None else view.received_lag_bytes)
        await asyncio.sleep(0.01)

    assert max(lags) == lacks
    assert len(lags) > 2
    await copied(group)


@played_by(play)
async def test_a_slave_says_since_when_it_resyncs_and_not_since_when_its_stream_holds(group: Group, /, world: World) -> None:
    await away_for_too_long(group)
    await half_made(group)
    since = {(await group.status("a1")).nodes[0].since_ms}

    world.network.heal("a0", "a1")
    world.network.link("a0", "a1").slowness = 100.0
    while not told(world, "full_resync_ended"):
        [view] = (await group.status("a1")).nodes
        since |= {view.since_ms} if view.state is NodeState.FULL_RESYNC else set()
        await asyncio.sleep(0.01)

    assert len(since) == 1
    await copied(group)


@played_by(play)
async def test_a_copy_that_the_master_cannot_continue_either_is_begun_again(group: Group, /, world: World) -> None:
    await away_for_too_long(group)
    await half_made(group)
    await group.publish(10)
    await asyncio.sleep(OLD_S)
    begin = (await group.status("a0")).min_offset

    await copied(group)

    assert len(told(world, "full_resync_began")) == 2
    assert (await group.status("a1")).min_offset == begin


@played_by(play)
async def test_disk_without_room_for_a_resync_says_so_and_serves_the_old_store(group: Group, /, world: World) -> None:
    """Until there is room for two copies."""
    disk = world.nodes["a1"].disk
    disk.capacity_bytes = disk.used_bytes() + 3 * SEGMENT
    await away_for_too_long(group)
    await asyncio.sleep(20)

    assert "a full resync keeps the old store beside the copy" in (await group.status("a1")).nodes[0].last_drop_reason
    assert told(world, "full_resync_began") == []
    await serves_what_it_had(group)

    disk.capacity_bytes += 10 * SEGMENT
    await copied(group)


@played_by(play)
async def test_disk_that_fills_up_stops_only_the_resync(group: Group, /, world: World) -> None:
    disk = world.nodes["a1"].disk
    await away_for_too_long(group)
    await half_made(group)
    disk.capacity_bytes = disk.used_bytes() + SEGMENT // 2
    world.network.heal("a0", "a1")
    await asyncio.sleep(20)

    assert "bytes left" in (await group.status("a1")).nodes[0].last_drop_reason
    await serves_what_it_had(group)

    disk.capacity_bytes += 20 * SEGMENT
    await copied(group)
    assert len(told(world, "full_resync_began")) == 1


@pytest.mark.parametrize("late_s", [0.0, 0.001, 0.002, 0.003])
@played_by(play)
async def test_slave_that_starts_a_resync_is_never_promoted_with_its_old_store(group: Group, /, late_s: float) -> None:
    await away_for_too_long(group)
    confirmed = (await group.status("a0")).confirmed
    await asyncio.sleep(late_s)
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(DittoError):
                await group.switch_over("a/1")
                break
            await asyncio.sleep(0.001)
    await group.equal()

    leading = await group.status("a1")
    assert leading.writable
    assert leading.min_offset > 0
    assert leading.end == confirmed


@pytest.mark.parametrize("late_s", [0.0, 0.0005, 0.001])
@played_by(play)
async def test_a_write_that_outlives_its_stream_tells_nobody_of_a_copy_that_is_gone(group: Group, /, world: World, late_s: float) -> None:
    await away_for_too_long(group)
    async with asyncio.timeout(60):
        while not told(world, "log_start_set"):  # noqa: ASYNC110  # nobody tells when a log line is written
            await asyncio.sleep(0.0001)
    await asyncio.sleep(late_s)
    world.nodes["a0"].crash(Power.KILL)
    await asyncio.sleep(1)

    assert told(world, "full_resync_aborted")


@played_by(play)
async def test_complete_resync_on_a_full_disk_is_kept_until_there_is_room(group: Group, /, world: World) -> None:
    """Others fill the disk to the last block."""
    await away_for_too_long(group)
    await copying(world)
    end, disk = log_of(world, "a0").end, world.nodes["a1"].disk
    async with asyncio.timeout(60):
        while not segments_of_the_copy(world) or log_of(world, "a1", "dittomq/resync/").end < end:  # noqa: ASYNC110  # as above
            await asyncio.sleep(0.0001)
    disk.capacity_bytes, opened = disk.used_bytes(), len(told(world, "store_opened"))
    await asyncio.sleep(20)
    assert world.nodes["a1"].running
    assert (len(told(world, "store_opened")), len(told(world, "full_resync_blocked_on_space"))) == (opened, 1)
    disk.capacity_bytes = BOUNDLESS
    await copied(group)
    assert len(told(world, "full_resync_ended")) == 1
