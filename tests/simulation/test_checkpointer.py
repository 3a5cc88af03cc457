import asyncio
from collections.abc import Awaitable, Callable

import pytest

from dittomq.broker.checkpointer import CHECKPOINT_PERIOD_S, CHECKPOINT_REST_S, CheckpointEnds, Checkpointer
from dittomq.broker.doors import BrokerDoors
from dittomq.commitlog.state import recovery_point
from dittomq.commitlog.store import Store
from tests.simulation.world import World
from tests.support.stores import SMALL, frame, led

MUCH = 1_000


def play(serve: Callable[[BrokerDoors, asyncio.Event], Awaitable[None]]) -> None:
    """Let a node of its own live through it."""
    world = World(1)

    async def whole() -> None:
        world.node("n", serve).start()
        await asyncio.sleep(2 * CHECKPOINT_PERIOD_S)

    world.run(whole())
    world.close()
    assert world.findings == []


@pytest.mark.parametrize(("body_bytes", "due_s"), [(MUCH, CHECKPOINT_REST_S), (MUCH // 2, CHECKPOINT_PERIOD_S)])
def test_checkpoint_comes_soon_when_recovery_would_read_much(body_bytes: int, due_s: float) -> None:
    """It comes late when recovery would not."""
    there: list[bool] = []

    async def serve(doors: BrokerDoors, _: asyncio.Event) -> None:
        store = led(doors.storage, SMALL, chance=doors.chance, wall_ms=0)
        store.append([frame(bytes(body_bytes))], 1)
        store.dispatch(store.end)
        store.sync()
        keeper = Checkpointer(store, doors.workers.lane("files"), lambda: CheckpointEnds(store.flushed, store.end), checkpoint_bytes=MUCH)
        async with asyncio.TaskGroup() as tasks:
            keeping = tasks.create_task(keeper.run())
            for seconds in (due_s - 1, 2):
                await asyncio.sleep(seconds)
                there.append(doors.storage.exists("dittomq/checkpoint"))
            keeping.cancel()

    play(serve)
    assert there == [False, True]


def with_two_records(doors: BrokerDoors) -> tuple[Store, int]:
    """A store, and where the second one begins."""
    store = led(doors.storage, SMALL, chance=doors.chance, wall_ms=0)
    start = store.append([frame(b"stays")], 1).end
    store.append([frame(b"ours")], 1)
    return store, start


def test_what_came_where_as_much_was_truncated_is_written_down_too() -> None:
    marks: list[recovery_point.RecoveryPoint | None] = []

    async def serve(doors: BrokerDoors, _: asyncio.Event) -> None:
        store = led(doors.storage, SMALL, chance=doors.chance, wall_ms=0)
        start = store.append([frame(b"stays")], 1).end
        keeper = Checkpointer(store, doors.workers.lane("files"), lambda: CheckpointEnds(store.flushed, store.end))
        for body in (b"ours", b"else"):
            store.append([frame(body)], 1)
            store.sync()
            await keeper.keep()
            marks.append(recovery_point.load(doors.storage))
            assert marks[-1] is not None
            assert (marks[-1].flushed, marks[-1].confirmed) == (store.end, store.end)
            store.truncate(start)

    play(serve)
    assert len(marks) == 2


def test_refilled_bytes_are_checkpointed_despite_a_stale_end() -> None:
    """A slave's own numbers are those of before a cut until the cut has returned."""
    marks: list[tuple[int, int]] = []

    async def serve(doors: BrokerDoors, _: asyncio.Event) -> None:
        store, start = with_two_records(doors)
        known = CheckpointEnds(store.sync(), store.end)
        keeper = Checkpointer(store, doors.workers.lane("files"), lambda: known)
        store.truncate(start)
        await keeper.keep()
        store.append([frame(b"else")], 1)
        assert (store.sync(), store.end) == (known.flushed, known.confirmed)
        await keeper.keep()
        mark = recovery_point.load(doors.storage)
        assert mark is not None
        marks.append((mark.flushed - known.flushed, mark.confirmed - known.confirmed))

    play(serve)
    assert marks == [(0, 0)]


def test_confirmed_offset_before_a_truncation_covers_no_new_bytes() -> None:
    """The lane is busy with the cut, and with what came behind it, when the ends of before are to be written down."""
    marks: list[tuple[int, int]] = []

    async def serve(doors: BrokerDoors, _: asyncio.Event) -> None:
        store, start = with_two_records(doors)
        known, lane = CheckpointEnds(store.sync(), store.end), doors.workers.lane("files")
        keeper = Checkpointer(store, lane, lambda: known)

        def replace_the_end() -> None:
            store.truncate(start)
            store.append([frame(b"else")], 1)
            store.sync()

        async with asyncio.TaskGroup() as both:
            both.create_task(lane.call(replace_the_end))
            both.create_task(keeper.keep())
        mark = recovery_point.load(doors.storage)
        assert mark is not None
        marks.append((mark.flushed - start, mark.confirmed))

    play(serve)
    assert marks == [(0, 0)]
