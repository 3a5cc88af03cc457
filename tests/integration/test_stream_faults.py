"""Frames of a real replication stream that come twice, in another order, with holes, with wrong bytes, or that lie."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import grpc
import pytest

from dittomq._pb.ditto.replication.v1 import replication_pb2 as pb
from dittomq.client import PutStatus
from tests.support.fault_proxy import Heard, Meddler, Meddling, Said
from tests.support.history import History
from tests.support.linked_group import QUICK, port_of
from tests.support.real_group import MASTER, RealGroup, real_group, shape
from tests.support.waiting import PATIENCE_S, eventually

pytestmark = pytest.mark.tier("nightly")

SLAVE = "a/1"
SOME = 40
TIMES = 1


@dataclass(frozen=True, slots=True)
class Meddled:
    """A group of two whose stream passes the meddler. `history` is of all that the tests do with it."""

    group: RealGroup
    meddler: Meddler
    history: History


@pytest.fixture(scope="module")
def meddled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Meddled]:
    folder = tmp_path_factory.mktemp("meddled")
    with Meddler(port_of(folder, "replication")).running() as meddler:
        both = {**QUICK, "failover.peer_timeout_ms": 6_000}  # a stream ends for what was made of a frame, not because a machine is busy
        of = shape(1, master={**both, "advertise_replication.default": meddler.address}, slave=both)
        with real_group(folder, of) as group:
            yield Meddled(group, meddler, History(group))


class ChunksWith(Meddling):
    """Makes something else of some chunks: every tenth, so often."""

    def __init__(self, make: Callable[[Heard, Heard], list[Heard]], times: int = TIMES) -> None:
        """`make` gets the chunk and the one before it."""
        self._make = make
        self._before: Heard | None = None
        self._seen = 0
        self.left = times

    def down(self, frame: Heard) -> list[Heard]:
        if frame.WhichOneof("event") != "chunk" or not frame.chunk.data:
            return [frame]
        before, self._before = self._before, frame
        self._seen += 1
        if before is None or self._seen % 10 or not self.left:
            return [frame]
        self.left -= 1
        return self._make(frame, before)


class AcksWith(Meddling):
    """Makes something else of some acks: every tenth that says something new, so often."""

    def __init__(self, make: Callable[[Said, Said], list[Said]], times: int = TIMES) -> None:
        """`make` gets the ack and the first one of all."""
        self._make = make
        self._first: Said | None = None
        self._flushed = 0
        self._seen = 0
        self.left = times

    def up(self, frame: Said) -> list[Said]:
        if frame.WhichOneof("event") != "ack" or frame.ack.flushed_offset == self._flushed:
            return [frame]
        self._flushed = frame.ack.flushed_offset
        self._first = self._first or frame
        self._seen += 1
        if self._seen % 10 or not self.left:
            return [frame]
        self.left -= 1
        return self._make(frame, self._first)


def changed(frame: Heard, **fields: int | bytes) -> Heard:
    """The chunk with other fields; its CRC is right again unless it is one of them."""
    other = Heard()
    other.CopyFrom(frame)
    if "data" in fields:
        other.chunk.crc = crc32(fields["data"])  # type: ignore[arg-type]
    for name, value in fields.items():
        setattr(other.chunk, name, value)
    return other


def flipped(data: bytes) -> bytes:
    """With one bit of its last body changed."""
    at = len(data) - 80
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


IGNORED: dict[str, Callable[[Heard, Heard], list[Heard]]] = {
    "twice": lambda chunk, _: [chunk, chunk],
    "again after the next one": lambda chunk, before: [chunk, before],
}
REFUSED: dict[str, tuple[Callable[[Heard, Heard], list[Heard]], str]] = {
    "never": (lambda *_: [], " is next"),
    "with an overlap": (
        lambda chunk, last: [changed(chunk, offset=last.chunk.offset, data=last.chunk.data + chunk.chunk.data)],
        " is next",
    ),
    "beyond a gap": (lambda chunk, _: [changed(chunk, offset=chunk.chunk.offset + 8)], " is next"),
    "without its end": (lambda chunk, _: [changed(chunk, data=chunk.chunk.data[:-8])], " is next"),
    "with a wrong CRC": (lambda chunk, _: [changed(chunk, crc=chunk.chunk.crc ^ 1)], "changed on its way"),
    "with other bytes": (lambda chunk, _: [changed(chunk, data=flipped(chunk.chunk.data), crc=chunk.chunk.crc)], "changed on its way"),
    "with other bytes and their CRC": (lambda chunk, _: [changed(chunk, data=flipped(chunk.chunk.data))], "damaged"),
    "of a newer epoch": (lambda chunk, _: [changed(chunk, epoch=chunk.chunk.epoch + 1)], "a chunk of epoch"),
    "of an older epoch": (lambda chunk, _: [changed(chunk, epoch=chunk.chunk.epoch - 1)], "a chunk of epoch"),
}


@pytest.mark.parametrize("how", IGNORED)
def test_a_chunk_that_comes_again_is_ignored(meddled: Meddled, how: str) -> None:
    group, history, meddler = meddled.group, meddled.history, meddled.meddler
    streams = meddler.streams
    meddler.meddling = meddling = ChunksWith(IGNORED[how], times=20)
    with group.mq.producer() as producer, history.publishing(producer):
        eventually(lambda: not meddling.left, "chunks came again")
        history.wait_for_more(SOME)
    assert meddler.streams == streams
    history.check()


@pytest.mark.parametrize("how", REFUSED)
def test_a_chunk_that_cannot_be_right_ends_the_stream_and_nothing_of_it_is_written(meddled: Meddled, how: str) -> None:
    group, history, meddler = meddled.group, meddled.history, meddled.meddler
    make, says = REFUSED[how]
    streams, ended = meddler.streams, len(group.events(SLAVE, "stream_ended"))
    meddler.meddling = meddling = ChunksWith(make)
    with history.reading(group.mq, SLAVE), group.mq.producer(timeout_s=1.0, on_weak="return") as producer, history.publishing(producer):
        eventually(lambda: not meddling.left, "all of them came")
        eventually(lambda: meddler.streams >= streams + TIMES, "the slave dialled after each")
        eventually(lambda: group.slave_state(SLAVE) == "in sync", "the slave is in sync again")
        history.wait_for_more(SOME)
    assert any(says in event["reason"] for event in group.events(SLAVE, "stream_ended")[ended:])
    assert group.events(SLAVE, "log_truncated") == []
    history.check()


def moved(ack: Said, *, received: int = 0, flushed: int = 0, epoch: int = 0) -> Said:
    """The ack with other positions."""
    other = Said()
    other.CopyFrom(ack)
    other.ack.received_offset += received
    other.ack.flushed_offset += flushed
    other.ack.epoch += epoch
    return other


LIES: dict[str, tuple[Callable[[Said, Said], list[Said]], str]] = {
    "more than was sent": (lambda ack, _: [moved(ack, received=1 << 20, flushed=1 << 20)], "outside"),
    "more flushed than received": (lambda ack, _: [moved(ack, flushed=1 << 20)], "flushed"),
    "less than before": (lambda ack, _: [ack, moved(ack, received=-1, flushed=-1)], "outside"),
    "what it held long ago": (lambda ack, first: [ack, first], "outside"),
    "a position of a newer epoch": (lambda ack, _: [moved(ack, epoch=1)], "an ack of epoch"),
    "a position of an older epoch": (lambda ack, _: [moved(ack, epoch=-1)], "an ack of epoch"),
}


@pytest.mark.parametrize("what", LIES)
def test_an_ack_that_cannot_be_true_ends_the_session_and_does_not_count(meddled: Meddled, what: str) -> None:
    group, history, meddler = meddled.group, meddled.history, meddled.meddler
    make, says = LIES[what]
    dropped = len(group.events(MASTER, "slave_dropped"))
    meddler.meddling = meddling = AcksWith(make)
    with group.mq.producer(timeout_s=1.0, on_weak="return") as producer, history.publishing(producer):
        eventually(lambda: not meddling.left, "all of them came")
        eventually(lambda: len(group.events(MASTER, "slave_dropped")) >= dropped + TIMES, "the master has dropped the slave after each")
        eventually(lambda: group.slave_state(SLAVE) == "in sync", "the slave is in sync again")
        history.wait_for_more(SOME)
        history.check_holders()
    assert any(says in event["reason"] for event in group.events(MASTER, "slave_dropped")[dropped:])
    history.check()


class Swallowing(Meddling):
    """From a moment on keeps chunks from the slave, and makes a lie of its next ack: that it holds them, and so many bytes more.

    The ack waits until it may be said; behind it the line is still. `handshake`: the last one that was said.
    """

    def __init__(self, beyond: int) -> None:
        self.swallows = threading.Event()
        self.waits = threading.Event()
        self.may_lie = threading.Event()
        self.lied = threading.Event()
        self.goes_on = threading.Event()
        self.handshake: Said | None = None
        self._beyond = beyond
        self._end = 0

    def down(self, frame: Heard) -> list[Heard]:
        if frame.WhichOneof("event") != "chunk" or not frame.chunk.data or not self.swallows.is_set() or self.goes_on.is_set():
            return [frame]
        self._end = frame.chunk.offset + len(frame.chunk.data) + self._beyond
        return []

    def up(self, frame: Said) -> list[Said]:
        if self.lied.is_set():
            self.goes_on.wait(PATIENCE_S)
            return [frame]
        if frame.WhichOneof("event") == "handshake":
            self.handshake = frame
        if frame.WhichOneof("event") != "ack" or not self._end:
            return [frame]
        self.waits.set()
        self.may_lie.wait(PATIENCE_S)
        self.lied.set()
        return [moved(frame, received=self._end - frame.ack.received_offset, flushed=self._end - frame.ack.flushed_offset)]


def test_an_ack_of_what_never_came_counts_for_nothing_at_the_moment_it_is_said(meddled: Meddled) -> None:
    """Later the slave has everything anyway, and it would be right by chance."""
    group, history, meddler = meddled.group, meddled.history, meddled.meddler
    meddler.meddling = swallowing = Swallowing(beyond=1 << 20)
    swallowing.may_lie.set()
    dropped = len(group.events(MASTER, "slave_dropped"))
    eventually(lambda: group.slave_state(SLAVE) == "in sync", "the slave is in sync")
    with group.mq.producer(timeout_s=3.0, on_weak="return") as producer:
        history.publish(producer, SOME)
        swallowing.swallows.set()
        [receipt] = history.publish(producer, 1)
        assert swallowing.lied.wait(PATIENCE_S), "the slave said nothing that could become a lie"
        history.check_holders()
        assert [copy.node for copy in receipt.copies] == [MASTER]
        eventually(lambda: len(group.events(MASTER, "slave_dropped")) > dropped, "the master has dropped the slave")
        swallowing.goes_on.set()
        eventually(lambda: group.slave_state(SLAVE) == "in sync", "the slave is in sync again")
    history.check()


class Late(Meddling):
    """Keeps all acks back until they are let go."""

    def __init__(self) -> None:
        self.let_go = threading.Event()
        self.kept = 0

    def up(self, frame: Said) -> list[Said]:
        if frame.WhichOneof("event") == "ack" and not self.let_go.is_set():
            self.kept += 1
            self.let_go.wait(PATIENCE_S)
        return [frame]


def test_acks_that_are_late_or_lost_confirm_nothing_and_are_told_as_weaker(meddled: Meddled) -> None:
    group, history, meddler = meddled.group, meddled.history, meddled.meddler
    meddler.meddling = late = Late()
    with group.mq.producer(on_weak="return") as producer, group.mq.producer(timeout_s=PATIENCE_S) as patient:
        confirmed = group.status().confirmed
        [receipt] = history.publish(producer, 1)
        assert receipt.status is PutStatus.FLUSH_SLAVE_TIMEOUT
        assert [copy.node for copy in receipt.copies] == [MASTER]
        assert group.status().confirmed == confirmed
        eventually(lambda: group.slave_state(SLAVE) == "gone", "the slave that says nothing is gone")
        late.let_go.set()
        eventually(lambda: group.slave_state(SLAVE) == "in sync", "the slave is in sync again")
        assert {receipt.status for receipt in history.publish(patient, SOME)} == {PutStatus.PUT_OK}
    history.check()


class Replaying(Meddling):
    """Says again right behind a handshake what the first ack of an earlier stream has said."""

    def __init__(self) -> None:
        self.recorded: Said | None = None
        self.replayed = 0

    def up(self, frame: Said) -> list[Said]:
        if frame.WhichOneof("event") == "ack":
            self.recorded = self.recorded or frame
        elif self.recorded is not None and not self.replayed:
            self.replayed += 1
            return [frame, self.recorded]
        return [frame]


def test_an_ack_that_is_replayed_from_an_old_connection_does_not_count(meddled: Meddled) -> None:
    group, history, meddler = meddled.group, meddled.history, meddled.meddler
    meddler.meddling = replaying = Replaying()
    with group.mq.producer(timeout_s=1.0, on_weak="return") as producer, history.publishing(producer):
        eventually(lambda: replaying.recorded, "an ack was heard")
        history.wait_for_more(SOME)
        dropped = len(group.events(MASTER, "slave_dropped"))
        group.cluster.kill(SLAVE)
        group.cluster.start_node(SLAVE)
        eventually(lambda: replaying.replayed, "it was said again")
        eventually(lambda: group.slave_state(SLAVE) == "in sync", "the slave is in sync again")
        history.wait_for_more(SOME)
    reasons = [event["reason"] for event in group.events(MASTER, "slave_dropped")[dropped:]]
    assert any("outside" in reason or "out of turn" in reason for reason in reasons), reasons
    history.check()


@contextmanager
def stream_of(group: RealGroup, handshake: Said) -> Iterator[None]:
    """Somebody says that handshake to the master, has been told to stream when the block begins, and says no more."""
    over = threading.Event()

    def said() -> Iterator[Said]:
        yield handshake
        over.wait(PATIENCE_S)

    with grpc.insecure_channel(f"127.0.0.1:{group.cluster.node(MASTER).ports.replication}") as channel:
        serialize, parse = Said.SerializeToString, Heard.FromString
        calling: Any = channel.stream_stream("/ditto.replication.v1.ReplicationService/Replicate", serialize, parse)
        answers = calling(said(), timeout=2 * PATIENCE_S)
        try:
            assert any(answer.handshake_result.action == pb.SYNC_ACTION_STREAM for answer in answers)
            yield
        finally:
            over.set()
            answers.cancel()


def test_second_stream_of_a_replica_never_counts_as_another_copy(meddled: Meddled) -> None:
    """Somebody who has recorded a slave's handshake says it again beside it; then the first stream acknowledges what it has not got."""
    group, history, meddler = meddled.group, meddled.history, meddled.meddler
    meddler.meddling = swallowing = Swallowing(beyond=0)
    with group.mq.producer(timeout_s=3.0, on_weak="return") as producer:
        history.publish(producer, SOME)
    group.wait_equal()
    group.cluster.kill(SLAVE)
    group.cluster.start_node(SLAVE)
    group.cluster.wait_in_sync()
    handshake, streams = swallowing.handshake, meddler.streams
    assert handshake is not None
    with group.mq.producer(timeout_s=3.0, on_weak="return") as producer, ThreadPoolExecutor(1) as thread:
        swallowing.swallows.set()
        publishing = thread.submit(history.publish, producer, 1)
        assert swallowing.waits.wait(PATIENCE_S), "the first stream has nothing to say"
        with stream_of(group, handshake):
            swallowing.may_lie.set()
            assert swallowing.lied.wait(PATIENCE_S), "the first stream says nothing"
            [receipt] = publishing.result()
            history.check_holders()
            assert [copy.node for copy in receipt.copies] == [MASTER]
        swallowing.goes_on.set()
        eventually(lambda: meddler.streams > streams, "the slave dials again")
        eventually(lambda: group.slave_state(SLAVE) == "in sync", "the slave is in sync again")
        history.publish(producer, SOME)
        history.check_holders()
    assert {view.node for view in group.status().nodes} == {MASTER, SLAVE}
    history.check()
