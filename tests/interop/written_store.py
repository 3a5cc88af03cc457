"""A store that a group of ours wrote: topics and messages of every kind, over several segments; left by a kill and by a clean stop."""

import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from dittomq.client import Message
from dittomq.commitlog.disk.storage import OsStorage
from dittomq.commitlog.records.format import Host
from dittomq.commitlog.store import Store, StoreOptions
from dittomq.consumer_progress import OffsetCommit
from dittomq.doors.chance import os_chance
from dittomq.doors.clock import OsClock
from dittomq.message import StoredMessage
from tests.interop.message_view import Seen, in_log_order
from tests.support.real_group import MASTER, QUEUES, SEGMENT_BYTES, TOPIC, UNWRITTEN, RealGroup, real_group, shape
from tests.support.waiting import PATIENCE_S

EVENTS = "events"
LONG = "x" * 127
DELETED = "deleted"
AGAIN = "deleted-and-made-again"
GROUP = "billing"
COMMITTED: Mapping[int, int] = {queue: 10 + queue for queue in range(QUEUES)}
"""The next offset to read of each queue of TOPIC, for GROUP; in the store of the clean stop."""
TOPICS: Mapping[str, int] = {TOPIC: QUEUES, UNWRITTEN: QUEUES, EVENTS: 1, LONG: 1, AGAIN: 1}
"""The topics that are there at the end, and their queues."""


@dataclass(frozen=True, slots=True)
class Left:
    """A store as a process left it, and all that was acknowledged of it and not deleted, in the order of the log."""

    folder: Path
    messages: tuple[Seen, ...]

    @property
    def end(self) -> int:
        """Where its log ends."""
        return self.messages[-1].end


@dataclass(frozen=True, slots=True)
class Written:
    """The master's store after a SIGKILL, the same after another epoch and a clean stop, and the whole cluster at that time."""

    killed: Left
    clean: Left
    cluster: Path

    def left(self, how: str) -> Left:
        """By name, "killed" or "clean"."""
        return {"killed": self.killed, "clean": self.clean}[how]


def write(folder: Path) -> Written:
    """Run a master with one slave, publish, kill the master, go on in another epoch, stop all cleanly."""
    with real_group(folder, shape(slaves=1)) as group:
        for topic in (EVENTS, LONG, DELETED, AGAIN):
            group.mq.admin.create_topic(topic, 1)
        _publish(group, (Message(topic, b"to be deleted") for topic in [DELETED, AGAIN] * 5))
        for topic in (DELETED, AGAIN):
            group.mq.admin.delete_topic(topic)
        group.mq.admin.create_topic(AGAIN, 1)
        again = _publish(group, (Message(AGAIN, b"made again, %d" % number, born_ms=number) for number in range(1, 11)))
        first = again + _publish(group, _messages())
        group.wait_equal()  # its queues are built: else RocketMQ builds that of a topic made again, with what was deleted
        group.cluster.kill(MASTER)
        killed = copy(group.cluster.data_dir(MASTER), folder / "killed")
        group.cluster.start_node(MASTER)
        group.cluster.wait_in_sync()
        group.mq.admin.create_group(GROUP)
        group.mq.admin.commit_offsets(GROUP, [OffsetCommit(TOPIC, queue, offset) for queue, offset in COMMITTED.items()], broker="a")
        second = _publish(group, (Message(EVENTS, b"in another epoch, %d" % number, born_ms=number) for number in range(1, 20)))
        group.cluster.stop()
        clean = copy(group.cluster.data_dir(MASTER), folder / "clean")
    return Written(Left(killed, first), Left(clean, first + second), group.cluster.folder)


def copy(store: Path, to: Path) -> Path:
    """The store once more, holes and all."""
    subprocess.run(["cp", "--archive", "--sparse=always", store, to], check=True)
    return to


def open_store(folder: Path, host: Host | None = None) -> Store:
    """Open it as a node of ours does that is reached at `host`."""
    options = StoreOptions(segment_bytes=SEGMENT_BYTES, min_free_bytes=0)
    options = options if host is None else replace(options, host=host)
    return Store.open(OsStorage(folder), options, chance=os_chance(), wall_ms=OsClock().wall_ms())


def read_all(store: Store) -> list[Seen]:
    """Every message that its queues hold, once they are built."""
    store.dispatch(store.end)
    return in_log_order([Seen.stored(message) for topic, queue in store.queues() for message in _read_queue(store, topic, queue)])


def log_bytes(store: Path) -> bytes:
    """All bytes of a log that begins at 0, up to the last one that is not zero."""
    return b"".join(path.read_bytes() for path in sorted((store / "commitlog").iterdir())).rstrip(b"\0")


def _read_queue(store: Store, topic: str, queue: int) -> Iterator[StoredMessage]:
    at, end = store.queue_range(topic, queue)
    while at < end:
        page = store.read_queue(topic, queue, at, 1_000, 8 * 1024 * 1024)
        yield from page.messages
        at = page.next_offset


def _publish(group: RealGroup, messages: Iterator[Message]) -> tuple[Seen, ...]:
    sent = list(messages)
    with group.mq.producer(timeout_s=PATIENCE_S) as producer:
        receipts = producer.publish_many(sent)
    return tuple(in_log_order([Seen.published(*each) for each in zip(sent, receipts, strict=True)]))


def _messages() -> Iterator[Message]:
    yield Message(TOPIC, b"", queue=0, born_ms=11)
    yield Message(TOPIC, b"\0", queue=0, born_ms=12, flag=-1)
    yield Message(TOPIC, bytes(range(256)) * 4_000, queue=1, keys=("big", "one"), tag="TagA", flag=0x7FFFFFFF, born_ms=13)
    yield Message(TOPIC, "Größe 大 🚀".encode(), queue=2, keys=("schlüssel",), tag="标签", properties={"größe": "çok büyük 🚀"}, born_ms=14)
    yield Message(TOPIC, b"many", queue=3, properties={f"p{number}": "v" * (number % 90) + "." for number in range(300)}, born_ms=15)
    yield Message(TOPIC, b"huge", queue=3, properties={"huge": "0123456789" * 2_500}, born_ms=16)
    yield Message(TOPIC, b"colliding tags", queue=3, tag="polygenelubricants", keys=("Aa", "BB"), born_ms=17)
    yield Message(TOPIC, bytes.fromhex("daa320a7daa320abcbd4319400000064daa320a7"), queue=3, born_ms=18)
    yield Message(LONG, b"the longest topic", born_ms=19)
    for number in range(20, 200):
        body = b"%d:" % number + b"." * (number * 997 % 20_000)
        yield Message(TOPIC, body, queue=number % QUEUES, keys=(f"key-{number}",), tag="odd" if number % 2 else "", born_ms=number)
