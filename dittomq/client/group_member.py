"""A member's queues at one broker group: read them, hand their messages out, and commit how far each is handled."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal

from dittomq._pb.ditto.messaging.v1.consumer_groups_pb2_grpc import ConsumerGroupServiceStub
from dittomq.client.handled_offsets import HandledOffsets
from dittomq.client.member_session import PASSES, MemberOrder, MemberSession
from dittomq.client.message_buffer import MessageBuffer
from dittomq.client.reader import Page, Reader, ReaderOptions
from dittomq.client.routing import ClientContext, backoff_s
from dittomq.consumer.assignment import TopicQueue
from dittomq.consumer.group_session import ConsumeMode
from dittomq.consumer.retries import retry_topic
from dittomq.consumer.tag_filter import TagFilter
from dittomq.consumer_progress import MAX_OFFSETS_IN_A_CALL, CommittedOffset, OffsetCommit
from dittomq.errors import CorruptRecord, DittoError, InvalidField, LogTruncated, OffsetOutOfRange, QueueNotFound, TopicNotFound
from dittomq.message import StoredMessage
from dittomq.rpc.channel import call
from dittomq.rpc.headers import group_of
from dittomq.wire import consumer_groups as offsets_wire
from dittomq.wire import consumer_sessions as wire
from dittomq.wire.consumer_sessions import SendBackOrder, SentBack

_COMMIT_S: Final = 1.0
_CALL_S: Final = 3.0
_PULL_S: Final = 10.0
_REST_S: Final = 0.5
_HANDLE_S: Final = 5.0  # half of what a session lasts
_SEND_BACK_S: Final = 30.0
_MOST_UNHANDLED: Final = 4_096  # of one queue: then it is not read on
_PAGE_MESSAGES: Final = 256
_BEYOND: Final = 1 << 62  # an offset that no queue has: whoever asks for it is told the queue's bounds, and no damaged message hides them
_UNHEARD_OF = (TopicNotFound, QueueNotFound)  # a nameserver hears of a topic later than the master that gives its queues out
# What a call for many is refused for, though the rest of it is right.
_OF_ONE_QUEUE = (*_UNHEARD_OF, OffsetOutOfRange, LogTruncated, InvalidField)

StartFrom = Literal["earliest", "latest"] | datetime
"""Where a group begins that has committed nothing: at the oldest message, behind the newest, or at the first one stored at a time."""

log = logging.getLogger("dittomq.consumer")


@dataclass(slots=True, eq=False)
class OwnQueue:
    """One queue while it is this member's; `is_over`: it is no longer, and no message of it is handed out.

    `committed`: what the group has there as far as it is known. `resets`: how often that was reset. `in_hand`: queue offsets of
    messages that the caller has had and not handled. `has_begun`: `progress` is where the group is, so it may be committed.
    `is_doubted`: the master may have something else committed than `committed` and `resets`. `epoch`: of the last message that was
    read; None: none was.
    """

    member: "GroupMember"
    source: TopicQueue
    progress: HandledOffsets = field(default_factory=lambda: HandledOffsets(0))
    committed: int | None = None
    resets: int = 0
    has_begun: bool = False
    is_doubted: bool = False
    epoch: int | None = None
    in_hand: set[int] = field(default_factory=set)
    is_over: bool = False
    task: asyncio.Task[None] | None = None

    @property
    def broker(self) -> str:
        """The broker group that the queue lies in."""
        return self.member.order.broker

    def is_lost(self) -> bool:
        """Whether it is no longer this member's, or was for longer than the session lasts: another member may have it."""
        return self.is_over or self.member.session.end_when_late()

    def hand_out(self, offset: int) -> None:
        """The caller has the message now."""
        self.in_hand.add(offset)

    def handle(self, offset: int) -> None:
        """The message needs nothing more."""
        self.in_hand.discard(offset)
        self.progress.handle(offset)

    async def send_back(self, offset: int, level: int | None) -> SentBack:
        """Let the group try that message again; see GroupMember."""
        return await self.member.send_back(SendBackOrder(self.member.order.group, self.source, offset, level))


Buffer = MessageBuffer[tuple[OwnQueue, StoredMessage]]


class GroupMember:
    """The queues of one session; `buffer` takes their messages."""

    def __init__(
        self, around: ClientContext, order: MemberOrder, topics: Sequence[str], buffer: Buffer, *, wanted: TagFilter, start: StartFrom
    ) -> None:
        self.order = order
        self._around = around
        self._buffer = buffer
        self._tags = wanted
        self._start = start
        self._runs: dict[TopicQueue, OwnQueue] = {}
        self._first_queues: dict[str, int] = {}  # how many queues a topic had when this member first had some of them
        self._tasks: asyncio.TaskGroup | None = None
        self.session = MemberSession(around, order, topics, self)

    @property
    def queues(self) -> tuple[TopicQueue, ...]:
        """Those that are its own now."""
        return tuple(sorted(self._runs))

    async def run(self) -> None:
        """Be a member until the session is told to leave. Raises the DittoError that no other try can put right, in a group."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            commits = tasks.create_task(self._commit_forever(), name="commits")
            await self.session.run()
            commits.cancel()
            await self.give_back(self.queues, waits=False)  # where it left without a stream

    async def send_back(self, order: SendBackOrder) -> SentBack:
        """Store another try of a message; raises Unavailable when no master did in half a minute, or the Refused that says why not."""
        until, failures = self._around.clock.monotonic() + _SEND_BACK_S, 0
        while True:
            try:
                return wire.sent_back(await self._call("SendBack", wire.send_back_request(order)))
            except PASSES:
                if self._around.clock.monotonic() >= until:
                    raise
            failures += 1
            await asyncio.sleep(backoff_s(failures, self._around.chance))

    # What the session tells.

    async def give_back(self, queues: Sequence[TopicQueue], *, waits: bool) -> None:
        """Others read these from now on: hand nothing more out, commit, and let them go.

        `waits`: for some seconds, until the caller has handled what it has had. Then another member gets that again.
        """
        runs = [self._runs[queue] for queue in queues if queue in self._runs]
        for run in runs:
            self._stop(run)
        until = self._around.clock.monotonic() + _HANDLE_S
        while waits and any(run.in_hand for run in runs) and self._around.clock.monotonic() < until:  # noqa: ASYNC110  # of many queues
            await asyncio.sleep(0.02)
        await self._commit(runs)
        self.let_go(queues)

    def let_go(self, queues: Sequence[TopicQueue]) -> None:
        """These are no longer its own."""
        for queue in queues:
            if (run := self._runs.pop(queue, None)) is not None:
                self._stop(run)

    def begin(self, queue: TopicQueue) -> None:
        """Read the queue, which is its own from now on."""
        assert self._tasks is not None, "it runs"
        run = self._runs[queue] = OwnQueue(self, queue)
        run.task = self._tasks.create_task(self._read(run), name=f"{queue.topic} {queue.queue}")

    def doubt_offsets(self) -> None:
        """A new master may know less, or have moved offsets back: ask it before the next commit."""
        for run in self._runs.values():
            run.is_doubted = True

    def _restart(self, run: OwnQueue) -> None:
        """Read the queue from where the group is now."""
        if not run.is_over and self._runs.get(run.source) is run:
            self._stop(run)
            self.begin(run.source)

    def _stop(self, run: OwnQueue) -> None:
        run.is_over = True
        if run.task is not None:
            run.task.cancel()

    # Reading.

    async def _read(self, run: OwnQueue) -> None:
        """Read a queue on and on, from where the group is. Raises the DittoError that no other try can put right."""
        source, wanted = run.source, self._wanted(run.source)
        tags = wanted.expression if wanted.tags else ""
        options = ReaderOptions(broker=self.order.broker, tag=tags, max_messages=_PAGE_MESSAGES, group=self.order.group)
        reader = Reader(source.topic, source.queue, self._around, options)
        try:
            await self._read_on(run, reader, wanted)
        finally:
            reader.stop_reading_ahead()

    async def _read_on(self, run: OwnQueue, reader: Reader, wanted: TagFilter) -> None:
        source, failures = run.source, 0
        while True:
            try:
                if not run.has_begun:
                    await self._find_start(run)
                await self._read_page(run, reader, wanted)
                failures = 0
            except (*PASSES, *_UNHEARD_OF, CorruptRecord, OffsetOutOfRange) as problem:
                failures += 1
                log.debug("queue %s %d is not read: %s", source.topic, source.queue, problem)
                await asyncio.sleep(backoff_s(failures, self._around.chance, first_s=0.1, most_s=5.0))

    async def _read_page(self, run: OwnQueue, reader: Reader, wanted: TagFilter) -> None:
        """Hand one page out: what no new master can undo."""
        while run.progress.unhandled >= _MOST_UNHANDLED:  # noqa: ASYNC110  # the caller handles them one by one
            await asyncio.sleep(_REST_S)
        try:
            page = await reader.pull(run.progress.position, wait_s=_PULL_S, epoch=run.epoch)
        except LogTruncated as lost:
            self._turn_back(run, lost.end)
            return
        except OffsetOutOfRange as outside:
            await self._move(run, outside)
            return
        run.epoch = page.epoch if page.unconfirmed_from is None else None  # it is of what may be undone
        end = page.next_offset if page.unconfirmed_from is None else min(page.next_offset, page.unconfirmed_from)
        reader.read_ahead(page)
        await self._hand_out(run, page, end, wanted)
        run.progress.pass_to(end)
        if end < page.next_offset:
            await asyncio.sleep(_REST_S)

    async def _hand_out(self, run: OwnQueue, page: Page, end: int, wanted: TagFilter) -> None:
        """Give those below `end` to the caller as there is room."""
        buffer = self._buffer
        for message in page.messages:
            if run.progress.position <= message.queue_offset < end and wanted.matches(message.tag):
                if buffer.is_full:
                    await buffer.room()
                run.progress.deliver(message.queue_offset)
                buffer.put((run, message))

    async def _move(self, run: OwnQueue, outside: OffsetOutOfRange) -> None:
        """What the master has dropped for its age is passed over, up to what any copy has that answers.

        What only a slave has dropped is not: it may keep less than its master, who may be silent just now.
        """
        position = run.progress.position
        first, end = await self._bounds(run.source)
        if position < first:
            start = min(first, outside.start) if outside.asked < outside.start else first
            lost = (run.source.topic, run.source.queue, position, start)
            log.warning("messages of %s %d from %d to %d were dropped for their age before the group read them", *lost)
            run.progress.pass_to(start)
            return
        await asyncio.sleep(_REST_S)  # behind the end of one copy another one may hold more
        self._turn_back(run, end)

    def _turn_back(self, run: OwnQueue, end: int) -> None:
        """Where the master's queue ends before what was read, others will be stored in the place of what is lost: read those."""
        if run.progress.position <= end:
            return
        lost = (run.source.topic, run.source.queue, end, run.progress.position)
        log.warning("messages of %s %d from %d to %d are lost: a master was elected without them", *lost)
        if self.order.mode is ConsumeMode.BROADCASTING:
            run.progress, run.epoch = HandledOffsets(end), None
        else:
            self._restart(run)

    async def _bounds(self, source: TopicQueue) -> tuple[int, int]:
        """The first offset that the master has, and one past its last."""
        return await (await self._reader_of_master(source)).bounds(_BEYOND)

    async def _reader_of_master(self, source: TopicQueue) -> Reader:
        """Whose answers no other copy contradicts; raises Unavailable while nobody knows a master."""
        master = await self.session.find_master()
        return Reader(source.topic, source.queue, self._around, ReaderOptions(node=master.name, group=self.order.group))

    def _wanted(self, source: TopicQueue) -> TagFilter:
        return TagFilter() if source.topic == retry_topic(self.order.group) else self._tags

    async def _find_start(self, run: OwnQueue) -> None:
        """Begin where the group is; where it has committed nothing, where the caller asked for.

        That is committed before anything is handed out. Else the next member would begin elsewhere, and miss what this one had in hand.
        """
        if self.order.mode is ConsumeMode.BROADCASTING:
            start = await self._first_offset(run.source)
        else:
            request = offsets_wire.get_offsets_request(self.order.group, [run.source])
            [found] = offsets_wire.committed_offsets(await self._call("GetOffsets", request))
            if found.offset is None:
                first = OffsetCommit(*run.source, await self._first_offset(run.source), found.resets)
                commit = offsets_wire.commit_offsets_request(self.order.group, [first])
                [found] = offsets_wire.committed_offsets(await self._call("CommitOffsets", commit))
            run.resets, run.committed, start = found.resets, found.offset, found.offset or 0
        run.progress = HandledOffsets(start)
        run.has_begun = True

    async def _first_offset(self, source: TopicQueue) -> int:
        """A queue that was added while this member was there is read whole, and so are retries."""
        route = await self._around.routing.route(source.topic)
        known = next((group.read_queues for group in route.queues if group.broker == self.order.broker), source.queue + 1)
        is_new = source.queue >= self._first_queues.setdefault(source.topic, known)
        if isinstance(self._start, datetime) and not is_new:
            return await (await self._reader_of_master(source)).offset_at(self._start)
        first, end = await self._bounds(source)
        is_whole = self._start == "earliest" or is_new or source.topic == retry_topic(self.order.group)
        return first if is_whole else end

    # Offsets.

    async def _commit_forever(self) -> None:
        while True:
            await asyncio.sleep(_COMMIT_S)
            await self._look_again([run for run in self._runs.values() if run.is_doubted and run.has_begun])
            await self._commit(list(self._runs.values()))

    async def _look_again(self, runs: Sequence[OwnQueue]) -> None:
        """Hear what is committed of these; what nobody tells now is asked for again."""
        if self.order.mode is ConsumeMode.BROADCASTING:
            return
        for at in range(0, len(runs), MAX_OFFSETS_IN_A_CALL):
            await self._in_pieces(runs[at : at + MAX_OFFSETS_IN_A_CALL], self._ask_offsets)

    async def _ask_offsets(self, runs: Sequence[OwnQueue]) -> None:
        request = offsets_wire.get_offsets_request(self.order.group, [run.source for run in runs])
        response = await self._call("GetOffsets", request)
        for run, found in zip(runs, offsets_wire.committed_offsets(response), strict=True):
            run.is_doubted = False
            self._record_committed(run, found)

    async def _commit(self, runs: Sequence[OwnQueue]) -> None:
        """Commit how far the queues are handled, where that has changed. What cannot be committed now comes later, or comes again."""
        if self.order.mode is ConsumeMode.BROADCASTING:
            return
        changed = [run for run in runs if run.has_begun and run.progress.committable != run.committed]
        for at in range(0, len(changed), MAX_OFFSETS_IN_A_CALL):
            await self._in_pieces(changed[at : at + MAX_OFFSETS_IN_A_CALL], self._commit_piece)

    async def _commit_piece(self, runs: Sequence[OwnQueue]) -> None:
        commits = [OffsetCommit(*run.source, run.progress.committable, run.resets, run.epoch) for run in runs]
        response = await self._call("CommitOffsets", offsets_wire.commit_offsets_request(self.order.group, commits))
        for run, found in zip(runs, offsets_wire.committed_offsets(response), strict=True):
            self._record_committed(run, found)

    async def _in_pieces(self, runs: Sequence[OwnQueue], ask: Callable[[Sequence[OwnQueue]], Awaitable[None]]) -> None:
        """One call for all. What is refused for one queue is asked queue by queue, so that the others do not wait for that one."""
        try:
            await ask(runs)
        except _OF_ONE_QUEUE as refused:
            if len(runs) > 1:
                for run in runs:
                    await self._in_pieces([run], ask)
                return
            await self._take_refusal(runs[0], refused)
        except DittoError as problem:
            log.warning("offsets of group %s at %s are not committed: %s", self.order.group, self.order.broker, problem)

    async def _take_refusal(self, run: OwnQueue, refused: DittoError) -> None:
        """The master may have moved the offset back, or hold less than was read."""
        run.is_doubted = True
        log.warning("the offset of group %s in %s %d is refused: %s", self.order.group, *run.source, refused)
        if isinstance(refused, LogTruncated):
            self._turn_back(run, refused.end)
        elif isinstance(refused, OffsetOutOfRange):
            with contextlib.suppress(DittoError):
                _, end = await self._bounds(run.source)
                self._turn_back(run, end)

    def _record_committed(self, run: OwnQueue, found: CommittedOffset) -> None:
        """What is committed now. Where somebody has reset it, the queue is read again from there."""
        run.committed = found.offset
        if found.resets != run.resets:
            self._restart(run)

    async def _call(self, method: str, request: object) -> Any:
        master = await self.session.find_master()
        address = self._around.routing.address(master)
        stub: Any = self._around.channels.stub(ConsumerGroupServiceStub, address)
        try:
            return await call(getattr(stub, method), request, who=f"{master.name} at {address}", deadline_s=_CALL_S, node=group_of(master))
        except PASSES:
            self.session.doubt_master()
            raise
