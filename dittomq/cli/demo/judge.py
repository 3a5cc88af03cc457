"""The demo's verdict: what was read against what the producer was told. Pure, and blind to how either came about."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from dittomq.cli.demo.flights import Flight


class DemoMessageId(NamedTuple):
    """One message the demo sends: its publish (1, 2) and its line in the data set."""

    run: int
    line: int


class MessageLocation(NamedTuple):
    """Where a message lies, or was said to lie."""

    queue: int
    queue_offset: int


class Unreceipted(Enum):
    """What the producer knows of a message without a receipt."""

    UNKNOWN = auto()
    NOT_STORED = auto()


Ledger = Mapping[int, Sequence[MessageLocation | Unreceipted]]
"""What was told, by publish and line."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """Counts, and sentences about what is wrong; none: everything holds."""

    acknowledged: int
    unknown_present: int
    unknown_absent: int
    read: int
    wrong: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Whether every promise held."""
        return not self.wrong


def body_of(identity: DemoMessageId, record: bytes) -> bytes:
    """The body that is sent: the record, led by what makes it one of a kind."""
    return b"%d,%d,%s" % (identity.run, identity.line, record)


def identity_of(body: bytes) -> DemoMessageId | None:
    """The identity that a body carries, None when it is no body of the demo."""
    run, comma, rest = body.partition(b",")
    line, second_comma, _ = rest.partition(b",")
    if not (comma and second_comma and run.isdigit() and line.isdigit()):
        return None
    return DemoMessageId(int(run), int(line))


class Judge:
    """Hears everything that was read, queue by queue, then judges.

    It holds when each acknowledged message is there once and at the place its receipt names, an unknown one once or not
    at all, nothing that was refused or never sent, every body byte for byte, queue offsets without gap or repetition,
    and the flights of one aircraft in one queue in the order in which they were sent.
    """

    def __init__(self, ledger: Ledger, flights: Sequence[Flight]) -> None:
        self._ledger = ledger
        self._flights = flights
        self._wrong: list[str] = []
        self._counted = {run: bytearray(len(told)) for run, told in ledger.items()}
        self._next_offsets: dict[int, int] = {}
        self._last_of_aircraft: dict[tuple[int, str], tuple[int, int]] = {}
        self._count = 0

    def count(self, at: MessageLocation, body: bytes) -> None:
        """Take in the next message of a queue."""
        self._count += 1
        expected = self._next_offsets.get(at.queue, 0)
        if at.queue_offset != expected:
            self._wrong.append(f"queue {at.queue} goes on at offset {at.queue_offset:,}, {expected:,} was next")
        self._next_offsets[at.queue] = at.queue_offset + 1
        identity = identity_of(body)
        if identity is None or not self._was_sent(identity, body):
            self._wrong.append(f"{_at(at)} holds what was never sent: {body[:60]!r}")
            return
        self._count_known(identity, at)

    def judge(self) -> Judgement:
        """The verdict over everything heard."""
        pairs = [pair for run, told in self._ledger.items() for pair in zip(told, self._counted[run], strict=True)]
        unknown = [heard for told, heard in pairs if told is Unreceipted.UNKNOWN]
        acknowledged = sum(isinstance(told, MessageLocation) for told, _ in pairs)
        wrong = (*self._wrong, *self._lost())
        return Judgement(acknowledged, sum(unknown), len(unknown) - sum(unknown), self._count, wrong)

    def _lost(self) -> Iterator[str]:
        for run, told in self._ledger.items():
            for line, (outcome, heard) in enumerate(zip(told, self._counted[run], strict=True)):
                if isinstance(outcome, MessageLocation) and not heard:
                    yield f"{_name(DemoMessageId(run, line))} was acknowledged and is not there"

    def _was_sent(self, identity: DemoMessageId, body: bytes) -> bool:
        known = identity.run in self._ledger and identity.line < len(self._ledger[identity.run])
        return known and body == body_of(identity, self._flights[identity.line].line)

    def _count_known(self, identity: DemoMessageId, at: MessageLocation) -> None:
        told = self._ledger[identity.run][identity.line]
        if told is Unreceipted.NOT_STORED:
            self._wrong.append(f"{_name(identity)} was refused and is there")
        if isinstance(told, MessageLocation) and told != at:
            self._wrong.append(f"{_name(identity)} is at {_at(at)}, its receipt says {_at(told)}")
        heard = self._counted[identity.run]
        if heard[identity.line]:
            self._wrong.append(f"{_name(identity)} is there twice")
        heard[identity.line] = 1
        aircraft = (identity.run, self._flights[identity.line].tail_number)
        queue, line = self._last_of_aircraft.get(aircraft, (at.queue, -1))
        if queue != at.queue or line >= identity.line:
            self._wrong.append(f"{_name(identity)} of aircraft {aircraft[1]} is at {_at(at)}, behind line {line:,} in queue {queue}")
        self._last_of_aircraft[aircraft] = (at.queue, identity.line)


def _at(at: MessageLocation) -> str:
    return f"queue {at.queue} offset {at.queue_offset:,}"


def _name(identity: DemoMessageId) -> str:
    return f"line {identity.line:,} of publish {identity.run}"
