"""Which epoch of each group is the newest, who opened it, and of which groups that is on the disk. Pure.

It is the one thing that brokers cannot tell anew: who starts as a master asks for it, while those who know may all be down.
"""

from collections.abc import Collection, Container, Iterable
from itertools import islice

from dittomq.routes import NO_OPENING, Opening

MAX_GROUPS = 10_000

_NAMES_SHOWN = 5

Rows = tuple[tuple[str, Opening], ...]
"""Group and newest epoch, the one told of longest ago first."""


def named(groups: Collection[str]) -> str:
    """The first few of them, as they are read."""
    return ", ".join([*islice(groups, _NAMES_SHOWN), *(["…"] if len(groups) > _NAMES_SHOWN else [])])


class Openings:
    """The newest epoch of each group, of MAX_GROUPS at most.

    What a start found on the disk counts as kept only when it is written once more: the process before may have died between a
    rename and the sync of its folder.
    """

    def __init__(self, found: Iterable[tuple[str, Opening]] = ()) -> None:
        self._newest: dict[str, Opening] = dict(list(found)[-MAX_GROUPS:])
        self.forgotten = 0  # how many groups it was told to forget
        self._changes = 1  # how often anything was learned; what was found is the first of it
        self._unkept: dict[str, int] = dict.fromkeys(self._newest, self._changes)  # the group's last change, until that is on the disk

    @property
    def groups(self) -> tuple[str, ...]:
        """All groups of which an epoch is known."""
        return tuple(self._newest)

    def silent(self, living: Container[str]) -> list[str]:
        """Those that are not `living`, by name."""
        return sorted(group for group in self._newest if group not in living)

    @property
    def unkept(self) -> int:
        """How many groups have a newest epoch that is not on the disk."""
        return len(self._unkept)

    def newest(self, group: str) -> Opening:
        """The newest epoch of the group that was ever heard of."""
        return self._newest.get(group, NO_OPENING)

    def learn(self, group: str, heard: Opening, living: Container[str]) -> Opening:
        """The newest epoch of the group after one was heard of; of two that are equal, one whose opener is known.

        `living`: groups with members. Of too many groups, the oldest of the others is forgotten.
        """
        known = self.newest(group)
        if heard.epoch < known.epoch or (heard.epoch == known.epoch and (known.opener_id is not None or heard == known)):
            return known
        self._changes += 1
        self._newest.pop(group, None)  # it becomes the last
        self._newest[group] = heard
        self._unkept[group] = self._changes
        self._forget_a_group(living)
        return heard

    def forget(self, group: str) -> None:
        """Nothing is known of the group any more; kept when the disk knows nothing of it either."""
        if self._newest.pop(group, None) is not None:
            self._changes += 1
            self._unkept[group] = self._changes
            self.forgotten += 1

    def is_kept(self, group: str) -> bool:
        """Whether all that is known of the group's epochs is on the disk."""
        return group not in self._unkept

    def to_keep(self) -> tuple[Rows, int]:
        """All that is to be on the disk, and the number to give to `kept` when it is."""
        return tuple(self._newest.items()), self._changes

    def kept(self, number: int) -> None:
        """What `to_keep` gave with this number is on the disk, durably."""
        self._unkept = {group: changed for group, changed in self._unkept.items() if changed > number}

    def _forget_a_group(self, living: Container[str]) -> None:
        if len(self._newest) > MAX_GROUPS:
            forgotten = next(group for group in self._newest if group not in living)
            del self._newest[forgotten]
            self._unkept.pop(forgotten, None)
