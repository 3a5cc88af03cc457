"""Which bytes of two copies are compared next, and how far they are verified. Pure: the driver digests and carries the answers.

    handshake ─▶ the newest bytes, and all that is not known to be confirmed ─▶ stream ─▶ the rest, a step at a time, the oldest first

Nobody waits for old bytes to be read: a stream begins when its newest ones are equal. Each session compares anew, from its start on, the
segment in which the proof of the one before ended. Only what was compared without a gap from where both begin counts as proven.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from dittomq.copies import LEAF_BYTES
from dittomq.offsets import PhysicalOffset
from dittomq.replication.events import RangeDigest

Range = tuple[PhysicalOffset, PhysicalOffset]

NEWEST_RANGES: Final = 63
"""Each lies in one segment. One more range in a handshake is one that was found to differ."""

_ANSWER_BEATS: Final = 60  # so many heartbeats a slave has to read what it is asked: five minutes, unless they are set otherwise


class Answer(Enum):
    """What a slave's digest says."""

    NOTHING = "it answers nothing that was asked"
    EQUAL = "the copies digest alike"
    DIFFERENT = "the copies differ"


@dataclass(frozen=True, slots=True)
class Extent:
    """A log as its handshake tells of it; `verified` is where it was last verified against a master's."""

    begin: PhysicalOffset
    end: PhysicalOffset
    confirmed: PhysicalOffset
    verified: PhysicalOffset
    segment_bytes: int


def handshake_ranges(log: Extent, step_bytes: int) -> list[Range]:
    """What a handshake digests, newest first: `step_bytes`, and what is not known to be confirmed; of many segments the newest."""
    floor = max(log.begin, min(log.confirmed, log.end - step_bytes))
    ranges: list[Range] = []
    end = log.end
    while end > floor and len(ranges) < NEWEST_RANGES:
        start = PhysicalOffset(max(floor, _segment_start(end - 1, log.segment_bytes)))
        ranges.append((start, end))
        if start <= log.verified:
            break
        end = start
    return ranges


class ConsistencyCheck:
    """What a master's session with one slave has compared. One range is under way at a time, from our reading to the slave's answer.

    `verified`: from where both logs begin, they are equal up to there.
    """

    def __init__(self, *, begin: PhysicalOffset, verified: PhysicalOffset, segment_bytes: int, step_bytes: int) -> None:
        """Both logs hold what lies between `begin` and `verified`, which was proven before."""
        self.verified = verified
        self.is_under_way = False
        self._begin = begin
        self._compared = PhysicalOffset(max(begin, _segment_start(verified, segment_bytes)))
        self._segment_bytes = segment_bytes
        self._step_bytes = step_bytes
        self._in_vain = False
        self._around = False
        self._ours: RangeDigest | None = None  # what the slave has yet to answer
        self._beats_left = 0

    def lets_pass(self) -> bool:
        """Whether a heartbeat that is due asks nothing: we still read, or the slave does. It has its time for that, slow as its disk is."""
        if self._ours is not None:
            self._beats_left -= 1
        return self.is_under_way or self._beats_left > 0

    def has_more_than_a_step(self, flushed: PhysicalOffset) -> bool:
        """Whether comparing is to go on before the next heartbeat is due: the slave answers, and has flushed more than is compared next."""
        return not (self.is_under_way or self._in_vain) and self._step()[1] < flushed

    def begin_step(self, flushed: PhysicalOffset) -> Range:
        """What is compared next of what the slave has flushed; start == end when there is nothing.

        Where one copy is damaged nothing can be compared: then the newest bytes take turns with that place, so that differences are found.
        """
        self._around, self._in_vain = self._in_vain and not self._around, True
        self.is_under_way = True
        start, end = self._step()
        if self._around or start >= flushed:
            reach = self._step_bytes if self._around else min(LEAF_BYTES, self._step_bytes)
            start, end = max(self._begin, _segment_start(flushed - 1, self._segment_bytes), flushed - reach), flushed
        end = min(end, flushed)
        return PhysicalOffset(min(start, end)), PhysicalOffset(end)

    def digested(self, ours: RangeDigest | None, begin: PhysicalOffset) -> None:
        """Our digest of what is compared, None when it is not whole here, and where our log begins now."""
        self.is_under_way, self._ours = False, ours
        self._beats_left = _ANSWER_BEATS if ours is not None else 0
        self.pass_dropped(begin)

    def pass_dropped(self, begin: PhysicalOffset) -> None:
        """One of the logs begins there by now: what lies before it cannot be compared any more."""
        self._begin = max(self._begin, begin)
        self._compared = max(self._compared, begin)
        self.verified = max(self.verified, begin)

    def reverify_from(self, start: PhysicalOffset) -> None:
        """The other copy was damaged from there on: it is compared again, from the segment on, whatever is under way."""
        self._ours, self._beats_left, self._in_vain = None, 0, False
        self.verified = max(self._begin, min(self.verified, start))
        self._compared = PhysicalOffset(max(self._begin, min(self._compared, _segment_start(start, self._segment_bytes))))

    def answered(self, theirs: RangeDigest) -> Answer:
        """What the slave's digest says of the range that was sent last; an empty one that it does not hold all of it whole."""
        ours = self._ours
        if ours is None or (ours.start, ours.end) != (theirs.start, theirs.end):
            return Answer.NOTHING
        self._ours, self._beats_left = None, 0
        if not theirs.digest:
            return Answer.NOTHING
        self._in_vain = False
        if ours.digest != theirs.digest:
            return Answer.DIFFERENT
        if ours.start <= self._compared:
            self._compared = max(self._compared, ours.end)
            self.verified = max(self.verified, ours.end)
        return Answer.EQUAL

    def _step(self) -> tuple[int, int]:
        start = self._compared
        return start, min(start + self._step_bytes, _segment_start(start, self._segment_bytes) + self._segment_bytes)


def _segment_start(position: int, segment_bytes: int) -> int:
    return position - position % segment_bytes
