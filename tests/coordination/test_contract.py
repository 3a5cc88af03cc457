"""What every coordination store promises, whichever it is."""

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import pytest

from dittomq.doors.coordination import Conflict, CoordinationStore, GroupKey, Versioned, WriteUnknown, Written
from dittomq.errors import DittoError, Unavailable
from dittomq.group_record import GroupRecord
from tests.coordination.backends import BACKENDS, CLUSTER, Backend
from tests.support.group_records import group_record
from tests.support.virtual_time import played_by
from tests.support.waiting import PATIENCE_S

GROUPS = itertools.count()
Story = Callable[[CoordinationStore, GroupKey], Awaitable[None]]


@pytest.fixture(scope="module", params=list(BACKENDS))
def backend(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    with BACKENDS[request.param](tmp_path_factory.mktemp(request.param)) as made:
        asyncio.run(answering(made))
        yield made


async def answering(backend: Backend) -> None:
    """It is up."""
    async with asyncio.timeout(PATIENCE_S), opened(backend) as door:
        while True:
            try:
                await door.read(GroupKey(CLUSTER, "anything"))
            except DittoError:
                await asyncio.sleep(0.05)
            else:
                return


@contextlib.asynccontextmanager
async def opened(backend: Backend) -> AsyncIterator[CoordinationStore]:
    door = backend.door()
    try:
        yield door
    finally:
        await door.close()


def play(backend: Backend, story: Story) -> None:
    """Through a door of its own, and with a group of its own."""

    async def played() -> None:
        async with opened(backend) as door:
            await story(door, GroupKey(CLUSTER, f"g{next(GROUPS)}"))

    asyncio.run(played())


async def created(door: CoordinationStore, key: GroupKey, record: GroupRecord) -> Versioned:
    outcome = await door.write(key, record, None)
    assert isinstance(outcome, Written), outcome
    return Versioned(record, outcome.version)


@played_by(play)
async def test_a_group_without_a_record_has_none(door: CoordinationStore, key: GroupKey) -> None:
    assert await door.read(key) is None


@played_by(play)
async def test_a_record_is_created_only_where_there_is_none(door: CoordinationStore, key: GroupKey) -> None:
    first = await created(door, key, group_record(key.broker, "first"))

    assert await door.write(key, group_record(key.broker, "second"), None) == Conflict()
    assert await door.read(key) == first


@played_by(play)
async def test_a_record_changes_by_the_version_that_was_read(door: CoordinationStore, key: GroupKey) -> None:
    first = await created(door, key, group_record(key.broker, "first"))
    second = first.record.next("second", copies=1)
    outcome = await door.write(key, second, first)

    assert isinstance(outcome, Written)
    assert await door.read(key) == Versioned(second, outcome.version)
    assert await door.write(key, second.next("third"), first) == Conflict()
    assert await door.delete(key, first) == Conflict()


@played_by(play)
async def test_groups_do_not_share_a_record(door: CoordinationStore, key: GroupKey) -> None:
    other = GroupKey(key.cluster, f"{key.broker}.longer")
    await created(door, key, group_record(key.broker, "here"))

    assert await door.read(other) is None
    await created(door, other, group_record(other.broker, "there"))


@played_by(play)
async def test_one_of_many_writers_at_once_wins(door: CoordinationStore, key: GroupKey, /, backend: Backend) -> None:
    found = await created(door, key, group_record(key.broker, "first"))
    for turn in range(5):
        writes = [found.record.next(f"{turn}-{writer}") for writer in range(8)]
        async with contextlib.AsyncExitStack() as doors:
            others = [await doors.enter_async_context(opened(backend)) for _ in writes]
            outcomes = await asyncio.gather(*(each.write(key, write, found) for each, write in zip(others, writes, strict=True)))

        [(write, won)] = [(write, each) for write, each in zip(writes, outcomes, strict=True) if isinstance(each, Written)]
        assert [each for each in outcomes if each is not won] == [Conflict()] * 7
        found = Versioned(write, won.version)
        assert await door.read(key) == found


@played_by(play)
async def test_no_version_comes_twice_also_after_a_deletion(door: CoordinationStore, key: GroupKey) -> None:
    versions = []
    for turn in range(3):
        record = group_record(key.broker, f"created {turn}")
        found = await created(door, key, record)
        again = await door.write(key, record, found)
        assert isinstance(again, Written)
        assert await door.delete(key, Versioned(record, again.version)) == Written("")
        assert await door.read(key) is None
        assert await door.write(key, record, found) == Conflict()
        versions += [found.version, again.version]

    assert len(set(versions)) == len(versions)


@played_by(play)
async def test_a_write_without_an_answer_is_unknown_and_recognised(door: CoordinationStore, key: GroupKey, /, backend: Backend) -> None:
    first = await created(door, key, group_record(key.broker, "first"))
    second = first.record.next("second")
    with backend.loses_answers():
        assert isinstance(await door.write(key, second, first), WriteUnknown)

    await answering(backend)
    assert await door.write(key, second, first) == Conflict()
    found = await door.read(key)
    assert found is not None
    assert found.record == second
    assert isinstance(await door.write(key, second.next("third"), found), Written)


@played_by(play)
async def test_a_write_that_did_not_arrive_is_unknown_and_sent_again(door: CoordinationStore, key: GroupKey, /, backend: Backend) -> None:
    first = await created(door, key, group_record(key.broker, "first"))
    second = first.record.next("second")
    with backend.loses_requests():
        assert isinstance(await door.write(key, second, first), WriteUnknown)

    assert await door.read(key) == first
    assert isinstance(await door.write(key, second, first), Written)


@played_by(play)
async def test_a_watch_hints_at_each_change_and_ends_at_a_gap(door: CoordinationStore, key: GroupKey, /, backend: Backend) -> None:
    hints: asyncio.Queue[bool] = asyncio.Queue()

    async def watch() -> None:
        try:
            async for _ in door.watch(key):
                hints.put_nowait(True)
        except Unavailable:
            pass
        hints.put_nowait(False)

    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as tasks, opened(backend) as other:
        tasks.create_task(watch())
        assert await hints.get()  # it has begun: what happened before is for the read that follows
        first = await created(other, key, group_record(key.broker, "first"))
        assert await hints.get()
        second = await other.write(key, first.record.next("second"), first)
        assert isinstance(second, Written)
        assert await hints.get()
        await other.delete(key, Versioned(first.record.next("second"), second.version))
        assert await hints.get()
        backend.kill()
        while await hints.get():
            pass
        backend.start()
    await answering(backend)


@played_by(play)
async def test_a_watch_of_one_group_knows_nothing_of_another(door: CoordinationStore, key: GroupKey) -> None:
    hints = door.watch(key)
    await anext(hints)
    other = GroupKey(key.cluster, f"{key.broker}.longer")
    await created(door, other, group_record(other.broker, "there"))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await anext(hints)


@played_by(play)
async def test_a_record_outlives_the_death_of_its_store(door: CoordinationStore, key: GroupKey, /, backend: Backend) -> None:
    first = await created(door, key, group_record(key.broker, "first"))
    backend.kill()
    backend.start()
    await answering(backend)

    async with opened(backend) as other:
        assert await other.read(key) == first
        assert isinstance(await other.write(key, first.record.next("second"), first), Written)


@played_by(play)
async def test_a_store_that_is_down_is_unavailable_within_three_seconds(
    door: CoordinationStore, key: GroupKey, /, backend: Backend
) -> None:
    first = await created(door, key, group_record(key.broker, "first"))
    backend.kill()
    try:
        for use in (door.read(key), door.write(key, first.record, first), door.delete(key, first), anext(door.watch(key))):
            began = time.monotonic()
            with contextlib.suppress(Unavailable):
                outcome = await use
                assert isinstance(outcome, WriteUnknown)  # the first may not know yet that its connection has ended
            assert time.monotonic() - began < 3.5
        with pytest.raises(Unavailable):
            await door.write(key, first.record, first)
    finally:
        backend.start()
    await answering(backend)
    assert await door.read(key) == first
