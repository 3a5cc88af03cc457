"""A store of numbered messages on real files: filled, and judged when it is opened again."""

from pathlib import Path

from dittomq.commitlog.disk.storage import OsStorage
from dittomq.commitlog.store import Store
from tests.simulation.parser import ParsedLog
from tests.support.store_process import FLUSHED, NUMBERS_BEHIND_A_CUT, QUEUES, body, fill, log_of, open_store
from tests.support.stores import open_epoch


def filled(root: Path) -> Store:
    """A store in use, with some segments of flushed messages."""
    store = open_store(OsStorage(root))
    open_epoch(store)
    for number in range(0, FLUSHED, 50):
        fill(store, range(number, number + 50))
    store.sync()
    store.dispatch(store.end)
    store.checkpoint()
    return store


def numbers_in(log: ParsedLog) -> list[int]:
    """Which messages the log holds, in its order."""
    numbers = [int(record.body[:8]) for record in log.records]
    assert [record.body for record in log.records] == [body(number) for number in numbers]
    return numbers


def is_whole_or_cut(log: ParsedLog) -> bool:
    """Whether the log is that of `filled`, or was cut in its middle and went on behind the cut."""
    numbers, cut = numbers_in(log), [*range(FLUSHED // 2), *NUMBERS_BEHIND_A_CUT]
    return numbers == list(range(FLUSHED)) or (len(numbers) >= FLUSHED // 2 and numbers == cut[: len(numbers)])


def reopened(root: Path, storage: OsStorage | None = None) -> tuple[Store, ParsedLog]:
    """The store as the next start finds it, with its queues built; queue offsets are dense, and queues hold what the log does."""
    store = open_store(storage or OsStorage(root))
    store.dispatch(store.end)
    log = log_of(root)
    assert log.end == store.end
    for queue in range(QUEUES):
        mine = [record for record in log.records if record.queue == queue]
        assert [record.queue_offset for record in mine] == list(range(len(mine)))
        assert store.queue_range("orders", queue) == (0, len(mine))
        at, read = 0, []
        while at < len(mine):
            part = store.read_queue("orders", queue, at, 1_000, 1 << 20)
            read += [(message.physical_offset, message.body) for message in part.messages]
            at = part.next_offset
        assert read == [(record.physical_offset, record.body) for record in mine]
    return store, log
