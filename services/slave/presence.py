"""Whether the master is there: when it was heard, how long it has been gone, and where its log ends, as it last said."""

from typing import Final

from dittomq.doors.clock import Clock
from dittomq.offsets import PhysicalOffset
from dittomq.replication.measuring import EndHistory
from dittomq.replication.running import RunningTime
from services.slave.config import SlaveConfig

_HEARTBEATS: Final = 1.5


class MasterPresence:
    """What one slave knows of that; its streams tell, one after the other. Ask `is_gone` at least once a second."""

    def __init__(self, config: SlaveConfig, clock: Clock) -> None:
        self._clock = clock
        self._silence_s = config.replication.silence_ms / 1000
        self._told_s = _HEARTBEATS * config.replication.heartbeat_ms / 1000
        self._gone_s = config.reading.master_gone_ms / 1000
        self._heard_at = clock.monotonic()
        self._time = RunningTime(self._heard_at)
        self._left_at = 0.0  # of the running time
        self._end: PhysicalOffset | None = None  # where its log ends, as it last told in this session
        self.ends = EndHistory()
        self.is_there = False  # it was heard on the stream that goes on
        self.was_useless = False  # the last stream: nothing was heard on it, or nothing any more

    def dialled(self) -> None:
        """A stream begins; nothing was heard on it yet."""
        self._heard_at = self._clock.monotonic()

    def heard(self) -> None:
        """The master said something."""
        self.is_there = True
        self._heard_at = self._clock.monotonic()

    def ends_at(self, end: PhysicalOffset) -> None:
        """It says where its log ends."""
        self._end = end

    def session_ended(self) -> None:
        """What it told of its log's end is over."""
        self._end = None

    def stream_ended(self) -> None:
        """From here on it is gone, if it was there."""
        now = self._clock.monotonic()
        self.was_useless = not self.is_there or now - self._heard_at >= self._silence_s
        if self.is_there:
            self.is_there = False
            self._left_at = self._time.at(now)

    @property
    def is_gone(self) -> bool:
        """Whether there was no stream of its for `master_gone_ms`, not counting what this process slept through."""
        gone_s = self._time.at(self._clock.monotonic()) - self._left_at
        return not self.is_there and gone_s >= self._gone_s

    @property
    def told_end(self) -> PhysicalOffset | None:
        """Where its log ends now; None without a stream, and once it is silent for longer than between heartbeats."""
        return self._end if self._clock.monotonic() - self._heard_at <= self._told_s else None

    def mark(self) -> None:
        """To be done twice a second: remember where its log ends."""
        if (end := self.told_end) is not None:
            self.ends.mark(end, self._clock.monotonic())
