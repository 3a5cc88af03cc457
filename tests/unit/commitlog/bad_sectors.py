"""A disk that does not give some of its bytes."""

import errno
import os
import random

from dittomq.commitlog.store import Store
from dittomq.places import AppendResult
from tests.support.intercepted_reads import HeardReads
from tests.support.stores import SMALL, Machine, frame, led, places


class BadSectors(HeardReads):
    """A door to a disk that refuses to read some bytes of a file, the log's first segment by default."""

    def __init__(self, machine: Machine, path: str = f"commitlog/{0:020d}") -> None:
        super().__init__(machine.storage(), self._refuse)
        self._path = path
        self.bad = range(0)
        self.says = errno.EIO  # of them

    def _refuse(self, path: str, offset: int, length: int) -> None:
        if path == self._path and offset < self.bad.stop and self.bad.start < offset + length:
            raise OSError(self.says, os.strerror(self.says))

    def unlink(self, path: str) -> None:
        """The next file of that name lies elsewhere on the disk."""
        self._storage.unlink(path)
        if path == self._path:
            self.bad = range(0)


def three_messages() -> tuple[BadSectors, Store, list[AppendResult]]:
    door = BadSectors(Machine(random.Random(1)))
    store = led(door, SMALL, chance=random.Random(1), wall_ms=0)  # type: ignore[arg-type]
    (placed,) = store.append([frame(b"one", b"two", b"three")], 1).placed
    store.dispatch(store.end)
    return door, store, places(placed)
