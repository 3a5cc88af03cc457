"""What a disk gives after all of a damaged range, behind a record that it does not give."""

from collections.abc import Iterator
from itertools import groupby
from typing import Final

from dittomq.commitlog.disk.scanning import Source, scan_at, scan_singly, skip_damage
from dittomq.commitlog.disk.storage import speaks_of_bytes
from dittomq.commitlog.queues.queue_index import QueueIndex
from dittomq.commitlog.records.foreign import NotRead
from dittomq.commitlog.records.format import Entry
from dittomq.commitlog.records.seals import Seals

_NEAR_BYTES: Final = 4 * 1024 * 1024
"""How far behind a damaged record is looked: writers wait meanwhile."""


def whole_behind(source: Source, seals: Seals, index: QueueIndex, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Runs of whole records near the one at `start` that is not, where they begin, and their bytes.

    Only what queues name there: the body of a damaged record may hold whole ones, too.
    """
    stop = min(end, start + _NEAR_BYTES)
    while (start := skip_damage(source, seals, start, stop)) < stop:
        try:
            _, scan = scan_at(source, seals, start, stop, scan_singly)
        except NotRead:
            return
        if not scan.entries:
            return
        data = source.read(start, scan.end - start)
        for is_named, run in groupby(scan.entries, lambda entry: _names(index, entry)):
            first, *rest = run
            if is_named:
                yield first.start, data[first.start - start : (rest[-1] if rest else first).end - start]
        start = scan.end - 1


def _names(index: QueueIndex, entry: Entry) -> bool:
    """Whether the queues have the record where it lies."""
    queue = index.queues.get((entry.topic, entry.queue))
    if queue is None or not queue.min <= entry.queue_offset < queue.max:
        return False
    try:
        units = index.units(queue, entry.queue_offset, 1)
    except OSError as error:
        if not speaks_of_bytes(error):
            raise
        return False
    return bool(units) and units[0][0] == entry.start
