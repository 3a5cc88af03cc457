"""Publishing through the real client and reading everything back, noting what was told."""

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

from dittomq.client import (
    Ack,
    AckLevelNotReached,
    Client,
    DittoError,
    Message,
    NotStored,
    OutcomeHandle,
    OutcomeUnknown,
    PutStatus,
    Receipt,
)
from dittomq.client.sync_client import SyncProducer, SyncReader
from dittomq.errors import OffsetOutOfRange
from dittomq.tokens import decode_token
from tests.support.event_log import Acked, Fate, Place, Told, wrong_copies, wrong_reads
from tests.support.real_group import QUEUES, TOPIC, RealGroup
from tests.support.waiting import eventually


class Publishing:
    """One producer's publishes. `told` is what it learned, `handles` names what it may ask again, `refusals` why others are not stored.

    `receipts`: the newest of each body that is stored.
    """

    def __init__(self, producer: SyncProducer, told: Told | None = None) -> None:
        """`told`: what earlier producers were told, to go on with."""
        self.told = told if told is not None else Told()
        self.handles: dict[bytes, OutcomeHandle] = {}
        self.refusals: list[DittoError] = []
        self.receipts: dict[bytes, Receipt] = {}
        self._producer = producer
        self._stream = next(self.told.moments)
        self._sent: dict[bytes, int] = {}

    def publish(self, messages: Iterable[Message]) -> list[Receipt]:
        """Publish all of them, whatever becomes of each; returns the receipts there were."""
        sent: list[Message] = []

        def noted() -> Iterator[Message]:
            for message in messages:
                sent.append(message)
                self._sent[message.body] = next(self.told.moments)
                yield message

        outcomes = self._producer.publish_many(noted(), on_failure="return")
        for message, outcome in zip(sent, outcomes, strict=True):
            self._note(message.body, outcome)
        return [outcome for outcome in outcomes if isinstance(outcome, Receipt)]

    def settle(self) -> None:
        """Ask what became of each unknown one until all is known, as a caller does when the master is back."""
        eventually(self._settle_once, "the outcome of every message is known")

    def _settle_once(self) -> bool:
        with ThreadPoolExecutor(16) as threads:
            outcomes = threads.map(self._resolve, list(self.handles.values()))
        for body, outcome in zip(list(self.handles), outcomes, strict=True):
            self._note(body, outcome)
        return not self.handles

    def _resolve(self, handle: OutcomeHandle) -> Receipt | DittoError:
        try:
            return self._producer.resolve(handle)
        except (NotStored, AckLevelNotReached, OutcomeUnknown) as told:
            return told

    def _note(self, body: bytes, outcome: Receipt | DittoError) -> None:
        at_once = self.handles.pop(body, None) is None
        receipt = note(self.told, body, outcome, stream=self._stream, sent=self._sent[body], at_once=at_once)
        match outcome:
            case _ if receipt is not None:
                self.receipts[body] = receipt
            case OutcomeUnknown():
                self.handles[body] = outcome.handle
            case NotStored():
                self.refusals.append(outcome.cause)
            case DittoError():
                self.refusals.append(outcome)


def note(told: Told, body: bytes, outcome: Receipt | DittoError, *, stream: int, sent: int, at_once: bool) -> Receipt | None:  # of one body
    """Note what was told of one message; the receipt, if there is one."""
    receipt = outcome.receipt if isinstance(outcome, AckLevelNotReached) else outcome
    if not isinstance(receipt, Receipt):
        told.outcomes[body] = Fate.UNKNOWN if isinstance(receipt, OutcomeUnknown) else Fate.NOT_STORED
        return None
    if told.elects and not is_confirmed(receipt):
        told.outcomes[body] = Fate.UNKNOWN
        return receipt
    told.acks[body] = Acked(
        stream=stream,
        sent=sent,
        told=next(told.moments),
        epoch=receipt.epoch,
        incarnation=decode_token(receipt.token).incarnation,
        acker="" if receipt.duplicate else receipt.copies[0].node,
        physical_offset=receipt.physical_offset,
        at_once=at_once,
    )
    told.outcomes[body] = Place(receipt.queue, receipt.queue_offset)
    told.holders[body] = tuple(copy.node for copy in receipt.copies)
    return receipt


def is_confirmed(receipt: Receipt) -> bool:
    """Whether no election may undo the message: a level of replicas is reached, or the members, which are few, hold it."""
    replicas = {Ack.REPLICA_RECEIVED, Ack.REPLICA_FLUSHED}
    return bool(replicas & receipt.levels_reached) or receipt.status is PutStatus.SLAVE_NOT_AVAILABLE


def missed(producer: SyncProducer, times: int) -> list[Receipt]:
    """Publish until so many messages have waited in vain for a slave, one after the other; the receipts of all.

    Of one whose time was up before the master's own disk had it nobody can say whether slaves were late.
    """
    receipts: list[Receipt] = []
    while sum(receipt.status is PutStatus.FLUSH_SLAVE_TIMEOUT for receipt in receipts) < times:
        receipts.append(producer.publish(TOPIC, f"{len(receipts)}", queue=0))
        assert receipts[-1].status in {PutStatus.FLUSH_SLAVE_TIMEOUT, PutStatus.FLUSH_DISK_TIMEOUT}
    return receipts


def messages(first: int, count: int, *, size: int = 0, topic: str = TOPIC) -> Iterator[Message]:
    """Messages like no other, in turns over the queues."""
    return (Message(topic, b"%d:" % number + b"." * size, queue=number % QUEUES) for number in range(first, first + count))


def nothing_is_lost(group: RealGroup, told: Told) -> None:
    """Every copy serves what was told, and the copies are equal."""
    end = group.wait_equal()
    for name in group.copies:
        assert list(wrong_reads(told, read_all(group.mq, name)))[:3] == []
    assert list(wrong_copies(group.logs(), end)) == []


def read_all(mq: Client, node: str, begins: Mapping[int, int] | None = None, *, topic: str = TOPIC) -> dict[int, list[tuple[int, bytes]]]:
    """Everything that one node serves, by queue; `begins` as from `begins_of` where retention drops what is old."""
    return {
        queue: _read_queue(mq.reader(topic, queue, node=node, max_messages=4_096, max_bytes=4 * 1024 * 1024), (begins or {}).get(queue, 0))
        for queue in range(QUEUES)
    }


def begins_of(mq: Client, node: str) -> dict[int, int]:
    """The first offset of each queue that one node still has."""
    return {queue: _begin(mq, node, queue) for queue in range(QUEUES)}


def _begin(mq: Client, node: str, queue: int) -> int:
    try:
        return mq.reader(TOPIC, queue, node=node, max_messages=1).pull(0).min_offset
    except OffsetOutOfRange as dropped:
        return dropped.start


def _read_queue(reader: SyncReader, begin: int) -> list[tuple[int, bytes]]:
    return [(message.queue_offset, message.body) for message in reader.messages(begin, until_end=True)]
