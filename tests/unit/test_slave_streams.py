"""One slave's stream, as its master drives it."""

import asyncio
import random
from collections.abc import AsyncIterator, Coroutine
from dataclasses import replace
from typing import Any

import pytest

from dittomq.broker.config import ReplicationTable
from dittomq.broker.outflow import Outflow
from dittomq.errors import NeedsOperator, StreamDropped
from dittomq.lineage import LineageEntry
from dittomq.offsets import Epoch
from dittomq.replication.confirm import Confirm
from dittomq.replication.confirm_states import Degrade
from dittomq.replication.events import Hello, Lacks, SlaveAck, Verdict, VerdictAction
from dittomq.replication.master_log import MasterLog
from dittomq.replication.master_session import MasterSession, SessionLimits
from dittomq.replication.parted import Parted
from dittomq.routes import DataVersion
from services.master.degraded import DegradedRanges
from services.master.inbox import SlaveSaid
from services.master.promises import Promises
from services.master.replicate import SlaveStream, StreamParts
from services.master.slaves import SlaveRecord
from services.master.telling import MasterSays
from services.master.term import Opened, Term
from tests.support.confirming import RULES, at
from tests.support.lanes import InlineLane
from tests.support.metadata_node import LoopClock, run
from tests.support.starts import hello
from tests.support.stores import Machine
from tests.unit.test_term import NoQueues

BEGIN, OTHER, NEWEST = (LineageEntry(Epoch(epoch), 0, 7_000 + epoch, at(start)) for epoch, start in ((1, 0), (2, 50), (3, 100)))
HELLO = hello(1, 100, lineage=(BEGIN, NEWEST))


def begun(
    greeting: Hello, joined: set[str], said: AsyncIterator[SlaveSaid], reads: float = float("inf")
) -> tuple[Term, asyncio.Queue[Verdict], Coroutine[Any, Any, None]]:
    """The term, in which `joined` have joined the epoch, the verdicts, and the stream that is to be served.

    The slave reads so many frames.
    """
    clock, lineage = LoopClock(), (BEGIN, NEWEST)
    confirm = Confirm(RULES, end=at(100), confirmed=at(0), members=[], now=clock.monotonic())
    opened = Opened(Epoch(3), at(100), lineage, DegradedRanges())
    term = Term(opened, confirm, None, NoQueues(), clock)  # type: ignore[arg-type]  # nothing is written to a log here
    term.joined |= joined
    log = MasterLog("c", "a", 65_536, at(0), at(100), at(0), lineage, "a/0", "master")
    session = MasterSession(log, SessionLimits(), clock.monotonic())
    verdicts: asyncio.Queue[Verdict] = asyncio.Queue()

    left = reads

    async def send(message: MasterSays) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            await asyncio.Event().wait()
        if isinstance(message, Verdict):
            verdicts.put_nowait(message)

    store = Machine(random.Random(1)).open()
    parts = StreamParts(
        term,
        Promises("a/0"),
        Parted(0),
        store,
        InlineLane(),
        clock,
        "a/0",
        DataVersion,
        tuple,
        lambda: True,
        Outflow(ReplicationTable(), clock).to("a/1"),
    )
    return term, verdicts, SlaveStream(parts, session, SlaveRecord("a/1", "u1"), send).run(greeting, said)


async def nothing() -> AsyncIterator[SlaveSaid]:
    await asyncio.Event().wait()
    yield HELLO


async def greeted(greeting: Hello, joined: set[str]) -> tuple[VerdictAction, set[str]]:
    """What the slave is told, and who has joined the epoch then; `joined` had before."""
    term, verdicts, stream = begun(greeting, joined, nothing())
    serving = asyncio.create_task(stream)
    verdict = await verdicts.get()
    await asyncio.sleep(0.1)
    serving.cancel()
    return verdict.action, term.joined


def test_a_slave_whose_hello_names_the_epoch_has_joined_before_its_first_ack() -> None:
    assert run(greeted(HELLO, set())) == (VerdictAction.STREAM, {"a/1"})


def test_a_slave_that_is_told_to_cut_has_not_joined_until_it_says_so_again() -> None:
    assert run(greeted(replace(HELLO, lineage=(BEGIN, OTHER)), {"a/1"})) == (VerdictAction.TRUNCATE, set())


def test_a_slave_whose_hello_names_bytes_that_it_lacks_is_no_copy_of_them() -> None:
    async def copies(greeting: Hello) -> int:
        term, verdicts, stream = begun(greeting, set(), nothing())
        serving = asyncio.create_task(stream)
        await verdicts.get()
        await asyncio.sleep(0.1)
        serving.cancel()
        return len(term.confirm.copies(at(40), at(60)))

    assert [run(copies(replace(HELLO, lacks=lacks))) for lacks in ((), ((at(0), at(40)),), ((at(50), at(55)),))] == [1, 1, 0]


@pytest.mark.parametrize("lacked", [(0, 101), (50, 50), (-1, 10), (60, 50)])
def test_a_slave_that_says_to_lack_what_its_log_cannot_hold_is_refused_and_degrades_nobody(lacked: tuple[int, int]) -> None:
    async def refused() -> None:
        term, _, stream = begun(replace(HELLO, lacks=((at(lacked[0]), at(lacked[1])),)), set(), nothing())
        with pytest.raises(NeedsOperator, match="does not lie in its log"):
            await stream
        assert term.confirm.degrade is Degrade.NO

    run(refused())


def test_a_slave_that_does_not_tell_what_it_lacks_is_no_copy_of_what_it_was_not_sent_before() -> None:
    async def copies(greeting: Hello) -> int:
        term, verdicts, stream = begun(greeting, set(), nothing())
        term.holed("a/1", at(40), at(60))
        serving = asyncio.create_task(stream)
        await verdicts.get()
        await asyncio.sleep(0.1)
        serving.cancel()
        return len(term.confirm.copies(at(40), at(60)))

    assert [run(copies(replace(HELLO, lacks=lacks))) for lacks in ((), None)] == [1, 0]


def test_a_slave_whose_ack_names_bytes_that_it_lacks_is_no_copy_of_them_until_one_names_none() -> None:
    async def copies(*lacks: Lacks | None) -> int:
        async def acks() -> AsyncIterator[SlaveSaid]:
            await asyncio.sleep(0.1)  # until it may stream
            for each in lacks:
                yield SlaveAck(Epoch(3), at(100), at(100), at(100), lacks_now=each)
            await asyncio.Event().wait()

        term, verdicts, stream = begun(HELLO, set(), acks())
        serving = asyncio.create_task(stream)
        await verdicts.get()
        await asyncio.sleep(0.2)
        serving.cancel()
        return len(term.confirm.copies(at(40), at(60)))

    lacked = ((at(50), at(55)),)
    assert [run(copies(*said)) for said in ((None,), (lacked,), (lacked, None), (lacked, ()))] == [1, 0, 0, 1]


def test_a_slave_whose_ack_says_that_it_lacks_what_it_does_not_hold_is_dropped() -> None:
    async def impossible() -> AsyncIterator[SlaveSaid]:
        await asyncio.sleep(0.1)
        yield SlaveAck(Epoch(3), at(100), at(100), at(100), lacks_now=((at(90), at(101)),))
        await asyncio.Event().wait()

    async def served() -> None:
        _, _, stream = begun(HELLO, set(), impossible())
        await stream

    with pytest.raises(StreamDropped, match="lacks"):
        run(served())


def test_a_person_is_called_for_a_slave_that_never_fits_and_for_none_whose_next_hello_settles_it() -> None:
    async def impossible() -> AsyncIterator[SlaveSaid]:
        yield SlaveAck(Epoch(3), at(900), at(900), at(900), None)
        await asyncio.Event().wait()

    async def ended(greeting: Hello, said: AsyncIterator[SlaveSaid]) -> None:
        _, _, stream = begun(greeting, set(), said)
        await stream

    with pytest.raises(NeedsOperator, match="a/0 needs an operator: other/a is not c/a"):
        run(ended(replace(HELLO, cluster="other"), nothing()))
    with pytest.raises(StreamDropped, match=r"a/0 ended the stream: .*; the slave says hello again"):
        run(ended(HELLO, impossible()))


def test_a_slave_that_neither_reads_nor_says_anything_is_dropped_when_it_was_silent_for_long_enough() -> None:
    async def ended() -> None:
        _, _, stream = begun(HELLO, set(), nothing(), reads=1)
        async with asyncio.timeout(60):
            await stream

    with pytest.raises(StreamDropped, match=r"silent for 2\d s"):
        run(ended())
