"""Who may change a store, and when nobody may any more."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from types import TracebackType

from dittomq.errors import Refused, StorageFailure


class StoreLocks:
    """The store's locks, taken in the order copying, filing, dispatching, syncing, writing; and its failure, which is final."""

    def __init__(self) -> None:
        self.copying = threading.Lock()
        self.filing = threading.Lock()
        self.dispatching = threading.Lock()
        self.syncing = threading.Lock()
        self._writing = threading.Lock()
        self._failed: StorageFailure | None = None

    def guard(self, operation: str) -> AbstractContextManager[None]:
        """Run a change. What goes wrong in it, except a refusal, fails the store for good; a failed store raises StorageFailure."""
        return _Guard(self, operation, None)

    def writing(self, operation: str) -> AbstractContextManager[None]:
        """Like `guard`, one caller at a time."""
        return _Guard(self, operation, self._writing)

    def looking(self) -> AbstractContextManager[object]:
        """Look at what writers change."""
        return self._writing

    def check(self) -> None:
        """Raise StorageFailure when the store has failed."""
        if self._failed is not None:
            raise StorageFailure(self._failed.operation, self._failed.path, self._failed.problem)

    def fail(self, operation: str, error: BaseException) -> None:
        """A change went wrong. Raises what it raised as StorageFailure where the operating system raised it."""
        if isinstance(error, Refused | AssertionError):
            return
        if isinstance(error, OSError):
            self._failed = StorageFailure(operation, str(error.filename or "the store"), str(error))
            raise self._failed from error
        self._failed = error if isinstance(error, StorageFailure) else StorageFailure(operation, "the store", repr(error))


class _Guard:
    """One change of a store, alone where it has a lock."""

    __slots__ = ("_gate", "_lock", "_operation")

    def __init__(self, gate: StoreLocks, operation: str, lock: "threading.Lock | None") -> None:
        self._gate = gate
        self._operation = operation
        self._lock = lock

    def __enter__(self) -> None:
        if self._lock is not None:
            self._lock.acquire()
        try:
            self._gate.check()
        except StorageFailure:
            if self._lock is not None:
                self._lock.release()
            raise

    def __exit__(self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if raised is not None:
                self._gate.fail(self._operation, raised)
        finally:
            if self._lock is not None:
                self._lock.release()


@contextlib.contextmanager
def reported(operation: str) -> Iterator[None]:
    """Raise what the operating system says as StorageFailure."""
    try:
        yield
    except OSError as error:
        raise StorageFailure(operation, str(error.filename or "the store"), str(error)) from error


@contextlib.contextmanager
def confessed(confess: Callable[[], None]) -> Iterator[None]:
    """After a StorageFailure call `confess`, if the disk still lets it; the failure goes on."""
    try:
        yield
    except StorageFailure:
        with contextlib.suppress(StorageFailure):
            confess()
        raise
