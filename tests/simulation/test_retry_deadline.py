"""How long a message is tried while its master is away: as docs/client.md says."""

import asyncio

import pytest

from dittomq.client import AsyncClient, NotStored, OutcomeUnknown, Producer
from tests.simulation.client_scenario import ClientTown, play
from tests.support.virtual_time import played_by


async def time_to_fail(town: ClientTown, orders: Producer, failure: type[Exception] = NotStored) -> float:
    began = town.now
    with pytest.raises(failure):
        await orders.publish("orders", b"away")
    return town.now - began


@played_by(play)
async def test_unsendable_message_fails_at_retry_s_or_soon_if_the_master_is_long_gone(town: ClientTown, mq: AsyncClient) -> None:
    """Soon, if the master has been away for retry_s already."""
    async with mq.producer(timeout_s=3, retry_s=10) as orders:
        await orders.publish("orders", b"there")
        town.kill("a-0")
        assert await time_to_fail(town, orders, OutcomeUnknown) == pytest.approx(13, abs=0.1), "it was sent"
        for _ in range(3):
            assert await time_to_fail(town, orders) < 1.1

        await asyncio.sleep(11)  # with nothing to send nobody looks
        assert await time_to_fail(town, orders) == pytest.approx(10, abs=0.1)
        assert await time_to_fail(town, orders) < 1.1
