"""The producers that answer questions about transactions, by their groups. On the event loop."""

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Final

from dittomq.errors import LimitReached
from dittomq.wire.transactions import TransactionCheck

MAX_WATCHERS: Final = 256
_QUEUED_CHECKS: Final = 64  # of one watcher: what does not fit is asked again later


class CheckWatchers:
    """Each has a short queue of questions. Nothing is kept of a group that nobody watches for."""

    def __init__(self) -> None:
        self._of: dict[str, list[asyncio.Queue[TransactionCheck]]] = {}

    @property
    def groups(self) -> frozenset[str]:
        """For which somebody watches."""
        return frozenset(self._of)

    @contextlib.contextmanager
    def watching(self, group: str) -> Iterator[asyncio.Queue[TransactionCheck]]:
        """The questions to one producer of that group, until the block ends. Raises LimitReached."""
        if sum(map(len, self._of.values())) >= MAX_WATCHERS:
            raise LimitReached("the list of producers that answer checks", MAX_WATCHERS)
        questions: asyncio.Queue[TransactionCheck] = asyncio.Queue(_QUEUED_CHECKS)
        self._of.setdefault(group, []).append(questions)
        try:
            yield questions
        finally:
            self._of[group] = [each for each in self._of[group] if each is not questions]
            if not self._of[group]:
                del self._of[group]

    def next_of(self, group: str) -> asyncio.Queue[TransactionCheck] | None:
        """Whom to ask now; it is another one's turn next time. None while nobody watches."""
        watchers = self._of.get(group)
        if not watchers:
            return None
        watchers.append(watchers.pop(0))
        return watchers[-1]
