"""What one broker group answered to a call that goes to each."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from dittomq.errors import DittoError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class GroupResult(Generic[T]):
    """What one broker group answered: `value`, or `error` where it could not be done."""

    broker: str
    value: T | None
    error: DittoError | None
