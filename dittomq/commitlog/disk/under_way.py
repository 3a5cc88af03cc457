"""What a disk is doing: a call that hangs says nothing by itself."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

from dittomq.errors import StoreFailed

Timed = Callable[[str], AbstractContextManager[None]]
"""A block around each sync of the file or folder at that path, entered in the thread that waits for the disk."""


def _untimed(_: str) -> AbstractContextManager[None]:
    return contextlib.nullcontext()


class UnderWay:
    """Writes and syncs of one file or folder that have not returned yet. A disk that hangs says nothing: somebody else must look.

    `timed` may be set to learn how long syncs take.
    """

    def __init__(self) -> None:
        self.timed: Timed = _untimed
        self._calls: dict[int, tuple[str, str]] = {}  # by thread

    @contextlib.contextmanager
    def call(self, operation: str, path: str) -> Iterator[None]:
        """The call is under way while the block runs; its OSError becomes StoreFailed."""
        thread = threading.get_ident()
        self._calls[thread] = (operation, path)
        try:
            yield
        except OSError as error:
            raise StoreFailed(operation, path, str(error)) from error
        finally:
            del self._calls[thread]

    @contextlib.contextmanager
    def sync(self, operation: str, path: str) -> Iterator[None]:
        """The same of a call that waits for the disk; it is timed."""
        with self.timed(path), self.call(operation, path):
            yield

    def now(self) -> list[tuple[str, str]]:
        """Operation and path of each; the same call is the same object as long as it is under way."""
        return list(self._calls.values())
