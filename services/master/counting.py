"""How many messages are confirmed, and how many lie in a stretch of the log."""

from collections import deque
from typing import Final

from dittomq.commitlog.records.format import scan
from dittomq.commitlog.store import Store
from dittomq.errors import CorruptRecord, NotReady
from dittomq.offsets import PhysicalOffset

MAX_COUNTED_BYTES: Final = 256 * 1024 * 1024
_MAX_GROUPS: Final = 4_096
_AT_ONCE_BYTES: Final = 1024 * 1024


class MessageCount:
    """Messages of one term that are confirmed. Of more than 4,096 groups that are not, the newest count as one."""

    def __init__(self) -> None:
        self.confirmed = 0
        self._ahead: deque[tuple[PhysicalOffset, int]] = deque()

    def written(self, end: PhysicalOffset, messages: int) -> None:
        """So many messages, the next of the log, lie below `end`."""
        if len(self._ahead) >= _MAX_GROUPS:
            messages += self._ahead.pop()[1]
        self._ahead.append((end, messages))

    def confirmed_to(self, end: PhysicalOffset) -> None:
        """What lies below `end` is confirmed."""
        while self._ahead and self._ahead[0][0] <= end:
            self.confirmed += self._ahead.popleft()[1]


def count_messages(store: Store, start: PhysicalOffset, end: PhysicalOffset) -> int | None:
    """Messages in [start, end), which are borders of records, one by one; None where nobody can say.

    That is for more than 256 MiB, damaged or dropped ones, and what cannot be read now. Blocks.
    """
    if end - start > MAX_COUNTED_BYTES or start < store.min_offset:
        return None
    count = 0
    while start < end:
        _, segment_end = store.segment_of(start)
        try:
            data = store.read_records(start, end, _AT_ONCE_BYTES)
        except (CorruptRecord, NotReady):
            return None
        if not data:
            return None
        count += sum(entry.queue >= 0 for entry in scan(data, start, segment_end).entries)
        start = PhysicalOffset(start + len(data))
    return count
