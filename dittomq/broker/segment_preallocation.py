"""Keeps the next segment of the log ready, on a lane of its own, so that no append waits for one to be made."""

import asyncio
from typing import Final

from dittomq.commitlog.segment_preallocation import Ahead
from dittomq.doors.workers import Executor

PREPARE_PERIOD_S: Final = 0.25


async def prepare_segments(ahead: Ahead, lane: Executor) -> None:
    """Prepare a segment whenever there is none, until cancelled; raises StorageFailure when the disk fails."""
    while True:
        if ahead.wants_segment:
            await lane.call(ahead.prepare_segment)
        await asyncio.sleep(PREPARE_PERIOD_S)
