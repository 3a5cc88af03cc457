"""Repairs of a node, and the lost messages that their reports name."""

import asyncio
import random
from collections.abc import Sequence

from dittomq.broker.repair import Repairer, RepairerParts, RepairSource
from dittomq.commitlog.records.decoding import decode
from dittomq.commitlog.store import Store
from dittomq.copies import RangeOutcome, RepairReport, RepairRequest
from tests.support.inline_lane import InlineLane
from tests.support.record_damage import entries


def repair(store: Store, order: RepairRequest, peers: Sequence[RepairSource] = ()) -> RepairReport:
    async def found() -> Sequence[RepairSource]:
        return peers

    lane = InlineLane()
    return asyncio.run(Repairer(RepairerParts("a/1", store, lane, lane, lane, random.Random(1)), found).repair(order))


def messages_of(log: bytes, start: int, end: int) -> dict[tuple[str, int], list[int]]:
    """By queue, the offsets of the messages that lie there."""
    found: dict[tuple[str, int], list[int]] = {}
    for low, high in entries(log):
        if start <= low < end:
            record = decode(log[low:high], low)
            found.setdefault((record.topic, record.queue), []).append(record.queue_offset)
    return found


def named(outcome: RangeOutcome) -> dict[tuple[str, int], list[int]]:
    found: dict[tuple[str, int], list[int]] = {}
    for run in outcome.messages:
        found.setdefault((run.topic, run.queue), []).extend(range(run.first, run.end))
    return found
