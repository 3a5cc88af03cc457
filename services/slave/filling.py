"""⑤ Whether this copy may lack what this node, or a disk in its place, has acknowledged (`dittomq/filling`).

One that began on an empty disk does, as a slave or as a master that was passed over before it had copied all, one beside which a copy was
given up that had acknowledged more, and one that was cut where its bytes differed from its master's of the same epoch, until it has once
held all that its master's log held at some moment. Until then it is no witness: what was confirmed with the help of what is gone may be on
others only.

How new the epoch was in which that was over stays noted (`dittomq/filled`): its master may have led out of reach of another one, which this
node itself was, on the disk before. Of an epoch up to that one this disk does not show what this node confirmed in it.
"""

from dittomq.commitlog.disk import side_file
from dittomq.commitlog.disk.storage import Storage
from dittomq.commitlog.gate import reported
from dittomq.commitlog.state import boot
from dittomq.commitlog.store import Store
from dittomq.doors.workers import Lane
from dittomq.errors import DiskFull
from dittomq.offsets import LAST_EPOCH, NO_EPOCH, Epoch, PhysicalOffset

_NAME = "filling"
_KIND = b"FILL"
_ENDED = "filled"
_ENDED_KIND = b"FULL"
_FIRST = Epoch(1)


def note_part(storage: Storage) -> bool:
    """Durably note of a store that holds a part only of another copy's log what its stamp is about to take back; False on a full disk."""
    with reported("note that the copy is a part"):
        return not boot.is_incomplete(storage) or side_file.save_if_room(storage, _NAME, _KIND, b"")


class Filling:
    """Of a node's own store. Load it before anything else."""

    def __init__(self, node: str, storage: Storage, files: Lane) -> None:
        self.goes_on = False
        self.filled_in = NO_EPOCH  # the newest epoch that was known when it was over last
        self._node = node
        self._storage = storage
        self._files = files
        self._goal: PhysicalOffset | None = None
        self._is_noted = False

    async def load(self, store: Store) -> None:
        """Whether it began on an earlier day, or is about to. What is in the file does not matter, only that it is there."""
        self._is_noted, self.filled_in = await self._files.call(self._load)
        self.goes_on = self._is_noted or not store.lineage or await self._files.call(lambda: boot.is_incomplete(self._storage))

    async def begin(self) -> None:
        """To be done before the first byte comes, or before one goes; durable when this returns. Raises DiskFull, StoreFailed."""
        self.goes_on, self._goal = True, None
        if not self._is_noted:
            await self._files.call(self._note)

    def session_begins(self) -> None:
        """What an earlier master's log held says nothing of the next one's."""
        self._goal = None

    def master_ends_at(self, end: PhysicalOffset) -> None:
        """A master that accepted this copy's lineage says where its log ends now."""
        if self.goes_on and self._goal is None:
            self._goal = end

    def holds(self, flushed: PhysicalOffset, newest: Epoch) -> None:
        """It is over when all is on the disk that the log held when its end was told. `newest` is the newest epoch that is known."""
        if self._goal is not None and flushed >= self._goal:
            self._ends(newest)

    def filled_before(self, granted: Epoch) -> Epoch:
        """Up to which epoch this node may have led on an earlier disk, if it is granted that one now, which it opens on this disk."""
        newest = Epoch(granted - 1)
        return newest if self.goes_on else min(self.filled_in, newest)

    async def look_after(self) -> None:
        """Take the note away when it is over; a crash before that costs nothing but the next end. Raises StoreFailed."""
        if self._is_noted and not self.goes_on:
            self._is_noted = False  # it may begin again meanwhile, and is noted anew then
            newest = self.filled_in
            if not await self._files.call(lambda: self._forget(newest)):
                self._is_noted = True

    async def end(self, newest: Epoch) -> None:
        """This copy is its group's from now on: whatever it lacks is given up. Raises StoreFailed."""
        if self.goes_on:
            self._ends(newest)
        await self.look_after()

    def _ends(self, newest: Epoch) -> None:
        """In the first epoch of a group no other disk of this node can have led before."""
        self.goes_on, self._goal = False, None
        if newest > _FIRST:
            self.filled_in = max(self.filled_in, newest)

    def _load(self) -> tuple[bool, Epoch]:
        """Whether it is noted, and the epoch of the last one that is over: one that cannot be read may have been any."""
        is_noted = self._storage.exists(f"{side_file.FOLDER}/{_NAME}")
        try:
            found = side_file.load(self._storage, _ENDED, _ENDED_KIND)
        except side_file.DamagedSideFile:
            return is_noted, LAST_EPOCH
        return is_noted, NO_EPOCH if found is None else Epoch(int(found))

    def _note(self) -> None:
        with reported("note that the copy is being filled"):
            self._is_noted = side_file.save_if_room(self._storage, _NAME, _KIND, b"")
        if not self._is_noted:
            raise DiskFull(self._node, self._storage.free_bytes(), side_file.ROOM_BYTES)

    def _forget(self, newest: Epoch) -> bool:
        """False on a full disk: then it stays noted."""
        with reported("note that the copy is filled"):
            if newest > NO_EPOCH and not side_file.save_if_room(self._storage, _ENDED, _ENDED_KIND, f"{newest}".encode()):
                return False
            side_file.remove(self._storage, _NAME)
            return True
