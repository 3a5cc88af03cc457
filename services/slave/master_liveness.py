"""Whether the master is there: when it was heard, how long it has been gone, and where its log ends, as it last said."""

from dittomq.doors.clock import Clock
from dittomq.offsets import PhysicalOffset
from dittomq.replication.active_time import ActiveTime
from dittomq.replication.lag import LagHistory
from services.slave.config import SlaveConfig


class MasterLiveness:
    """What one slave knows of that; its streams tell, one after the other.

    Time that this process slept through counts for two seconds at most. Ask `is_gone` or `silent_s` at least once a second.
    """

    def __init__(self, config: SlaveConfig, clock: Clock) -> None:
        self._clock = clock
        self._silence_s = config.failover.peer_timeout_ms / 1000
        self._gone_s = config.reading.master_timeout_ms / 1000
        self._time = ActiveTime(clock.monotonic())
        self._received_at = 0.0  # of the running time, as is
        self._left_at = 0.0
        self._end: PhysicalOffset | None = None  # where its log ends, as it last told in this session
        self.ends = LagHistory()
        self._confirmed_ends = LagHistory()
        self.is_there = False  # it was heard on the stream that goes on
        self.was_useless = False  # the last stream: nothing was heard on it, or nothing any more

    def named(self) -> None:
        """Another master was named: it has its time to be heard."""
        self._received_at = self._now()

    def received(self) -> None:
        """The master said something."""
        self.is_there = True
        self._received_at = self._now()

    def ends_at(self, end: PhysicalOffset) -> None:
        """It says where its log ends."""
        self._end = end

    def confirmed_at(self, confirmed: PhysicalOffset, silent_s: float) -> None:
        """It says that so much was confirmed when it last knew that it leads, which is so many seconds ago."""
        self._confirmed_ends.mark(confirmed, self._clock.monotonic() - silent_s)

    def staleness_s(self, position: PhysicalOffset) -> float | None:
        """How long ago, at most, nothing was confirmed behind `position`; None when no master has told.

        Of the time that the master's word was on its way nothing is known. It counts as none.
        """
        return self._confirmed_ends.lag_s(position, PhysicalOffset(position + 1), self._clock.monotonic())

    def session_expired(self) -> None:
        """What it told of its log's end is over."""
        self._end = None

    def stream_ended(self) -> None:
        """From here on it is gone, if it was there."""
        self.was_useless = not self.is_live
        if self.is_there:
            self.is_there = False
            self._left_at = self._now()

    @property
    def silent_s(self) -> float:
        """Seconds since it was heard, or since it was named, or since this node began."""
        return self._now() - self._received_at

    @property
    def is_live(self) -> bool:
        """Whether there is a stream of its, and something was heard on it within the time of silence."""
        return self.is_there and self.silent_s < self._silence_s

    @property
    def is_gone(self) -> bool:
        """Whether there was no stream of its for `master_timeout_ms`."""
        return not self.is_there and self._now() - self._left_at >= self._gone_s

    @property
    def reported_end(self) -> PhysicalOffset | None:
        """Where its log ends now; None without a stream, and once several heartbeats are missing."""
        return self._end if self.silent_s <= self._silence_s / 2 else None

    def mark(self) -> None:
        """To be done twice a second: remember where its log ends."""
        if (end := self.reported_end) is not None:
            self.ends.mark(end, self._clock.monotonic())

    def _now(self) -> float:
        return self._time.at(self._clock.monotonic())
