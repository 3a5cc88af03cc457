"""A bounded number of open files, shared by threads: one is closed only when nobody uses it."""

import threading
from collections import OrderedDict
from contextlib import AbstractContextManager
from itertools import islice
from types import TracebackType

from dittomq.commitlog.disk.storage import File, Storage


class _Open:
    """A file and its users, each of which leaves it once. `forgotten`: closed by its last user."""

    __slots__ = ("_lock", "file", "forgotten", "users")

    def __init__(self, file: File, lock: threading.Lock) -> None:
        self.file = file
        self.users = 0
        self.forgotten = False
        self._lock = lock

    def __enter__(self) -> File:
        return self.file

    def __exit__(self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None) -> None:
        with self._lock:
            self.users -= 1
            if self.forgotten and self.users == 0:
                self.file.close()


class OpenFiles:
    """Files by path, the least recently used closed first. Any thread may borrow."""

    def __init__(self, storage: Storage, limit: int) -> None:
        self._storage = storage
        self._limit = limit
        self._files: OrderedDict[str, _Open] = OrderedDict()
        self._lock = threading.Lock()

    def borrow(self, path: str, *, create: bool = False) -> AbstractContextManager[File]:
        """The open file, for the `with` in which this is called; FileNotFoundError when it does not exist and is not to be made."""
        with self._lock:
            entry = self._files.get(path)
            if entry is None:
                entry = _Open(self._storage.open(path, create=create), self._lock)
                self._files[path] = entry
                entry.users = 1
                self._shrink()
            else:
                self._files.move_to_end(path)
                entry.users += 1
        return entry

    def forget(self, prefix: str) -> None:
        """Close all files whose paths begin so, those in use as soon as they are free."""
        with self._lock:
            for path in [path for path in self._files if path.startswith(prefix)]:
                self._drop(path)

    def close(self) -> None:
        """Close all."""
        self.forget("")

    def _shrink(self) -> None:
        surplus = max(0, len(self._files) - self._limit)
        for path in list(islice((path for path, entry in self._files.items() if entry.users == 0), surplus)):
            self._drop(path)

    def _drop(self, path: str) -> None:
        entry = self._files.pop(path)
        entry.forgotten = True
        if entry.users == 0:
            entry.file.close()
