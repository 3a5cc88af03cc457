"""A coordination store in this process: linearizable, and as unreachable, slow and forgetful of its answers as a test wants it.

It knows no clock but the loop's, so it works under virtual time too.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass
from enum import Enum

from dittomq.doors.coordination import Conflict, GroupKey, Versioned, WriteOutcome, WriteUnknown, Written
from dittomq.errors import Unavailable
from dittomq.group_record import GroupRecord, decode, encode

DEADLINE_S = 3.0


class Fate(Enum):
    """What becomes of a write: of all but the first, the writer learns that its outcome is unknown."""

    ANSWERED = "applied, and its answer arrives"
    UNANSWERED = "applied, and its answer is lost"
    LOST = "never applied"
    LATE = "applied after the writer has given it up"


@dataclass(frozen=True, slots=True)
class Change:
    """One write or deletion as it took place; `record` None: it was deleted. `at` in seconds of the loop's clock."""

    at: float
    key: GroupKey
    record: GroupRecord | None
    version: str


class MemoryCoordination:
    """The store itself. Each node reaches it `through` its own door.

    `delay_s` goes by before a request takes effect and once more before its answer is there. `fates` are those of the next writes.
    """

    def __init__(self, name: str = "memory store") -> None:
        self.name = name
        self.is_down = False
        self.delay_s = 0.0
        self.late_s = 1.0
        self.fates: deque[Fate] = deque()
        self.parted: set[str] = set()  # the nodes that do not reach it
        self.changes: list[Change] = []  # in the order in which they took place
        self._documents: dict[GroupKey, tuple[bytes, str]] = {}
        self._version = 0
        self._watches: dict[asyncio.Queue[bool], GroupKey] = {}  # what each is told: True for a change, False for its end

    def through(self, node: str) -> "MemoryDoor":
        """The store as that node reaches it: a CoordinationStore."""
        return MemoryDoor(self, node)

    def now(self, key: GroupKey) -> Versioned | None:
        """The record, whatever is down."""
        if key not in self._documents:
            return None
        document, version = self._documents[key]
        return Versioned(decode(document, self.name), version)

    def restart(self) -> None:
        """The records stay; watches end."""
        for told in self._watches:
            told.put_nowait(False)

    def is_reached_by(self, node: str) -> bool:
        """Whether its requests arrive."""
        return not self.is_down and node not in self.parted

    def apply(self, key: GroupKey, record: GroupRecord | None, expected: Versioned | None) -> WriteOutcome:
        """Compare and set, now; also for a test that plays another writer."""
        now = self._documents.get(key)
        if (now is None) != (expected is None) or (now is not None and expected is not None and now[1] != expected.version):
            return Conflict()
        self._version += 1
        version = "" if record is None else f"v{self._version}"
        if record is None:
            self._documents.pop(key, None)
        else:
            self._documents[key] = encode(record), version
        self.changes.append(Change(asyncio.get_running_loop().time(), key, record, version))
        for told, watched in self._watches.items():
            if watched == key:
                told.put_nowait(True)
        return Written(version)

    def watched(self, key: GroupKey) -> "asyncio.Queue[bool]":
        """A new watch, which its owner leaves."""
        told: asyncio.Queue[bool] = asyncio.Queue()
        told.put_nowait(True)
        self._watches[told] = key
        return told

    def leave(self, told: "asyncio.Queue[bool]") -> None:
        """The watch is over."""
        del self._watches[told]


class MemoryDoor:
    """A CoordinationStore: how one node reaches the store."""

    def __init__(self, store: MemoryCoordination, node: str) -> None:
        self._store = store
        self._node = node

    @property
    def name(self) -> str:
        return self._store.name

    async def read(self, key: GroupKey) -> Versioned | None:
        await self._arrive()
        found = self._store.now(key)
        if not await self._answer():
            raise Unavailable(self.name, "no answer in time")
        return found

    async def write(self, key: GroupKey, record: GroupRecord, expected: Versioned | None) -> WriteOutcome:
        return await self._change(key, record, expected)

    async def delete(self, key: GroupKey, expected: Versioned) -> WriteOutcome:
        return await self._change(key, None, expected)

    async def watch(self, key: GroupKey) -> AsyncIterator[None]:
        await self._arrive()
        told = self._store.watched(key)
        try:
            while await told.get():
                if self._store.is_reached_by(self._node):
                    yield
        finally:
            self._store.leave(told)

    async def show_role(self, role: str) -> None:
        return

    async def close(self) -> None:
        return

    async def _change(self, key: GroupKey, record: GroupRecord | None, expected: Versioned | None) -> WriteOutcome:
        await self._arrive()
        store = self._store
        fate = store.fates.popleft() if store.fates else Fate.ANSWERED
        outcome: WriteOutcome = Conflict()
        if fate in {Fate.ANSWERED, Fate.UNANSWERED}:
            outcome = store.apply(key, record, expected)
        elif fate is Fate.LATE:
            asyncio.get_running_loop().call_later(store.late_s, store.apply, key, record, expected)
        if not await self._answer() or fate is not Fate.ANSWERED:
            return WriteUnknown(f"{self.name} does not answer: no answer in time")
        return outcome

    async def _arrive(self) -> None:
        """Raises Unavailable: nothing was sent."""
        if not self._store.is_reached_by(self._node):
            raise Unavailable(self.name, "cannot connect")
        await asyncio.sleep(min(self._store.delay_s, DEADLINE_S))
        if self._store.delay_s >= DEADLINE_S:
            raise Unavailable(self.name, "it took too long to connect")

    async def _answer(self) -> bool:
        """Whether the answer arrives."""
        await asyncio.sleep(min(self._store.delay_s, DEADLINE_S))
        return self._store.is_reached_by(self._node)
