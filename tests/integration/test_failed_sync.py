"""A disk that fails an fdatasync or a write once, under a real process: that is final, and nothing that was acknowledged is lost."""

import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from dittomq.client import Message
from dittomq.client.sync_client import SyncProducer
from tests.support.disk_faults import calls_in, harming, preloading
from tests.support.event_log import Fate, Told
from tests.support.real_group import MASTER, RealGroup, real_group, shape
from tests.support.traffic import Publishing, messages, nothing_is_lost
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.tier("nightly")

INTERNAL = 128
COUNT = 1_000
IN_FLIGHT_BYTES = 64 * 1024


@dataclass(slots=True)
class Bench:
    """A group, and a switch for the disk of the node that was last started with `restart`. `told` is of all that was published."""

    group: RealGroup
    shim: Path
    switch: Path
    told: Told = field(default_factory=lambda: Told(elects=True))

    def restart(self, name: str, *, nth: int, call: str = "fdatasync") -> None:
        """Start the node anew on a disk whose n-th such call on the commit log fails, counted from when the disk breaks."""
        self.group.cluster.stop_node(name)
        self.switch = self.switch.with_suffix(f".{len(self.told.outcomes)}")
        log = self.group.cluster.data_dir(name) / "commitlog"
        with preloading(self.shim, harming(log, when=self.switch, nth=nth, kind="eio", calls=call, trace=self.trace)):
            self.group.cluster.start_node(name)
        self.group.wait_led_by_all()
        self.group.let_lead(MASTER)

    @property
    def trace(self) -> Path:
        """What the node asked of that disk since it broke."""
        return self.switch.with_suffix(f"{self.switch.suffix}.trace")

    def nothing_is_tried_again(self) -> bool:
        """Whether no such call on the log came after the one that failed; what another lane was at in that moment may have ended later."""
        calls = calls_in(self.trace)
        [failed] = [at for at, call in enumerate(calls) if call.harmed]
        return not any(call.name == calls[failed].name for call in calls[failed + 1 :])

    def publish_and_break(self, producer: SyncProducer, name: str) -> Publishing:
        """Publish what was not published yet; the node's disk breaks in the middle, and the node has ended before the last ones."""
        publishing = Publishing(producer, self.told)
        first = len(self.told.outcomes)

        def stream() -> Iterator[Message]:
            firsts = itertools.count(first, COUNT)
            yield from messages(next(firsts), COUNT, size=100)
            self.switch.touch()
            over = time.monotonic() + PATIENCE_S
            while self.group.cluster.is_alive(name):  # a slow disk syncs much at once
                assert time.monotonic() < over, f"{name} goes on in spite of the sync that failed"
                yield from messages(next(firsts), COUNT, size=100)
            yield from messages(next(firsts), COUNT, size=100)

        publishing.publish(stream())
        return publishing

    def master_comes_back(self, publishing: Publishing) -> None:
        """Its next start is no ordinary one, and what was unknown is known then. It follows: as a replica that may have lost something."""
        replica = self.replica(MASTER)
        self.group.cluster.start_node(MASTER)
        assert self.group.wait_led_by_all() != MASTER
        assert self.replica(MASTER) != replica
        assert self.group.stopped(MASTER) == "failed fsync"
        publishing.settle()
        assert self.told.bodies(Fate.UNKNOWN) == []

    def replica(self, name: str) -> bytes:
        """What the node's disk says of its replica id, its promise and its adopted epoch."""
        return (self.group.cluster.data_dir(name) / "dittomq" / "replica").read_bytes()


@pytest.fixture(scope="module")
def bench(shim: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("sync")
    with real_group(folder, shape(2, automatic=True)) as group:
        yield Bench(group, shim, folder / "broken")


def test_a_failed_fdatasync_stops_the_master_and_loses_nothing_that_was_acknowledged(bench: Bench) -> None:
    group, told = bench.group, bench.told
    own = group.cluster.data_dir(MASTER) / "dittomq"
    bench.restart(MASTER, nth=3)

    with group.mq.producer(timeout_s=1.0, retry_s=0.5, max_waiting_bytes=IN_FLIGHT_BYTES) as producer:
        publishing = bench.publish_and_break(producer, MASTER)

        # It has stopped, and says which disk and what to do; its next start is no ordinary one.
        assert group.exit_status(MASTER) == INTERNAL
        sentence = group.last_words(MASTER)
        assert sentence.startswith(f"dittomq serve master: fdatasync of {group.cluster.data_dir(MASTER)}/commitlog/")
        assert sentence.endswith("failed: [Errno 5] Input/output error; the node stops, check its disk and start it again")
        assert group.events(MASTER, "service_failed") == []
        assert bench.nothing_is_tried_again()
        assert not (own / "boot").exists()
        assert set(told.outcomes.values()) & set(Fate)

        bench.master_comes_back(publishing)

    nothing_is_lost(bench.group, bench.told)
    assert (own / "boot").exists()


def test_failed_write_stops_the_master_and_is_not_acknowledged(bench: Bench) -> None:
    group, told = bench.group, bench.told
    root = group.cluster.data_dir(MASTER)
    bench.restart(MASTER, nth=3, call="pwrite")

    with group.mq.producer(timeout_s=1.0, retry_s=0.5, max_waiting_bytes=IN_FLIGHT_BYTES) as producer:
        publishing = bench.publish_and_break(producer, MASTER)

        assert group.exit_status(MASTER) == INTERNAL
        sentence = group.last_words(MASTER)
        assert sentence.startswith(f"dittomq serve master: write of {root}/commitlog/")
        assert sentence.endswith("failed: [Errno 5] Input/output error; the node stops, check its disk and start it again")
        assert bench.nothing_is_tried_again()
        assert not (root / "dittomq" / "boot").exists()
        written = {record.body for record in group.parsed_log(MASTER).records}
        assert [body for body in publishing.receipts if body not in written] == []
        assert set(told.outcomes.values()) & set(Fate)

        bench.master_comes_back(publishing)

    nothing_is_lost(bench.group, bench.told)


def test_a_failed_fdatasync_stops_a_slave_and_the_group_goes_on(bench: Bench) -> None:
    group = bench.group
    bench.restart("a/1", nth=3)
    first = len(bench.told.outcomes)

    with group.mq.producer(timeout_s=PATIENCE_S, max_waiting_bytes=IN_FLIGHT_BYTES) as producer:
        bench.publish_and_break(producer, "a/1")

    assert group.exit_status("a/1") == INTERNAL
    assert f"fdatasync of {group.cluster.data_dir('a/1')}/commitlog/" in group.last_words("a/1")
    assert not (group.cluster.data_dir("a/1") / "dittomq" / "boot").exists()
    assert bench.nothing_is_tried_again()
    assert not [told for told in list(bench.told.outcomes.values())[first:] if isinstance(told, Fate)]
    group.cluster.start_node("a/1")
    group.wait_led_by_all()
    nothing_is_lost(bench.group, bench.told)
