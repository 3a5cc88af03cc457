"""Pulls on a real store: what may be read, what may be undone, and where the next pull begins, with a tag and without one."""

import asyncio
import random
from dataclasses import replace

import pytest

from dittomq.broker.dispatcher import Dispatcher
from dittomq.broker.pull_service import PullRules, PullService
from dittomq.commitlog.store import AppendBatch
from dittomq.doors.clock import OsClock
from dittomq.metadata.topics import TopicConfig
from dittomq.offsets import Epoch, PhysicalOffset, QueueOffset
from dittomq.reads import PullRequest, PullResult, PullStatus, ReadableRange
from dittomq.rpc.admission import AdmissionControl
from dittomq.tokens import ConsistencyToken
from tests.support.inline_lane import InlineLane
from tests.support.metadata_node import LoopClock, run
from tests.support.stores import Machine, draft, open_epoch
from tests.support.virtual_time import under

ALL: frozenset[str] = frozenset()
OTHERS = frozenset({"b"})
MEMORY_BYTES = 1 << 30


class Copy:
    """A replica whose queues show more than is confirmed: messages 0 to 3 of tag "a" are, 4 to 7 of the same tag are not."""

    def __init__(self, in_memory_bytes: int = MEMORY_BYTES) -> None:
        self.in_memory_bytes = in_memory_bytes
        self.store = Machine(random.Random(1)).open()
        open_epoch(self.store)
        self.confirmed = self._add(4)
        self.end = self._add(4)

    def _add(self, count: int) -> PhysicalOffset:
        self.store.append([AppendBatch([draft(tag="a", body=b"%d" % at) for at in range(count)])], 1)
        self.store.dispatch(self.store.end)
        return self.store.end

    async def pull(self, readable: ReadableRange, order: PullRequest) -> PullResult:
        """What a reader is answered who may see so much."""
        sizes = (AdmissionControl(MEMORY_BYTES), self.in_memory_bytes)
        rules = PullRules("a", lambda: readable, TopicConfig, False, *sizes)  # a slave's
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
