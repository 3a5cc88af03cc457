"""One slave's stream, as its master drives it."""

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from dittomq.broker.config import ReplicationTable
from dittomq.broker.replication_throttle import ReplicationThrottle
from dittomq.epoch_history import EpochEntry
from dittomq.errors import NeedsOperator, NotReady, StreamReset
from dittomq.offsets import Epoch
from dittomq.replication.confirmed_offset import ConfirmedOffset
from dittomq.replication.events import Goodbye, Handshake, HandshakeResult, Heartbeat, MissingRanges, SlaveAck, SyncAction
from dittomq.replication.master_log import MasterLog
from dittomq.replication.master_session import MasterSession, SessionLimits
from dittomq.routes import DataVersion
from services.master.mailbox import SlaveMessage
from services.master.replica_registry import SlaveRecord
from services.master.replica_sender import ReplicaSender, ReplicaSenderParts
from services.master.stream_writer import MasterMessage
from services.master.term import Opened, Term
from tests.support.confirming_group import MASTER, RULES, at, record_of, replica_of
from tests.support.handshakes import handshake
from tests.support.inline_lane import InlineLane
from tests.support.metadata_node import LoopClock, run
from tests.support.stores import Machine
from tests.support.virtual_time import under
from tests.unit.services.master.empty_queues import NoQueues

BEGIN, OTHER, NEWEST = (EpochEntry(Epoch(epoch), 0, 7_000 + epoch, at(start)) for epoch, start in ((1, 0), (2, 50), (3, 100)))
HANDSHAKE = replace(handshake(1, 100, epoch_history=(BEGIN, NEWEST)), birth="birth", adopted=Epoch(3), promised=Epoch(3))


class ServedStream:
    """One stream that is to be served: its term, the verdicts, and what it has its master do. The slave reads so many frames."""

    def __init__(
        self, greeting: Handshake, said: AsyncIterator[SlaveMessage | Goodbye], reads: float = float("inf"), *, is_member: bool = True
    ) -> None:
        clock, epoch_history = LoopClock(), (BEGIN, NEWEST)
        record = replace(record_of("a/1"), epoch=Epoch(3))
        now = clock.monotonic()
        confirm = ConfirmedOffset(RULES, own=replica_of(MASTER), node=MASTER, record=record, end=at(100), confirmed=at(0), now=now)
        opened = Opened(Epoch(3), at(100), epoch_history, MASTER, "birth")
        self.term = Term(opened, confirm, None, NoQueues(), clock=clock)  # type: ignore[arg-type]  # nothing is written to a log here
        self.handshake_results: asyncio.Queue[HandshakeResult] = asyncio.Queue()
        self.beats: list[Heartbeat] = []
        self.removed: list[str] = []
        self.promised: list[tuple[Epoch, str]] = []
        self.disk_answers = True
        self._left = reads
        log = MasterLog("c", "a", 65_536, at(0), at(100), at(0), epoch_history, MASTER, "master", "birth", is_member)
        parts = ReplicaSenderParts(
            term=self.term,
            store=Machine(random.Random(1)).open(),
            lane=InlineLane(),
            clock=clock,
            node=MASTER,
            topics=DataVersion,
            slots=tuple,
            silent_s=float,
            speaks=lambda: True,
            remove=self.removed.append,
            promised_above=self._promised_above,
            disk_answers=lambda: self.disk_answers,
            turns=ReplicationThrottle(ReplicationTable(), clock).to("a/1"),
        )
        session = MasterSession(log, SessionLimits(), clock.monotonic())
        self.driver = ReplicaSender(parts, session, SlaveRecord("a/1", replica_of("a/1")), self._send)
        self.served = self.driver.run(greeting, said)

    async def _promised_above(self, epoch: Epoch, node: str) -> None:
        self.promised.append((epoch, node))

    async def _send(self, message: MasterMessage) -> None:
        self._left -= 1
        if self._left < 0:
            await asyncio.Event().wait()
        if isinstance(message, HandshakeResult):
            self.handshake_results.put_nowait(message)
        if isinstance(message, Heartbeat):
            self.beats.append(message)


async def nothing() -> AsyncIterator[SlaveMessage]:
    await asyncio.Event().wait()
    yield HANDSHAKE


async def greeted(greeting: Handshake) -> tuple[SyncAction, bool]:
    """What the slave is told, and whether its acks count."""
    stream = ServedStream(greeting, nothing())
    serving = asyncio.create_task(stream.served)
    handshake_result = await stream.handshake_results.get()
    await asyncio.sleep(0.1)
    serving.cancel()
    return handshake_result.action, replica_of("a/1") in stream.term.confirm.holders


def test_slave_that_adopted_the_epoch_counts_before_its_first_ack() -> None:
    """Its handshake says so."""
    assert run(greeted(HANDSHAKE)) == (SyncAction.STREAM, True)


def test_a_slave_that_has_not_adopted_the_epoch_streams_and_does_not_count() -> None:
    assert run(greeted(replace(HANDSHAKE, adopted=Epoch(1)))) == (SyncAction.STREAM, False)


def test_slave_told_to_truncate_does_not_count_before_its_next_handshake() -> None:
    assert run(greeted(replace(HANDSHAKE, epoch_history=(BEGIN, OTHER), adopted=Epoch(2)))) == (SyncAction.TRUNCATE, False)


@under(run)
async def test_a_promise_above_the_epoch_is_told_and_ends_the_stream() -> None:
    stream = ServedStream(replace(HANDSHAKE, promised=Epoch(4)), nothing())
    with pytest.raises(StreamReset, match="promised epoch 4"):
        await stream.served
    assert stream.promised == [(Epoch(4), "a/1")]


@under(run)
async def test_a_stream_ends_with_the_term() -> None:
    stream = ServedStream(HANDSHAKE, nothing())
    serving = asyncio.create_task(stream.served)
    await stream.handshake_results.get()
    stream.term.end("it promised epoch 4 to a/2")
    with pytest.raises(NotReady, match="promised epoch 4 to a/2"):
        await serving


def test_a_master_whose_disk_does_not_answer_is_silent() -> None:
    async def beats(*, answers: bool) -> int:
        stream = ServedStream(HANDSHAKE, nothing())
        stream.disk_answers = answers
        serving = asyncio.create_task(stream.served)
        await asyncio.sleep(2.5)
        serving.cancel()
        return len(stream.beats)

    assert run(beats(answers=True)) > 0
    assert run(beats(answers=False)) == 0


def test_a_slave_whose_handshake_names_bytes_that_it_lacks_is_no_copy_of_them() -> None:
    async def copies(greeting: Handshake) -> int:
        stream = ServedStream(greeting, nothing())
        serving = asyncio.create_task(stream.served)
        await stream.handshake_results.get()
        await asyncio.sleep(0.1)
        serving.cancel()
        return len(stream.term.confirm.copies(at(40), at(60)))

    assert [
        run(copies(replace(HANDSHAKE, missing_ranges=missing_ranges))) for missing_ranges in ((), ((at(0), at(40)),), ((at(50), at(55)),))
    ] == [1, 1, 0]


@pytest.mark.parametrize("missing_ranges", [(0, 101), (50, 50), (-1, 10), (60, 50)])
@under(run)
async def test_a_slave_that_says_to_lack_what_its_log_cannot_hold_is_refused(missing_ranges: tuple[int, int]) -> None:
    stream = ServedStream(replace(HANDSHAKE, missing_ranges=((at(missing_ranges[0]), at(missing_ranges[1])),)), nothing())
    with pytest.raises(NeedsOperator, match="does not lie in its log"):
        await stream.served


def test_slave_silent_about_missing_bytes_holds_only_what_it_was_sent() -> None:
    async def copies(greeting: Handshake) -> int:
        stream = ServedStream(greeting, nothing())
        stream.term.record_skipped("a/1", at(40), at(60))
        serving = asyncio.create_task(stream.served)
        await stream.handshake_results.get()
        await asyncio.sleep(0.1)
        serving.cancel()
        return len(stream.term.confirm.copies(at(40), at(60)))

    assert [run(copies(replace(HANDSHAKE, missing_ranges=missing_ranges))) for missing_ranges in ((), None)] == [1, 0]


def test_slave_holds_no_bytes_that_its_ack_names_as_missing() -> None:
    """Until an ack names none."""

    async def copies(*missing_ranges: MissingRanges | None) -> int:
        async def acks() -> AsyncIterator[SlaveMessage]:
            await asyncio.sleep(0.1)  # until it may stream
            for each in missing_ranges:
                yield SlaveAck(Epoch(3), at(100), at(100), at(100), missing_now=each)
            await asyncio.Event().wait()

        stream = ServedStream(HANDSHAKE, acks())
        serving = asyncio.create_task(stream.served)
        await stream.handshake_results.get()
        await asyncio.sleep(0.2)
        serving.cancel()
        return len(stream.term.confirm.copies(at(40), at(60)))

    missing_ranges = ((at(50), at(55)),)
    assert [run(copies(*said)) for said in ((None,), (missing_ranges,), (missing_ranges, None), (missing_ranges, ()))] == [1, 0, 0, 1]


def test_a_slave_whose_ack_says_that_it_lacks_what_it_does_not_hold_is_dropped() -> None:
    async def impossible() -> AsyncIterator[SlaveMessage]:
        await asyncio.sleep(0.1)
        yield SlaveAck(Epoch(3), at(100), at(100), at(100), missing_now=((at(90), at(101)),))
        await asyncio.Event().wait()

    async def served() -> None:
        await ServedStream(HANDSHAKE, impossible()).served

    with pytest.raises(StreamReset, match="lacks"):
        run(served())


def test_operator_is_called_only_for_a_slave_that_never_fits() -> None:
    """Not for one whose next handshake settles it."""

    async def impossible() -> AsyncIterator[SlaveMessage]:
        yield SlaveAck(Epoch(3), at(900), at(900), at(900), None)
        await asyncio.Event().wait()

    async def ended(greeting: Handshake, said: AsyncIterator[SlaveMessage]) -> None:
        await ServedStream(greeting, said).served

    with pytest.raises(NeedsOperator, match="a/0 needs an operator: other/a is not c/a"):
        run(ended(replace(HANDSHAKE, cluster="other"), nothing()))
    with pytest.raises(StreamReset, match=r"a/0 ended the stream: .*; the slave sends its handshake again"):
        run(ended(HANDSHAKE, impossible()))


def test_slave_that_neither_reads_nor_sends_is_dropped_after_the_timeout() -> None:
    async def ended() -> None:
        stream = ServedStream(HANDSHAKE, nothing(), reads=1)
        async with asyncio.timeout(60):
            await stream.served

    with pytest.raises(StreamReset, match=r"silent for \d s"):
        run(ended())


def test_only_a_slave_that_says_goodbye_stops_in_order() -> None:
    async def goodbye(*said: SlaveMessage | Goodbye) -> bool:
        async def saying() -> AsyncIterator[SlaveMessage | Goodbye]:
            for each in said:
                yield each

        stream = ServedStream(HANDSHAKE, saying())
        await stream.served
        return stream.driver.sent_goodbye

    assert [run(goodbye(*said)) for said in ((), (Goodbye(),))] == [False, True]
