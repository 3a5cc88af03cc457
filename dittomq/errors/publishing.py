"""What publishing raises. A caller has one question: may I send it again?"""

from dataclasses import dataclass
from typing import ClassVar

from dittomq.errors.root import DittoError
from dittomq.message import Receipt


@dataclass(eq=False)
class NotStored(DittoError):
    """Surely not in any log. `index` is the message's place in what was published together, `cause` what refused it."""

    reason: ClassVar[str] = "NOT_STORED"
    sentence: ClassVar[str] = "not stored: {0.cause}"
    topic: str
    cause: DittoError
    index: int = 0


@dataclass(eq=False)
class AckLevelNotReached(DittoError):
    """Stored, on fewer or less safe copies than asked; the receipt names them."""

    reason: ClassVar[str] = "ACK_LEVEL_NOT_REACHED"
    receipt: Receipt

    def __str__(self) -> str:
        copies = ", ".join(map(str, self.receipt.copies)) or "no copy known"
        return f"stored weaker than {self.receipt.asked}: {self.receipt.status}, {copies}; do not send it again"


@dataclass(frozen=True, slots=True)
class OutcomeHandle:
    """Names a message whose answer was lost, for `resolve`."""

    broker: str
    producer_id: str
    sequence: int
    topic: str
    queue: int


@dataclass(eq=False)
class OutcomeUnknown(DittoError):
    """The answer was lost: in the log or not. Sending again through the same producer, or `resolve`, cannot store it twice."""

    reason: ClassVar[str] = "OUTCOME_UNKNOWN"
    sentence: ClassVar[str] = "outcome unknown: {0.problem}; ask with resolve, or send it again through the same producer"
    handle: OutcomeHandle
    problem: str
