"""Half messages in the log of a master, and which of them have ended.

One that is not whole here may be whole elsewhere: it is told of, waited for, and passed over in the end, so that it holds up no other.
"""

from collections.abc import Callable
from typing import Final

import structlog

from dittomq.commitlog.store import Store
from dittomq.delays import OP_TOPIC
from dittomq.errors import CorruptRecord, MessageTooLarge, OffsetOutOfRange
from dittomq.message import StoredMessage
from dittomq.offsets import PhysicalOffset, QueueOffset
from dittomq.reads import MAX_LONG, ReadableRange
from dittomq.transactions import HALF_TOPIC
from services.master.system_queues import RepairWait, newest_about, stored_from

_WINDOW_MS: Final = 86_400_000
"""Transactions that began so long before the newest record ended long ago: the last check of one comes some 13 minutes after its begin."""
_READ: Final = 256, 1024 * 1024

log = structlog.get_logger()


class HalfMessages:
    """Every call blocks, and raises NotReady where nothing can be read now. `damaged` is told where a record is not whole."""

    def __init__(self, node: str, store: Store, damaged: Callable[[int], None]) -> None:
        self._node = node
        self._store = store
        self._damaged = damaged
        self._scanned = QueueOffset(0)
        self._wait = RepairWait()

    def ended(self, left_by_rocketmq: int) -> set[int]:
        """Queue offsets of half messages of the last day that have ended, by RocketMQ too; what has come later is new.

        Below `left_by_rocketmq` none is asked about: RocketMQ has ended it, or stored it once more behind that, or put it aside.
        """
        store, since_ms = self._store, self._newest_ms() - _WINDOW_MS
        self._scanned = QueueOffset(max(store.offset_at(HALF_TOPIC, 0, since_ms, MAX_LONG) or 0, left_by_rocketmq))
        first = store.offset_at(OP_TOPIC, 0, since_ms, MAX_LONG) or QueueOffset(0)
        offsets = (offset for op in stored_from(store, OP_TOPIC, first) for offset in op.body.split(b","))
        return {int(offset) for offset in offsets if offset.isdigit()}

    def unseen(self, confirmed: PhysicalOffset, now_s: float) -> list[StoredMessage]:
        """Confirmed half messages that no call has returned yet; none while the next one waits for its repair."""
        low, high = self._store.queue_range(HALF_TOPIC, 0)
        self._scanned = max(self._scanned, low)
        if self._scanned >= high:
            return []
        try:
            found = self._store.read_queue(HALF_TOPIC, 0, self._scanned, *_READ, readable=ReadableRange(confirmed, confirmed))
        except OffsetOutOfRange:  # dropped after the look at the range
            return []
        except (CorruptRecord, MessageTooLarge) as problem:
            if isinstance(problem, CorruptRecord):
                self._damaged(problem.position)
            if self._wait.is_over(self._scanned, problem, now_s):
                log.warning("half_message_passed_over", node=self._node, offset=self._scanned, reason=str(problem))
                self._scanned = QueueOffset(self._scanned + 1)
            return []
        self._scanned = found.next_offset
        return found.messages

    def find(self, position: PhysicalOffset) -> tuple[StoredMessage | None, StoredMessage | None]:
        """The half message, and the op record that has ended it. Raises CorruptRecord where that is not known, MessageTooLarge."""
        found = self._store.message_at(position, MAX_LONG)
        return None if found is None else found[0], newest_about(self._store, OP_TOPIC, position)

    def _newest_ms(self) -> int:
        """When the newest one was stored; 0 where there is none, or it is not whole: then all that have ended are looked at."""
        _, high = self._store.queue_range(HALF_TOPIC, 0)
        return max((half.store_ms for half in stored_from(self._store, HALF_TOPIC, max(0, high - 1))), default=0)
