"""What one producer knows of its messages of unknown outcome: when may it say that one is surely not stored? Pure.

A request that was sent to a master of one epoch cannot arrive at a master of a newer one. So "not in the log" from a master is proof
once its epoch is newer than that of every master that may still hold the request. A request that is sent again adds such a master.

Sequences leave no gaps. So when one is surely not stored, and nobody sends it any more, none behind it can ever be stored.
"""

import contextlib
from collections import Counter
from collections.abc import Iterator

_MAX_PRODUCERS = 1_024


class Unknowns:
    """Of one producer and one broker group. Keeps the last 1,024 producer ids that were asked about."""

    def __init__(self) -> None:
        self._resent: dict[str, int | None] = {}
        self._stored: dict[str, None] = {}
        self._absent: dict[str, set[int]] = {}
        self._being_resent: Counter[str] = Counter()

    @contextlib.contextmanager
    def resending(self, producer_id: str) -> Iterator[None]:
        """A message is sent again until the block ends: it may arrive at any time."""
        self._being_resent[producer_id] += 1
        try:
            yield
        finally:
            self._being_resent -= Counter({producer_id: 1})

    def resent_in_vain(self, producer_id: str) -> None:
        """A message was sent again and not answered: to a master no newer than the next one that is heard."""
        self._resent[producer_id] = None
        _forget_oldest(self._resent)

    def resent_and_stored(self, producer_id: str) -> None:
        """A message was sent again, and is in the log."""
        self._stored[producer_id] = None
        _forget_oldest(self._stored)

    def may_lie_anywhere(self, producer_id: str) -> bool:
        """Whether a message was sent again by itself, and not refused: how long the log was then is not known."""
        return producer_id in self._resent or producer_id in self._stored

    def heard(self, epoch: int) -> None:
        """A master of this epoch has answered: whatever was sent before can be with it or an older one, and with no newer one."""
        for producer_id, newest in self._resent.items():
            if newest is None:
                self._resent[producer_id] = epoch

    def is_proof(self, producer_id: str, epoch: int, sent: int | None) -> bool:
        """Whether "not in the log" from a master of `epoch` is final. `sent`: newest epoch that streams sent to, None when not known."""
        if producer_id in self._being_resent:
            return False
        resent = self._resent.get(producer_id, 0)
        return sent is not None and resent is not None and epoch > max(sent, resent)

    def is_absent(self, producer_id: str, sequence: int) -> None:
        """The message is surely not stored."""
        self._absent.setdefault(producer_id, set()).add(sequence)
        _forget_oldest(self._absent)

    def is_cut_off(self, producer_id: str, expected: int, sequence: int) -> bool:
        """Whether a broker that expects `expected` can never take `sequence`: all that is missing between is surely not stored."""
        absent = self._absent.get(producer_id, set())
        return expected < sequence and all(missing in absent for missing in range(expected, sequence))


def _forget_oldest(table: dict[str, int | None] | dict[str, None] | dict[str, set[int]]) -> None:
    if len(table) > _MAX_PRODUCERS:
        del table[next(iter(table))]
