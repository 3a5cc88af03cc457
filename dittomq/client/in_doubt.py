"""What one producer knows of its messages of unknown outcome: when may it say that one is surely not stored? Pure.

A request that was sent to a master of one epoch cannot arrive at a master of a newer one. So "not in the log" from a master is proof
once its epoch is newer than that of every master that may still hold the request. A request that is sent again adds such a master:
nobody knows its epoch when it does not answer, only that it was no older than its route said.

Sequences leave no gaps. So when one is surely not stored, and nobody sends it any more, none behind it can ever be stored.
"""

import contextlib
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

_MAX_PRODUCERS = 1_024


class _Resent(NamedTuple):
    """What was sent again may be with a master of `epoch`; `bounded`: and with no newer one."""

    epoch: int
    bounded: bool


class InDoubtSends:
    """Of one producer and one broker group. Keeps the last 1,024 producer ids that were asked about."""

    def __init__(self) -> None:
        self._resent: dict[str, _Resent] = {}
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

    def resent_in_vain(self, producer_id: str, epoch: int) -> None:
        """A message was sent again and not answered, to a master of this epoch or a newer one, no newer than the next such one heard."""
        known = self._resent.get(producer_id)
        self._resent[producer_id] = _Resent(max(epoch, known.epoch if known is not None else 0), bounded=False)
        _remove_oldest(self._resent)

    def resent_and_stored(self, producer_id: str) -> None:
        """A message was sent again, and is in the log."""
        self._stored[producer_id] = None
        _remove_oldest(self._stored)

    def may_lie_anywhere(self, producer_id: str) -> bool:
        """Whether a message was sent again by itself, and not refused: how long the log was then is not known."""
        return producer_id in self._resent or producer_id in self._stored

    def master_answered(self, epoch: int) -> None:
        """A master of this epoch has answered: whatever was sent before to one that was no newer then can be with no newer one."""
        for producer_id, resent in self._resent.items():
            if not resent.bounded and resent.epoch <= epoch:
                self._resent[producer_id] = _Resent(epoch, bounded=True)

    def is_certain(self, producer_id: str, epoch: int, sent: int | None) -> bool:
        """Whether "not in the log" from a master of `epoch` is final. `sent`: newest epoch that streams sent to, None when not known."""
        if producer_id in self._being_resent:
            return False
        resent = self._resent.get(producer_id, _Resent(0, bounded=True))
        return sent is not None and resent.bounded and epoch > max(sent, resent.epoch)

    def is_absent(self, producer_id: str, sequence: int) -> None:
        """The message is surely not stored."""
        self._absent.setdefault(producer_id, set()).add(sequence)
        _remove_oldest(self._absent)

    def is_cut_off(self, producer_id: str, expected: int, sequence: int) -> bool:
        """Whether a broker that expects `expected` can never take `sequence`: all that is missing between is surely not stored."""
        absent = self._absent.get(producer_id, set())
        return expected < sequence and all(missing in absent for missing in range(expected, sequence))


def _remove_oldest(table: dict[str, Any]) -> None:
    if len(table) > _MAX_PRODUCERS:
        del table[next(iter(table))]
