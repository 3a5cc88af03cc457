"""Queues of which retention has left nothing go on where they were, whoever comes to lead: nobody reads old offsets as new messages."""

import asyncio
import contextlib

from dittomq.errors import DittoError, NotReady
from tests.simulation.short_retention import OLD_S, Group, play
from tests.simulation.world import Power, World
from tests.support.virtual_time import played_by

EARLY = 3


async def say(group: Group, topic: str, body: bytes) -> int:
    """Store a message; the queue offset that it got."""
    async with group.mq.producer(on_weak="return") as producer:
        return (await producer.publish(topic, body, queue=0)).queue_offset


async def forget_early(group: Group) -> None:
    """A topic of three messages, which are then dropped on the master while its slave is away."""
    await group.mq.admin.create_topic("early", 1)
    assert [await say(group, "early", b"early") for _ in range(EARLY)] == list(range(EARLY))
    await group.equal()
    group.world.nodes["a1"].crash(Power.LOSS)
    await group.publish(10)
    await asyncio.sleep(OLD_S)
    await group.publish(2)
    assert await range_of_early(group) == (EARLY, EARLY)
    await group.world.buried()


async def range_of_early(group: Group) -> tuple[int, int]:
    """What the master holds of the queue."""
    [described] = await group.mq.admin.describe_topic("early")
    assert described.value is not None
    [queue] = described.value.queues
    return queue.min_offset, queue.max_offset


async def joins_late(group: Group) -> None:
    """The slave comes back with an empty disk."""
    group.world.nodes["a1"].lose_disk()
    group.world.nodes["a1"].start()
    await group.equal()


async def leads_alone(group: Group) -> None:
    """The master is gone, the slave has taken its place."""
    group.world.nodes["a0"].crash(Power.KILL)
    await group.world.buried()
    await group.fail_over("a/1")
    while not await takes_writes(group, "a1"):  # noqa: ASYNC110  # nobody tells when it does
        await asyncio.sleep(0.1)


async def takes_writes(group: Group, name: str) -> bool:
    with contextlib.suppress(DittoError):
        return (await group.status(name)).writable
    return False


async def has_early(group: Group) -> bool:
    """Whether there is a master and the topic, of which who was promoted may not have heard."""
    with contextlib.suppress(DittoError):
        [created] = await group.mq.admin.create_topic("early", 1)
        return created.error is None
    return False


async def goes_on(group: Group) -> None:
    """The queue does, and both copies say the same in the end."""
    while not await has_early(group):  # noqa: ASYNC110  # nobody tells when somebody leads
        await asyncio.sleep(0.1)
    assert await say(group, "early", b"later") == EARLY
    await group.equal()
    for node in ("a/0", "a/1"):
        page = await group.mq.reader("early", 0, broker="a", node=node).pull(EARLY, wait_s=30.0)
        assert [(message.queue_offset, message.body) for message in page.messages] == [(EARLY, b"later")]


@played_by(play)
async def test_promoted_late_joiner_continues_a_queue_that_it_never_held(group: Group, /, world: World) -> None:
    await forget_early(group)
    await joins_late(group)
    await leads_alone(group)
    world.nodes["a0"].start()
    await goes_on(group)


@played_by(play)
async def test_one_that_takes_its_masters_place_while_that_is_there_does_so_too(group: Group) -> None:
    await forget_early(group)
    await joins_late(group)
    while True:
        try:
            await group.switch_over("a/1")
            break
        except NotReady:
            await asyncio.sleep(1)
    await goes_on(group)


@played_by(play)
async def test_one_that_has_resynced_beside_its_old_store_does_so_too(group: Group, /, world: World) -> None:
    await forget_early(group)
    world.nodes["a1"].start()
    await group.equal()
    assert (await group.status("a1")).min_offset > 0
    while (await group.status("a0")).in_sync_now < 2:  # noqa: ASYNC110  # nobody tells when it does
        await asyncio.sleep(0.1)
    await leads_alone(group)
    world.nodes["a0"].start()
    await goes_on(group)


@played_by(play)
async def test_a_master_that_lost_its_disk_learns_from_such_a_slave_where_its_queues_go_on(group: Group, /, world: World) -> None:
    await forget_early(group)
    await joins_late(group)
    world.nodes["a0"].crash(Power.LOSS)
    await world.buried()
    world.nodes["a0"].lose_disk()
    world.nodes["a0"].start()
    await asyncio.sleep(20)
    await goes_on(group)
