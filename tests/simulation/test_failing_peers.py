"""What a node asks of another one that has lost its disk, or less, at that moment: its own disk is well, and its own place safe."""

import asyncio

import pytest

from dittomq.client import Ack, AsyncClient, PutStatus
from dittomq.errors import DiskFull, DittoError
from tests.simulation.disk import BOUNDLESS
from tests.simulation.group import Group, play
from tests.simulation.test_promotions import TWO_SLAVES, leads, topic
from tests.simulation.world import Power


async def all_hold_a_message(mq: AsyncClient) -> None:
    await topic(mq)
    async with mq.producer() as producer:
        await producer.publish("orders", b"confirmed", queue=0)
    await asyncio.sleep(15.0)


@pytest.mark.parametrize("seed", range(1, 4))
def test_a_slave_lives_on_when_the_disk_of_the_master_fails_that_it_asks_for_its_place(seed: int) -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await all_hold_a_message(mq)

        async def break_disk() -> None:
            while not any("asks_to_step_down" in line for line in group.world.transcript.lines):  # noqa: ASYNC110  # nodes tell nobody
                await asyncio.sleep(0.00005)
            group.node("a0").faults.failing_syncs = 1

        breaking = asyncio.create_task(break_disk())
        with pytest.raises(DittoError):
            await mq.admin.change_role("a1:10911")
        await breaking
        await asyncio.sleep(5.0)

        assert [group.node(name).running for name in ("a0", "a1", "a2")] == [False, True, True]

    play(story, TWO_SLAVES, seed)


@pytest.mark.parametrize("seed", range(1, 9))
def test_a_master_leads_on_when_the_slave_that_asks_for_its_place_has_lost_what_it_received(seed: int) -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await topic(mq)
        heir = group.node("a1")
        async with mq.producer(Ack.REPLICA_FLUSHED, timeout_s=20.0, on_weak="return") as producer:
            await producer.publish("orders", b"before" + bytes(30_000), queue=0)
            await asyncio.sleep(12.0)
            heir.faults.slowness = 3_000.0  # its syncs take long
            receipt = await producer.publish("orders", b"confirmed", queue=0)
            assert receipt.status is PutStatus.PUT_OK
            await asyncio.sleep(0.5)
        heir.crash(Power.LOSS)
        await group.world.buried()
        heir.faults.slowness = 1.0
        group.node("a0").faults.read_bytes_per_s = 5_000.0  # comparing what a hello digests takes long, as with 64 MiB
        heir.start()
        change, refusals = None, list[str]()
        while change is None:
            try:
                change = await mq.admin.change_role("a1:10911")
            except DittoError as problem:
                refusals.append(str(problem))
                await asyncio.sleep(0.1)
        assert not any("stepped down" in refusal for refusal in refusals)
        group.node("a0").faults.read_bytes_per_s = float("inf")
        await asyncio.sleep(30.0)
        assert [await leads(mq, f"{each}:10911")() for each in ("a0", "a1", "a2")] == [False, True, False]

    play(story, TWO_SLAVES, seed)


@pytest.mark.parametrize("full", ["a0", "a1"])
def test_places_are_not_changed_while_the_disk_of_either_is_full_and_both_live_on(full: str) -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await all_hold_a_message(mq)
        disk = group.node(full).disk
        disk.capacity_bytes = disk.used_bytes() + 8 * 1024

        with pytest.raises(DiskFull, match=f"the disk of a/{full[1:]} has"):
            await mq.admin.change_role("a1:10911")
        await asyncio.sleep(5.0)
        assert [group.node(name).running for name in ("a0", "a1", "a2")] == [True, True, True]

        disk.capacity_bytes = BOUNDLESS
        await group.in_sync(mq)
        await mq.admin.change_role("a1:10911")
        await group.in_sync(mq, "a/1")

    play(story, TWO_SLAVES)
