"""Slaves that said hello to a master which does not lead yet."""

import asyncio
import random
from collections.abc import AsyncIterator

import pytest

from dittomq.broker.config import NodeTable
from dittomq.broker.dispatching import Dispatcher
from dittomq.errors import StreamDropped
from dittomq.replication.group_of_start import LeadershipRules
from services.master.config import MasterConfig, Mode, ReplicationTable
from services.master.inbox import SlaveSaid
from services.master.recovery import Recovery, RecoveryParts
from services.master.replication import Replication
from services.master.telling import MasterSays
from tests.support.lanes import InlineLane
from tests.support.metadata_node import LoopClock, run
from tests.support.starts import EMPTY, asked, hello
from tests.support.stores import Machine

ONE_SLAVE = LeadershipRules(replicas_expected=1, in_sync_replicas=2, sync_flush=True, recover_wait_s=5.0)
CONFIG = MasterConfig(node=NodeTable(cluster="c", broker="a"), replication=ReplicationTable(mode=Mode.SYNC_MASTER, replicas_expected=1))


def recovering() -> Replication:
    """The door of a master that does not lead, and will not."""
    store, clock = Machine(random.Random(1)).open(), LoopClock()
    leadership = asked(ONE_SLAVE, EMPTY, clock.monotonic())
    recovery = Recovery(leadership, EMPTY, RecoveryParts(store, InlineLane(), Dispatcher(store, InlineLane()), clock))
    return Replication(CONFIG, store, InlineLane(), clock, recovery)


async def said() -> AsyncIterator[SlaveSaid]:
    yield hello(1, 0, lineage=())
    await asyncio.Event().wait()


@pytest.mark.parametrize("reads", [0, 1, 3])
def test_a_slave_that_reads_nothing_while_its_master_recovers_is_dropped_when_it_was_silent_for_long_enough(reads: int) -> None:
    async def story() -> None:
        replication = recovering()
        left = reads

        async def send(_: MasterSays) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                await asyncio.Event().wait()

        with pytest.raises(StreamDropped, match=r"silent for 2\d s"):
            async with asyncio.timeout(60):
                await replication.serve(said(), send)
        assert not replication.records["a/1"].connected

    run(story())


def test_a_slave_that_reads_what_it_is_told_while_its_master_recovers_may_wait_for_as_long_as_that_takes() -> None:
    async def story() -> None:
        replication = recovering()

        async def send(_: MasterSays) -> None: ...

        with pytest.raises(TimeoutError):
            async with asyncio.timeout(600):
                await replication.serve(said(), send)

    run(story())
