"""What became of the last sequences of each idempotent producer; every replica derives the same table from its log.

At most 1,024 producers, the longest unused in log order forgotten first; of each the last 8,192 sequences. A snapshot,
`dittomq/producers`, spares reading the log from its beginning.
"""

import json
import struct
from array import array
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Sequence

from dittomq.commitlog.disk import side_file
from dittomq.commitlog.disk.storage import Storage
from dittomq.errors import ProducerExpired, Refused, SequenceGap

MAX_PRODUCERS = 1_024
MAX_SEQUENCES = 8_192
_NAME = "producers"
_KIND = b"PROD"
_LENGTH = struct.Struct(">I")


class Producer:
    """Sequences [first, next) lie at `positions`; only the last MAX_SEQUENCES of them count."""

    __slots__ = ("first", "positions")

    def __init__(self, first: int, positions: "array[int]") -> None:
        self.first = first
        self.positions = positions

    @property
    def next(self) -> int:
        return self.first + len(self.positions)

    @property
    def oldest(self) -> int:
        """The first sequence that is remembered: the same on every replica."""
        return max(self.first, self.next - MAX_SEQUENCES)


class Producers:
    """The table. One thread changes it."""

    def __init__(self) -> None:
        self._producers: OrderedDict[str, Producer] = OrderedDict()
        self.forgotten = False

    def known(self, producer_id: str, first: int, count: int) -> list[int] | Refused:
        """Positions of those of `count` sequences from `first` on that are in the log already, the leading ones.

        Refused: one is missing in between, or what became of the first is no longer remembered.
        """
        producer = self._producers.get(producer_id)
        if producer is None:
            if first == 0:
                return []
            return ProducerExpired(producer_id, first) if self.forgotten else SequenceGap(producer_id, 0, first)
        if first > producer.next:
            return SequenceGap(producer_id, producer.next, first)
        if first < producer.oldest:
            return ProducerExpired(producer_id, first)
        at = first - producer.first
        return list(producer.positions[at : at + count])

    def find(self, producer_id: str, sequence: int) -> int | None:
        """Where it lies; None when it is not in the log. Raises ProducerExpired when that is no longer known."""
        producer = self._producers.get(producer_id)
        if producer is None:
            if self.forgotten:
                raise ProducerExpired(producer_id, sequence)
            return None
        if sequence < producer.oldest:
            raise ProducerExpired(producer_id, sequence)
        return producer.positions[sequence - producer.first] if sequence < producer.next else None

    def note(self, producer_id: str, first: int, positions: Sequence[int]) -> None:
        """Sequences from `first` on lie at these positions, behind all noted before."""
        if not positions:
            return
        producer = self._producers.get(producer_id)
        if producer is None:
            producer = self._producers[producer_id] = Producer(first, array("q"))
            if len(self._producers) > MAX_PRODUCERS:
                self._producers.popitem(last=False)
                self.forgotten = True
        else:
            self._producers.move_to_end(producer_id)
        if first != producer.next:  # it was forgotten in between and began again
            producer.first, producer.positions = first, array("q")
        producer.positions.extend(positions)
        surplus = len(producer.positions) - MAX_SEQUENCES
        if surplus >= MAX_SEQUENCES:
            producer.first += surplus
            del producer.positions[:surplus]

    def mend(self, producer_id: str, sequence: int, position: int) -> None:
        """A sequence whose record was missing lies at this position. One that is no neighbour of what is known stays expired."""
        producer = self._producers.get(producer_id)
        if producer is None or not producer.positions or position > producer.positions[-1]:
            self.note(producer_id, sequence, (position,))
        elif sequence == producer.first - 1 and position < producer.positions[0]:
            producer.first = sequence
            producer.positions.insert(0, position)

    def drop_before(self, offset: int) -> None:
        """Forget what lies before `offset`: those sequences are expired, the ones behind them go on."""
        for producer in self._producers.values():
            gone = bisect_left(producer.positions, offset)
            producer.first += gone
            del producer.positions[:gone]

    def doubt(self, behind: int) -> None:
        """Records before `behind` are missing: who has none at or behind it is forgotten, for its newest may be among them."""
        self.forgotten = True
        for producer_id, producer in list(self._producers.items()):
            if not producer.positions or producer.positions[-1] < behind:
                del self._producers[producer_id]

    def cut(self, to: int) -> None:
        """Forget what lies at or behind `to`."""
        for producer_id, producer in list(self._producers.items()):
            keep = bisect_left(producer.positions, to)
            del producer.positions[keep:]
            if not producer.positions:
                # With older sequences forgotten, nobody knows any more which of them the cut took.
                self.forgotten = self.forgotten or producer.first > 0
                del self._producers[producer_id]

    def to_bytes(self, end: int) -> bytes:
        """A snapshot that covers the log up to `end`."""
        rows = [[producer_id, each.first, len(each.positions)] for producer_id, each in self._producers.items()]
        head = json.dumps({"end": end, "forgotten": self.forgotten, "producers": rows}).encode()
        return b"".join([_LENGTH.pack(len(head)), head, *(each.positions.tobytes() for each in self._producers.values())])


def from_bytes(payload: bytes) -> tuple[Producers, int]:
    """A table and the end of the log that it covers."""
    (length,) = _LENGTH.unpack_from(payload)
    at = _LENGTH.size + length
    head = json.loads(payload[_LENGTH.size : at])
    table = Producers()
    table.forgotten = head["forgotten"]
    for producer_id, first, count in head["producers"]:
        positions = array("q", payload[at : at + 8 * count])
        at += 8 * count
        table._producers[producer_id] = Producer(first, positions)  # noqa: SLF001 - its own module
    return table, head["end"]


def load(storage: Storage) -> tuple[Producers, int]:
    """The snapshot and the end it covers; an empty table and 0 when there is none. Raises DamagedSideFile."""
    payload = side_file.load(storage, _NAME, _KIND)
    return (Producers(), 0) if payload is None else from_bytes(payload)


def save(storage: Storage, payload: bytes) -> None:
    """Durably replace the snapshot with what `to_bytes` gave."""
    side_file.save(storage, _NAME, _KIND, payload)


def remove(storage: Storage) -> None:
    """Durably forget the snapshot: the next start reads the whole log."""
    side_file.remove(storage, _NAME)


def cut_snapshot(storage: Storage, to: int) -> None:
    """Durably forget in the snapshot what lies at or behind `to`; a damaged one goes, the log tells it all again."""
    try:
        table, end = load(storage)
    except side_file.DamagedSideFile:
        remove(storage)
        return
    if end > to:
        table.cut(to)
        save(storage, table.to_bytes(to))
