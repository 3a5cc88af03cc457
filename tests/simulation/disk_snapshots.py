"""The copies of a group as they lie on their disks at some moment, without any code of the product between."""

import json
from collections.abc import Iterator, Mapping

from dittomq.group_record import ReplicaId
from tests.simulation.disk import PAGE, Disk, Inode
from tests.simulation.parser import BLANK, Malformed, ParsedRecord, parse_record

LOG = "commitlog/"
ANEW = "dittomq/resync/commitlog/"  # a slave that copies its master's log anew


def replica_on(disk: Disk) -> ReplicaId | None:
    """Who the store on a disk says that it is; None while it does not."""
    inode = disk.names.files.get("dittomq/replica")
    slot = b"" if inode is None else inode.read(PAGE, 0)
    try:
        state = json.loads(slot[22 : 22 + int.from_bytes(slot[14:22], "big")])
    except ValueError:
        return None
    return ReplicaId(state["uuid"], state["incarnation"])


class Copy:
    """One node's log; of one that copies it anew, what either store holds."""

    def __init__(self, disk: Disk, segment_bytes: int) -> None:
        self._disk = disk
        self._segment_bytes = segment_bytes

    def record(self, offset: int, size: int, *, durable: bool = False) -> ParsedRecord:
        """The record that lies there, as written or as a power loss would leave it; raises Malformed."""
        problem = Malformed(f"no file holds [{offset}, {offset + size})")
        for folder in (LOG, ANEW):
            raw = self._raw(folder, offset, size, durable=durable)
            if len(raw) == size:
                try:
                    return parse_record(raw, offset)
                except Malformed as malformed:
                    problem = malformed
        raise problem

    def content(self, start: int, end: int) -> bytes:
        """Bytes of the store that a slave follows into, as written; zeros where there are none."""
        parts = []
        at = start
        folder = self._newest
        while at < end:
            base = at - at % self._segment_bytes
            stop = min(end, base + self._segment_bytes)
            parts.append(self._raw(folder, at, stop - at).ljust(stop - at, b"\0"))
            at = stop
        return b"".join(parts)

    def durable(self, start: int, end: int) -> tuple[bytes, ...]:
        """Of each store, bytes of the log that a power loss would leave; fewer where it holds less."""
        return tuple(b"".join(self._pieces(folder, start, end)) for folder in (LOG, ANEW))

    def flip(self, position: int, bits: int) -> bool:
        """Change bits of a byte on the disk; whether it lies still there."""
        inode = self._file_of(position)
        return inode is not None and inode.flip(position % self._segment_bytes, bits)

    def fail(self, position: int) -> bool:
        """Let the disk not give the page of a byte any more; whether it lies still there."""
        inode = self._file_of(position)
        return inode is not None and inode.fail(position % self._segment_bytes)

    def remove(self, start: int) -> tuple[int, int]:
        """Remove the file that begins there, durably, behind the back of whoever uses it; what it held."""
        self._disk.take_away(f"{LOG}{start:020d}")
        return start, start + self._segment_bytes

    def segment_of(self, position: int) -> int:
        """Where the file begins that has this byte."""
        return position - position % self._segment_bytes

    def spans(self, position: int) -> list[tuple[int, int, bool]]:
        """Where records, and the blank at the end, of the page of that byte begin, their sizes, and whether it is no blank."""
        page = position - position % PAGE
        return [span for span in self.spans_of(self.segment_of(position)) if span[0] < page + PAGE and span[0] + span[1] > page]

    def spans_of(self, start: int) -> Iterator[tuple[int, int, bool]]:
        """The same of the file that begins there."""
        raw, at = self._raw(LOG, start, self._segment_bytes), start
        while at < start + len(raw) and (size := int.from_bytes(raw[at - start : at - start + 4], "big")) > 0:
            yield at, size, int.from_bytes(raw[at - start + 4 : at - start + 8], "big", signed=True) != BLANK
            at += size

    @property
    def begin(self) -> int:
        """Where the first file of that store begins."""
        return min(self.segments(self._newest), default=0)

    @property
    def end(self) -> int:
        """Where the last record of the log ends, as far as it can be read."""
        last = max(self.segments(), default=0)
        start, raw = last, self._raw(LOG, last, self._segment_bytes)
        while (size := int.from_bytes(raw[last - start : last - start + 4], "big")) > 0 and last - start + size <= len(raw):
            last += size
        return last

    def segments(self, folder: str = LOG) -> list[int]:
        """Where the files of a store begin."""
        return [int(path.removeprefix(folder)) for path in self._disk.names.files if path.startswith(folder)]

    @property
    def is_being_made_anew(self) -> bool:
        """Whether it is copied anew, and that copy has not taken the old one's place."""
        return bool(self.segments(ANEW))

    @property
    def _newest(self) -> str:
        return ANEW if self.is_being_made_anew else LOG

    def _file_of(self, position: int) -> Inode | None:
        return self._disk.names.files.get(f"{LOG}{position - position % self._segment_bytes:020d}")

    def _pieces(self, folder: str, start: int, end: int) -> Iterator[bytes]:
        while start < end:
            stop = min(end, start - start % self._segment_bytes + self._segment_bytes)
            piece = self._raw(folder, start, stop - start, durable=True)
            yield piece
            if len(piece) < stop - start:
                return
            start = stop

    def _raw(self, folder: str, offset: int, size: int, *, durable: bool = False) -> bytes:
        """Bytes of one file, fewer where it ends."""
        start = offset - offset % self._segment_bytes
        path = f"{folder}{start:020d}"
        if durable:
            return self._disk.durable(path, size, offset - start)
        inode = self._disk.names.files.get(path)
        return b"" if inode is None else inode.read(size, offset - start)


class Files(Mapping[str, bytes]):
    """The files below one folder as written; each is read when it is asked for."""

    def __init__(self, disk: Disk, folder: str = LOG) -> None:
        self._files = {path: inode for path, inode in disk.names.files.items() if path.startswith(folder)}

    def __getitem__(self, path: str) -> bytes:
        inode = self._files[path]
        return inode.read(inode.size, 0)

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)
