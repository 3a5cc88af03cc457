"""Power is lost under every machine of a group at once: each node has a disk of its own, and only what that disk held is left."""

import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from pathlib import Path

import pytest

from dittomq.client import Client, CopyState, Message, Receipt
from dittomq.client.sync_client import SyncProducer
from dittomq.commitlog.state import shutdown_marker
from tests.simulation.parser import Malformed, record_at
from tests.support.event_log import Fate, Told, lost_from, wrong_copies, wrong_losses, wrong_reads
from tests.support.mounts import new_image
from tests.support.power import Rebooted, after_power_loss, booted, fast_folder
from tests.support.real_group import MASTER, UNWRITTEN, RealGroup, Settings, real_group, shape
from tests.support.traffic import Publishing, messages, nothing_is_lost, read_all
from tests.support.waiting import PATIENCE_S, eventually

pytestmark = pytest.mark.tier("nightly")

IMAGE_BYTES = 48 * 1024 * 1024
MIN_FREE_BYTES = 4 * 1024 * 1024
NODES = (MASTER, "a/1", "a/2")
FLUSHED = 1_000
STRUCK = 6_000  # more than may wait: most of them are sent before the power goes
COUNT = 8_000
IN_FLIGHT_BYTES = 256 * 1024


class Machines:
    """Three disks, mounted where the nodes of a local cluster in that folder have their stores.

    `left` are the files of each node's log as its disk had them after the power loss, before any node was started on it.
    """

    def __init__(self, folder: Path, memory: Path, mounts: ExitStack) -> None:
        self.left: dict[str, dict[str, bytes]] = {}
        self._memory = memory
        self._mounts = mounts
        self._disks = {}
        for name in NODES:
            image = new_image(self._image(name), IMAGE_BYTES)
            self._disks[name] = mounts.enter_context(booted(image, folder / name.replace("/", "-")))

    def lose_power(self, group: RealGroup) -> None:
        """All of them at one moment; then they boot, with what their disks held, and the nodes are started."""
        self._stop(group)
        self._boot(group)

    def lose_power_over(self, group: RealGroup, send: Callable[[], bytes]) -> bytes:
        """The same, in a moment in which no disk holds the bytes that `send` has just sent, and which it returns."""

        def just_sent() -> bytes:
            body = send()
            self._stop(group)
            if not any(body in self._image(name, "lost").read_bytes() for name in NODES):
                return body
            for name in NODES:
                group.signal(name, signal.SIGCONT)
            return b""

        body = eventually(just_sent, "no disk holds what was just sent")
        self._boot(group)
        return body

    def _stop(self, group: RealGroup) -> None:
        for name in NODES:
            group.signal(name, signal.SIGSTOP)
        for name in NODES:
            self._disks[name].photograph(self._image(name, "lost"))

    def _boot(self, group: RealGroup) -> None:
        for name in NODES:
            group.cluster.kill(name)
        self._mounts.close()
        for name in NODES:
            root = group.cluster.data_dir(name)
            self._mounts.enter_context(after_power_loss(self._image(name, "lost"), root))
            self.left[name] = {f"commitlog/{path.name}": path.read_bytes() for path in (root / "commitlog").iterdir()}
            left = shutdown_marker.read(Rebooted(root))
            # another boot's than the one in which it is read
            shutdown_marker.stamp(Rebooted(root), clean=False, acks_unsynced=left.has_lost)
        group.cluster.start()
        group.wait_led_by_all()

    def _image(self, name: str, kind: str = "disk") -> Path:
        return self._memory / f"{kind}-{name.replace('/', '-')}"


class Witness:
    """Sends messages to a topic of its own, one after the other; `send` returns when it was told that a majority has received one."""

    def __init__(self, producer: SyncProducer) -> None:
        self._producer = producer
        self._numbers = count()
        self._last = b""

    def send(self) -> bytes:
        self._last = b"witness %d of %d" % (next(self._numbers), time.monotonic_ns())
        self._producer.publish(UNWRITTEN, self._last, queue=0)
        return self._last

    def is_on(self, mq: Client, node: str) -> bool:
        """Whether that node serves the last one."""
        read = mq.reader(UNWRITTEN, 0, node=node, max_messages=1_000).pull(0)
        return self._last in [message.body for message in read.messages]


@contextmanager
def machines(folder: Path, *, master: Settings, slave: Settings) -> Iterator[tuple[Machines, RealGroup]]:
    """A group each of whose nodes has a disk of its own."""
    with fast_folder() as memory, ExitStack() as mounts:
        disks = Machines(folder / "cluster", memory, mounts)
        small: Settings = {"store.min_free_bytes": MIN_FREE_BYTES}
        with real_group(folder, shape(master={**small, **master}, slave={**small, **slave}, automatic=True)) as group:
            yield disks, group


def publish_through_a_power_loss(publishing: Publishing, group: RealGroup, lose_power: Callable[[], object]) -> None:
    """Publish, wait until all of it is on every disk, go on, and let the power go; what every disk had is there."""
    publishing.publish(messages(0, FLUSHED, size=100))
    flushed = group.wait_equal()

    def struck() -> Iterator[Message]:
        yield from messages(FLUSHED, STRUCK - FLUSHED, size=100)
        lose_power()
        yield from messages(STRUCK, COUNT - STRUCK, size=100)

    publishing.publish(struck())
    assert [group.stopped(name) for name in NODES] == ["power loss"] * 3
    assert group.events(group.master(), "epoch_opened")[-1]["start"] >= flushed


def wrong_flushed(receipts: Mapping[bytes, Receipt], left: Mapping[str, Mapping[str, bytes]]) -> Iterator[str]:
    """What is wrong with what was left on the disks: each copy that a receipt calls flushed must be on that node's own one."""
    for body, receipt in receipts.items():
        for copy in receipt.copies:
            if copy.state is CopyState.FLUSHED and not is_left(body, receipt, left[copy.node]):
                yield f"{body!r} is not at {receipt.physical_offset} of the disk of {copy.node}, which had flushed it"


def is_left(body: bytes, receipt: Receipt, files: Mapping[str, bytes]) -> bool:
    """Whether its record is there, whole, at the place that the receipt names."""
    with suppress(Malformed):
        return record_at(files, receipt.physical_offset).body == body
    return False


def test_power_loss_of_all_machines_costs_nothing_acknowledged_as_flushed(tmp_path: Path) -> None:
    with machines(tmp_path, master={}, slave={}) as (disks, group):
        with group.mq.producer(retry_s=30.0, max_waiting_bytes=IN_FLIGHT_BYTES) as producer:
            publishing, epoch = Publishing(producer, Told(elects=True)), group.status(group.master()).epoch
            publish_through_a_power_loss(publishing, group, lambda: disks.lose_power(group))
            publishing.settle()

        assert publishing.told.bodies(Fate.UNKNOWN) == []
        told_before = {body: receipt for body, receipt in publishing.receipts.items() if receipt.epoch == epoch and not receipt.duplicate}
        assert len(told_before) > FLUSHED, "nobody had a receipt of what came after all was on every disk"
        assert list(wrong_flushed(told_before, disks.left))[:3] == []
        nothing_is_lost(group, publishing.told)


def test_power_loss_of_all_machines_costs_only_what_was_not_flushed(tmp_path: Path) -> None:
    """What was only received since the last flush goes, and no more."""
    in_memory: Settings = {"replication.flush_mode": "ASYNC_FLUSH"}
    with machines(tmp_path, master={**in_memory, "replication.replica_ack_level": "received"}, slave=in_memory) as (disks, group):
        with (
            group.mq.producer(retry_s=30.0, max_waiting_bytes=IN_FLIGHT_BYTES) as producer,
            group.mq.producer(timeout_s=PATIENCE_S) as other,
        ):
            publishing, witness = Publishing(producer, Told(elects=True)), Witness(other)
            publish_through_a_power_loss(publishing, group, lambda: disks.lose_power_over(group, witness.send))

        end = group.wait_equal()
        assert any(entry["data_loss"] for name in NODES for entry in group.events(name, "elected")), "no node says what may be lost"
        assert [witness.is_on(group.mq, name) for name in NODES] == [False] * 3
        reads = [read_all(group.mq, name) for name in NODES]
        assert reads == reads[:1] * 3
        assert list(wrong_copies(group.logs(), end)) == []
        told = publishing.told
        lost = lost_from(told, reads[0])
        assert list(wrong_losses(told, lost))[:3] == []
        assert {number_of(body) for body in lost} <= set(range(FLUSHED, STRUCK))
        rest = Told({body: outcome for body, outcome in told.outcomes.items() if body not in lost})
        assert list(wrong_reads(rest, reads[0]))[:3] == []


def number_of(body: bytes) -> int:
    return int(body.partition(b":")[0])
