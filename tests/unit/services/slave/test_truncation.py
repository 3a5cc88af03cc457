"""Where a slave cuts that is told to cut inside a record, and what it says of itself then."""

import asyncio
import random

import pytest

from dittomq.offsets import Epoch
from dittomq.replication.events import HandshakeResult, SyncAction
from tests.support.metadata_node import run
from tests.support.stores import SMALL, Machine
from tests.support.virtual_time import under
from tests.unit.services.slave.following_slave import at, chunk, entry, flushed, following, handshake, next_border, stream


@pytest.mark.parametrize("harm", ["records of other sizes", "a header that rotted", "damage before it"])
@under(run)
async def test_slave_truncates_where_the_record_with_that_byte_begins(harm: str) -> None:
    """It has no record that begins where it is to truncate."""
    size = SMALL.segment_bytes
    second = next_border(0)
    machine = Machine(random.Random(7))
    async with following(machine) as (master, _):
        await handshake(master)
        master.say(stream((entry(1, 0),), 0), chunk(1, 0, size, 0))
        await flushed(master, size)
        if harm != "records of other sizes":
            rotten = second if harm == "a header that rotted" else 0
            machine.disk.names.files[f"commitlog/{0:020d}"].write(memoryview(b"\xee" * 8), rotten, machine.chance)
        master.leave()
        await handshake(master)
        to = second if harm == "a header that rotted" else second + 8
        master.say(HandshakeResult(SyncAction.TRUNCATE, at(to), "", Epoch(1), (entry(1, 0),), 5_000))
        assert (await asyncio.wait_for(handshake(master), 10)).end == second


@pytest.mark.parametrize("behind", [0, 8])
@under(run)
async def test_slave_told_to_truncate_within_a_record_truncates_all_of_it(behind: int) -> None:
    size = SMALL.segment_bytes
    second = next_border(0)
    machine = Machine(random.Random(7))
    async with following(machine) as (master, _):
        await handshake(master)
        master.say(stream((entry(1, 0),), 0), chunk(1, 0, size, 0))
        await flushed(master, size)
        master.leave()
        await handshake(master)
        epochs = (entry(1, 0), entry(2, second + behind))
        master.say(HandshakeResult(SyncAction.TRUNCATE, at(second + behind), "", Epoch(2), epochs, 5_000))
        assert (await asyncio.wait_for(handshake(master), 10)).end == second
