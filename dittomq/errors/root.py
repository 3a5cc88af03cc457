"""The root, and what can happen anywhere: nobody answers, or the disk fails."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar


class DittoError(Exception):
    """Root of the tree. `reason` is a name of ditto.error.v1.ErrorReason, or our own where it never crosses the wire.

    `sentence` is what it says, with its fields as {0.field}; one whose words depend on its fields has a `__str__` of its own.
    """

    reason: ClassVar[str] = "UNSPECIFIED"
    sentence: ClassVar[str] = ""

    def __str__(self) -> str:
        return self.sentence.format(self) if self.sentence else super().__str__()


@dataclass(eq=False)
class StorageFailure(DittoError):
    """A write or sync failed. It is never repeated: the node stops and what was in flight is unknown."""

    reason: ClassVar[str] = "STORAGE_FAILURE"
    sentence: ClassVar[str] = "{0.operation} of {0.path} failed: {0.problem}; the node stops, check its disk and start it again"
    operation: str
    path: str
    problem: str


@dataclass(eq=False)
class Unavailable(DittoError):
    """Nobody answers, or not in time."""

    reason: ClassVar[str] = "UNAVAILABLE"
    sentence: ClassVar[str] = "{0.who} does not answer: {0.problem}"
    who: str
    problem: str


@dataclass(eq=False)
class ConnectionRefused(Unavailable):
    """Its machine answered at once that nothing listens there: the process does not run, or is just about to."""


@dataclass(eq=False)
class FencedEpoch(Unavailable):
    """A master heard of a newer epoch than its own and acknowledges nothing more: what was in flight is unknown. Crosses the wire."""

    reason: ClassVar[str] = "FENCED_EPOCH"
    sentence: ClassVar[str] = "{0.who} acknowledges nothing more: {0.problem}"


def first_of(group: BaseExceptionGroup[DittoError]) -> DittoError:
    """Of a task group's failures the one to go on with: that the store failed, or the first.

    To be raised behind the `except*`, never in it: before Python 3.11.4 what is raised there comes out in one more group.
    """
    found = [error for error in leaves(group) if isinstance(error, DittoError)]
    return next((error for error in found if isinstance(error, StorageFailure)), found[0])


def leaves(raised: BaseException) -> Iterator[BaseException]:
    """What was raised: itself, or of a task group's failure all that it is made of, however deep."""
    if isinstance(raised, BaseExceptionGroup):
        for inner in raised.exceptions:
            yield from leaves(inner)
    else:
        yield raised
