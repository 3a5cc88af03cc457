"""⑤ A slave's appends: bytes as the master wrote them, verified record by record before they are written.

A chunk may end inside a record. Its bytes are written at once; the record counts when its last byte has come.
"""

from dittomq.commitlog.disk.log import Log
from dittomq.commitlog.disk.scanning import Scanner, scan_bytes
from dittomq.commitlog.queues.indexes import DerivedIndexes
from dittomq.commitlog.records.checksum_policy import ChecksumPolicy
from dittomq.commitlog.records.format import MARK_BYTES, MAX_RECORD_BYTES
from dittomq.errors import CorruptRecord, InvalidField, OffsetOutOfRange


class ReplicaAppender:
    """Writes chunks to a log. One thread at a time. `end` is the end of the last whole record."""

    def __init__(self, log: Log, seals: ChecksumPolicy, derived: DerivedIndexes, node: str, *, scan: Scanner = scan_bytes) -> None:
        """`scan` is another one only to be compared."""
        self.end = log.end
        self._scan = scan
        self._log = log
        self._seals = seals
        self._derived = derived
        self._node = node
        self._partial = b""

    @property
    def partial(self) -> bytes:
        """Bytes that are written behind `end`."""
        return self._partial

    def skip(self, start: int, end: int) -> None:
        """Leave zeros in [start, end), which the caller has noted as a hole, and go on behind it."""
        assert start == self.end == self._log.end, "a hole begins where the log ends"
        self._log.write(b"", gap=end - start)
        self._derived.dispatch.pass_over(end)
        self.end = end

    def write(self, offset: int, data: bytes) -> int:
        """Write the chunk at the end; returns where the last whole record ends. Raises CorruptRecord with nothing written."""
        if offset != self._log.end:
            raise OffsetOutOfRange("byte", offset, self._log.end, self._log.end)
        _, segment_end = self._log.segment_of(offset)
        if offset + len(data) > segment_end:
            raise InvalidField("data", f"the chunk goes past the segment's end at {segment_end:,}")
        joined = self._partial + data if self._partial else data
        batches, found = self._scan(joined, self.end, segment_end, self._seals.at(self.end).sealed)
        if found.problem:
            raise CorruptRecord(self._node, found.end, found.problem)
        rest = joined[found.end - self.end :]
        if len(rest) > MAX_RECORD_BYTES + MARK_BYTES:
            raise CorruptRecord(self._node, found.end, "a record has more bytes than the limit allows")
        self._log.write(data)
        self._partial = rest
        if found.end > self.end:
            self.end = found.end
            self._derived.absorb(batches, found)
        return self.end
