"""How long one caller waits and how much eight get through, flushed on both copies, beside what others need for the same."""

from bench.floor import floor_at, least_pair
from bench.peers import etcd, postgres, rabbitmq, rocketmq
from bench.peers.running import standing_still
from bench.product import BATCH
from bench.ratios import Figure, percentile
from bench.replication.pairs import PairBench, alternate, latency, rate, rest, up

_CALLERS = 8
_SMALL = 32


async def postgres_pair(bench: PairBench) -> list[Figure]:
    """A primary and a standby that both flush before a commit is answered: one caller, and batches."""
    calls, rounds, large_rounds = bench.sizes.calls, _rounds(bench, _SMALL), _rounds(bench, BATCH)
    async with up(postgres.postgres_in(bench.folder / "postgres")) as peer:
        one = await alternate(
            bench, "one caller, PostgreSQL", lambda: bench.product.call_times(calls), lambda: peer.one_caller(calls), peer=peer
        )
        small = await alternate(
            bench, "8 × 32, PostgreSQL", lambda: _rate(bench, _SMALL), lambda: peer.inserts(_CALLERS, _SMALL, rounds), peer=peer
        )
        large_rounds = _rounds(bench, BATCH)
        large = await alternate(
            bench, "8 × 256, PostgreSQL", lambda: _rate(bench), lambda: peer.copies(_CALLERS, BATCH, large_rounds), peer=peer
        )
    own = [times for times, _ in one]
    return [
        latency(f"one caller, {postgres.NAME}", one, 50, 1.8),
        latency(f"one caller, {postgres.NAME}", one, 99, None),
        Figure("one caller, p99 / p50", "×", [percentile(each, 99) / percentile(each, 50) for each in own], at_most=1.6),
        rate(f"8 × 32, {postgres.NAME}, 32 rows a commit", small, 1.2),
        rate(f"8 × 256, {postgres.NAME}, COPY of 256 rows", large, 1.2),
    ]


async def rabbitmq_three(bench: PairBench) -> list[Figure]:
    """A quorum queue on three nodes: one caller."""
    calls = bench.sizes.calls
    async with up(rabbitmq.rabbitmq_in(bench.folder / "rabbitmq")) as peer:
        one = await alternate(
            bench, "one caller, RabbitMQ", lambda: bench.product.call_times(calls), lambda: peer.one_caller(calls), peer=peer
        )
    return [latency(f"one caller, {rabbitmq.NAME}", one, 50, 1.0), latency(f"one caller, {rabbitmq.NAME}", one, 99, None)]


async def etcd_three(bench: PairBench) -> list[Figure]:
    """Three members: one caller."""
    calls = bench.sizes.calls
    async with up(etcd.etcd_in(bench.folder / "etcd")) as peer:
        one = await alternate(bench, "one caller, etcd", lambda: bench.product.call_times(calls), lambda: peer.one_caller(calls), peer=peer)
    return [latency(f"one caller, {etcd.NAME}", one, 50, 1.0), latency(f"one caller, {etcd.NAME}", one, 99, None)]


async def rocketmq_pair(bench: PairBench) -> list[Figure]:
    """A master that waits for its slave's page cache, with its own client: one caller, and batches."""
    calls, rounds, large_rounds = bench.sizes.calls, _rounds(bench, _SMALL), _rounds(bench, BATCH)
    async with up(rocketmq.rocketmq_in(bench.folder / "rocketmq")) as peer:
        one = await alternate(
            bench, "one caller, RocketMQ", lambda: bench.product.call_times(calls), lambda: peer.one_caller(calls), peer=peer
        )
        small = await alternate(
            bench, "8 × 32, RocketMQ", lambda: _rate(bench, _SMALL), lambda: peer.batches(_CALLERS, _SMALL, rounds), peer=peer
        )
        large = await alternate(
            bench, "8 × 256, RocketMQ", lambda: _rate(bench), lambda: peer.batches(_CALLERS, BATCH, large_rounds), peer=peer
        )
    name = rocketmq.SHORT
    return [
        latency(f"one caller, {name}", one, 50, None),
        latency(f"one caller, {name}", one, 99, 0.4),
        rate(f"8 × 32, {name}", small, 1.5),
        rate(f"8 × 256, {name}", large, 2.0),
    ]


async def least_code(bench: PairBench) -> list[Figure]:
    """The least code of the same bytes, `bench/least.py`: eight callers, and one, whose time shows what the same steps take at least."""
    record, rounds = await bench.product.record_bytes(), _rounds(bench, BATCH)
    frame, one_record = bytes(BATCH * record), bytes(record)
    many, one = [], []
    async with up(least_pair(bench.folder)) as address, floor_at(address) as floor:
        for _ in range(bench.sizes.pairs + 1):
            mine, times = await _rate(bench), await bench.product.call_times(bench.sizes.calls)
            await rest()
            with standing_still(bench.product.pids):
                seconds = await floor.publish(frame, tasks=_CALLERS, rounds=rounds)
                least = await floor.call_times(one_record, bench.sizes.calls)
            await rest()
            many.append((mine, _CALLERS * BATCH * rounds / seconds))
            one.append((times, least))
            bench.step("least code")
    name = "the least code of the same bytes"
    return [rate(f"8 × 256, {name}", many[1:], 0.6), latency(f"one caller, {name}", one[1:], 50, None)]  # the first ones warmed up


def _rounds(bench: PairBench, batch: int) -> int:
    return max(1, bench.sizes.messages // (_CALLERS * batch))


async def _rate(bench: PairBench, batch: int = BATCH) -> float:
    """Messages a second, until the queues of both nodes are built."""
    rounds = _rounds(bench, batch)
    seconds = await bench.product.publish(tasks=_CALLERS, rounds=rounds, batch=batch)
    return _CALLERS * batch * rounds / seconds
