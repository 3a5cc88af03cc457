"""Ranges of the log that were confirmed by fewer copies than asked, as their master records them: durable before the confirming.

Messages are counted while a range is open and written down with it, at least once a second. After a kill the few that came later are
counted in the log; where that cannot be done their number is unknown, and stays so.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from dittomq.broker import degraded_file
from dittomq.commitlog.disk import side_file
from dittomq.commitlog.disk.storage import Storage
from dittomq.errors import DiskFull
from dittomq.offsets import PhysicalOffset
from dittomq.replication.confirm import Confirm
from dittomq.replication.confirm_states import Degrade
from dittomq.replication.degraded import Degraded, DegradedRange, bounded, clipped, total_bytes, united

CountMessages = Callable[[PhysicalOffset, PhysicalOffset], int | None]
"""How many messages lie in [start, end) of the log; None when that cannot be said."""


@dataclass(frozen=True, slots=True)
class _Open:
    """A range that has no end yet: `messages` were in it when `counted` of the term were confirmed."""

    start: PhysicalOffset
    since_ms: int | None
    messages: int | None
    counted: int


class DegradedRanges:
    """Closed ranges, oldest first, and the open one. Beyond 1,000 the two oldest neighbours become one.

    `told` is what slaves are to know: durable, and the same object until it changes.
    """

    def __init__(self, closed: Degraded = (), *, interrupted: bool = False) -> None:
        """`interrupted`: the newest range was open when the last run ended, and goes on if the group still is degraded."""
        self._closed = list(closed)
        self._open: _Open | None = None
        self._interrupted = interrupted
        self.told = closed

    @property
    def is_open(self) -> bool:
        """Whether the group is degraded now."""
        return self._open is not None

    @property
    def since_ms(self) -> int | None:
        """Since when the group is degraded; None when it is not, or when that was not written down."""
        return None if self._open is None else self._open.since_ms

    def begin(self, at: PhysicalOffset, now_ms: int, counted: int) -> None:
        """From `at` on fewer copies confirm; `counted` messages of this term were confirmed before. Nothing happens to an open range."""
        if self._open is not None:
            return
        self._open = _Open(at, now_ms, 0, counted)
        newest = self._closed[-1] if self._closed else None
        if self._interrupted and newest is not None and newest.end is not None and at <= newest.end:
            self._closed.pop()
            self._open = _Open(newest.start, newest.since_ms, newest.messages, counted)
        self._interrupted = False

    def end(self, at: PhysicalOffset, counted: int) -> None:
        """From `at` on enough copies confirm again."""
        if self._open is not None and self._open.start < at:
            self._closed = bounded([*self._closed, DegradedRange(self._open.start, at, self._open.since_ms, self.messages(counted))])
        self._open = None
        self._interrupted = False

    def enough_copies(self) -> None:
        """Enough copies are in sync: what the last run left open does not go on."""
        self._interrupted = False

    def total_bytes(self, confirmed: PhysicalOffset) -> int:
        """Bytes in all ranges."""
        return total_bytes(self._all(None), confirmed)

    def tell(self) -> None:
        """Slaves are to know the ranges as they are now; they are durable."""
        ranges = self._all(None)
        if ranges != self.told:
            self.told = ranges

    def messages(self, counted: int) -> int | None:
        """Messages in the open range when `counted` of this term are confirmed; None when there is none, or when it is unknown."""
        if self._open is None or self._open.messages is None:
            return None
        return self._open.messages + counted - self._open.counted

    def document(self, confirmed: PhysicalOffset, counted: int) -> bytes:
        """All of it, to be written down."""
        return degraded_file.document(self._all(self.messages(counted)), confirmed)

    def _all(self, messages: int | None) -> Degraded:
        """With the open range, in which there are so many messages. It may begin before others ended, where confirmed was last known."""
        going_on = () if self._open is None else (DegradedRange(self._open.start, None, self._open.since_ms, messages),)
        return united(self._closed, going_on)


async def write_down(
    ranges: DegradedRanges, confirm: Confirm, counted: int, now_ms: int, persist: Callable[[bytes], Awaitable[None]]
) -> bool:
    """Begin or end the open range as the group is now, durably; whether Confirm may go on because one was begun.

    `counted` messages of the term are confirmed now.
    """
    degrade, confirmed = confirm.degrade, confirm.confirmed
    if degrade is Degrade.RECORDING:
        ranges.begin(confirmed, now_ms, counted)
    elif degrade is Degrade.NO:
        ranges.end(confirmed, counted)
    await persist(ranges.document(confirmed, counted))
    ranges.tell()
    return degrade is Degrade.RECORDING  # what the group became meanwhile is not written down yet


def add_degraded(node: str, storage: Storage, others: Degraded) -> None:
    """Durably add what another copy of the log knows of it. Raises DiskFull before anything is changed."""
    written = degraded_file.load(storage)
    both = united(written.ranges, others)
    if both != written.ranges and not degraded_file.save_if_room(storage, document := degraded_file.document(both, None)):
        raise DiskFull(node, storage.free_bytes(), side_file.ROOM_BYTES + len(document))


def load_degraded(storage: Storage, end: PhysicalOffset, count: CountMessages) -> DegradedRanges:
    """What was written down; a range that was open when the last run ended is closed at the log's `end`."""
    written = degraded_file.load(storage)
    ranges = clipped(written.ranges, end)
    if not ranges or ranges[-1].end is not None:
        return DegradedRanges(ranges)
    newest, counted_to = ranges[-1], written.counted_to
    later = None if newest.messages is None or counted_to is None else _later(counted_to, end, count)
    total = None if later is None or newest.messages is None else newest.messages + later
    return DegradedRanges((*ranges[:-1], replace(newest, end=end, messages=total)), interrupted=True)


def _later(counted_to: PhysicalOffset, end: PhysicalOffset, count: CountMessages) -> int | None:
    if counted_to > end:  # the log was cut: what was counted is no longer all there
        return None
    return count(counted_to, end)
