"""The root, and what can happen anywhere: nobody answers, or the disk fails."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar


class DittoError(Exception):
    """Root of the tree. `reason` is a name of ditto.error.v1.ErrorReason, or our own where it never crosses the wire."""

    reason: ClassVar[str] = "UNSPECIFIED"


@dataclass(eq=False)
class StoreFailed(DittoError):
    """A write or sync failed. It is never repeated: the node stops and what was in flight is unknown."""

    reason: ClassVar[str] = "STORE_FAILED"
    operation: str
    path: str
    problem: str

    def __str__(self) -> str:
        return f"{self.operation} of {self.path} failed: {self.problem}; the node stops, check its disk and start it again"


@dataclass(eq=False)
class OutOfReach(DittoError):
    """Nobody answers, or not in time."""

    reason: ClassVar[str] = "OUT_OF_REACH"
    who: str
    problem: str

    def __str__(self) -> str:
        return f"{self.who} does not answer: {self.problem}"


@dataclass(eq=False)
class ConnectionRefused(OutOfReach):
    """Its machine answered at once that nothing listens there: the process does not run, or is just about to."""


@dataclass(eq=False)
class EpochOver(OutOfReach):
    """A master heard of a newer epoch than its own and acknowledges nothing more: what was in flight is unknown. Crosses the wire."""

    reason: ClassVar[str] = "EPOCH_OVER"

    def __str__(self) -> str:
        return f"{self.who} acknowledges nothing more: {self.problem}"


def first_of(group: BaseExceptionGroup[DittoError]) -> DittoError:
    """Of a task group's failures the one to go on with: that the store failed, or the first.

    To be raised behind the `except*`, never in it: before Python 3.11.4 what is raised there comes out in one more group.
    """
    found = [error for error in leaves(group) if isinstance(error, DittoError)]
    return next((error for error in found if isinstance(error, StoreFailed)), found[0])


def leaves(raised: BaseException) -> Iterator[BaseException]:
    """What was raised: itself, or of a task group's failure all that it is made of, however deep."""
    if isinstance(raised, BaseExceptionGroup):
        for inner in raised.exceptions:
            yield from leaves(inner)
    else:
        yield raised
