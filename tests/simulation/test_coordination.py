"""Group records on a simulated nameserver, and in the store that tests put in its place, over a faulty network in virtual time."""

import asyncio
import contextlib
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from dittomq.coordination.endpoints import Endpoints
from dittomq.coordination.nameserver import NameserverCoordination
from dittomq.doors.coordination import Conflict, CoordinationStore, GroupKey, Versioned, WriteOutcome, WriteUnknown, Written
from dittomq.errors import DittoError, Unavailable
from dittomq.group_record import GroupRecord
from services.nameserver.config import NameserverConfig
from services.nameserver.wiring import serve
from tests.simulation.service_logs import log_into
from tests.simulation.simulated_process import Life
from tests.simulation.transport import SimulatedTransport
from tests.simulation.world import Power, World
from tests.support.group_records import group_record
from tests.support.virtual_time import played_by

KEY = GroupKey("dittomq", "a")
FIRST = group_record("a", "first")


class Site:
    """A nameserver n0, and nodes that use it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.nameserver = world.node("n0", lambda doors, stop: serve(NameserverConfig(), doors, stop))
        self.nameserver.start()
        self.doors: list[CoordinationStore] = []

    def door(self, node: str) -> CoordinationStore:
        self.world.network.machine(node)
        transport = SimulatedTransport(self.world.network, Life(node), lambda where, error: self.world.unexpected(node, where, error))
        made = NameserverCoordination(Endpoints("nameserver", ["n0:9876"], transport, self.nameserver.clock))
        self.doors.append(made)
        return made

    async def created(self, door: CoordinationStore) -> Versioned:
        await asyncio.sleep(1)
        outcome = await door.write(KEY, FIRST, None)
        assert isinstance(outcome, Written), outcome
        return Versioned(FIRST, outcome.version)


def play(world: World, story: Callable[[Site], Coroutine[Any, Any, None]]) -> None:
    async def told() -> None:
        site = Site(world)
        try:
            await story(site)
        finally:
            for door in site.doors:
                await door.close()

    world.run(told())


async def timed(world: World, use: Coroutine[Any, Any, WriteOutcome | Versioned | None]) -> tuple[object, float]:
    """What came of it, and after how many seconds."""
    began = world.loop.time()
    try:
        return await use, world.loop.time() - began
    except DittoError as error:
        return error, world.loop.time() - began


@played_by(play)
async def test_a_nameserver_that_lost_its_disk_has_no_record_and_no_old_version(site: Site) -> None:
    door = site.door("a0")
    first = await site.created(door)
    site.nameserver.crash(Power.KILL)
    site.nameserver.lose_disk()
    site.nameserver.start()
    await asyncio.sleep(1)

    assert await door.read(KEY) is None
    assert await door.write(KEY, FIRST.next("second"), first) == Conflict()
    assert (await site.created(door)).version != first.version


@played_by(play)
async def test_a_node_that_is_cut_off_sends_nothing_and_says_so_in_time(site: Site, /, world: World) -> None:
    door = site.door("a0")
    first = await site.created(door)
    world.network.cut("a0", "n0")
    outcome, after_s = await timed(world, door.write(KEY, FIRST.next("second"), first))
    assert isinstance(outcome, Unavailable | WriteUnknown)
    assert after_s <= 3.0
    outcome, after_s = await timed(world, door.write(KEY, FIRST.next("second"), first))
    assert isinstance(outcome, Unavailable)
    assert after_s <= 3.0

    world.network.heal_all()
    await asyncio.sleep(1)
    assert await door.read(KEY) == first


@pytest.mark.parametrize("way", [("a0", "n0"), ("n0", "a0")], ids=["requests", "answers"])
@played_by(play)
async def test_a_write_on_a_line_that_carries_nothing_is_unknown(site: Site, /, world: World, way: tuple[str, str]) -> None:
    door = site.door("a0")
    first = await site.created(door)
    world.network.silence(*way)
    outcome, after_s = await timed(world, door.write(KEY, FIRST.next("second"), first))
    assert isinstance(outcome, WriteUnknown)
    assert after_s <= 3.0

    other = await site.door("a1").read(KEY)
    assert other is not None
    assert other.record in (FIRST, FIRST.next("second"))


# Histories.


class Writers:
    """Nodes that change one record as a master would: read, write the next, send again what is unknown. `next_of`: by the version that
    a write expected, the writes that took place by all that is known of them."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.next_of: dict[str, set[str]] = {}
        self.written = 0

    async def write(self, name: str, door: CoordinationStore, turns: int) -> None:
        for turn in range(turns):
            await asyncio.sleep(self._chance.random())
            with contextlib.suppress(Unavailable):
                found = await door.read(KEY)
                record = FIRST if found is None else found.record.next(f"{name}-{turn}")
                await self._settle(door, record, found)

    async def _settle(self, door: CoordinationStore, record: GroupRecord, expected: Versioned | None) -> None:
        outcome: WriteOutcome | None = None
        for _ in range(5):
            with contextlib.suppress(Unavailable):
                outcome = await door.write(KEY, record, expected)
            if isinstance(outcome, Written):
                self.written += 1
                self.next_of.setdefault("" if expected is None else expected.version, set()).add(record.write)
            if isinstance(outcome, Written | Conflict):
                return
            await asyncio.sleep(self._chance.random())


@pytest.mark.parametrize("seed", range(12))
def test_each_version_has_one_successor_whatever_fails(seed: int) -> None:
    world = World(seed)
    log_into(world)
    chance = random.Random(seed)
    writers = Writers(chance)

    async def harm(site: Site) -> None:
        for _ in range(8):
            await asyncio.sleep(3 * chance.random())
            match chance.randrange(3):
                case 0:
                    site.nameserver.crash(chance.choice(list(Power)))
                    await asyncio.sleep(chance.random())
                    site.nameserver.start()
                case 1:
                    world.network.cut(chance.choice(["a0", "a1", "a2"]), "n0")
                case _:
                    world.network.silence(*chance.sample([chance.choice(["a0", "a1", "a2"]), "n0"], 2))
            await asyncio.sleep(2 * chance.random())
            world.network.heal_all()

    async def story(site: Site) -> None:
        await asyncio.sleep(1)
        async with asyncio.TaskGroup() as tasks:
            for name in ("a0", "a1", "a2"):
                tasks.create_task(writers.write(name, site.door(name), 20))
            tasks.create_task(harm(site))
        await asyncio.sleep(5)
        found = await site.door("a3").read(KEY)
        assert found is not None
        assert found.record.revision >= writers.written

    play(world, story)

    assert {len(successors) for successors in writers.next_of.values()} == {1}, f"seed {seed}"
    assert writers.written > 3, f"seed {seed}"
    world.close()
