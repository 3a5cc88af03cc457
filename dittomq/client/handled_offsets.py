"""How far one queue is handled: pure. What is committed is the lowest queue offset that is not handled yet, so nothing is ever skipped."""

from collections import deque


class HandledOffsets:
    """`position` is the next queue offset to read. Offsets are delivered in order, and handled in any order."""

    def __init__(self, position: int) -> None:
        self.position = position
        self._waiting: deque[int] = deque()  # delivered, in order; the leading one is not handled
        self._handled: set[int] = set()  # of those behind it

    @property
    def committable(self) -> int:
        """Everything below is handled, or was not for this group."""
        return self._waiting[0] if self._waiting else self.position

    @property
    def unhandled(self) -> int:
        """How many were delivered and are not handled."""
        return len(self._waiting) - len(self._handled)

    def deliver(self, offset: int) -> None:
        """A message at that offset, not below `position`, is handed out; what lies before it was not for this group."""
        self._waiting.append(offset)
        self.position = offset + 1

    def pass_to(self, position: int) -> None:
        """What lies below is read; the rest of it was not for this group."""
        self.position = max(self.position, position)

    def handle(self, offset: int) -> None:
        """The message at that offset needs nothing more. A second time changes nothing."""
        waiting, handled = self._waiting, self._handled
        if not waiting or offset < waiting[0]:
            return
        handled.add(offset)
        while waiting and waiting[0] in handled:
            handled.remove(waiting.popleft())
