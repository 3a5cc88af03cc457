"""Two nameservers of different opinions about who leads: one master does in the end, and it is the one that an operator chose last."""

import asyncio
from dataclasses import replace

import pytest

from dittomq.client import AsyncClient
from dittomq.errors import DittoError, OutOfReach
from tests.simulation.group import SYNC, Group, bodies, play
from tests.simulation.operating import as_client
from tests.simulation.shapes import NAMESERVER, SECOND_NAMESERVER

TWO_NAMESERVERS = replace(SYNC, nameservers=(NAMESERVER, SECOND_NAMESERVER))
SETTLES_S = 40.0
DEAF = 40_000.0  # 4 s for every frame, and a call ends after 3 s
REMEMBERED_S = 38  # the expiry of a nameserver, and what may be on its way
ADDRESSES = {"a0": "a0:10911", "a1": "a1:10911"}


async def epochs_led(mq: AsyncClient) -> dict[str, int]:
    """The epochs of those that take writes, by machine."""
    led = {}
    for machine, address in ADDRESSES.items():
        try:
            status = await mq.admin.ha_status(address)
        except DittoError:
            continue
        if status.writable:
            led[machine] = status.epoch
    return led


async def until_led(mq: AsyncClient, led: dict[str, int]) -> None:
    async with asyncio.timeout(60):
        while await epochs_led(mq) != led:  # noqa: ASYNC110  # nodes tell nobody
            await asyncio.sleep(0.1)


async def begin(mq: AsyncClient) -> None:
    """A topic, a message, and nameservers that have been up for long."""
    [created] = await mq.admin.create_topic("orders", 1)
    assert created.error is None
    await asyncio.sleep(SETTLES_S)
    await publish(mq, b"before")


async def promote_out_of_sight(group: Group, mq: AsyncClient, heir: str, old: str) -> int:
    """The old master dies, and only the first nameserver hears of the promotion; the new epoch."""
    group.world.network.cut(heir, "ns2")
    await group.kill(old)
    promoted = await mq.admin.change_role(ADDRESSES[heir], old_master_is_stopped=True)
    await until_led(mq, {heir: promoted.epoch})
    return promoted.epoch


async def publish(mq: AsyncClient, body: bytes) -> None:
    async with mq.producer(on_weak="return", retry_s=60.0) as producer:
        await producer.publish("orders", body, queue=0)


def test_a_starting_master_hears_every_nameserver_that_answers_before_it_believes_that_nobody_leads() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await begin(mq)
        epoch = await promote_out_of_sight(group, mq, "a1", "a0")
        for ends in (("a0", "ns"), ("ns", "a0")):
            group.world.network.link(*ends).slowness = 100.0

        group.node("a0").start()
        for _ in range(100):
            await asyncio.sleep(0.1)
            assert await epochs_led(mq) == {"a1": epoch}

    play(story, TWO_NAMESERVERS)


async def come_back_unseen(group: Group, mq: AsyncClient, heir: str, old: str, epoch: int) -> None:
    """The old master starts, reaches neither the heir nor the nameserver that was told of it, and leads in its epoch too."""
    for other in (heir, "ns"):
        group.world.network.cut(old, other)
    group.node(old).start()
    await until_led(mq, {heir: epoch, old: epoch})
    group.world.network.heal(old, heir)


async def led_by_both(group: Group, mq: AsyncClient) -> int:
    """a/1 is promoted and a/0 comes back unseen; the epoch that both lead."""
    await begin(mq)
    epoch = await promote_out_of_sight(group, mq, "a1", "a0")
    await come_back_unseen(group, mq, "a1", "a0", epoch)
    return epoch


@pytest.mark.parametrize(("heir", "old"), [("a1", "a0"), ("a0", "a1")])
@pytest.mark.parametrize("loses", ["nobody", "the heir loses the nameserver that takes it in"])
def test_of_two_masters_of_one_epoch_that_different_nameservers_take_in_the_one_that_was_promoted_leads_on(
    heir: str, old: str, loses: str
) -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        network = group.world.network
        await begin(mq)
        if old == "a1":
            await mq.admin.change_role("a/1")
            await group.in_sync(mq, "a/1")
        epoch = await promote_out_of_sight(group, mq, heir, old)
        await publish(mq, b"of the one that was chosen")
        await come_back_unseen(group, mq, heir, old, epoch)
        await asyncio.sleep(20.0)
        assert await epochs_led(mq) == {heir: epoch, old: epoch}

        if loses != "nobody":
            network.cut(heir, "ns")
        network.heal(old, "ns")
        network.heal(heir, "ns2")

        await until_led(mq, {heir: epoch})
        for _ in range(60):
            await asyncio.sleep(1.0)
            assert heir in await epochs_led(mq)
        network.heal(heir, "ns")
        await group.in_sync(mq, f"a/{heir[1]}")
        assert await bodies(mq, f"a/{old[1]}") == [b"before", b"of the one that was chosen"]

    play(story, TWO_NAMESERVERS)


def test_a_master_that_a_nameserver_refuses_for_one_of_higher_claim_that_is_dead_leads_on() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        epoch = await led_by_both(group, mq)

        await group.kill("a1")
        group.world.network.heal("a0", "ns")

        for _ in range(60):
            await asyncio.sleep(1.0)
            assert await epochs_led(mq) == {"a0": epoch}

    play(story, TWO_NAMESERVERS)


def test_of_two_masters_of_one_epoch_the_promoted_one_leads_on_though_it_hears_no_nameserver_that_takes_it_in() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        network = group.world.network
        epoch = await led_by_both(group, mq)

        network.silence("ns", "a1")
        network.heal("a1", "ns2")
        await until_led(mq, {"a1": epoch})
        network.heal("a0", "ns")

        for _ in range(60):
            await asyncio.sleep(1.0)
            assert await epochs_led(mq) == {"a1": epoch}

    play(story, TWO_NAMESERVERS)


def test_a_promoted_master_that_every_nameserver_refuses_leads_on_when_the_holder_of_its_id_hears_of_it() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        epoch = await led_by_both(group, mq)

        await group.kill("ns")  # and with it who knows of the promotion
        group.world.network.heal("a1", "ns2")

        await until_led(mq, {"a1": epoch})
        group.node("ns").start()
        group.world.network.heal("a0", "ns")
        await group.in_sync(mq, "a/1")

    play(story, TWO_NAMESERVERS)


def test_a_promoted_master_that_every_nameserver_refuses_gives_way_to_a_holder_that_stays_because_it_cannot_hear_of_it() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        network = group.world.network
        epoch = await led_by_both(group, mq)
        network.link("ns2", "a0").slowness = DEAF  # it is heard there, and hears nothing in time

        await group.kill("ns")
        network.heal("a1", "ns2")
        for _ in range(REMEMBERED_S - 10):
            await asyncio.sleep(1.0)
            assert await epochs_led(mq) == {"a1": epoch, "a0": epoch}  # the one that is dead may refuse a/0 for a/1 still

        await until_led(mq, {"a0": epoch})
        for _ in range(20):
            await asyncio.sleep(1.0)
            assert await epochs_led(mq) == {"a0": epoch}
        network.link("ns2", "a0").slowness = 1.0
        group.node("ns").start()
        network.heal("a0", "ns")
        await group.in_sync(mq, "a/0")
        await publish(mq, b"after")
        await asyncio.sleep(SETTLES_S)
        assert await bodies(mq, "a/1") == [b"before", b"after"]

    play(story, TWO_NAMESERVERS)


def test_a_copy_that_one_nameserver_alone_lists_is_read_by_its_name() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await begin(mq)
        group.world.network.cut("a1", "ns")
        await asyncio.sleep(REMEMBERED_S)
        await as_client(group, "reader", read)

    async def read(mq: AsyncClient) -> None:
        assert (await mq.reader("orders", 0).pull(0)).node == "a/0", "the first nameserver answers, and knows a master"
        assert (await mq.reader("orders", 0, node="a/1").pull(0)).node == "a/1"
        with pytest.raises(OutOfReach, match="a/7 does not answer: no nameserver knows it now"):
            await mq.reader("orders", 0, node="a/7").pull(0)

    play(story, TWO_NAMESERVERS)


def test_a_producer_whose_nameserver_has_not_heard_of_a_promotion_hears_of_it_from_another_one() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await begin(mq)
        group.world.network.cut("client", "ns")
        await mq.route("orders")
        group.world.network.heal("client", "ns")
        await promote_out_of_sight(group, mq, "a1", "a0")
        began = group.now

        async with mq.producer(on_weak="return") as producer:
            await producer.publish("orders", b"after", queue=0)

        assert group.now - began < 5
        assert await bodies(mq, "a/1") == [b"before", b"after"]

    play(story, TWO_NAMESERVERS)
