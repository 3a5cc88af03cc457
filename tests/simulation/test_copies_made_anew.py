"""A slave that copies its master's whole log anew stands for what its copy has acknowledged, also while that takes its store's place."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from dittomq.client import Ack, AsyncClient, Producer, PutStatus, Receipt
from dittomq.errors import DittoError, NotPermitted, NotReady, OutcomeUnknown, OutOfReach
from services.master.config import Mode, ReplicationTable
from services.slave.config import FlushMode
from tests.simulation.disk import BOUNDLESS
from tests.simulation.group import Group, play
from tests.simulation.shapes import Shape
from tests.simulation.test_promotions import Asked, leads, until

SHAPE = Shape(2, ReplicationTable(mode=Mode.SYNC_MASTER, replicas_expected=2), FlushMode.SYNC_FLUSH).forgetting()
COPY = "dittomq/resync/"
CALLERS = 16


async def away_for_too_long(mq: AsyncClient, group: Group) -> None:
    """The slave a/1 was in sync, and its master has since dropped what it would need next."""
    await mq.admin.create_topic("orders", 1)
    async with mq.producer(Ack.MASTER_FLUSHED, on_weak="return") as producer:
        await producer.publish("orders", b"before", queue=0)
        await asyncio.sleep(3.0)
        await group.kill("a1")
        for _ in range(20):
            await producer.publish("orders", bytes(8_000), queue=0)
        await asyncio.sleep(20.0)
        for _ in range(8):
            await producer.publish("orders", bytes(8_000), queue=0)


@contextlib.asynccontextmanager
async def never_told(mq: AsyncClient) -> AsyncIterator[Producer]:
    """A producer whose last messages may be dropped by their age before it hears what became of them."""
    entering = mq.producer(on_weak="return", timeout_s=20.0)
    producer = await entering.__aenter__()
    try:
        yield producer
    finally:
        with contextlib.suppress(OutcomeUnknown):
            await entering.__aexit__(None, None, None)


async def confirmed_by_the_copy_alone(mq: AsyncClient, group: Group, producer: Producer) -> Receipt:
    """A message that only the master and the copy of a/1 hold, which is complete now and is being closed on a disk that has become slow."""
    node, receipts = group.node("a1"), list[Receipt]()
    node.start()
    while not any(path.startswith(f"{COPY}commitlog/") for path in node.disk.names.files):  # noqa: ASYNC110  # nodes tell nobody
        await asyncio.sleep(0.005)
    node.faults.slowness = 50.0

    async def fill() -> None:
        with contextlib.suppress(DittoError):
            while True:
                receipts.append(await producer.publish("orders", b"%06d" % len(receipts) + bytes(494), queue=0))

    async with asyncio.TaskGroup() as tasks:
        filling = [tasks.create_task(fill()) for _ in range(CALLERS)]
        await asyncio.sleep(0.02)
        group.world.network.cut("a0", "a2")
        while (await state_of(mq, "a/1")) != "gone":  # noqa: ASYNC110  # nodes tell nobody
            await asyncio.sleep(0.001)
        for task in filling:
            task.cancel()
    status = await mq.admin.ha_status("a0:10911")
    [cut_off] = [view for view in status.nodes if view.node == "a/2"]
    last = max((each for each in receipts if each.status is PutStatus.PUT_OK), key=lambda each: each.physical_offset)
    assert cut_off.received is not None
    assert cut_off.received <= last.physical_offset
    assert status.degraded_bytes == 0
    return last


async def state_of(mq: AsyncClient, node: str) -> str:
    [view] = [view for view in (await mq.admin.ha_status("a0:10911")).nodes if view.node == node]
    return view.state


async def nobody_may_lead(mq: AsyncClient, address: str, seconds: float) -> None:
    """Whatever the operator says but that data may be lost."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while loop.time() < end:
        change = None
        with contextlib.suppress(NotPermitted, NotReady, OutOfReach):
            change = await mq.admin.change_role(address, old_master_is_stopped=True)
        assert change is None
        await asyncio.sleep(0.02)


def test_what_a_copy_has_confirmed_is_not_passed_over_while_it_is_closed() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await away_for_too_long(mq, group)
        async with never_told(mq) as producer:
            receipt = await confirmed_by_the_copy_alone(mq, group, producer)
            group.node("a1").faults.slowness = 1_000.0
            await group.kill("a0")

            await nobody_may_lead(mq, "a2:10911", 5.0)

            group.node("a1").faults.slowness = 1.0
            await until(holds(mq, "a1:10911", receipt))
            await mq.admin.change_role("a1:10911", old_master_is_stopped=True)
            await until(leads(mq, "a1:10911"))
            page = await mq.reader("orders", queue=0, node="a/1").pull(receipt.queue_offset)
            assert page.messages[0].physical_offset == receipt.physical_offset

    play(story, SHAPE)


@pytest.mark.parametrize("is_full", [False, True])
def test_who_gives_up_a_copy_that_cannot_be_read_any_more_is_no_witness(*, is_full: bool) -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await away_for_too_long(mq, group)
        node = group.node("a1")
        async with never_told(mq) as producer:
            await confirmed_by_the_copy_alone(mq, group, producer)
            await group.kill("a0")
            await group.kill("a1")
            node.faults.slowness = 1.0
            assert node.disk.names.files[f"{COPY}dittomq/lineage"].flip(30, 1)
            node.disk.capacity_bytes = node.disk.used_bytes() + 16 * 1024 if is_full else BOUNDLESS
            node.start()

            await nobody_may_lead(mq, "a2:10911", 10.0)

            assert any(path.startswith(COPY) for path in node.disk.names.files) == is_full
            node.disk.capacity_bytes = BOUNDLESS
            await asyncio.sleep(5.0)
            assert not any(path.startswith(COPY) for path in node.disk.names.files)
            with pytest.raises(NotPermitted, match="a/1 may lack what it acknowledged"):
                await mq.admin.change_role("a2:10911", old_master_is_stopped=True)

            group.world.network.heal("a0", "a2")
            group.node("a0").start()
            await group.in_sync(mq)
            await asyncio.sleep(10.0)  # the copy has taken its store's place
            await group.kill("a0")
            await mq.admin.change_role("a2:10911", old_master_is_stopped=True)  # it has caught up, and is a witness again

    play(story, SHAPE)


def test_a_copy_that_cannot_be_opened_for_now_is_kept() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await away_for_too_long(mq, group)
        node = group.node("a1")
        async with never_told(mq) as producer:
            await confirmed_by_the_copy_alone(mq, group, producer)
            await group.kill("a0")
            await group.kill("a1")
            node.faults.slowness = 1.0

            def synced(path: str, _: float) -> None:
                if path.startswith(COPY):
                    node.faults.failing_reads, node.faults.synced = 1, lambda *_: None

            node.faults.synced = synced
            node.start()
            await node.ended()
            [refused] = group.world.findings
            assert "/data/dittomq/resync" in refused
            assert "Too many open files" in refused
            group.world.findings.clear()

            node.start()
            await asyncio.sleep(5.0)

            with pytest.raises(NotPermitted, match=r"a/1 has [0-9,]+ bytes that a/2 lacks"):
                await mq.admin.change_role("a2:10911", old_master_is_stopped=True)

    play(story, SHAPE)


def holds(mq: AsyncClient, address: str, receipt: Receipt) -> Asked:
    """Whether the node there is a slave whose log reaches beyond that message."""

    async def ask() -> bool:
        try:
            return (await mq.admin.ha_status(address)).end > receipt.physical_offset
        except DittoError:
            return False

    return ask
