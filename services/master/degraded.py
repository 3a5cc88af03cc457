"""Ranges of the log that were confirmed by fewer copies than asked. Kept in `dittomq/degraded`, durable before the confirming.

Messages are counted while a range is open and written down with it, at least once a second. After a kill the few that came later are
counted in the log; where that cannot be done their number is unknown, and stays so.
"""

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from dittomq.commitlog.disk.storage import Storage, read_file, replace_file
from dittomq.errors import UnreadableStore
from dittomq.offsets import PhysicalOffset
from dittomq.replication.confirm import Confirm
from dittomq.replication.confirm_states import Degrade

PATH = "dittomq/degraded"
_MAX_RANGES: Final = 1_000

CountMessages = Callable[[PhysicalOffset, PhysicalOffset], int | None]
"""How many messages lie in [start, end) of the log; None when that cannot be said."""


@dataclass(frozen=True, slots=True)
class _Range:
    """Bytes [start, end). `since_ms` is wall time. `messages` None: unknown."""

    start: int
    end: int
    since_ms: int | None = None
    messages: int | None = None


@dataclass(frozen=True, slots=True)
class _Open:
    """A range that has no end yet: `messages` were in it when `counted` of the term were confirmed."""

    start: PhysicalOffset
    since_ms: int | None
    messages: int | None
    counted: int


class DegradedRanges:
    """Closed ranges, oldest first, and the open one. Beyond 1,000 the two oldest neighbours become one."""

    def __init__(self, closed: list[_Range] | None = None, *, interrupted: bool = False) -> None:
        """`interrupted`: the newest range was open when the last run ended, and goes on if the group still is degraded."""
        self._closed = closed if closed is not None else []
        self._open: _Open | None = None
        self._interrupted = interrupted

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
        if self._interrupted and at <= self._closed[-1].end:
            before = self._closed.pop()
            self._open = _Open(PhysicalOffset(before.start), before.since_ms, before.messages, counted)
        self._interrupted = False

    def end(self, at: PhysicalOffset, counted: int) -> None:
        """From `at` on enough copies confirm again."""
        if self._open is not None and self._open.start < at:
            self._closed.append(_Range(self._open.start, at, self._open.since_ms, self.messages(counted)))
            if len(self._closed) > _MAX_RANGES:
                first, second = self._closed[:2]
                both = None if first.messages is None or second.messages is None else first.messages + second.messages
                self._closed[:2] = [_Range(first.start, second.end, first.since_ms, both)]
        self._open = None
        self._interrupted = False

    def enough_copies(self) -> None:
        """Enough copies are in sync: what the last run left open does not go on."""
        self._interrupted = False

    def total_bytes(self, confirmed: PhysicalOffset) -> int:
        """Bytes in all ranges."""
        open_bytes = 0 if self._open is None else max(0, confirmed - self._open.start)
        return sum(closed.end - closed.start for closed in self._closed) + open_bytes

    def messages(self, counted: int) -> int | None:
        """Messages in the open range when `counted` of this term are confirmed; None when there is none, or when it is unknown."""
        if self._open is None or self._open.messages is None:
            return None
        return self._open.messages + counted - self._open.counted

    def document(self, confirmed: PhysicalOffset, counted: int) -> bytes:
        """All of it, to be written down."""
        rows = [[closed.start, closed.end, closed.since_ms, closed.messages] for closed in self._closed]
        is_open = {
            "open": None if self._open is None else self._open.start,
            "since_ms": self.since_ms,
            "counted_to": confirmed,
            "messages": self.messages(counted),
        }
        return json.dumps({"closed": rows} | is_open).encode()


async def write_down(
    ranges: DegradedRanges, confirm: Confirm, counted: int, now_ms: int, persist: Callable[[bytes], Awaitable[None]]
) -> None:
    """Begin or end the open range as the group is now, durably, and let Confirm go on in a range that was begun.

    `counted` messages of the term are confirmed now.
    """
    degrade, confirmed = confirm.degrade, confirm.confirmed
    if degrade is Degrade.RECORDING:
        ranges.begin(confirmed, now_ms, counted)
    elif degrade is Degrade.NO:
        ranges.end(confirmed, counted)
    await persist(ranges.document(confirmed, counted))
    if degrade is Degrade.RECORDING:  # what the group became meanwhile is not written down yet
        confirm.range_recorded()


def save_degraded(storage: Storage, document: bytes) -> None:
    """Write the ranges down, durably."""
    replace_file(storage, PATH, document)


def load_degraded(storage: Storage, end: PhysicalOffset, count: CountMessages) -> DegradedRanges:
    """What was written down; a range that was open when the last run ended is closed at the log's `end`."""
    if not storage.exists(PATH):
        return DegradedRanges()
    try:
        kept = json.loads(read_file(storage, PATH))
        closed = [_closed(*row) for row in kept["closed"]]
        start, messages, counted_to = kept["open"], kept.get("messages"), kept.get("counted_to")
        if start is None or int(start) >= end:
            return DegradedRanges(closed)
        later = None if messages is None or counted_to is None else _later(PhysicalOffset(counted_to), end, count)
        total = None if later is None else int(messages) + later
        return DegradedRanges([*closed, _Range(int(start), end, kept.get("since_ms"), total)], interrupted=True)
    except (ValueError, KeyError, TypeError) as problem:
        raise UnreadableStore(
            PATH, f"the record of degraded ranges is damaged ({problem}); move the file away to go on without it"
        ) from problem


def _later(counted_to: PhysicalOffset, end: PhysicalOffset, count: CountMessages) -> int | None:
    if counted_to > end:  # the log was cut: what was counted is no longer all there
        return None
    return count(counted_to, end)


def _closed(start: int, end: int, since_ms: int | None = None, messages: int | None = None) -> _Range:
    """A range as it was written down; the first versions of this program wrote only where it lies."""
    return _Range(int(start), int(end), since_ms, messages)
