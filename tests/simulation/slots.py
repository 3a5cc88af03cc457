"""What masters know of their slaves' logs, as the wire tells it, and what retention may therefore drop."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_SETTLES_S = 1.0  # what a slave said that long ago has been taken in


@dataclass(frozen=True, slots=True)
class _Heard:
    """What a slave said last that it has flushed, and when, to which life of which master."""

    flushed: int
    at: float
    master: tuple[str, int]


@dataclass(frozen=True, slots=True)
class Dropped:
    """A master's log loses [start, end), its first segment, while it ends at `log_end`."""

    master: tuple[str, int]
    start: int
    end: int
    log_end: int


class Slots:
    """By machine."""

    def __init__(self, max_slot_bytes: int) -> None:
        self._max_slot_bytes = max_slot_bytes
        self._most: dict[str, int] = {}  # that anybody can know of a slave
        self._heard: dict[str, _Heard] = {}

    def told(self, slave: str, master: tuple[str, int], flushed: int, at: float) -> None:
        """A slave said so to that life of a master."""
        self._most[slave] = max(flushed, self._most.get(slave, 0))
        self._heard[slave] = _Heard(flushed, at, master)

    def streams_from(self, slave: str, offset: int) -> None:
        """A master found that a slave's log is like its own up to there."""
        self._most[slave] = max(offset, self._most.get(slave, 0))

    def disk_lost(self, slave: str) -> None:
        """It is another replica from now on."""
        self._heard.pop(slave, None)

    def broken(self, dropped: Dropped, members: Mapping[str, bool], now: float) -> Iterator[str]:
        """What may not be dropped. `members` tells of each other machine whether it is one."""
        where = f"{dropped.master[0]} drops [{dropped.start}, {dropped.end})"
        for slave, is_member in members.items():
            most = self._most.get(slave, 0)
            if is_member and most < dropped.end:
                yield f"{where}, and its member {slave} never said that it has more than {most}"
            heard = self._heard.get(slave)
            if is_member or heard is None or heard.master != dropped.master or now - heard.at < _SETTLES_S:
                continue
            if dropped.start <= heard.flushed < dropped.end and dropped.log_end - heard.flushed <= self._max_slot_bytes:
                lag = dropped.log_end - heard.flushed
                yield f"{where}, and {slave} has flushed {heard.flushed}, {lag} less than the log: that is to be held for it"
