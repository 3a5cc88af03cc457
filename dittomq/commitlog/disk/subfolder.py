"""A folder of a data directory as a data directory of its own."""

from dittomq.commitlog.disk.storage import File, HeldLock, Storage


class Subfolder:
    """Passes every call on. Whoever has the lock of the whole has this one's too."""

    def __init__(self, storage: Storage, folder: str) -> None:
        self._storage = storage
        self._folder = folder

    def open(self, path: str, *, create: bool = False, readonly: bool = False) -> File:
        return self._storage.open(self._at(path), create=create, readonly=readonly)

    def exists(self, path: str) -> bool:
        return self._storage.exists(self._at(path))

    def list_folder(self, path: str) -> list[str]:
        return self._storage.list_folder(self._at(path))

    def make_folder(self, path: str) -> None:
        self._storage.make_folder(self._at(path))
        if not path:
            self._storage.sync_folder(self._folder.rpartition("/")[0])

    def rename(self, old: str, new: str) -> None:
        self._storage.rename(self._at(old), self._at(new))

    def unlink(self, path: str) -> None:
        self._storage.unlink(self._at(path))

    def remove_folder(self, path: str) -> None:
        self._storage.remove_folder(self._at(path))

    def sync_folder(self, path: str) -> None:
        self._storage.sync_folder(self._at(path))

    def sync_below(self, path: str) -> bool:
        return self._storage.sync_below(self._at(path))

    def free_bytes(self) -> int:
        return self._storage.free_bytes()

    def total_bytes(self) -> int:
        return self._storage.total_bytes()

    def boot_id(self) -> str:
        return self._storage.boot_id()

    def lock(self, path: str) -> HeldLock:
        return _LockOfTheWhole()

    def _at(self, path: str) -> str:
        return f"{self._folder}/{path}" if path else self._folder


class _LockOfTheWhole:
    def release(self) -> None:
        return
