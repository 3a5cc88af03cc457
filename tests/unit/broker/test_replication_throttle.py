"""Ranges that other replicas fetch keep the limits of the streams: the clock is moved, and every byte is counted."""

import asyncio
import random
from collections.abc import AsyncGenerator

import pytest

from dittomq.broker.config import ReplicationTable
from dittomq.broker.replication_throttle import ReplicationThrottle
from dittomq.errors import InvalidField
from dittomq.offsets import Epoch, PhysicalOffset
from dittomq.replication.events import RangePiece
from tests.support.metadata_node import LoopClock, run
from tests.support.virtual_time import under

LIMIT = 1_000_000
PIECE = 100_000
SEED = 7

Sent = tuple[float, int]


async def pieces(count: int) -> AsyncGenerator[RangePiece, None]:
    chance = random.Random(SEED)
    for _ in range(count):
        yield RangePiece(PhysicalOffset(0), 0, bytes(chance.randint(1, PIECE)), Epoch(1), 1)


async def fetch(outflow: ReplicationThrottle, node: str, count: int) -> list[Sent]:
    """When each piece leaves for that node, and how large it is."""
    return [(LoopClock().monotonic(), len(piece.data)) async for piece in outflow.throttled(node, pieces(count))]


async def stream(outflow: ReplicationThrottle, node: str, count: int) -> list[Sent]:
    """The same for chunks of a stream, as its driver asks for its turns."""
    chance, turns, clock, sent = random.Random(SEED + 1), outflow.to(node), LoopClock(), []
    for _ in range(count):
        size = chance.randint(1, PIECE)
        while (due := turns.due(size, clock.monotonic())) > clock.monotonic():  # noqa: ASYNC110  # time is what it waits for
            await asyncio.sleep(due - clock.monotonic())
        sent.append((clock.monotonic(), size))
    return sent


def most_in_a_second(sent: list[Sent]) -> int:
    sent = sorted(sent)
    return max(sum(size for at, size in sent[first:] if at < sent[first][0] + 1) for first in range(len(sent)))


def lasted(sent: list[Sent]) -> float:
    return max(at for at, _ in sent) - min(at for at, _ in sent)


@under(run)
async def test_a_range_and_a_stream_to_one_replica_share_its_limit_and_use_it() -> None:
    outflow = ReplicationThrottle(ReplicationTable(max_bytes_per_s_per_slave=LIMIT), LoopClock())
    each = await asyncio.gather(fetch(outflow, "a/1", 150), stream(outflow, "a/1", 150), fetch(outflow, "a/1", 150))
    assert max(sent[5][0] for sent in each) < 2.0, "nobody waits until the others are done"
    sent = [*each[0], *each[1], *each[2]]
    assert most_in_a_second(sent) <= LIMIT + PIECE
    assert lasted(sent) <= sum(size for _, size in sent) / LIMIT + 1


@under(run)
async def test_a_caller_that_leaves_while_it_waits_leaves_its_turn_to_others() -> None:
    outflow = ReplicationThrottle(ReplicationTable(max_bytes_per_s_per_slave=LIMIT), LoopClock())
    left = asyncio.create_task(fetch(outflow, "a/1", 1_000))
    await asyncio.sleep(3.0)
    left.cancel()
    await asyncio.wait([left])
    sent = await fetch(outflow, "a/1", 50)
    assert sent[0][0] <= 3.0 + 2 * PIECE / LIMIT


def test_a_name_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidField, match="the limit is 128"):
        run(fetch(ReplicationThrottle(ReplicationTable(), LoopClock()), "a" * 129, 1))


def test_without_limits_nothing_waits() -> None:
    assert lasted(run(fetch(ReplicationThrottle(ReplicationTable(), LoopClock()), "a/1", 100))) == 0.0
