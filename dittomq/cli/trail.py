"""What `consume --follow` remembers of what it has printed, to see where others lie there later."""

import zlib
from typing import TYPE_CHECKING

from dittomq.errors import DittoError, OffsetOutOfRange

if TYPE_CHECKING:  # the client brings gRPC, which `--help` must not wait for
    from dittomq.client import Page
    from dittomq.message import StoredMessage

_COMPARED = 1_024


class Trail:
    """The newest printed messages of one queue, and by whom they were told: a new master may have put others in their places.

    A copy says which epoch its log is in when it is asked, and answers when there is something: what it had last may be of a newer one.
    """

    def __init__(self) -> None:
        self._printed: dict[int, tuple[int, int, int]] = {}  # by offset, in order: place in the log, store time, digest of the body
        self._is_whole = True  # none that was printed is forgotten
        self._sure = -1  # the last one before the newest page
        self._copy: tuple[str, int | None] | None = (
            None  # node and epoch of the newest page; None: the next node that answers may have others
        )
        self._is_unconfirmed = False
        self._probed: int | None = None
        self.end = 0  # behind the last one that was printed

    @property
    def start(self) -> int | None:
        """The first offset that is remembered, None while there is none."""
        return next(iter(self._printed), None)

    def interrupted(self) -> None:
        """No node answered for a while."""
        self._copy = None

    def look_again(self, page: "Page", offset: int) -> int | None:
        """Where to read once more what was printed before `offset`, since the copy that answered there may hold others; None: go on.

        One message is enough where it is still the same one: logs that have it in one place have the same before it.
        """
        start = self.start
        if start is None or offset <= start:
            return None
        probed, self._probed = self._probed, None
        if page.max_offset < offset:
            return start
        if offset == probed:
            return None if page.messages and _identity(page.messages[0]) == self._printed.get(offset) else start
        is_settled = self._is_unconfirmed and page.confirmed > next(reversed(self._printed.values()))[0]
        if (page.node, page.epoch) != self._copy or is_settled:
            self._probed = max((each for each in self._printed if each <= self._sure), default=start)
        return self._probed

    def take(self, page: "Page") -> "tuple[tuple[StoredMessage, ...], int | None, bool]":
        """The messages that were not printed yet, and from where on others lie where printed ones lay; None: nowhere.

        And whether others may lie before that too, where those lay that are no more remembered.
        """
        self._copy = page.node, page.epoch
        if page.messages:
            self._is_unconfirmed = page.unconfirmed_from is not None
        found: dict[int, tuple[int, int, int]] = {message.queue_offset: _identity(message) for message in page.messages}
        other_from = next((offset for offset, identity in found.items() if self._printed.get(offset, identity) != identity), None)
        perhaps_before = other_from == self.start and not self._is_whole
        if other_from is not None:
            self._printed = {offset: identity for offset, identity in self._printed.items() if offset < other_from}
            self.end = other_from
        fresh = tuple(message for message in page.messages if message.queue_offset >= self.end)
        if fresh:
            self._sure = self.end - 1
            self._printed |= {message.queue_offset: found[message.queue_offset] for message in fresh}
            self.end = fresh[-1].queue_offset + 1
        for offset in list(self._printed)[:-_COMPARED]:
            self._forget(offset)
        return fresh, other_from, perhaps_before

    def pass_over(self, offset: int, problem: DittoError) -> int:
        """What was printed at `offset` is there no more to be compared; where to go on."""
        gone = [offset]
        if isinstance(problem, OffsetOutOfRange):
            gone = [each for each in self._printed if each < problem.start]
        for each in gone:
            self._forget(each)
        return next((each for each in self._printed if each > offset), self.end)

    def _forget(self, offset: int) -> None:
        if self._printed.pop(offset, None) is not None:
            self._is_whole = False


def _identity(message: "StoredMessage") -> tuple[int, int, int]:
    return message.physical_offset, message.store_ms, zlib.crc32(message.body)
