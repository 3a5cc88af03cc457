"""A bounded number of open files, shared by threads: one is closed only when nobody uses it."""

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from dittomq.commitlog.disk.storage import File, Storage


@dataclass(slots=True)
class _Open:
    """`forgotten`: closed by its last user."""

    file: File
    users: int = 0
    forgotten: bool = False


class OpenFiles:
    """Files by path, the least recently used closed first. Any thread may borrow."""

    def __init__(self, storage: Storage, limit: int, *, readonly: bool = False) -> None:
        self._storage = storage
        self._limit = limit
        self._readonly = readonly
        self._files: OrderedDict[str, _Open] = OrderedDict()
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def borrow(self, path: str, *, create: bool = False) -> Iterator[File]:
        """The open file, not to be kept; FileNotFoundError when it does not exist and is not to be made."""
        with self._lock:
            entry = self._files.get(path)
            if entry is None:
                entry = self._files[path] = _Open(self._storage.open(path, create=create, readonly=self._readonly), users=1)
                self._shrink()
            else:
                self._files.move_to_end(path)
                entry.users += 1
        try:
            yield entry.file
        finally:
            with self._lock:
                entry.users -= 1
                if entry.forgotten and entry.users == 0:
                    entry.file.close()

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
