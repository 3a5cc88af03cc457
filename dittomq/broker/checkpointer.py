"""What a broker writes down while it runs: the recovery point at least once a second, a checkpoint now and then."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from dittomq.commitlog.store import Store
from dittomq.doors.workers import Executor
from dittomq.offsets import PhysicalOffset

RECOVERY_POINT_PERIOD_S = 0.5
CHECKPOINT_PERIOD_S = 30.0
# A start after a kill reads the log from the last checkpoint on. Behind so much of it the next one comes sooner, after a rest.
CHECKPOINT_BYTES = 256 * 1024 * 1024
CHECKPOINT_REST_S = 2.0


@dataclass(frozen=True, slots=True)
class CheckpointEnds:
    """What is worth surviving a crash."""

    flushed: PhysicalOffset
    confirmed: PhysicalOffset


class Checkpointer:
    """Persists what a node knows; a crash loses at most the last second of it."""

    def __init__(
        self, store: Store, lane: Executor, known: Callable[[], CheckpointEnds], *, checkpoint_bytes: int = CHECKPOINT_BYTES
    ) -> None:
        self._store = store
        self._checkpoint_bytes = checkpoint_bytes
        self._lane = lane
        self._known = known
        self._kept: tuple[CheckpointEnds, int] | None = None  # with the store's generation: the ends may be the same after a cut

    async def run(self) -> None:
        """Persist until cancelled; raises StorageFailure when the disk fails."""
        rested_s, covered = 0.0, 0
        while True:
            await asyncio.sleep(RECOVERY_POINT_PERIOD_S)
            await self.keep()
            rested_s += RECOVERY_POINT_PERIOD_S
            applied = self._store.applied
            pause_s = CHECKPOINT_REST_S if applied - covered >= self._checkpoint_bytes else CHECKPOINT_PERIOD_S
            if rested_s >= pause_s and await self._lane.call(self._store.checkpoint_if_room):
                rested_s, covered = 0.0, applied

    async def keep(self) -> None:
        """Persist now what has changed."""
        known, generation = self._known(), self._store.generation
        if (known, generation) != self._kept:
            is_whole = await self._lane.call(
                lambda: self._store.persist_recovery_point(known.flushed, known.confirmed, generation=generation)
            )
            self._kept = (known, generation) if is_whole else None
