"""Limits of the product that no setting says. They vary with the seed, so that small runs meet what otherwise only large ones do."""

import contextlib
import random
from collections.abc import Iterator
from dataclasses import dataclass

from dittomq.broker import checkpointer
from dittomq.commitlog import append
from dittomq.commitlog.queues import producer_state
from dittomq.commitlog.records import batch_index, bulk
from dittomq.replication import throttle
from services.master import log_tail_cache
from tests.simulation.bugs.patches import Patches

_CHECKPOINT_S = (2.0, 30.0)
_LOWERED = 0.35  # of the runs: few messages are encoded and taken in by columns
_SMALL_CHUNKS = 0.25


@dataclass(frozen=True, slots=True)
class Limits:
    """`bulk_from`: so many messages of a frame are encoded at once; `columns_from`: so many records of a chunk are taken in at once.

    `producers`: so many are remembered. `chunk_bytes`: more goes to a slave in parts, each of whole records.
    """

    bulk_from: int = bulk.LEAST_MESSAGES
    columns_from: int = batch_index.FEW
    checkpoint_s: float = checkpointer.CHECKPOINT_PERIOD_S
    chunk_bytes: int = throttle.MOST_CHUNK_BYTES
    producers: int = producer_state.MAX_PRODUCERS

    def __str__(self) -> str:
        columns = f"columns from {self.bulk_from} messages and {self.columns_from} records on"
        return f"{columns}, checkpoints every {self.checkpoint_s:.1f} s, chunks of {self.chunk_bytes:,} bytes, {self.producers:,} producers"

    @contextlib.contextmanager
    def in_force(self) -> Iterator[None]:
        """Let the product have these limits."""
        patches = Patches()
        patches.put(append, "LEAST_MESSAGES", lambda _: self.bulk_from)
        patches.put(batch_index, "FEW", lambda _: self.columns_from)
        patches.put(checkpointer, "CHECKPOINT_PERIOD_S", lambda _: self.checkpoint_s)
        patches.put(throttle, "LEAST_CHUNK_BYTES", lambda honest: min(honest, self.chunk_bytes))
        for module in (throttle, log_tail_cache):
            patches.put(module, "MOST_CHUNK_BYTES", lambda _: self.chunk_bytes)
        patches.put(producer_state, "MAX_PRODUCERS", lambda _: self.producers)
        try:
            yield
        finally:
            patches.undo()


def limits(chance: random.Random) -> Limits:
    """Those of one run; of producers as many as ever are remembered."""
    usual = Limits()
    bulk_from, columns_from = usual.bulk_from, usual.columns_from
    if chance.random() < _LOWERED:
        bulk_from, columns_from = chance.choice((2, 3, 12)), chance.choice((2, 5, 20))
    chunk_bytes = chance.choice((1_024, 4_096, 16_384)) if chance.random() < _SMALL_CHUNKS else usual.chunk_bytes
    return Limits(bulk_from, columns_from, chance.uniform(*_CHECKPOINT_S), chunk_bytes)
