"""The copies of a group as they lie on their disks at some moment, without any code of the product between."""

from collections.abc import Iterator, Mapping

from tests.simulation.disk import Disk
from tests.simulation.parser import Malformed, ParsedRecord, parse_record

_FOLDER = "commitlog/"


class Copy:
    """One node's log. `disk` tells which disk the machine has now."""

    def __init__(self, disk: Disk, segment_bytes: int) -> None:
        self._disk = disk
        self._segment_bytes = segment_bytes

    def record(self, offset: int, size: int, *, durable: bool = False) -> ParsedRecord:
        """The record that lies there, as written or as a power loss would leave it; raises Malformed."""
        start = offset - offset % self._segment_bytes
        path = f"{_FOLDER}{start:020d}"
        if durable:
            raw = self._disk.durable(path, size, offset - start)
        else:
            inode = self._disk.names.files.get(path)
            raw = b"" if inode is None else inode.read(size, offset - start)
        if len(raw) < size:
            raise Malformed(f"no file holds [{offset}, {offset + size})")
        return parse_record(raw, offset)

    def content(self, start: int, end: int) -> bytes:
        """Bytes as written; zeros where there are none."""
        parts = []
        at = start
        while at < end:
            base = at - at % self._segment_bytes
            stop = min(end, base + self._segment_bytes)
            inode = self._disk.names.files.get(f"{_FOLDER}{base:020d}")
            parts.append((b"" if inode is None else inode.read(stop - at, at - base)).ljust(stop - at, b"\0"))
            at = stop
        return b"".join(parts)

    @property
    def begin(self) -> int:
        """Where its first file begins."""
        return min((int(path.removeprefix(_FOLDER)) for path in self._disk.names.files if path.startswith(_FOLDER)), default=0)


class Files(Mapping[str, bytes]):
    """The files below one folder as written; each is read when it is asked for."""

    def __init__(self, disk: Disk, folder: str = _FOLDER) -> None:
        self._files = {path: inode for path, inode in disk.names.files.items() if path.startswith(folder)}

    def __getitem__(self, path: str) -> bytes:
        inode = self._files[path]
        return inode.read(inode.size, 0)

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)
