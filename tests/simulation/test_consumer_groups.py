"""Members of consumer groups: each message is handled, in order in its queue, through rebalances, kills and failovers."""

import asyncio
from collections import Counter
from datetime import UTC, datetime
from itertools import pairwise

import pytest

from dittomq.client import AsyncClient, CommittedOffset, ConsumedMessage, Message
from dittomq.consumer.retries import dead_letter_topic
from dittomq.errors import GroupNotFound, InvalidField, PermissionDenied, PreconditionFailed, TopicNotFound
from dittomq.metadata.rows import GroupConfig
from services.master.config import Mode, ReplicationTable
from services.slave.config import FlushMode
from tests.simulation.consumers import GROUP, Members
from tests.simulation.group import Group, play
from tests.simulation.shapes import Shape
from tests.support.virtual_time import played_by

_QUEUES = 4
_TWO_OF_THREE = Shape(2, ReplicationTable(mode=Mode.SYNC_MASTER, replicas_expected=1), FlushMode.SYNC_FLUSH)
_SHAPE = Shape(2, ReplicationTable(mode=Mode.SYNC_MASTER, replicas_expected=2, min_in_sync_replicas=2), FlushMode.SYNC_FLUSH)


async def make(mq: AsyncClient, config: GroupConfig | None = None) -> None:
    await mq.admin.create_topic("orders", _QUEUES)
    [created] = await mq.admin.create_group(config or GroupConfig(GROUP))
    assert created.error is None


async def publish(mq: AsyncClient, start: int, end: int, *, every_s: float = 0.0, tag: str = "") -> list[str]:
    """Numbered messages, in turn to each queue; their bodies."""
    bodies = [f"{number}" for number in range(start, end)]
    async with mq.producer(retry_s=60.0) as producer:
        for number, body in zip(range(start, end), bodies, strict=True):
            await producer.publish_message(Message("orders", body.encode(), number % _QUEUES, tag=tag))
            await asyncio.sleep(every_s)
    return bodies


@played_by(play)
async def test_members_share_the_queues_and_handle_each_message_once(group: Group, mq: AsyncClient) -> None:
    await make(mq)
    members = Members(group)
    for name in ("m1", "m2"):
        members.start(name)
    bodies = await publish(mq, 0, 40)

    await members.until_handled(bodies)

    assert members.judge(bodies).twice == 0
    shares = [{queue for _, _, queue in members.consumers[name].assignment if _ == "orders"} for name in ("m1", "m2")]
    assert sorted(queue for share in shares for queue in share) == list(range(_QUEUES))
    assert [len(share) for share in shares] == [2, 2]


@played_by(play)
async def test_group_goes_on_where_it_stopped(group: Group, mq: AsyncClient) -> None:
    await make(mq)
    members = Members(group)
    members.start("m1")
    first = await publish(mq, 0, 20)
    await members.until_handled(first)
    await members.stop("m1")
    second = await publish(mq, 20, 30)

    members.start("m2")
    await members.until_handled(second)

    assert members.judge(first + second).twice == 0


@played_by(play)
async def test_rebalance_skips_nothing_and_repeats_nothing(group: Group, mq: AsyncClient) -> None:
    await make(mq)
    members = Members(group, takes_s=0.05)
    members.start("m1")
    publishing = asyncio.create_task(publish(mq, 0, 200, every_s=0.1))
    for at, name in ((5, "m2"), (5, "m3")):
        await asyncio.sleep(at)
        members.start(name)
    await asyncio.sleep(5)
    await members.stop("m1")
    bodies = await publishing

    await members.until_handled(bodies)

    assert members.judge(bodies).twice == 0
    assert {each.life.partition(".")[0] for each in members.handled} == {"m1", "m2", "m3"}


@played_by(play)
async def test_queues_of_a_dead_member_are_read_on_by_the_others(group: Group, mq: AsyncClient) -> None:
    await make(mq)
    members = Members(group)
    for name in ("m1", "m2"):
        members.start(name)
    publishing = asyncio.create_task(publish(mq, 0, 150, every_s=0.1))
    await asyncio.sleep(6)
    await members.kill("m1")
    bodies = await publishing

    await members.until_handled(bodies)

    members.judge(bodies)
    assert {queue for _, topic, queue in members.consumers["m2"].assignment if topic == "orders"} == set(range(_QUEUES))


@pytest.mark.parametrize("broadcasting", [False, True])
@played_by(lambda story: play(story, _TWO_OF_THREE))
async def test_member_that_read_beyond_a_cut_reads_what_replaces_it(group: Group, mq: AsyncClient, /, *, broadcasting: bool) -> None:
    """The new master was elected without what is confirmed, and has stored more than that before the member reads again."""
    await make(mq)
    members = Members(group, broadcast=broadcasting, start="earliest")
    members.start("m1")
    before = await publish(mq, 0, 8)
    await members.until_handled(before)
    await asyncio.sleep(30)
    for other in ("a0", "a1", "m1"):
        group.world.network.cut("a2", other)
    lost = await publish(mq, 8, 24)
    await members.until_handled(lost)
    for broker in ("a0", "a1"):
        await members.kill(broker)

    await group.fail_over("a/2", allow_data_loss=True)
    group.world.network.cut("a1", "m1")
    group.world.network.heal("a2", "a1")
    group.node("a1").start()
    await group.in_sync(mq, "a/2")
    after = await publish(mq, 100, 140)
    for broker in ("a1", "a2"):
        group.world.network.heal(broker, "m1")

    await members.until_handled(before + lost + after)


@played_by(lambda story: play(story, _SHAPE))
async def test_failover_of_the_master_skips_nothing(group: Group, mq: AsyncClient) -> None:
    await make(mq)
    members = Members(group)
    for name in ("m1", "m2"):
        members.start(name)
    publishing = asyncio.create_task(publish(mq, 0, 200, every_s=0.1))
    await asyncio.sleep(13)
    await members.kill("a0")
    await asyncio.sleep(3)
    await group.fail_over("a/1")
    group.node("a0").start()
    bodies = await publishing

    await members.until_handled(bodies)

    members.judge(bodies)


@pytest.mark.parametrize("shift_s", [-3_600, 3_600], ids=["back", "forward"])
@played_by(play)
async def test_clock_of_a_member_that_jumps_an_hour_changes_nothing(group: Group, mq: AsyncClient, /, shift_s: int) -> None:
    await make(mq)
    members = Members(group)
    for name in ("m1", "m2"):
        members.start(name)
    publishing = asyncio.create_task(publish(mq, 0, 100, every_s=0.25))
    await asyncio.sleep(13)
    group.node("m1").clock.jump(shift_s * 1_000)
    bodies = await publishing

    await members.until_handled(bodies)

    assert members.judge(bodies).twice == 0
    assert sorted(len(members.consumers[name].assignment) for name in ("m1", "m2")) == [2, 2]


@played_by(play)
async def test_message_sent_back_comes_again_until_it_is_a_dead_letter(group: Group, mq: AsyncClient) -> None:
    await make(mq, GroupConfig(GROUP, retry_max_times=2))
    tries: list[tuple[str, int, float]] = []

    class Failing(Members):
        async def handle(self, life: str, message: ConsumedMessage) -> None:
            tries.append((message.topic, message.retries, group.now))
            assert await message.retry(after_s=5) is (message.retries < 2)

    members = Failing(group)
    members.start("m1")
    await publish(mq, 0, 1)
    await asyncio.sleep(30)

    assert [(topic, retries) for topic, retries, _ in tries] == [("orders", 0), ("orders", 1), ("orders", 2)]
    assert all(5.0 <= later[2] - earlier[2] < 8.0 for earlier, later in pairwise(tries))
    page = await mq.reader(dead_letter_topic(GROUP), 0).pull(0)
    assert [message.body for message in page.messages] == [b"0"]


@played_by(play)
async def test_only_wanted_tags_are_handed_out(group: Group, mq: AsyncClient) -> None:
    await make(mq)
    members = Members(group, tag="paid || Aa")
    members.start("m1")
    wanted = await publish(mq, 0, 8, tag="paid")
    await publish(mq, 8, 16, tag="BB")  # of the same hash as Aa
    wanted += await publish(mq, 16, 20, tag="Aa")

    await members.until_handled(wanted)

    assert members.judge(wanted).handled == len(wanted)


@pytest.mark.parametrize("start", ["earliest", "latest", "time"])
@played_by(play)
async def test_new_group_begins_where_it_is_asked_to(group: Group, mq: AsyncClient, /, *, start: str) -> None:
    await make(mq)
    before = await publish(mq, 0, 8)
    await asyncio.sleep(5)
    between = await publish(mq, 8, 12)
    [first_between] = (await mq.reader("orders", 0).pull(2)).messages
    time = datetime.fromtimestamp(first_between.store_ms / 1000, UTC)
    members = Members(group, start=time if start == "time" else start)
    members.start("m1")
    await asyncio.sleep(5)
    after = await publish(mq, 12, 16)

    await members.until_handled(after)

    expected = {"earliest": before + between + after, "latest": after, "time": between + after}[start]
    assert Counter(members.bodies()) == Counter(expected)


@played_by(play)
async def test_queue_added_while_no_member_is_there_is_read_from_its_beginning(group: Group, mq: AsyncClient) -> None:
    await make(mq)
    members = Members(group, start="latest")
    members.start("m1")
    await asyncio.sleep(15)
    await members.stop("m1")
    await mq.admin.update_topic("orders", read_queues=_QUEUES + 1, write_queues=_QUEUES + 1)
    async with mq.producer(retry_s=60.0) as producer:
        await producer.publish_message(Message("orders", b"early", _QUEUES))
    members.start("m2")

    await members.until_handled(["early"])

    assert members.bodies() == ["early"]


@played_by(play)
async def test_each_member_of_a_broadcasting_group_gets_all(group: Group, mq: AsyncClient) -> None:
    await make(mq)
    members = Members(group, broadcast=True)
    for name in ("m1", "m2"):
        members.start(name)
    bodies = await publish(mq, 0, 12)
    await asyncio.sleep(10)

    for name in ("m1.", "m2."):
        assert Counter(each.body for each in members.handled if each.life.startswith(name)) == Counter(bodies)


@played_by(play)
async def test_what_a_person_must_put_right_is_raised(group: Group, mq: AsyncClient) -> None:
    await mq.admin.create_topic("orders", 1)
    with pytest.raises(GroupNotFound):
        await first(mq, "nobody")
    await mq.admin.create_group("billing")
    with pytest.raises(TopicNotFound):
        await first(mq, "billing", topic="nothing")
    await mq.admin.create_group(GroupConfig("idle", consume_enable=False))
    with pytest.raises(PermissionDenied):
        await first(mq, "idle")
    await mq.admin.create_group(GroupConfig("one", consume_broadcast_enable=False))
    with pytest.raises(PermissionDenied):
        await first(mq, "one", broadcast=True)
    for wrong in ({"tag": "a ||"}, {"prefetch": 0}):
        with pytest.raises(InvalidField):
            await first(mq, "billing", **wrong)


@played_by(play)
async def test_member_that_is_cancelled_commits_what_it_has_handled(group: Group, mq: AsyncClient) -> None:
    """Ctrl-C and SIGTERM cancel the task that reads."""
    await mq.admin.create_topic("orders", 1)
    await mq.admin.create_group(GROUP)
    handled: list[bytes] = []

    async def consume() -> None:
        async with mq.consumer(GROUP, ["orders"]) as messages:
            async for message in messages:
                handled.append(message.body)
                await message.ack()

    task = asyncio.create_task(consume())
    async with mq.producer() as producer:
        for number in range(5):
            await producer.publish_message(Message("orders", b"%d" % number, 0))
    while len(handled) < 5:  # noqa: ASYNC110  # it is another task that handles them
        await asyncio.sleep(0.05)
    began = group.now
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    [offsets] = await mq.admin.get_offsets(GROUP, [("orders", 0)])
    assert offsets.value == [CommittedOffset("orders", 0, 5)]
    assert group.now - began < 2.0


@played_by(play)
async def test_second_process_of_a_members_name_is_refused(group: Group, mq: AsyncClient) -> None:
    await make(mq)
    members = Members(group)
    members.start("m1")
    await asyncio.sleep(3)

    with pytest.raises(PreconditionFailed, match="m1 of group billing is alive"):
        await first(mq, GROUP, member="m1")


async def first(mq: AsyncClient, name: str, topic: str = "orders", **settings: object) -> ConsumedMessage:
    """The first message that a member of that group gets."""
    async with mq.consumer(name, [topic], **settings) as messages:  # type: ignore[arg-type]
        return await anext(messages)
