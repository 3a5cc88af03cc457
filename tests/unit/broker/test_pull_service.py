"""Pulls on a real store: what may be read, what may be undone, and where the next pull begins, with a tag and without one."""

import asyncio
import contextlib
import gc
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import replace
from typing import TypeVar

import pytest

from dittomq.broker import pull_service
from dittomq.broker.dispatcher import Dispatcher
from dittomq.broker.pull_service import PullRules, PullService
from dittomq.commitlog.records.plain_messages import messages_in
from dittomq.commitlog.store import AppendBatch
from dittomq.doors.clock import OsClock
from dittomq.errors import DittoError, LimitReached, LogTruncated, NotReady, PermissionDenied, StaleCopy
from dittomq.message import StoredMessage
from dittomq.metadata.rows import GroupConfig
from dittomq.metadata.topics import TopicConfig
from dittomq.offsets import Epoch, PhysicalOffset, QueueOffset
from dittomq.reads import PullRequest, PullResult, PullStatus, PullStreamOrder, ReadableRange
from dittomq.rpc.admission import AdmissionControl
from dittomq.tokens import ConsistencyToken
from tests.support.inline_lane import InlineLane
from tests.support.metadata_node import LoopClock, run
from tests.support.stores import Machine, draft, open_epoch
from tests.support.virtual_time import under

ALL: frozenset[str] = frozenset()
OTHERS = frozenset({"b"})
MEMORY_BYTES = 1 << 30

T = TypeVar("T")


class Copy:
    """A replica whose queues show more than is confirmed: messages 0 to 3 of tag "a" are, 4 to 7 of the same tag are not."""

    def __init__(self, in_memory_bytes: int = MEMORY_BYTES, group: GroupConfig | None = None) -> None:
        self.in_memory_bytes = in_memory_bytes
        self.group = group
        self.age_s: float | None = None
        self.store = Machine(random.Random(1)).open()
        open_epoch(self.store)
        self.confirmed = self._add(4)
        self.end = self._add(4)

    def _add(self, count: int) -> PhysicalOffset:
        self.append(count)
        self.store.dispatch(self.store.end)
        return self.store.end

    def append(self, count: int, queue: int = 0) -> None:
        """Messages that are in the log and in no queue yet."""
        self.store.append([AppendBatch([draft(tag="a", body=b"%d" % at, queue=queue) for at in range(count)])], 1)

    async def pull(self, readable: ReadableRange, order: PullRequest) -> PullResult:
        """What a reader is answered who may see so much."""
        sizes = (AdmissionControl(MEMORY_BYTES), self.in_memory_bytes)
        rules = PullRules(  # a slave's
            "a", lambda: readable, TopicConfig, False, *sizes, node="a/1", group=lambda _: self.group, staleness_s=lambda _: self.age_s
        )
        reading = PullService(self.store, InlineLane(), Dispatcher(self.store, InlineLane()), OsClock(), rules=rules)
        async with reading.pull(order, "a client") as answer:
            return answer


def order(tags: frozenset[str], offset: int = 0, messages: int = 32) -> PullRequest:
    return PullRequest("orders", 0, QueueOffset(offset), messages, tags=tags)


@pytest.mark.parametrize("tags", [ALL, OTHERS], ids=["all", "another tag"])
@under(run)
async def test_pull_ends_before_the_first_unreadable_message(tags: frozenset[str]) -> None:
    """Whatever it looks for."""
    copy = Copy()
    readable = ReadableRange(copy.confirmed, copy.confirmed)

    answer = await copy.pull(readable, order(tags))

    assert (answer.next_offset, answer.max_offset, answer.unconfirmed_from) == (4, 4, None)
    assert len(answer.messages) == (0 if tags else 4)
    again = await copy.pull(readable, order(tags, offset=4))
    assert (again.status, again.next_offset, again.max_offset) == (PullStatus.NO_NEW_MESSAGE, 4, 4)


@pytest.mark.parametrize("tags", [ALL, OTHERS], ids=["all", "another tag"])
@under(run)
async def test_what_is_passed_over_and_may_be_undone_is_marked_as_what_is_returned(tags: frozenset[str]) -> None:
    copy = Copy()

    answer = await copy.pull(ReadableRange(copy.end, copy.confirmed), order(tags))

    assert (answer.next_offset, answer.unconfirmed_from) == (8, 4)


@under(run)
async def test_a_page_of_confirmed_messages_is_not_marked_because_others_lie_behind_it() -> None:
    copy = Copy()

    answer = await copy.pull(ReadableRange(copy.end, copy.confirmed), order(ALL, messages=4))

    assert (answer.next_offset, answer.max_offset, answer.unconfirmed_from) == (4, 8, None)


@under(run)
async def test_page_behind_the_confirmed_offset_is_marked_from_its_first_message() -> None:
    copy = Copy()

    answer = await copy.pull(ReadableRange(copy.end, copy.confirmed), order(ALL, offset=6))

    assert (len(answer.messages), answer.unconfirmed_from) == (2, 6)


@pytest.mark.parametrize("named", [False, True], ids=["by its offset", "by a token"])
@under(run)
async def test_pull_is_woken_when_a_new_master_confirms_queued_messages(*, named: bool) -> None:
    copy, clock = Copy(), LoopClock()
    is_confirmed = False

    def readable() -> ReadableRange:
        end = copy.end if is_confirmed else copy.confirmed
        return ReadableRange(end, end)

    dispatcher = Dispatcher(copy.store, InlineLane())
    dispatcher.readable_to(copy.end)  # as long as the old master was gone
    dispatcher.readable_to(copy.confirmed)
    rules = PullRules("a", readable, TopicConfig, False, AdmissionControl(MEMORY_BYTES), MEMORY_BYTES)
    reading = PullService(copy.store, InlineLane(), dispatcher, clock, rules=rules)
    token = ConsistencyToken("a", Epoch(1), copy.end) if named else None
    waits = replace(order(ALL, offset=4), wait_s=20.0, at_least=token)

    async def pull() -> PullResult:
        async with reading.pull(waits, "a client") as answer:
            return answer

    pulling = asyncio.create_task(pull())
    await asyncio.sleep(3)
    is_confirmed = True
    dispatcher.readable_to(copy.end)

    assert len((await pulling).messages) == 4
    assert clock.monotonic() < 4


@under(run)
async def test_replica_holds_a_tokens_message_only_where_its_master_wrote() -> None:
    """It is as long as the token says."""
    copy = Copy()
    readable = ReadableRange(copy.end, copy.confirmed)

    statuses = []
    for epoch, end in ((1, copy.end), (2, copy.end), (1, copy.end + 1)):
        token = ConsistencyToken("a", Epoch(epoch), PhysicalOffset(end))
        statuses.append((await copy.pull(readable, replace(order(ALL), at_least=token))).status)

    assert statuses == [PullStatus.FOUND, PullStatus.BEHIND, PullStatus.BEHIND]


@under(run)
async def test_replica_written_by_another_master_lacks_a_tokens_message() -> None:
    """The other master is of the same epoch."""
    copy = Copy()
    readable = ReadableRange(copy.end, copy.confirmed)
    [entry] = copy.store.epoch_history

    statuses = []
    for incarnation in (entry.incarnation, entry.incarnation + 1, None):  # older brokers name none in their receipts
        token = ConsistencyToken("a", entry.epoch, copy.end, incarnation)
        statuses.append((await copy.pull(readable, replace(order(ALL), at_least=token))).status)

    assert statuses == [PullStatus.FOUND, PullStatus.BEHIND, PullStatus.FOUND]


def rewrite(copy: Copy, count: int = 6) -> ReadableRange:
    """The master of epoch 2 was elected without messages 4 to 7, and has stored others from 4 on."""
    copy.store.truncate(copy.confirmed)
    open_epoch(copy.store)
    copy.append(count)
    copy.store.dispatch(copy.store.end)
    return ReadableRange(copy.store.end, copy.store.end)


@pytest.mark.parametrize("offset", [5, 7, 8, 10])
@under(run)
async def test_pull_behind_what_a_later_master_rewrote_is_refused(offset: int) -> None:
    copy = Copy()
    readable = rewrite(copy)

    with pytest.raises(LogTruncated) as refused:
        await copy.pull(readable, replace(order(ALL, offset=offset), epoch=Epoch(1)))
    answer = await copy.pull(readable, replace(order(ALL, offset=offset), epoch=Epoch(2)))

    assert (refused.value.asked, refused.value.end) == (offset, 4)
    assert answer.epoch == 2


@pytest.mark.parametrize("offset", [0, 3, 4])
@under(run)
async def test_pull_behind_what_is_still_there_goes_on_in_the_new_epoch(offset: int) -> None:
    copy = Copy()
    readable = rewrite(copy)

    answer = await copy.pull(readable, replace(order(ALL, offset=offset), epoch=Epoch(1)))

    assert (answer.status, answer.epoch) == (PullStatus.FOUND, 2)


@pytest.mark.parametrize("epoch", [None, Epoch(1)])
@under(run)
async def test_copy_that_ends_before_the_offset_vouches_for_no_epoch(epoch: Epoch | None) -> None:
    """Else the reader would take what is stored there later for what follows."""
    copy = Copy()
    readable = rewrite(copy, count=1)

    answer = await copy.pull(readable, replace(order(ALL, offset=8), epoch=epoch))

    assert (answer.status, answer.epoch) == (PullStatus.NO_NEW_MESSAGE, epoch)


@under(run)
async def test_pull_is_refused_where_the_epoch_that_was_read_never_was() -> None:
    """Epoch 2 was another replica's, which is lost: nobody can tell from where on its log was another one."""
    copy = Copy()
    open_epoch(copy.store)
    history = copy.store.epoch_history
    copy.store.replace_epoch_history((*history[:-1], replace(history[-1], epoch=Epoch(3))))
    copy.append(4)
    copy.store.dispatch(copy.store.end)
    readable = ReadableRange(copy.store.end, copy.store.end)

    for offset in (1, 7, 10):
        with pytest.raises(LogTruncated) as refused:
            await copy.pull(readable, replace(order(ALL, offset=offset), epoch=Epoch(2)))
        assert refused.value.end == 0


@under(run)
async def test_copy_of_an_older_epoch_does_not_answer_who_has_read_a_newer_one() -> None:
    """It is as long, and another replica may hold what follows."""
    copy = Copy()

    with pytest.raises(NotReady, match="older"):
        await copy.pull(ReadableRange(copy.end, copy.end), replace(order(ALL, offset=8), epoch=Epoch(2)))


@pytest.mark.parametrize("epoch", [None, Epoch(1)])
@under(run)
async def test_answer_without_messages_names_no_newer_epoch(epoch: Epoch | None) -> None:
    copy = Copy()
    open_epoch(copy.store)

    answer = await copy.pull(ReadableRange(copy.end, copy.end), replace(order(ALL, offset=8), epoch=epoch))

    assert (answer.status, answer.epoch) == (PullStatus.NO_NEW_MESSAGE, epoch)


@under(run)
async def test_stream_ends_when_what_it_gave_is_rewritten() -> None:
    copy = Copy()
    readable = ReadableRange(copy.end, copy.end)
    rules = PullRules("a", lambda: readable, TopicConfig, False, AdmissionControl(MEMORY_BYTES), MEMORY_BYTES)
    reading = PullService(copy.store, InlineLane(), Dispatcher(copy.store, InlineLane()), OsClock(), rules=rules)
    answers = reading.stream(PullStreamOrder(order(ALL)), "a client")

    first = await anext(answers)
    readable = rewrite(copy)
    with pytest.raises(LogTruncated):
        await anext(answers)

    assert (first.next_offset, first.epoch) == (8, 1)


@pytest.mark.parametrize("tags", [ALL, OTHERS], ids=["all", "another tag"])
@under(run)
async def test_reader_beyond_memory_is_sent_to_slave_1_until_it_catches_up(
    tags: frozenset[str],
) -> None:
    all_of_it = Copy()
    to_the_end = ReadableRange(all_of_it.end, all_of_it.end)
    confirmed = ReadableRange(all_of_it.confirmed, all_of_it.confirmed)
    behind = all_of_it.end - all_of_it.confirmed
    within, beyond = Copy(in_memory_bytes=behind), Copy(in_memory_bytes=behind - 1)

    assert (await within.pull(confirmed, order(tags))).suggested_broker_id == 0
    assert (await beyond.pull(confirmed, order(tags))).suggested_broker_id == 1
    assert (await beyond.pull(to_the_end, order(tags))).suggested_broker_id == 0
    assert (await beyond.pull(to_the_end, order(tags, offset=8))).suggested_broker_id == 0


@pytest.mark.parametrize(("near", "far"), [(0, 2), (3, 0)])
@under(run)
async def test_a_groups_settings_say_which_node_its_reader_is_sent_to(near: int, far: int) -> None:
    """Source: RocketMQ's PullMessageProcessor, brokerId and whichBrokerWhenConsumeSlowly."""
    billing = GroupConfig("billing", broker_id=near, which_broker_when_consume_slowly=far)
    copy = Copy(in_memory_bytes=0, group=billing)
    reads = [replace(order(ALL, offset=offset, messages=4), group="billing") for offset in (0, 4)]

    suggested = [(await copy.pull(ReadableRange(copy.end, copy.end), read)).suggested_broker_id for read in reads]

    assert suggested == [far, near]


@under(run)
async def test_a_group_that_may_not_consume_is_refused() -> None:
    copy = Copy(group=GroupConfig("billing", consume_enable=False))

    with pytest.raises(PermissionDenied, match="group billing may not consume"):
        await copy.pull(ReadableRange(copy.end, copy.end), replace(order(ALL), group="billing"))


@pytest.mark.parametrize(("age_s", "told_ms"), [(None, -1), (2.5, 2_500)])
@under(run)
async def test_a_copy_that_may_be_too_old_refuses_and_says_how_old_it_may_be(age_s: float | None, told_ms: int) -> None:
    copy = Copy()
    copy.age_s = age_s
    reads = replace(order(ALL), max_staleness_s=2.0)

    with pytest.raises(StaleCopy) as refused:
        await copy.pull(ReadableRange(copy.end, copy.end), reads)
    copy.age_s = 2.0
    answer = await copy.pull(ReadableRange(copy.end, copy.end), reads)

    assert (refused.value.node, refused.value.age_ms, refused.value.allowed_ms) == ("a/1", told_ms, 2_000)
    assert answer.status is PullStatus.FOUND


@under(run)
async def test_a_wait_whose_copy_grows_too_old_ends_in_a_refusal() -> None:
    copy, clock = Copy(), LoopClock()
    readable, sizes = ReadableRange(copy.end, copy.end), (AdmissionControl(MEMORY_BYTES), MEMORY_BYTES)
    rules = PullRules("a", lambda: readable, TopicConfig, False, *sizes, node="a/1", staleness_s=lambda _: clock.monotonic())
    reading = PullService(copy.store, InlineLane(), Dispatcher(copy.store, InlineLane()), clock, rules=rules)

    with pytest.raises(StaleCopy):
        async with reading.pull(replace(order(ALL, offset=8), wait_s=20.0, max_staleness_s=5.0), "a client"):
            pass

    assert clock.monotonic() == 20.0


class CountingLane(InlineLane):
    """Counts what is done in it."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    async def call(self, work: Callable[[], T]) -> T:
        self.calls += 1
        return await super().call(work)


@under(run)
async def test_a_held_pull_sleeps_while_other_queues_grow_and_wakes_with_its_own() -> None:
    copy, clock, lane = Copy(), LoopClock(), CountingLane()
    copy.store.dispatch_grown(copy.end)  # what the queues hold already wakes nobody
    dispatcher = Dispatcher(copy.store, InlineLane())
    sizes = (AdmissionControl(MEMORY_BYTES), MEMORY_BYTES)
    rules = PullRules("a", lambda: ReadableRange(copy.store.end, copy.store.end), TopicConfig, False, *sizes)
    reading = PullService(copy.store, lane, dispatcher, clock, rules=rules)

    async def pull() -> PullResult:
        async with reading.pull(replace(order(ALL, offset=8), wait_s=20.0), "a client") as answer:
            return answer

    async with asyncio.TaskGroup() as tasks:
        dispatching = tasks.create_task(dispatcher.run())
        pulling = tasks.create_task(pull())
        for _ in range(10):
            await asyncio.sleep(1)
            copy.append(1, queue=1)
            dispatcher.readable_to(copy.store.end)
        await asyncio.sleep(1)
        looked_while_others_grew = lane.calls
        copy.append(1)
        dispatcher.readable_to(copy.store.end)
        answer = await pulling
        dispatching.cancel()

    assert (looked_while_others_grew, lane.calls) == (1, 2)
    assert (len(answer.messages), clock.monotonic()) == (1, 11.0)


@under(run)
async def test_a_pull_for_a_token_wakes_with_whatever_queue_holds_its_message() -> None:
    copy, clock = Copy(), LoopClock()
    dispatcher = Dispatcher(copy.store, InlineLane())
    sizes = (AdmissionControl(MEMORY_BYTES), MEMORY_BYTES)
    rules = PullRules("a", lambda: ReadableRange(dispatcher.applied, dispatcher.applied), TopicConfig, False, *sizes)
    reading = PullService(copy.store, InlineLane(), dispatcher, clock, rules=rules)
    copy.append(1, queue=1)
    token = ConsistencyToken("a", Epoch(1), copy.store.end)

    async def pull() -> PullResult:
        async with reading.pull(replace(order(ALL), wait_s=20.0, at_least=token), "a client") as answer:
            return answer

    async with asyncio.TaskGroup() as tasks:
        dispatching = tasks.create_task(dispatcher.run())
        pulling = tasks.create_task(pull())
        await asyncio.sleep(3)
        dispatcher.readable_to(copy.store.end)
        answer = await pulling
        dispatching.cancel()

    assert (answer.status, clock.monotonic()) == (PullStatus.FOUND, 3.0)


class Serving:
    """A node that serves all eight messages of a copy; `lane` counts the looks at its queues."""

    def __init__(self) -> None:
        self.copy, self.clock, self.lane = Copy(), LoopClock(), CountingLane()
        self.dispatcher = Dispatcher(self.copy.store, InlineLane())
        self.room = AdmissionControl(MEMORY_BYTES)

        def readable() -> ReadableRange:
            return ReadableRange(self.copy.store.end, self.copy.store.end)

        rules = PullRules("a", readable, TopicConfig, False, self.room, MEMORY_BYTES, node="a/1")
        self.reading = PullService(self.copy.store, self.lane, self.dispatcher, self.clock, rules=rules)

    def stream(self, offset: int = 0, messages: int = 32, responses: int = 0) -> AsyncGenerator[PullResult, None]:
        pull = replace(order(ALL, offset, messages), wait_s=5.0)
        return self.reading.stream(PullStreamOrder(pull, responses), "a client")

    async def hold(self) -> PullResult:
        async with self.reading.pull(replace(order(ALL, offset=8), wait_s=20.0), "another client") as answer:
            return answer


@under(run)
async def test_each_answer_of_a_stream_goes_on_where_the_one_before_ended() -> None:
    node = Serving()

    answers = [answer async for answer in node.stream(messages=3, responses=4)]

    assert [[message.queue_offset for message in answer.messages] for answer in answers] == [[0, 1, 2], [3, 4, 5], [6, 7], []]
    assert node.clock.monotonic() == 5.0


@under(run)
async def test_a_stream_tells_after_each_wait_that_nothing_came_and_then_what_comes() -> None:
    node = Serving()
    node.copy.store.dispatch_grown(node.copy.end)

    async def told() -> list[tuple[float, int]]:
        return [(node.clock.monotonic(), len(answer.messages)) async for answer in node.stream(offset=8, responses=3)]

    async with asyncio.TaskGroup() as tasks:
        dispatching = tasks.create_task(node.dispatcher.run())
        telling = tasks.create_task(told())
        await asyncio.sleep(12)
        node.copy.append(2)
        node.dispatcher.readable_to(node.copy.store.end)
        answers = await telling
        dispatching.cancel()

    assert answers == [(5.0, 0), (10.0, 0), (12.0, 2)]


@under(run)
async def test_a_stream_reads_nothing_ahead_of_what_its_caller_has_taken() -> None:
    node = Serving()

    async with contextlib.aclosing(node.stream(messages=2)) as answers:
        await anext(answers)
        await asyncio.sleep(60)
        looks, unread = node.lane.calls, node.room.taken

    assert looks == 1
    assert unread > 0
    assert node.room.taken == 0


@under(run)
async def test_a_stream_that_waits_keeps_none_of_what_it_has_given() -> None:
    node = Serving()

    def kept() -> int:
        gc.collect()
        return sum(1 for each in gc.get_objects() if isinstance(each, StoredMessage))

    before = kept()
    answers = node.stream()
    first = await anext(answers)
    held = kept() - before
    del first
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(anext(answers))
        await asyncio.sleep(1)
        left = kept() - before
        waiting.cancel()

    assert (held, left, node.room.taken) == (8, 0, 0)


@under(run)
async def test_streams_and_waiting_pulls_are_bounded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream counts while it lasts, and no longer when its caller has left."""
    monkeypatch.setattr(pull_service, "MAX_WAITING_PULLS", 2)
    node = Serving()
    async with asyncio.TaskGroup() as tasks:
        holding = tasks.create_task(node.hold())
        await asyncio.sleep(1)
        async with contextlib.aclosing(node.stream()) as answers:
            await anext(answers)
            with pytest.raises(LimitReached):
                await anext(node.stream())
            with pytest.raises(LimitReached):
                await node.hold()
            heartbeat = await anext(answers)  # it waits in its own place
        freed = await anext(node.stream())
        holding.cancel()

    assert (len(heartbeat.messages), len(freed.messages)) == (0, 8)


@under(run)
async def test_a_node_that_stops_tells_streams_and_who_waits_at_once() -> None:
    """It goes on to answer what it can answer at once."""
    node = Serving()
    streams = [node.stream(offset=8), node.stream(messages=1)]
    await anext(streams[1])  # there is more for it
    refused: list[DittoError] = []

    async def until_refused(waiting: Awaitable[object]) -> None:
        try:
            await waiting
        except NotReady as problem:
            refused.append(problem)

    async with asyncio.TaskGroup() as tasks:
        for waiting in (anext(streams[0]), node.hold()):
            tasks.create_task(until_refused(waiting))
        await asyncio.sleep(3)
        node.dispatcher.end_waits()
        await until_refused(anext(streams[1]))
    late = await node.reading.pull(order(ALL), "a client").__aenter__()

    assert [problem.node for problem in refused if isinstance(problem, NotReady)] == ["a/1"] * 3
    assert node.clock.monotonic() == 3.0
    assert len(late.messages) == 8


@under(run)
async def test_an_answer_as_records_holds_those_of_the_messages_up_to_what_is_readable() -> None:
    copy = Copy()
    readable = ReadableRange(copy.confirmed, copy.confirmed)
    answer = await copy.pull(readable, order(ALL))
    packed = await copy.pull(readable, replace(order(ALL), as_records=True))

    assert tuple(messages_in(packed.records, topic="orders", queue=0, node="a/1")) == answer.messages
    assert replace(packed, messages=answer.messages, records=b"") == answer


@under(run)
async def test_an_answer_as_records_passes_over_messages_of_another_hash() -> None:
    copy = Copy()
    answer = await copy.pull(ReadableRange(copy.end, copy.end), replace(order(OTHERS), as_records=True))

    assert (answer.status, answer.records, answer.next_offset) == (PullStatus.NO_MATCHED_MESSAGE, b"", 8)


@under(run)
async def test_an_answer_as_records_has_room_for_as_many_bytes_as_one_of_messages() -> None:
    copy = Copy()
    some = replace(order(ALL), max_bytes=300, as_records=True)
    readable = ReadableRange(copy.end, copy.end)

    assert (await copy.pull(readable, some)).next_offset == (await copy.pull(readable, replace(some, as_records=False))).next_offset
