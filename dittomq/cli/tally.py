"""What became of the messages of one publish, counted, and the line that says so."""

from collections.abc import Iterable
from dataclasses import dataclass

from dittomq.cli.exits import ExitCode, exit_of
from dittomq.errors import AckLevelNotReached, DittoError, OutcomeUnknown
from dittomq.message import Ack, CopyState, PutStatus, Receipt

_REACHED = {
    None: "as asked",
    Ack.MASTER_RECEIVED: "written by the master",
    Ack.MASTER_FLUSHED: "flushed by the master",
    Ack.REPLICA_RECEIVED: "received by {copies} or more copies",
    Ack.REPLICA_FLUSHED: "flushed on {copies} or more copies",
}

Outcome = Receipt | DittoError


@dataclass(slots=True)
class Tally:
    """Counts outcomes; `first_error` is the first reason why something is not as asked.

    `handed`: messages that were given to the client, whether it was heard what became of them or not.
    `asked`: the level that holds for every message that reached its own; before the first, the one asked for, None for the groups' own.
    It is said only of messages that reached it.
    """

    asked: Ack | None = None
    handed: int = 0
    reached: int = 0
    weaker: int = 0
    not_stored: int = 0
    unknown: int = 0
    fewest_copies: int | None = None
    first_error: DittoError | None = None

    @property
    def stored(self) -> int:
        """Messages that are surely in the log."""
        return self.reached + self.weaker

    def add(self, outcome: Outcome) -> None:
        """Count one message."""
        if isinstance(outcome, AckLevelNotReached):
            self._record_error(outcome)
            self.weaker += 1
        elif isinstance(outcome, OutcomeUnknown):
            self._record_error(outcome)
            self.unknown += 1
        elif isinstance(outcome, DittoError):
            self._record_error(outcome)
            self.not_stored += 1
        else:
            self._add_receipt(outcome)

    def add_all(self, outcomes: Iterable[Outcome]) -> None:
        """Count many."""
        for outcome in outcomes:
            self.add(outcome)

    def break_off(self) -> None:
        """What became of the others that were handed over is unknown, and stays so."""
        self.unknown = self.handed - self.stored - self.not_stored

    def summary(self, seconds: float) -> str:
        """The line that is printed when all is done."""
        reached = _REACHED[self.asked if self.reached else None].format(copies=self.fewest_copies or 1)
        counts = (
            f"{self.stored:,} stored · {self.reached:,} {reached} · {self.weaker:,} weaker · "
            f"{self.not_stored:,} not stored · {self.unknown:,} unknown"
        )
        return f"{counts} · {seconds:.1f} s, {self.stored / max(seconds, 0.001):,.0f} messages/s"

    def document(self) -> dict[str, object]:
        """The same for programs."""
        return {
            "stored": self.stored,
            "reached": self.reached,
            "weaker": self.weaker,
            "not_stored": self.not_stored,
            "unknown": self.unknown,
            "asked": None if self.weaker and not self.reached else self.asked,
            "fewest_copies": self.fewest_copies,
            "first_error": str(self.first_error) if self.first_error else None,
        }

    def exit(self) -> ExitCode:
        """The worst of what happened, unknown first: only there may a repetition be needed that is not safe by itself."""
        if self.unknown:
            return ExitCode.UNKNOWN
        if self.not_stored and not self.stored and self.first_error:
            return exit_of(self.first_error)
        return ExitCode.PARTLY if self.weaker or self.not_stored else ExitCode.DONE

    def _add_receipt(self, receipt: Receipt) -> None:
        if receipt.status is not PutStatus.PUT_OK:
            self._record_error(AckLevelNotReached(receipt))
            self.weaker += 1
            return
        self.asked = receipt.asked if self.asked is None else _in_both(self.asked, receipt.asked)
        self.reached += 1
        flushed_only = receipt.asked is Ack.REPLICA_FLUSHED
        copies = sum(not flushed_only or copy.state is CopyState.FLUSHED for copy in receipt.copies)
        self.fewest_copies = copies if self.fewest_copies is None else min(self.fewest_copies, copies)

    def _record_error(self, error: DittoError) -> None:
        self.first_error = self.first_error or error


def _in_both(one: Ack, other: Ack) -> Ack:
    """What holds for messages of either level. What enough copies have flushed the master itself need not have flushed."""
    if one is other:
        return one
    return Ack.REPLICA_RECEIVED if {one, other} == {Ack.REPLICA_RECEIVED, Ack.REPLICA_FLUSHED} else Ack.MASTER_RECEIVED
