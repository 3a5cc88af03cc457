"""When each was heard, and from where. Pure: the caller brings the time."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from dittomq.errors import NodeIdTaken
from services.nameserver.openings import MAX_GROUPS

MAX_REPLICAS = 2 * MAX_GROUPS
MAX_ADDRESSES = 16


class Now(NamedTuple):
    """Both clocks, in milliseconds."""

    monotonic_ms: int
    wall_ms: int


@dataclass(slots=True)
class Heard:
    """When somebody was heard last. For `still_ms` since then nobody listened, which counts as no silence; the next word replaces both."""

    at: Now
    still_ms: int = 0

    @property
    def counted_ms(self) -> int:
        """From when on the silence counts towards the expiry, monotonic milliseconds."""
        return self.at.monotonic_ms + self.still_ms

    def silent_ms(self, now: Now) -> int:
        """For how long nothing was heard, whoever listened."""
        return now.monotonic_ms - self.at.monotonic_ms

    def stood_still(self, ms: int, now: Now) -> None:
        """Nobody listened for so long until now."""
        self.still_ms = min(self.still_ms + ms, self.silent_ms(now))


@dataclass(slots=True)
class _Replica:
    """Where one replica uuid registered from lately: address → when."""

    home: str  # the address that holds the registration; empty while several claim it
    heard: dict[str, Heard] = field(default_factory=dict)


class Whereabouts:
    """Which addresses replicas register from: a store that was copied shows as one uuid back and forth between two."""

    def __init__(self) -> None:
        self._replicas: dict[str, _Replica] = {}  # by uuid, at most MAX_REPLICAS: the oldest is forgotten

    def heard_at(self, uuid: str, address: str, now: Now) -> None:
        """The replica was heard of at its address."""
        replica = self._replicas.setdefault(uuid, _Replica(address))
        replica.heard[address] = Heard(now)
        forget_oldest(replica.heard, MAX_ADDRESSES)
        forget_oldest(self._replicas, MAX_REPLICAS)

    def settle(self, uuid: str, address: str, now: Now) -> None:
        """It registers from there. Raises NodeIdTaken when it had left that address, or several claim it; then none of them holds it."""
        known = self._replicas.get(uuid)
        returns = known is not None and address != known.home and address in known.heard
        self.heard_at(uuid, address, now)
        replica = self._replicas[uuid]
        others = [other for other in replica.heard if other != address]
        if (returns or not replica.home) and others:
            replica.home = ""
            raise NodeIdTaken(f"replica {uuid}", others[-1], replica.heard[others[-1]].silent_ms(now))
        replica.home = address

    def forget(self, uuid: str) -> None:
        """It said goodbye."""
        self._replicas.pop(uuid, None)

    def expire(self, oldest_ms: int) -> None:
        """Forget addresses from which nothing was heard since then, in monotonic milliseconds."""
        for uuid, replica in list(self._replicas.items()):
            replica.heard = {address: heard for address, heard in replica.heard.items() if heard.counted_ms > oldest_ms}
            if not replica.heard:
                del self._replicas[uuid]

    def stood_still(self, ms: int, now: Now) -> None:
        """Nobody listened for so long until now."""
        for replica in self._replicas.values():
            for heard in replica.heard.values():
                heard.stood_still(ms, now)


def forget_oldest(remembered: dict[str, Any], limit: int) -> None:
    """Keep to the limit of a table that grows by one."""
    if len(remembered) > limit:
        del remembered[next(iter(remembered))]
