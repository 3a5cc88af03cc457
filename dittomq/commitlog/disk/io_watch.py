"""What a disk is doing: a call that hangs says nothing by itself."""

import contextlib
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType

from dittomq.errors import StorageFailure

Timed = Callable[[str], AbstractContextManager[None]]
"""A block around each sync of the file or folder at that path, entered in the thread that waits for the disk."""


def _untimed(_: str) -> AbstractContextManager[None]:
    return contextlib.nullcontext()


class IoWatch:
    """Writes and syncs of one file or folder that have not returned yet. A disk that hangs says nothing: somebody else must look.

    `timed` may be set to learn how long syncs take.
    """

    def __init__(self) -> None:
        self.timed: Timed = _untimed
        self._calls: dict[int, tuple[str, str]] = {}  # by thread

    def call(self, operation: str, path: str) -> AbstractContextManager[None]:
        """The call is under way while the block runs; its OSError becomes StorageFailure."""
        return _RunningIo(self._calls, (operation, path))

    def sync(self, operation: str, path: str) -> AbstractContextManager[None]:
        """The same of a call that waits for the disk; it is timed."""
        return _Sync(self._calls, (operation, path), self.timed(path))

    def now(self) -> list[tuple[str, str]]:
        """Operation and path of each; the same call is the same object as long as it is under way."""
        return list(self._calls.values())


class _RunningIo:
    """One of them: what it is called stands under its thread while it runs."""

    __slots__ = ("_calls", "_what")

    def __init__(self, calls: dict[int, tuple[str, str]], what: tuple[str, str]) -> None:
        self._calls = calls
        self._what = what

    def __enter__(self) -> None:
        self._calls[threading.get_ident()] = self._what

    def __exit__(self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None) -> None:
        del self._calls[threading.get_ident()]
        if isinstance(raised, OSError):
            raise StorageFailure(*self._what, str(raised)) from raised


class _Sync(_RunningIo):
    """One that is timed."""

    __slots__ = ("_timed",)

    def __init__(self, calls: dict[int, tuple[str, str]], what: tuple[str, str], timed: AbstractContextManager[None]) -> None:
        super().__init__(calls, what)
        self._timed = timed

    def __enter__(self) -> None:
        self._timed.__enter__()
        super().__enter__()

    def __exit__(self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None) -> None:
        self._timed.__exit__(kind, raised, trace)
        super().__exit__(kind, raised, trace)
