"""The newest epoch that a master, a nameserver or its opener told this node of (`dittomq/heard`): no older master is obeyed any more.

The lineage alone does not tell it: an epoch gets there with its first byte, and leaves when that is cut.
"""

import asyncio
from collections.abc import Generator
from typing import NoReturn

from dittomq.commitlog.disk import side_file
from dittomq.commitlog.disk.side_file import load, save_if_room
from dittomq.commitlog.disk.storage import Storage
from dittomq.commitlog.gate import reported
from dittomq.doors.workers import Lane
from dittomq.errors import DiskFull, StoreFailed
from dittomq.offsets import Epoch
from dittomq.routes import NO_OPENING, Opening

_NAME = "heard"
_KIND = b"HEAR"


def load_heard(storage: Storage) -> Opening:
    """What was written down, no opening when nothing was. Raises DamagedSideFile."""
    found = load(storage, _NAME, _KIND)
    if found is None:
        return NO_OPENING
    epoch, _, opener_id = found.decode().partition(" ")  # the first versions of this program wrote the epoch only
    return Opening(Epoch(int(epoch)), int(opener_id) if opener_id else None)


def save_heard(storage: Storage, heard: Opening) -> bool:
    """Write it down, durably; whether there was room for that. Raises StoreFailed."""
    opener_id = "" if heard.opener_id is None else f" {heard.opener_id}"
    with reported("note an epoch"):
        return save_if_room(storage, _NAME, _KIND, f"{heard.epoch}{opener_id}".encode())


class Heard:
    """One node's note of it. `newest` is durable. Load it before anything else."""

    def __init__(self, node: str, storage: Storage, files: Lane) -> None:
        """`files` has width 1: of two that are told at once, one is told what the other was."""
        self.newest = NO_OPENING
        self._node = node
        self._storage = storage
        self._files = files
        self._noted = NO_OPENING  # the lane's own: what it has written, before the loop hears of it
        self._failure: StoreFailed | None = None
        self._failed = asyncio.Event()

    async def load(self) -> None:
        """Take up what was written down. Raises DamagedSideFile."""
        self.newest = self._noted = await self._files.call(lambda: load_heard(self._storage))

    async def note(self, opening: Opening) -> Opening:
        """Write it down, if it is newer, durably before this returns; what was written down before.

        Raises DiskFull, StoreFailed. A caller that is cancelled does not stop what has begun.
        """
        return await self._files.run(self._note_steps(opening), self._hear)

    async def watch(self) -> NoReturn:
        """Wait until the disk fails, and raise its StoreFailed: whoever asked may have left."""
        await self._failed.wait()
        assert self._failure is not None
        raise self._failure

    def _note_steps(self, opening: Opening) -> Generator[Opening | StoreFailed, None, Opening]:
        before = self._noted
        if opening.epoch <= before.epoch:
            return before
        try:
            has_room = save_heard(self._storage, opening)
        except StoreFailed as failure:
            yield failure
            raise
        if not has_room:
            raise DiskFull(self._node, self._storage.free_bytes(), side_file.ROOM_BYTES)
        self._noted = opening
        yield opening
        return before

    def _hear(self, news: Opening | StoreFailed) -> None:
        match news:
            case Opening():
                self.newest = news
            case StoreFailed():
                self._failure = news
                self._failed.set()
