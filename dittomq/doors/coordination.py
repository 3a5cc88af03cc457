"""The sixth door: a store that has consensus, and keeps one group record for each broker group.

Time is never safety: what a caller may do follows from the versions that it read and wrote. No version is ever used twice for one key,
not even after the record was deleted.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol

from dittomq.group_record import GroupRecord


@dataclass(frozen=True, slots=True)
class GroupKey:
    """Which record: names of a cluster and of a broker group in it."""

    cluster: str
    broker: str

    def __str__(self) -> str:
        return f"{self.cluster}/{self.broker}"


@dataclass(frozen=True, slots=True)
class Versioned:
    """A record as it was read, and the version that a writer of the next one names."""

    record: GroupRecord
    version: str


@dataclass(frozen=True, slots=True)
class Written:
    """The write took place; this is the record's version now. Of a deletion: "" ."""

    version: str


@dataclass(frozen=True, slots=True)
class Conflict:
    """The write did not take place: the record has another version, or another content. Read it."""


@dataclass(frozen=True, slots=True)
class WriteUnknown:
    """The write may have taken place, or may still do: until the version has moved, or a later write at the same version succeeded."""

    problem: str


WriteOutcome = Written | Conflict | WriteUnknown


class CoordinationStore(Protocol):
    """The records of all groups. Each call ends within `deadline_s` of its implementation (3 s), and retries nothing by itself."""

    @property
    def name(self) -> str:
        """What operators call it, with its address: "nameserver ns-0:9876", "etcd e-0:2379,e-1:2379", "kubernetes lease prod/dittomq-a"."""
        ...

    async def read(self, key: GroupKey) -> Versioned | None:
        """The record as it is now (linearizable), None when there is none. Raises Unavailable, UnreadableRecord, PermissionDenied."""
        ...

    async def write(self, key: GroupKey, record: GroupRecord, expected: Versioned | None) -> WriteOutcome:
        """Put `record` in the place of `expected`, or create it where there must be none. Raises Unavailable when nothing was sent."""
        ...

    async def delete(self, key: GroupKey, expected: Versioned) -> WriteOutcome:
        """Remove the record, if it still is `expected`. Raises Unavailable when nothing was sent."""
        ...

    def watch(self, key: GroupKey) -> AsyncIterator[None]:
        """Yields when the record may have changed: a hint. Ends or raises Unavailable on a gap; then read, and watch again."""
        ...

    async def show_role(self, role: str) -> None:
        """Show the role of this node, "master" or "slave", to what surrounds the store: as a label of its pod, where it has one.

        Services and people go by it; nothing here does. Raises Unavailable, PermissionDenied.
        """
        ...

    async def close(self) -> None:
        """Release its connections."""
        ...
