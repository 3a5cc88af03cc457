"""Numbers for a master that leads without what unread ranges of its log hold: none that a message in them may have is given again.

records behind the last of them ▶ their queues go on as they are: those messages tell their numbers
every other queue ▶ goes on behind as many messages as the ranges may hold
a producer without a record behind them ▶ is forgotten: it begins anew, and nobody says that a sequence of it is not in the log
"""

from collections.abc import Iterable

from dittomq.commitlog.disk.log import Log
from dittomq.commitlog.disk.scanning import ReadablePages, scan_at, skip_damage
from dittomq.commitlog.queues.consume_queue import QueueIndex
from dittomq.commitlog.queues.index_checkpoint import OffsetReservation, QueueKey, most_messages
from dittomq.commitlog.queues.indexes import DerivedIndexes
from dittomq.commitlog.records.checksum_policy import ChecksumPolicy
from dittomq.commitlog.state.damage_map import DamagedRanges


def reserve_offsets(log: Log, seals: ChecksumPolicy, derived: DerivedIndexes, unread: DamagedRanges, *, others: Iterable[QueueKey]) -> int:
    """Change queues and producers in memory; returns how many offsets a queue leaps over. `others`: queues that may lie in there only."""
    index, behind = derived.index, unread.ranges[-1].end
    count = most_messages(unread.ranges)
    seen = _queues_from(log, seals, max(behind, derived.dispatch.applied))
    nexts = {key: index.queue(*key).next for key in {*index.queues, *others}}
    for key in nexts.keys() - seen:
        nexts[key] += 0 if _ends_behind(index, key, behind) else count
    index.apply_reservation(OffsetReservation(nexts, unread.ranges, low=unread.ranges[0].start))
    derived.producers.mark_unsure(behind)
    return count


def _queues_from(log: Log, seals: ChecksumPolicy, start: int) -> set[QueueKey]:
    """The queues of all whole records from `start` on."""
    source, found, at = ReadablePages(log), set[QueueKey](), start
    while at < log.end:
        batches, scan = scan_at(source, seals, at, log.end)
        found.update((run.topic, run.queue) for batch in batches for run in batch.runs)
        found.update((entry.topic, entry.queue) for entry in scan.entries)
        at = scan.end if scan.end > at and not scan.problem else skip_damage(source, seals, scan.end, log.end)
    return found


def _ends_behind(index: QueueIndex, key: QueueKey, behind: int) -> bool:
    """Whether the queue's newest message that is dispatched lies there."""
    queue = index.queue(*key)
    units = index.units(queue, queue.max - 1, 1) if queue.max else []
    return bool(units) and units[0][0] >= behind
