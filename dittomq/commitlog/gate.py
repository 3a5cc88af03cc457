"""Who may change a store, and when nobody may any more."""

import contextlib
import threading
from collections.abc import Callable, Iterator

from dittomq.errors import Refused, StoreFailed


class Gate:
    """The store's locks, taken in the order copying, filing, dispatching, syncing, writing; and its failure, which is final."""

    def __init__(self) -> None:
        self.copying = threading.Lock()
        self.filing = threading.Lock()
        self.dispatching = threading.Lock()
        self.syncing = threading.Lock()
        self._writing = threading.Lock()
        self._failed: StoreFailed | None = None

    @contextlib.contextmanager
    def guard(self, operation: str) -> Iterator[None]:
        """Run a change. What goes wrong in it, except a refusal, fails the store for good; a failed store raises StoreFailed."""
        self.check()
        try:
            yield
        except (Refused, AssertionError):
            raise
        except StoreFailed as failure:
            self._failed = failure
            raise
        except OSError as error:
            self._failed = StoreFailed(operation, str(error.filename or "the store"), str(error))
            raise self._failed from error
        except BaseException as error:
            self._failed = StoreFailed(operation, "the store", repr(error))
            raise

    @contextlib.contextmanager
    def writing(self, operation: str) -> Iterator[None]:
        """Like `guard`, one caller at a time."""
        with self._writing, self.guard(operation):
            yield

    @contextlib.contextmanager
    def looking(self) -> Iterator[None]:
        """Look at what writers change."""
        with self._writing:
            yield

    def check(self) -> None:
        """Raise StoreFailed when the store has failed."""
        if self._failed is not None:
            raise StoreFailed(self._failed.operation, self._failed.path, self._failed.problem)


@contextlib.contextmanager
def reported(operation: str) -> Iterator[None]:
    """Raise what the operating system says as StoreFailed."""
    try:
        yield
    except OSError as error:
        raise StoreFailed(operation, str(error.filename or "the store"), str(error)) from error


@contextlib.contextmanager
def confessed(confess: Callable[[], None]) -> Iterator[None]:
    """After a StoreFailed call `confess`, if the disk still lets it; the failure goes on."""
    try:
        yield
    except StoreFailed:
        with contextlib.suppress(StoreFailed):
            confess()
        raise
