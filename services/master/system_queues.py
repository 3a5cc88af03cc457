"""The system's own queues, read as far as they are whole: what one of their records says must not depend on the others."""

from collections.abc import Iterator
from typing import Final

from dittomq.commitlog.store import KeySearch, Store
from dittomq.errors import CorruptRecord, MessageTooLarge, OffsetOutOfRange
from dittomq.message import StoredMessage
from dittomq.offsets import QueueOffset
from dittomq.reads import MAX_LONG

REPAIR_S: Final = 600.0
"""How long a record that is not whole is waited for."""
_READ: Final = 1_024, 4 * 1024 * 1024


def stored_from(store: Store, topic: str, first: int) -> Iterator[StoredMessage]:
    """What queue 0 of a topic holds from there on. What is not whole is left out, and so is what is dropped meanwhile.

    Blocks. Raises NotReady.
    """
    at = first
    while at < (span := store.queue_range(topic, 0))[1]:
        at = max(at, span[0])
        try:
            found = store.read_queue(topic, 0, QueueOffset(at), *_READ)
        except (CorruptRecord, MessageTooLarge):
            at += 1
        except OffsetOutOfRange:
            continue  # it was dropped, or cut, after the look at the range
        else:
            yield from found.messages
            at = max(found.next_offset, at + 1)


def newest_about(store: Store, topic: str, position: int) -> StoredMessage | None:
    """The newest record of a topic about the message that lies there in the log: its key says so. Blocks.

    Raises CorruptRecord where a newer one that is not whole may be about it too.
    """
    found = store.find_by_key(KeySearch(topic, str(position), 0, MAX_LONG, MAX_LONG, most=1, most_bytes=1), MAX_LONG)
    for suspect in found.suspects:
        store.message_at(suspect, MAX_LONG)
    return next(iter(found.messages), None)


class RepairWait:
    """Since when somebody waits for one record that cannot be had, in front of all others of its queue."""

    __slots__ = ("_offset", "_since")

    def __init__(self) -> None:
        self._offset = -1
        self._since = 0.0

    def is_over(self, offset: int, problem: CorruptRecord | MessageTooLarge, now_s: float) -> bool:
        """Whether the wait for that number of the queue has been long enough; it begins with the first question.

        What is too large stays so: nobody waits for it.
        """
        if offset != self._offset:
            self._offset, self._since = offset, now_s
        return isinstance(problem, MessageTooLarge) or now_s - self._since >= REPAIR_S
