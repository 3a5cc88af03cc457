"""Frames on their way into the log of a leading master."""

import asyncio
import random
import weakref
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, cast

import pytest

from dittomq._pb.ditto.messaging.v1 import messaging_pb2 as pb
from dittomq.broker.dispatcher import Dispatcher
from dittomq.broker.writer import Writer, WriterEvents, WriterLanes, WriterLimits
from dittomq.doors.traces import TRACEPARENT, Traces
from dittomq.errors import NotEnoughReplicas
from dittomq.message import Ack, Draft, PutStatus
from dittomq.metadata.topics import TopicConfig
from dittomq.offsets import Epoch
from dittomq.properties import encode_properties
from dittomq.replication.confirmed_offset import ConfirmedOffset
from dittomq.wire.drafts import Topics
from dittomq.wire.publishing import PublishOrder
from services.master.config import MasterConfig, Mode, ReplicationTable
from services.master.produce import ProduceHandler
from services.master.servicers import MasterMessagingServicer, Reads
from services.master.term import Opened, Term
from tests.support.confirming_group import MASTER, RULES, member_of, record_of, replica_of
from tests.support.inline_lane import InlineLane
from tests.support.metadata_node import LoopClock, run
from tests.support.recorded_traces import Recorded, traceparent
from tests.support.stores import Machine, draft, open_epoch
from tests.support.virtual_time import under


class Drafts(list[Draft]):
    """A list of which can be told whether anybody holds it."""


class Master:
    """Leads, with one slave in sync that says nothing."""

    def __init__(self, min_in_sync_replicas: int = 1, traces: Traces | None = None) -> None:
        store, clock = Machine(random.Random(1)).open(), LoopClock()
        open_epoch(store)
        rules = replace(RULES, min_in_sync_replicas=min_in_sync_replicas)
        record, now = record_of("a/1"), clock.monotonic()
        confirm = ConfirmedOffset(rules, own=replica_of(MASTER), node=MASTER, record=record, end=store.end, confirmed=store.end, now=now)
        writer = Writer(store, WriterLanes(InlineLane(), InlineLane()), clock, WriterLimits(), sync_each_group=True)
        opened = Opened(Epoch(1), store.end, store.epoch_history, MASTER)
        self.term = Term(opened, confirm, writer, Dispatcher(store, InlineLane()), clock=clock)
        config = MasterConfig(replication=ReplicationTable(mode=Mode.SYNC_MASTER, replicas_expected=1))
        self.appends = ProduceHandler(config, lambda: self.term, lambda: self.term, self.refusal, traces=traces)
        self.needed = min_in_sync_replicas
        self.term.stream_begins("a/1", replica_of("a/1"), store.end, (), address=member_of("a/1").address)

    def refusal(self) -> NotEnoughReplicas | None:
        in_sync = self.term.confirm.copies_in_sync
        return NotEnoughReplicas(MASTER, in_sync, self.needed) if in_sync < self.needed else None

    async def writing(self) -> None:
        await self.term.writer.run(WriterEvents(self.term.on_written, self.term.on_flushed))


def order(drafts: Drafts) -> PublishOrder:
    return PublishOrder(drafts, 5, "", -1, Ack.REPLICA_FLUSHED, 3.0, None)


@under(run)
async def test_messages_that_are_written_are_not_kept_while_their_level_is_waited_for() -> None:
    master = Master()
    async with asyncio.TaskGroup() as tasks:
        writing = tasks.create_task(master.writing())
        drafts = Drafts([draft(body=b"large")])
        held: weakref.ref[Any] = weakref.ref(drafts)
        answer = tasks.create_task(master.appends.finish(await master.appends.begin(order(drafts))))
        del drafts
        await asyncio.sleep(1)

        assert master.term.flushed > master.term.opened.start
        assert not answer.done()
        assert held() is None
        assert (await answer).status is PutStatus.FLUSH_SLAVE_TIMEOUT
        writing.cancel()


@under(run)
async def test_batch_whose_replicas_leave_before_its_turn_is_refused() -> None:
    """Nothing of it is written."""
    master = Master(min_in_sync_replicas=2)
    term = master.term
    term.writer.pause()
    async with asyncio.TaskGroup() as tasks:
        writing = tasks.create_task(master.writing())
        waiting = asyncio.create_task(master.appends.begin(order(Drafts([draft()]))))
        await asyncio.sleep(0)
        term.stream_ended("a/1", sent_goodbye=False)
        term.writer.resume()

        with pytest.raises(NotEnoughReplicas):
            await waiting
        await term.writer.drained()
        assert term.written == term.opened.start
        writing.cancel()


@under(run)
async def test_each_span_of_a_batch_is_ended_and_the_broker_s_own_records_have_none() -> None:
    recorded = Recorded()
    master = Master(traces=recorded.traces)
    sampled = draft()._replace(properties=encode_properties((), "", {TRACEPARENT: traceparent(1)}))
    async with asyncio.TaskGroup() as tasks:
        writing = tasks.create_task(master.writing())
        await (await master.appends.begin(PublishOrder.of_broker([sampled]))).written
        assert recorded.started == 0

        published = order(Drafts([sampled]))
        await master.appends.finish(await master.appends.begin(published, master.appends.spans_of(published)))
        writing.cancel()

    assert (recorded.started, recorded.parents) == (1, [1])


@under(run)
async def test_spans_of_a_batch_end_though_its_stream_ends_before_its_answer_begins() -> None:
    """The task that answers was cancelled before its first step, and so ended nothing."""
    recorded, unused = Recorded(), cast("Any", None)
    appends = Master(traces=recorded.traces).appends
    topics = Topics({"orders": TopicConfig("orders", 4, 4)}, "a/0", lambda _, queues: queues - 1, 0)
    servicer = MasterMessagingServicer(appends, unused, Reads(unused, unused, unused), lambda: topics, room=unused)

    async def batches() -> AsyncIterator[pb.PublishStreamRequest]:
        message = pb.Message(topic="orders", queue=0, properties={TRACEPARENT: traceparent(1)})
        yield pb.PublishStreamRequest(batch_id=1, messages=[message])
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await servicer.PublishStream(batches(), unused)
    assert (recorded.started, recorded.parents) == (1, [1])
