"""⑦ Releases producers: each waits for a level to reach the end of its batch.

Waiters of one level stand in the order of their ends, because batches are written in that order and a level's end only
grows; so a moved position releases from the front, without polling and without one waiter holding up another level.
"""

import asyncio
from bisect import insort
from collections import deque
from dataclasses import dataclass, field

from dittomq.doors.clock import Clock
from dittomq.errors import DittoError
from dittomq.message import Ack, PutStatus
from dittomq.offsets import PhysicalOffset
from dittomq.replication.confirmed_offset import REPLICA_LEVELS, ConfirmedOffset

_PAUSE_S = 0.25
_GRACE_S = 1.0
_TIDY_AT = 1_024


@dataclass(order=True, slots=True)
class _Waiter:
    """`done` with None: its time is up. One timer each: `asyncio.timeout` costs four times as much, and every batch waits here."""

    end: PhysicalOffset
    start: PhysicalOffset = field(compare=False)
    done: "asyncio.Future[PutStatus | None]" = field(compare=False)


class AckWaiters:
    """Who waits for which level."""

    def __init__(self, confirmed: ConfirmedOffset, clock: Clock) -> None:
        self._confirmed = confirmed
        self._clock = clock
        self._waiters: dict[Ack, deque[_Waiter]] = {level: deque() for level in Ack}
        self._tidy_at = dict.fromkeys(Ack, _TIDY_AT)
        self._closed: DittoError | None = None  # why no caller is answered from now on

    async def wait(self, start: PhysicalOffset, end: PhysicalOffset, level: Ack, timeout_s: float) -> PutStatus:
        """Return PUT_OK when [start, end) reaches `level`, otherwise why it did not within `timeout_s`. Raises what `close` was told."""
        if self._closed is not None:
            raise self._closed
        status = self._settled(start, end, level)
        if status is not None:
            return status
        loop = asyncio.get_running_loop()
        waiter = _Waiter(end, start, loop.create_future())
        line = self._line(level)
        if line and line[-1].end > end:
            insort(line, waiter)  # the receipt of an earlier try: its end lies further back
        else:
            line.append(waiter)
        began = self._clock.monotonic()
        late = loop.call_later(timeout_s, self._expire, waiter, began + timeout_s)
        try:
            status = await waiter.done
            return self._in_the_end(waiter, level, began) if status is None else status
        finally:
            late.cancel()
            waiter.done.cancel()

    @property
    def kept(self) -> int:
        """How many waiters are kept, with those whose callers have left."""
        return sum(map(len, self._waiters.values()))

    def moved(self) -> None:
        """A position or the members changed: release those that have what they wait for."""
        for level, line in self._waiters.items():
            while line:
                if line[0].done.done():
                    line.popleft()
                    continue
                status = self._settled(line[0].start, line[0].end, level)
                if status is None:
                    break
                line.popleft().done.set_result(status)

    def close(self, why: DittoError) -> None:
        """End every waiting call, and every later one, with `why`. What is stored stays so: the outcome is unknown to the caller."""
        self._closed = self._closed or why
        for line in self._waiters.values():
            for waiter in line:
                if not waiter.done.done():
                    waiter.done.set_exception(self._closed)
                    waiter.done.exception()  # looked at: its caller may have left
            line.clear()

    def _line(self, level: Ack) -> deque[_Waiter]:
        """Who waits for that level. Those that have left go when a position moves past them, or from here when they are many."""
        line = self._waiters[level]
        if len(line) >= self._tidy_at[level]:
            line = self._waiters[level] = deque(waiter for waiter in line if not waiter.done.done())
            self._tidy_at[level] = max(_TIDY_AT, 2 * len(line))
        return line

    def _expire(self, waiter: _Waiter, deadline: float) -> None:
        """Its time is up; after a pause of the process, acks that are already there count before the deadline counts."""
        if self._clock.monotonic() - deadline >= _PAUSE_S:
            asyncio.get_running_loop().call_later(_GRACE_S, _end, waiter)
        else:
            _end(waiter)

    def _in_the_end(self, waiter: _Waiter, level: Ack, began: float) -> PutStatus:
        """Its time is up; what has come since, in the same turn of the loop, counts."""
        if self._closed is not None:
            raise self._closed
        return self._settled(waiter.start, waiter.end, level) or self._give_up(waiter.end, level, began)

    def _settled(self, start: PhysicalOffset, end: PhysicalOffset, level: Ack) -> PutStatus | None:
        confirmed = self._confirmed
        if confirmed.reaches(level, start, end):
            return PutStatus.PUT_OK
        if level in REPLICA_LEVELS and confirmed.confirmed >= end and (confirmed.is_short_of_copies or confirmed.was_left_out(start, end)):
            return PutStatus.SLAVE_NOT_AVAILABLE
        return None

    def _give_up(self, end: PhysicalOffset, level: Ack, began: float) -> PutStatus:
        flushed_needed = level in (Ack.MASTER_FLUSHED, Ack.REPLICA_FLUSHED)
        if flushed_needed and self._confirmed.level_end(Ack.MASTER_FLUSHED) < end:
            return PutStatus.FLUSH_DISK_TIMEOUT
        self._confirmed.deadline_missed(end, since=began, now=self._clock.monotonic())
        return PutStatus.FLUSH_SLAVE_TIMEOUT


def _end(waiter: _Waiter) -> None:
    if not waiter.done.done():
        waiter.done.set_result(None)
