"""A master on a new disk, and a slave that holds one record which has rotted: what is behind that record is not lost with it."""

import asyncio
import contextlib

import pytest

from dittomq.client import AsyncClient
from dittomq.errors import DittoError
from dittomq.ha_status import HaStatus
from services.master.config import Mode, ReplicationTable
from tests.simulation.group import SYNC, Group, play
from tests.simulation.shapes import Shape
from tests.simulation.test_recovering_masters import COUNT, all_is_there, store_messages

TWO_SLAVES = Shape(2, ReplicationTable(mode=Mode.SYNC_MASTER, replicas_expected=2), SYNC.slave_flush)
ROTTEN_SEGMENT = "commitlog/00000000000000131072"
LONG_S = 90.0


async def rot_and_replace(group: Group, mq: AsyncClient) -> None:
    """One record of a1 has rotted, in the middle of its log, and a0 has an empty disk."""
    await store_messages(mq)
    assert group.node("a1").disk.names.files[ROTTEN_SEGMENT].flip(30_000, 1)
    await group.replace_disk("a0")


async def status(mq: AsyncClient) -> HaStatus:
    return await mq.admin.ha_status("a0:10911")


async def numbers_on(mq: AsyncClient, node: str) -> set[int]:
    """The messages that can be read there, one by one."""
    found: set[int] = set()
    for offset in range(COUNT):
        with contextlib.suppress(DittoError):
            page = await mq.reader("orders", 0, node=node, max_messages=1).pull(offset)
            found |= {int(message.body.split(b":")[0]) for message in page.messages}
    return found


def test_it_takes_over_all_that_is_whole_and_waits_for_an_operator_who_loses_one_record() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await rot_and_replace(group, mq)
        await asyncio.sleep(LONG_S)
        waits = await status(mq)
        change = await mq.admin.change_role("a0:10911", accept_loss=True)
        await group.in_sync(mq)
        leads = await status(mq)

        assert not waits.writable
        assert "a replica that has its damaged bytes whole" in waits.waiting_for
        assert "damaged bytes" in change.may_be_lost
        assert leads.writable
        assert leads.end >= waits.end
        assert not [line for line in group.world.transcript.lines if "log_cut" in line]
        for node in ("a/0", "a/1"):
            assert len(await numbers_on(mq, node)) == COUNT - 1
        async with mq.producer() as producer:
            assert (await producer.publish("orders", b"one more", queue=0)).queue_offset == COUNT

    play(story, SYNC)


def test_another_slave_gives_that_record_and_nobody_is_asked() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await rot_and_replace(group, mq)
        await all_is_there(group, mq)

        assert (await status(mq)).writable
        assert [line for line in group.world.transcript.lines if "hole_taken_over" in line]

    play(story, TWO_SLAVES)


@pytest.mark.parametrize("segment", ["commitlog/00000000000000000000", "commitlog/00000000000000786432"], ids=["first", "last"])
def test_rot_in_the_first_and_in_the_newest_segment_is_passed_too(segment: str) -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await store_messages(mq)
        assert group.node("a1").disk.names.files[segment].flip(100, 1)
        await group.replace_disk("a0")
        await asyncio.sleep(LONG_S)
        await mq.admin.change_role("a0:10911", accept_loss=True)
        await group.in_sync(mq)

        assert len(await numbers_on(mq, "a/0")) == COUNT - 1

    play(story, SYNC)
