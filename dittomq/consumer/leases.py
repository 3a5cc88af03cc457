"""Leases on the messages of one queue, for members without a session: leased, then acknowledged, or given up when the lease ends.

A message is leased once from its queue. If its lease ends it gets another try through the group's retry topic, which counts tries in the
log, and the queue goes on behind it. The window of what is not done yet is bounded.
"""

import re
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from dittomq.consumer.assignment import TopicQueue
from dittomq.errors import InvalidField, SessionExpired

MAX_WINDOW: Final = 4_096
"""Queue offsets between the lowest that is not done and the next to be leased."""
MAX_LEASE_S: Final = 12 * 3600.0
MAX_REMEMBERED: Final = 32_768
"""Acknowledged leases of a master that it remembers, for who asks again."""
_TOKEN = re.compile(r"([0-9]{1,19})\.([0-9]{1,10})\.([0-9]{1,19})\.([0-9]{1,19})\.([%|.a-zA-Z0-9_-]{1,255})")


@dataclass(frozen=True, slots=True)
class LeaseToken:
    """Names one lease: given in `epoch`, the `number`-th of that master."""

    epoch: int
    number: int
    source: TopicQueue
    offset: int

    def encode(self) -> str:
        """As callers hand it back."""
        return f"{self.epoch}.{self.source.queue}.{self.offset}.{self.number}.{self.source.topic}"


def decode_lease_token(text: str) -> LeaseToken:
    """The token; raises InvalidField for what is none."""
    found = _TOKEN.fullmatch(text)
    if found is None:
        raise InvalidField("lease_token", "is not a token of Receive; hand back what came with the message")
    epoch, queue, offset, number, topic = found.groups()
    return LeaseToken(int(epoch), int(number), TopicQueue(topic, int(queue)), int(offset))


class AcknowledgedLeases:
    """The leases of one master that were acknowledged last, at most `most`: who says so again is answered as before."""

    def __init__(self, most: int = MAX_REMEMBERED) -> None:
        self._most = most
        self._of: OrderedDict[int, tuple[str, int]] = OrderedDict()

    def add(self, group: str, token: LeaseToken) -> None:
        """The group has acknowledged that lease of this master."""
        self._of[token.number] = group, token.offset
        if len(self._of) > self._most:
            self._of.popitem(last=False)

    def has(self, group: str, token: LeaseToken) -> bool:
        """Whether it is one of them."""
        return self._of.get(token.number) == (group, token.offset)


@dataclass(slots=True)
class _MessageLease:
    number: int
    until: float
    is_settling: bool = False  # another try is being stored


class LeasedQueue:
    """One queue as one group leases it. Times are seconds of the master's monotonic clock."""

    def __init__(self, source: TopicQueue, committed: int, done: Iterable[int], epoch: int) -> None:
        """`done`: what is acknowledged from `committed` on. `epoch` is the master's."""
        self.source = source
        self._epoch = epoch
        self._committed = self._next = committed
        self._done = {offset for offset in done if offset >= committed}
        self._leases: dict[int, _MessageLease] = {}
        self._advance()

    @property
    def committed(self) -> int:
        """The lowest queue offset that is not done: all below is acknowledged, has another try, or was not wanted."""
        return self._committed

    @property
    def next_offset(self) -> int:
        """Where the next messages to lease are read from."""
        return self._next

    @property
    def leased(self) -> int:
        """How many messages are leased now."""
        return len(self._leases)

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to keep but `committed`."""
        return self._committed == self._next and not self._done and not self._leases

    @property
    def room(self) -> int:
        """How many more offsets fit into the window."""
        return max(0, self._committed + MAX_WINDOW - self._next)

    def is_done(self, offset: int) -> bool:
        """Whether it needs no lease."""
        return offset < self._committed or offset in self._done

    def fits(self, offset: int) -> bool:
        """Whether the window reaches that offset, from the next one on: where nothing is open, it begins there."""
        return self._committed == self._next or offset < self._committed + MAX_WINDOW

    def lease(self, offset: int, number: int, until: float) -> LeaseToken:
        """Lease the next wanted message; those between are passed over: the caller has read them and they are done or not wanted."""
        assert offset >= self._next, "a message is leased once"
        self.pass_over(offset)
        self._leases[offset] = _MessageLease(number, until)
        self._next = offset + 1
        return LeaseToken(self._epoch, number, self.source, offset)

    def pass_over(self, end: int) -> None:
        """What lies below `end` and was not leased is not there, or not wanted. Where something is open, `end` is in the window."""
        if self._committed == self._next < end:
            self._committed = self._next = end
            self._done = {offset for offset in self._done if offset >= end}
        else:
            self._done.update(range(self._next, end))
            self._next = max(self._next, end)
        self._advance()

    def acknowledge(self, token: LeaseToken, now: float) -> bool:
        """Whether the message is done by that; False: it was before. Raises SessionExpired when the lease has ended.

        The lease of a master before is believed while nobody has the message now: the caller has handled it. Whether that master could
        give it is for the caller to check.
        """
        offset, lease = token.offset, self._leases.get(token.offset)
        if token.epoch == self._epoch:
            is_held = lease is not None and lease.number == token.number and now < lease.until
        elif lease is None and self.is_done(offset):
            return False
        else:
            is_held = lease is None and offset < self._committed + MAX_WINDOW
        if not is_held:
            raise SessionExpired(f"the lease of {self.source.topic} queue {self.source.queue} offset {offset:,}")
        self.settled(token)
        return True

    def extend(self, token: LeaseToken, until: float, now: float) -> None:
        """The lease ends at `until` instead; raises SessionExpired when it has ended."""
        lease = self._leases.get(token.offset)
        if token.epoch != self._epoch or lease is None or lease.number != token.number or lease.until <= now:
            raise SessionExpired(f"the lease of {self.source.topic} queue {self.source.queue} offset {token.offset:,}")
        lease.until = until

    def settled(self, token: LeaseToken) -> None:
        """It is acknowledged, or another try of it is stored: the message is done."""
        self._leases.pop(token.offset, None)
        if token.offset >= self._committed:
            self._done.add(token.offset)
        self._advance()

    def not_settled(self, token: LeaseToken) -> None:
        """Nothing was stored, or nobody knows: the lease stands as before."""
        if (lease := self._leases.get(token.offset)) is not None:
            lease.is_settling = False

    def take_ended(self, now: float) -> list[LeaseToken]:
        """Leases that have ended, for another try each; settling until `settled` or `not_settled` is called."""
        ended = [(offset, lease) for offset, lease in self._leases.items() if lease.until <= now and not lease.is_settling]
        for _, lease in ended:
            lease.is_settling = True
        return [LeaseToken(self._epoch, lease.number, self.source, offset) for offset, lease in ended]

    def _advance(self) -> None:
        while self._committed in self._done:
            self._done.remove(self._committed)
            self._committed += 1
        self._next = max(self._next, self._committed)
