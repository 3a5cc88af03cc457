"""Many callers that each wait for the receipt of one message, through one producer that gathers what waits into batches."""

from bench.peers import postgres
from bench.ratios import Figure
from bench.replication.pairs import PairBench, alternate, rate, up

_CALLERS = 64


async def postgres_pair(bench: PairBench) -> list[Figure]:
    """Beside as many clients of PostgreSQL, each of which commits one row after the other, flushed on two machines' worth of disks."""
    each = max(1, bench.sizes.messages // (_CALLERS * 10))

    async def ours() -> float:
        return _CALLERS * each / await bench.product.publish_singly(tasks=_CALLERS, rounds=each)

    async with up(postgres.postgres_in(bench.folder / "postgres")) as peer:
        pairs = await alternate(bench, "64 callers, PostgreSQL", ours, lambda: peer.inserts(_CALLERS, 1, each), peer=peer)
    return [rate(f"64 callers of one message each, {postgres.NAME}", pairs, 1.0)]
