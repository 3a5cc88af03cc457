import asyncio
from collections.abc import Callable, Coroutine, Generator
from typing import Any

from dittomq.broker.doors import BrokerDoors
from tests.simulation.world import Power, World


def play(story: Callable[[BrokerDoors, World], Coroutine[Any, Any, None]], seed: int = 1) -> World:
    """Run a story as a process named "n" for at most a minute of virtual time."""
    world = World(seed)

    async def serve(doors: BrokerDoors, _: asyncio.Event) -> None:
        await story(doors, world)

    async def whole() -> None:
        world.node("n", serve).start()
        await asyncio.sleep(60)
        assert not world.nodes["n"].running

    world.run(whole())
    world.close()
    return world


def numbered(log: list[str], name: str, steps: int) -> Generator[str, None, str]:
    for step in range(steps):
        log.append(f"{name}{step}")
        yield f"{name}{step}"
    return name


def test_a_narrow_lane_runs_its_work_in_the_order_of_the_calls() -> None:
    log: list[str] = []

    async def story(doors: BrokerDoors, _: World) -> None:
        lane = doors.workers.lane("writer")
        async with asyncio.TaskGroup() as tasks:
            for name in "abc":
                tasks.create_task(lane.run(numbered(log, name, 3)))

    assert play(story).findings == []
    assert log == [f"{name}{step}" for name in "abc" for step in range(3)]


def test_a_wide_lane_mixes_the_steps_of_its_work() -> None:
    log: list[str] = []

    async def story(doors: BrokerDoors, _: World) -> None:
        lane = doors.workers.lane("reads", 3)
        async with asyncio.TaskGroup() as tasks:
            for name in "abc":
                tasks.create_task(lane.run(numbered(log, name, 10)))

    play(story)
    assert log != sorted(log)


def test_a_cancelled_caller_does_not_stop_what_was_started() -> None:
    log: list[str] = []

    async def story(doors: BrokerDoors, _: World) -> None:
        lane = doors.workers.lane("writer")
        async with asyncio.TaskGroup() as tasks:
            caller = tasks.create_task(lane.run(numbered(log, "a", 9)))
            await asyncio.sleep(0.001)
            assert 0 < len(log) < 9
            caller.cancel()
        await asyncio.sleep(1)

    play(story)
    assert len(log) == 9


def test_work_whose_caller_left_before_it_began_is_done_in_its_turn_as_threads_do_it() -> None:
    log: list[str] = []

    async def story(doors: BrokerDoors, _: World) -> None:
        lane = doors.workers.lane("writer")
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(lane.run(numbered(log, "a", 2)))
            leaves = tasks.create_task(lane.run(numbered(log, "b", 1)))
            tasks.create_task(lane.run(numbered(log, "c", 1)))
            await asyncio.sleep(0)
            leaves.cancel()

    play(story)
    assert [each[0] for each in log] == ["a", "a", "b", "c"]


def test_a_crash_falls_between_steps() -> None:
    steps_done = set()
    for seed in range(20):
        log: list[str] = []

        async def story(doors: BrokerDoors, world: World, log: list[str] = log) -> None:
            asyncio.get_running_loop().call_later(0.0007, world.nodes["n"].crash, Power.KILL)
            await doors.workers.lane("writer").run(numbered(log, "a", 10))

        assert play(story, seed).findings == []
        steps_done.add(len(log))
    assert len(steps_done) > 2
    assert max(steps_done) < 10


def test_work_that_was_begun_is_done_when_the_workers_are_closed() -> None:
    log: list[str] = []

    async def story(doors: BrokerDoors, _: World) -> None:
        lane = doors.workers.lane("writer")
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(lane.run(numbered(log, "a", 5)))
            await asyncio.sleep(0)
            doors.workers.close()
            assert len(log) == 5

    assert play(story).findings == []
