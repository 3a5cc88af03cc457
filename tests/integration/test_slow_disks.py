"""Disks that are slow, and disks that hang: what clients hear meanwhile, and that a node whose disk never answers ends."""

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from dittomq.client import PutStatus
from dittomq.client.sync_client import SyncProducer
from tests.support.disk_faults import calls_in, harming, preloading
from tests.support.event_log import Fate
from tests.support.history import History
from tests.support.real_group import MASTER, RealGroup, real_group, shape
from tests.support.waiting import PATIENCE_S, eventually

pytestmark = pytest.mark.tier("nightly")

INTERNAL = 128
SOME = 40
PRODUCERS = 24
SLOW_MS = 100
HANGS_S = 6.0  # no sync of a disk that is well takes so long, nor one that is slow
SLAVE = "a/1"


@dataclass(slots=True)
class Bench:
    """A group with one slave, and a switch for the disk of the node that was last started with `restart`."""

    group: RealGroup
    shim: Path
    switch: Path
    history: History
    lives: int = field(default=0)

    def restart(self, name: str, kind: str, *, ms: int = 0) -> None:
        """Start the node anew on a disk every fdatasync of whose log is slow, or hangs, while it is `broken`."""
        self.group.cluster.stop_node(name)
        self.lives += 1
        self.switch = self.switch.with_suffix(f".{self.lives}")
        log = self.group.cluster.data_dir(name) / "commitlog"
        harm = harming(log, when=self.switch, nth=1, kind=kind, ms=ms, calls="fdatasync", trace=self.trace)
        with preloading(self.shim, harm):
            self.group.cluster.start_node(name)
        self.group.cluster.wait_in_sync()

    def sync_seconds(self, name: str) -> float:
        """How long the syncs of its log took so far, as the node's metrics say."""
        return self.group.metrics(name)['dittomq_disk_sync_seconds_sum{folder="commitlog"}']

    def messages_of_a_sync(self, each: int) -> float:
        """How many share a sync of the master's log in the mean, when producers send one at a time, all of them at once; so many each."""

        def syncs() -> float:
            return self.group.metrics(MASTER)['dittomq_disk_sync_seconds_count{folder="commitlog"}']

        with contextlib.ExitStack() as open_ones, ThreadPoolExecutor(PRODUCERS) as threads:
            producers = [open_ones.enter_context(self.group.mq.producer(timeout_s=PATIENCE_S)) for _ in range(PRODUCERS)]

            def publish(producer: SyncProducer, count: int) -> list[PutStatus]:
                return [receipt.status for _ in range(count) for receipt in self.history.publish(producer, 1)]

            list(threads.map(publish, producers, [1] * PRODUCERS))  # all of them are connected
            before = syncs()
            statuses = list(threads.map(publish, producers, [each] * PRODUCERS))
            assert statuses == [[PutStatus.PUT_OK] * each] * PRODUCERS
            return PRODUCERS * each / (syncs() - before)

    @property
    def syncs(self) -> int:
        """How many it has begun since it broke."""
        return len([call for call in calls_in(self.trace) if call.name == "fdatasync"])

    @property
    def trace(self) -> Path:
        """What the node asked of that disk since it broke."""
        return self.switch.with_suffix(f"{self.switch.suffix}.trace")


@pytest.fixture(scope="module")
def bench(shim: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("slow")
    hangs = {"store.disk_timeout_ms": int(HANGS_S * 1_000)}
    with real_group(folder, shape(1, master=hangs, slave=hangs)) as group:
        yield Bench(group, shim, folder / "broken", History(group))


def test_a_slave_whose_syncs_are_slow_leaves_the_set_and_comes_back(bench: Bench) -> None:
    group, history = bench.group, bench.history
    bench.restart(SLAVE, "slow", ms=1_000)
    with group.mq.producer(timeout_s=0.3, on_weak="return") as producer, history.publishing(producer) as stream:
        history.wait_for_more(SOME)
        before = bench.sync_seconds(SLAVE)
        bench.switch.touch()
        eventually(lambda: group.status().degraded, "the group goes on without it")
        history.wait_for_more(SOME)
        eventually(lambda: stream.last_status() is PutStatus.SLAVE_NOT_AVAILABLE, "producers are told so")
        history.check_holders()
        bench.switch.unlink()
        eventually(lambda: group.slave_state(SLAVE) == "in sync", "it is in sync again")
        slow_s = 0.99 * bench.syncs
        eventually(lambda: bench.sync_seconds(SLAVE) - before >= slow_s, "its metrics say how long its syncs took")
        history.wait_for_more(SOME)
        eventually(lambda: stream.last_status() is PutStatus.PUT_OK, "messages are on both again")
    assert group.cluster.is_alive(SLAVE)
    history.check()


def test_a_master_whose_syncs_are_slow_puts_more_into_each_and_is_not_degraded(bench: Bench) -> None:
    group, history = bench.group, bench.history
    bench.restart(MASTER, "slow", ms=SLOW_MS)
    before = bench.sync_seconds(MASTER)
    fast = bench.messages_of_a_sync(50)
    bench.switch.touch()
    slow = bench.messages_of_a_sync(10)
    syncs = bench.syncs
    bench.switch.unlink()
    print(f"{fast:.1f} messages in a fast sync, {slow:.1f} in a slow one")
    assert slow >= PRODUCERS / 3, "producers wait for each other"
    assert slow > fast or fast >= PRODUCERS / 3, "a slow disk has as many syncs as a fast one"
    assert not group.status().degraded
    eventually(lambda: bench.sync_seconds(MASTER) - before >= 0.99 * SLOW_MS / 1_000 * syncs, "its metrics say how long its syncs took")
    history.check()


def test_master_whose_sync_never_returns_leaves_outcomes_unknown(bench: Bench) -> None:
    """It ends, and no outcome is wrong."""
    group, history = bench.group, bench.history
    bench.restart(MASTER, "hang")
    with group.mq.producer(timeout_s=0.5, retry_s=0.5) as producer:
        with history.publishing(producer) as stream:
            history.wait_for_more(SOME)
            bench.switch.touch()
            assert group.exit_status(MASTER) == INTERNAL
            eventually(lambda: set(history.told.outcomes.values()) & set(Fate), "somebody was not told that it is stored")
        sentence = group.last_words(MASTER)
        assert sentence.startswith(f"dittomq serve master: fdatasync of {group.cluster.data_dir(MASTER)}/commitlog/")
        assert sentence.endswith("has not returned for 6 s; the node ends, check its disk and start it again")
        bench.switch.unlink()
        group.cluster.start_node(MASTER)
        group.let_lead(SLAVE)  # an operator must: the old master may have lost something, and failover is manual
        assert group.stopped(MASTER) == "failed fsync"
        stream.settle()
    group.let_lead(MASTER)
    history.check()


def test_a_master_whose_disk_hangs_is_replaced_while_its_process_lives(shim: Path, tmp_path: Path) -> None:
    patient = {"store.disk_timeout_ms": 60_000}
    with real_group(tmp_path, shape(2, master=patient, slave=patient, automatic=True)) as group:
        bench = Bench(group, shim, tmp_path / "broken", History(group))
        bench.restart(MASTER, "hang")
        group.let_lead(MASTER)
        with group.mq.producer(retry_s=PATIENCE_S) as producer:
            with bench.history.publishing(producer) as stream:
                bench.history.wait_for_more(SOME)
                bench.switch.touch()
                leads = group.master(but=[MASTER])
                assert group.cluster.is_alive(MASTER)
                bench.history.wait_for_more(SOME)
                group.cluster.kill(MASTER)
                bench.switch.unlink()
                group.cluster.start_node(MASTER)
                assert group.wait_led_by_all() == leads
                bench.history.wait_for_more(SOME)
            stream.settle()
        bench.history.check()


def test_a_slave_whose_sync_never_returns_ends_and_the_group_goes_on(bench: Bench) -> None:
    group, history = bench.group, bench.history
    bench.restart(SLAVE, "hang")
    with group.mq.producer(timeout_s=0.5, on_weak="return") as producer, history.publishing(producer) as stream:
        history.wait_for_more(SOME)
        bench.switch.touch()
        assert group.exit_status(SLAVE) == INTERNAL
        assert "has not returned for 6 s" in group.last_words(SLAVE)
        history.wait_for_more(SOME)
        eventually(lambda: stream.last_status() is PutStatus.SLAVE_NOT_AVAILABLE, "producers are told so")
        history.check_holders()
        bench.switch.unlink()
        group.cluster.start_node(SLAVE)
        group.cluster.wait_in_sync()
    history.check()
