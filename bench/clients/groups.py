"""A consumer group: how much a member gets through beside readers that only read, and how long a message takes from publish to ack()."""

import asyncio
import itertools
import time

from bench.product import TOPIC
from bench.ratios import Figure, percentile
from bench.replication.pairs import PairBench, rate, rest
from dittomq.client import Consumer, Producer

_names = itertools.count(1)
_WAIT_S = 60.0


async def member_beside_readers(bench: PairBench) -> list[Figure]:
    """One member that acknowledges each message, beside one reader for each queue, of all that lies in the topic."""
    mq, sizes = bench.product.mq, bench.sizes
    await bench.product.publish(tasks=8, rounds=max(1, sizes.messages // (8 * 256)))
    queues = await mq.queues(TOPIC)

    async def read(broker: str, queue: int) -> int:
        reader, position, count = mq.reader(TOPIC, queue, broker=broker), 0, 0
        while (page := await reader.pull(position)).next_offset > position:
            position, count = page.next_offset, count + len(page.messages)
        return count

    async def read_all() -> tuple[int, float]:
        began = time.perf_counter()
        async with asyncio.TaskGroup() as tasks:
            reading = [tasks.create_task(read(*queue)) for queue in queues]
        return sum(task.result() for task in reading), time.perf_counter() - began

    async def consume(count: int) -> float:
        group = f"bench-{next(_names)}"
        await mq.admin.create_group(group)
        async with mq.consumer(group, [TOPIC]) as messages, asyncio.timeout(_WAIT_S):
            await (await anext(messages)).ack()  # it has joined
            began = time.perf_counter()
            for _ in range(count - 1):
                await (await anext(messages)).ack()
            return (count - 1) / (time.perf_counter() - began)

    pairs = []
    for _ in range(sizes.pairs + 1):
        count, seconds = await read_all()
        await rest()
        pairs.append((await consume(count), count / seconds))
        await rest()
        bench.step("member")
    return [rate("one member of a group, a reader for each queue", pairs[1:], 0.7)]


async def publish_to_ack(bench: PairBench) -> list[Figure]:
    """One message at a time: until its receipt, and until a member has acknowledged it."""
    mq, calls = bench.product.mq, bench.sizes.calls
    group, topic = f"bench-{next(_names)}", "bench-ack"
    await mq.admin.create_topic(topic, 1)
    await mq.admin.create_group(group)
    whole, published = [], []
    async with mq.producer() as producer, mq.consumer(group, [topic]) as messages, asyncio.timeout(_WAIT_S * (bench.sizes.pairs + 1)):
        await producer.publish(topic, b"first")
        await (await anext(messages)).ack()
        for _ in range(bench.sizes.pairs + 1):
            times = [await _one_message(producer, messages, topic) for _ in range(calls)]
            whole.append(percentile([each * 1_000 for each, _ in times], 50))
            published.append(percentile([each * 1_000 for _, each in times], 50))
            bench.step("ack")
    return [Figure("publish to ack(), publish alone, p50", "ms", whole[1:], published[1:], at_most=2.0)]


async def _one_message(producer: Producer, messages: Consumer, topic: str) -> tuple[float, float]:
    """Seconds until it is acknowledged by the member, and until its receipt."""
    began = time.perf_counter()
    async with asyncio.TaskGroup() as tasks:
        receiving = tasks.create_task(messages.__anext__())
        await producer.publish(topic, b"x" * 1024)
        published = time.perf_counter()
    await receiving.result().ack()
    return time.perf_counter() - began, published - began
