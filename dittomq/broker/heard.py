"""The newest epoch that a master, a nameserver or its opener told this node of (`dittomq/heard`): no older master is obeyed any more.

The lineage alone does not tell it: an epoch gets there with its first byte, and leaves when that is cut.

What its opener itself told is a promise, and so is the epoch of the master that was obeyed last: until this node obeys another one, it
tells each of them. A master that opened an epoch out of reach of that opener, be it a newer one, must learn first what was confirmed in
that epoch.
"""

import asyncio
from collections.abc import Callable, Collection, Generator
from dataclasses import dataclass, replace
from typing import NoReturn

from dittomq.commitlog.disk import side_file
from dittomq.commitlog.disk.side_file import load, save_if_room
from dittomq.commitlog.disk.storage import Storage
from dittomq.commitlog.gate import reported
from dittomq.doors.workers import Lane
from dittomq.errors import DiskFull, NotReady, StoreFailed
from dittomq.offsets import Epoch
from dittomq.replication.events import MAX_PROMISES
from dittomq.routes import NO_OPENING, Opening

_NAME = "heard"
_KIND = b"HEAR"


@dataclass(frozen=True, slots=True)
class Note:
    """What is written down. `promises`: the newest of each opener, in their order."""

    newest: Opening = NO_OPENING
    promises: tuple[Opening, ...] = ()

    def told(self, opening: Opening) -> "Note":
        """With what somebody told."""
        return self if opening.epoch <= self.newest.epoch else replace(self, newest=opening)

    def promised(self, opening: Opening) -> "Note":
        """With what its opener told; the same where another epoch is as new."""
        newest = self.newest
        if newest.epoch >= opening.epoch and newest not in (opening, Opening(opening.epoch, None)):
            return self
        others = (each for each in self.promises if each.opener_id != opening.opener_id)
        return Note(opening, (*others, opening)[-MAX_PROMISES:])

    def unsaid(self, opening: Opening, said: Collection[Opening]) -> Opening | None:
        """A promise that the master of that epoch was not told of."""
        others = (each for each in self.promises if each.opener_id != opening.opener_id)
        return next((each for each in others if each not in said), None)

    def obeyed(self, opening: Opening) -> "Note":
        """With the epoch of a master that is obeyed, which has learned of all that was promised: now this node is bound to that one."""
        return replace(self.told(opening), promises=() if opening.opener_id is None else (opening,))


def load_heard(storage: Storage) -> Note:
    """What was written down. Raises DamagedSideFile."""
    found = load(storage, _NAME, _KIND)
    if found is None:
        return Note()
    newest, *promises = found.decode().split(";")
    return Note(_opening(newest), tuple(map(_opening, promises)))


def save_heard(storage: Storage, heard: Note) -> bool:
    """Write it down, durably; whether there was room for that. Raises StoreFailed."""
    with reported("note an epoch"):
        return save_if_room(storage, _NAME, _KIND, ";".join(map(_words, (heard.newest, *heard.promises))).encode())


def _words(opening: Opening) -> str:
    return f"{opening.epoch}" if opening.opener_id is None else f"{opening.epoch} {opening.opener_id}"


def _opening(words: str) -> Opening:
    epoch, _, opener_id = words.partition(" ")  # the first versions of this program wrote the epoch only
    return Opening(Epoch(int(epoch)), int(opener_id) if opener_id else None)


class Heard:
    """One node's note of it. `newest` and `promises` are durable. Load it before anything else."""

    def __init__(self, node: str, storage: Storage, files: Lane) -> None:
        """`files` has width 1: of two that are told at once, one is told what the other was."""
        self._node = node
        self._broker = node.rpartition("/")[0]
        self._storage = storage
        self._files = files
        self._durable = Note()
        self._noted = Note()  # the lane's own: what it has written, before the loop hears of it
        self._failure: StoreFailed | None = None
        self._failed = asyncio.Event()

    @property
    def newest(self) -> Opening:
        """The newest epoch that it was told of."""
        return self._durable.newest

    @property
    def promises(self) -> tuple[Opening, ...]:
        """The epoch of the master that it obeyed last, and those that it has noted for their openers since."""
        return self._durable.promises

    async def load(self) -> None:
        """Take up what was written down. Raises DamagedSideFile."""
        self._durable = self._noted = await self._files.call(lambda: load_heard(self._storage))

    async def note(self, opening: Opening) -> Opening:
        """Write it down, if it is newer, durably before this returns; what was written down before.

        Raises DiskFull, StoreFailed. A caller that is cancelled does not stop what has begun.
        """
        return await self._files.run(self._write(lambda noted: noted.told(opening)), self._hear)

    async def promise(self, opening: Opening) -> Opening:
        """The same for what its opener tells, who opens it then."""
        return await self._files.run(self._write(lambda noted: noted.promised(opening)), self._hear)

    async def obey(self, opening: Opening, said: Collection[Opening]) -> None:
        """The same for the epoch of a master whose slave this node is now: it is bound by no other promise any more.

        That one was told of those it `said`. Raises NotReady where it has noted another one since.
        """

        def obeyed(noted: Note) -> Note:
            if unsaid := noted.unsaid(opening, said):
                raise NotReady(self._node, f"it has noted epoch {unsaid.epoch} of {self._broker}/{unsaid.opener_id} since it said hello")
            return noted.obeyed(opening)

        await self._files.run(self._write(obeyed), self._hear)

    async def watch(self) -> NoReturn:
        """Wait until the disk fails, and raise its StoreFailed: whoever asked may have left."""
        await self._failed.wait()
        assert self._failure is not None
        raise self._failure

    def _write(self, change: Callable[[Note], Note]) -> Generator[Note | StoreFailed, None, Opening]:
        before, note = self._noted, change(self._noted)
        if note == before:
            return before.newest
        try:
            has_room = save_heard(self._storage, note)
        except StoreFailed as failure:
            yield failure
            raise
        if not has_room:
            raise DiskFull(self._node, self._storage.free_bytes(), side_file.ROOM_BYTES)
        self._noted = note
        yield note
        return before.newest

    def _hear(self, news: Note | StoreFailed) -> None:
        match news:
            case Note():
                self._durable = news
            case StoreFailed():
                self._failure = news
                self._failed.set()
