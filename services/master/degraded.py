"""Ranges of the log that were confirmed by fewer copies than asked. Kept in `dittomq/degraded`, durable before the confirming."""

import json
from collections.abc import Awaitable, Callable

from dittomq.commitlog.disk.storage import Storage, read_file, replace_file
from dittomq.errors import UnreadableStore
from dittomq.offsets import PhysicalOffset
from dittomq.replication.confirm import Confirm
from dittomq.replication.confirm_states import Degrade

PATH = "dittomq/degraded"
_MAX_RANGES = 1_000


class DegradedRanges:
    """Closed ranges, oldest first, and the open one. Beyond 1,000 the two oldest neighbours become one."""

    def __init__(self, closed: list[tuple[int, int]] | None = None) -> None:
        self._closed = closed if closed is not None else []
        self._open: int | None = None
        self.since_ms: int | None = None

    @property
    def is_open(self) -> bool:
        """Whether the group is degraded now."""
        return self._open is not None

    def begin(self, at: PhysicalOffset, now_ms: int) -> None:
        """From `at` on fewer copies confirm; nothing happens when that is so already."""
        if self._open is None:
            self._open, self.since_ms = at, now_ms

    def end(self, at: PhysicalOffset) -> None:
        """From `at` on enough copies confirm again."""
        if self._open is not None and self._open < at:
            self._closed.append((self._open, at))
            if len(self._closed) > _MAX_RANGES:
                (first, _), (_, last) = self._closed[:2]
                self._closed[:2] = [(first, last)]
        self._open = self.since_ms = None

    def total_bytes(self, confirmed: PhysicalOffset) -> int:
        """Bytes in all ranges."""
        open_bytes = 0 if self._open is None else max(0, confirmed - self._open)
        return sum(end - start for start, end in self._closed) + open_bytes

    def save(self, storage: Storage) -> None:
        """Write all down, durably."""
        text = json.dumps({"closed": self._closed, "open": self._open})
        replace_file(storage, PATH, text.encode())


async def write_down(ranges: DegradedRanges, confirm: Confirm, now_ms: int, persist: Callable[[DegradedRanges], Awaitable[None]]) -> None:
    """Begin or end the open range as the group is now, durably, and let Confirm go on in a range that was begun."""
    degrade = confirm.degrade
    if degrade is Degrade.RECORDING:
        ranges.begin(confirm.confirmed, now_ms)
    elif degrade is Degrade.NO:
        ranges.end(confirm.confirmed)
    await persist(ranges)
    if degrade is Degrade.RECORDING:  # what the group became meanwhile is not written down yet
        confirm.range_recorded()


def load_degraded(storage: Storage, end: PhysicalOffset) -> DegradedRanges:
    """What was written down; a range that was open when the last run ended is closed at the log's `end`."""
    if not storage.exists(PATH):
        return DegradedRanges()
    try:
        kept = json.loads(read_file(storage, PATH))
        ranges = DegradedRanges([(int(start), int(stop)) for start, stop in kept["closed"]])
        if kept["open"] is not None and int(kept["open"]) < end:
            ranges.begin(PhysicalOffset(int(kept["open"])), 0)
            ranges.end(end)
    except (ValueError, KeyError, TypeError) as problem:
        raise UnreadableStore(
            PATH, f"the record of degraded ranges is damaged ({problem}); move the file away to go on without it"
        ) from problem
    return ranges
