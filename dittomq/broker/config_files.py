"""The files in `config/`: loaded at the start, replaced whole, each with a `.bak` of what it held before. Everything here blocks.

A crash at any point leaves a table's old file or its new one, whole. It may leave the old one as `.bak`, and none beside it.
"""

from collections.abc import Callable, Generator
from typing import Any, TypeVar

from zlib_ng.zlib_ng import crc32

from dittomq.commitlog.disk.storage import Storage, put_in_place, read_file, write_replacement
from dittomq.errors import DiskFull, StorageFailure, StoreOpenFailed
from dittomq.metadata.formats import DamagedFile, RowTexts, TableKind, decode
from dittomq.metadata.tables import R, Table

MIN_FREE_BYTES = 1024 * 1024

_FOLDER = "config"

T = TypeVar("T")


class ConfigFiles:
    """The tables' files of one store."""

    def __init__(self, storage: Storage, node: str) -> None:
        self._storage = storage
        self._node = node
        self._is_settled = False
        self._texts: dict[str, RowTexts[Any]] = {}
        self._whole: dict[str, int] = {}  # of files that were seen to be whole, or written, here: their checksum

    def load(self, kind: TableKind[R]) -> tuple[Table[R], str]:
        """The table as `load_as` finds it; without a file it is empty."""
        table, problem = self.load_as(kind, lambda data: decode(kind, data))
        return Table() if table is None else table, problem

    def load_as(self, kind: TableKind[Any], decoded: Callable[[bytes], T]) -> tuple[T | None, str]:
        """What `decoded` makes of the table's file, and what was wrong with that when it came from `.bak`: it may lack the last change.

        None without a file. `decoded` raises DamagedFile. Raises StoreOpenFailed when there is no whole copy. No file is changed: the
        next load says the same, until a newer version is saved. What is loaded stays: names are made durable before, or StorageFailure
        is raised.
        """
        try:
            self._settle()
            data, backup = self._bytes(kind.path), self._bytes(_backup(kind))
        except OSError as error:
            raise StoreOpenFailed(kind.path, str(error)) from error
        if data is None and backup is None:
            return None, ""
        problem = "is missing"
        if data is not None:
            try:
                found = decoded(data)
            except DamagedFile as damage:
                problem = f"is damaged ({damage})"
            else:
                self._whole[kind.path] = crc32(data)
                return found, ""
        if backup is None:
            raise StoreOpenFailed(kind.path, f"it {problem} and has no .bak; put a good copy there, or remove it and lose the {kind.name}")
        try:
            return decoded(backup), problem
        except DamagedFile as damage:
            raise StoreOpenFailed(kind.path, f"it {problem}, and its .bak is damaged ({damage}); put a good copy there") from damage

    def save(self, kind: TableKind[R], table: Table[R]) -> Generator[None, None, None]:
        """Durably replace the table's file, in steps that a crash may separate.

        DiskFull before anything is written; StorageFailure when the disk fails.
        """
        yield from self.save_bytes(kind, self._texts.setdefault(kind.path, RowTexts(kind)).encode(table))

    def save_bytes(self, kind: TableKind[Any], data: bytes) -> Generator[None, None, None]:
        """The same with a file that is encoded already."""
        free, needed = self._storage.free_bytes(), len(data) + MIN_FREE_BYTES
        if free < needed:
            raise DiskFull(self._node, free, needed)
        try:
            held = self._bytes(kind.path)
        except OSError as error:
            raise StorageFailure("reading", kind.path, str(error)) from error
        # One that has rotted must not take the .bak with it.
        backup = _backup(kind) if held is not None and self._is_whole(kind, held) else ""
        try:
            self._make_folder()
            write_replacement(self._storage, kind.path, data)
            yield
            put_in_place(self._storage, kind.path, backup=backup)
        except OSError as error:
            raise StorageFailure("replacement", kind.path, str(error)) from error
        self._whole[kind.path] = crc32(data)

    def _is_whole(self, kind: TableKind[Any], data: bytes) -> bool:
        """Decoded only where it is not what was last seen or written: of a large table that takes seconds."""
        if crc32(data) == self._whole.get(kind.path):
            return True
        try:
            decode(kind, data)
        except DamagedFile:
            return False
        return True

    def _settle(self) -> None:
        """Make durable the names that are seen: who gave them may have been killed before they were."""
        if not self._is_settled and self._storage.exists(_FOLDER):
            for folder in ("", _FOLDER):
                self._storage.sync_folder(folder)
            self._is_settled = True

    def _make_folder(self) -> None:
        if not self._is_settled:
            self._storage.make_folder(_FOLDER)
            self._settle()

    def _bytes(self, path: str) -> bytes | None:
        """The file's bytes, None where there is no file."""
        try:
            return read_file(self._storage, path)
        except FileNotFoundError:
            return None


def _backup(kind: TableKind[R]) -> str:
    return f"{kind.path}.bak"
