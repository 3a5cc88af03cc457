"""What clients were told and shown while something failed, and the one checker of it at the end."""

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from dittomq.client import Client, Message, PutStatus, Receipt
from dittomq.client.sync_client import SyncProducer
from dittomq.errors import DittoError, OffsetOutOfRange
from tests.simulation.parser import Malformed
from tests.support.event_log import Fate, Told, undone_reads, wrong_copies, wrong_epochs, wrong_holders, wrong_order, wrong_reads
from tests.support.real_group import QUEUES, RealGroup
from tests.support.traffic import Publishing, begins_of, messages, read_all
from tests.support.waiting import PATIENCE_S, eventually

_SHOWN_WAIT_S = 0.2
_REST_S = 0.01  # between two bursts: nobody learns more from a machine that is only busy


@dataclass(slots=True)
class History:
    """Of one group and all producers and readers of a test. `shown`: what readers of a node were given, by queue and queue offset."""

    group: RealGroup
    told: Told = field(init=False)
    shown: dict[tuple[int, int], bytes] = field(default_factory=dict)
    _numbers: "Iterator[int]" = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        self.told = Told(elects=self.group.elects)

    def new_messages(self, count: int, *, size: int = 100) -> list[Message]:
        """Messages that were never sent before."""
        return [message for _ in range(count) for message in messages(next(self._numbers), 1, size=size, topic=self.group.topic)]

    @contextlib.contextmanager
    def publishing(self, producer: SyncProducer, *, size: int = 100, burst: int = 8) -> Iterator["Stream"]:
        """Publish all the time during the block, in bursts, and note what is told; whatever is left of it is waited for at its end."""
        stream = Stream(Publishing(producer, self.told), lambda: self.new_messages(burst, size=size))
        thread = threading.Thread(target=stream.run, name="publishing", daemon=True)
        thread.start()
        try:
            yield stream
        finally:
            stream.over.set()
            thread.join(2 * PATIENCE_S)
        assert not thread.is_alive(), "the last burst was never answered"
        assert stream.broken == []

    def publish(self, producer: SyncProducer, count: int, *, size: int = 100) -> list[Receipt]:
        """Publish so many; the receipts there were."""
        return Publishing(producer, self.told).publish(self.new_messages(count, size=size))

    @contextlib.contextmanager
    def reading(self, mq: Client, name: str) -> Iterator[None]:
        """Read all the time from one node during the block, and note what it shows; before the block ends it must have shown something."""
        reading = Reading(mq, name)
        threads = [threading.Thread(target=self._run_reader, args=(reading, queue), daemon=True) for queue in range(QUEUES)]
        for thread in threads:
            thread.start()
        try:
            yield
            eventually(lambda: reading.shown or reading.broken, f"{name} shows something, and does not only refuse: {reading.refused}")
        finally:
            reading.over.set()
            for thread in threads:
                thread.join(PATIENCE_S)
        assert not any(thread.is_alive() for thread in threads), f"{name} has never answered a reader"
        assert reading.broken == []

    def _run_reader(self, reading: "Reading", queue: int) -> None:
        try:
            self._read(reading, queue)
        except BaseException as error:  # noqa: BLE001  # it is told by whoever has started this
            reading.broken.append(error)

    def _read(self, reading: "Reading", queue: int) -> None:
        reader = reading.mq.reader(self.group.topic, queue, node=reading.name)
        offset = 0
        while not reading.over.is_set():
            try:
                page = reader.pull(offset, wait_s=_SHOWN_WAIT_S)
            except DittoError as refused:
                reading.refused[type(refused).__name__] = str(refused)
                reading.over.wait(_SHOWN_WAIT_S)
                continue
            firm = page.unconfirmed_from
            for message in page.messages:
                if firm is None or message.queue_offset < firm:
                    self.shown.setdefault((queue, message.queue_offset), message.body)
                    reading.shown += 1
            offset = page.next_offset if firm is None else min(page.next_offset, firm)

    def held(self) -> dict[str, set[bytes]]:
        """What lies in the files of every copy now, whether it is served or not."""

        def bodies() -> dict[str, set[bytes]]:
            with contextlib.suppress(Malformed):  # it is just being written
                return {name: {record.body for record in self.group.parsed_log(name).records} for name in self.group.copies}
            return {}

        return eventually(bodies, "the logs can be read")

    def check_holders(self) -> None:
        """Every acknowledged message is on the copies that its receipt names, at this moment."""
        told = Told(dict(self.told.outcomes), dict(self.told.holders))  # what is told from now on is not in what is read now
        _demand_none("now", wrong_holders(told, self.held()))

    def check(self, within_s: float = PATIENCE_S) -> int:
        """All copies end equal, and what was told and shown holds on each of them; returns their end."""
        end = self.group.wait_equal(within_s)
        for name in self.group.copies:
            self._check_reads(name, {})
        _demand_none("all", wrong_copies(self.group.logs(), end))
        self.check_holders()
        self._check_acks()
        return end

    def check_what_retention_left(self) -> None:
        """The same of all that each copy still has; where it begins is retention's business, and so is what receipts named."""
        end = self.group.wait_equal()
        for name in self.group.copies:
            self._check_what_is_left(name)
        logs = {name: self.group.parsed_log(name) for name in self.group.copies}
        start = max(log.start for log in logs.values())
        _demand_none("all", wrong_copies({name: log.content[start - log.start :] for name, log in logs.items()}, end - start))
        self._check_acks()

    def _check_acks(self) -> None:
        _demand_none("all", itertools.chain(wrong_epochs(self.told), wrong_order(self.told)))

    def _check_what_is_left(self, name: str) -> None:
        """Again, as long as retention drops what is about to be read."""
        while True:
            with contextlib.suppress(OffsetOutOfRange):
                return self._check_reads(name, begins_of(self.group.mq, name))

    def _check_reads(self, name: str, begins: Mapping[int, int]) -> None:
        served = read_all(self.group.mq, name, begins, topic=self.group.topic)
        shown = {place: body for place, body in self.shown.items() if place[1] >= begins.get(place[0], 0)}
        _demand_none(name, wrong_reads(self.told, served, begins))
        _demand_none(name, undone_reads(shown, served))

    def acknowledged(self) -> int:
        """How many messages have a receipt."""
        return sum(not isinstance(outcome, Fate) for outcome in list(self.told.outcomes.values()))

    def wait_for_more(self, count: int, within_s: float = PATIENCE_S) -> None:
        """Wait until so many more are acknowledged than now."""
        before = self.acknowledged()
        eventually(lambda: self.acknowledged() >= before + count, f"{count} more messages are acknowledged", within_s=within_s)


def _demand_none(where: str, problems: Iterator[str]) -> None:
    first = list(itertools.islice(problems, 3))
    assert not first, f"{where}: {'; '.join(first)}"


@dataclass(slots=True)
class Reading:
    """Readers of one node, until they are `over`. `shown`: how much they were given, and `refused` the last errors of ours, by kind.

    `broken`: what should not have been raised.
    """

    mq: Client
    name: str
    over: threading.Event = field(default_factory=threading.Event)
    shown: int = 0
    refused: dict[str, str] = field(default_factory=dict)
    broken: list[BaseException] = field(default_factory=list)


class Stream:
    """Publishes burst after burst until it is `over`. `receipts` in their order; `broken`: what should not have been raised."""

    def __init__(self, publishing: Publishing, next_burst: Callable[[], list[Message]]) -> None:
        self._publishing = publishing
        self._next_burst = next_burst
        self.over = threading.Event()
        self.receipts: list[Receipt] = []
        self.broken: list[BaseException] = []

    def run(self) -> None:
        try:
            while not self.over.is_set():
                self.receipts += self._publishing.publish(self._next_burst())
                self.over.wait(_REST_S)
        except BaseException as error:  # noqa: BLE001  # it is told by whoever has started this
            self.broken.append(error)

    def last_status(self) -> PutStatus:
        """Of the newest receipt."""
        return self.receipts[-1].status

    def settle(self) -> None:
        """Ask what became of each unknown one until all is known."""
        self._publishing.settle()
