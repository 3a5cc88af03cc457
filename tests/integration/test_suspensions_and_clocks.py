"""Machines that stand still for a while, and wall clocks that jump: nobody is taken for dead, nothing is dropped early or told wrong."""

import random
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from dittomq.testing.state import NAMESERVER
from tests.support.disk_faults import build_shim, preloading
from tests.support.event_log import Fate, Told
from tests.support.history import History
from tests.support.linked_group import QUICK
from tests.support.real_group import MASTER, RealGroup, real_group, shape
from tests.support.replayable_chance import replayable
from tests.support.waiting import PATIENCE_S, eventually

pytestmark = pytest.mark.tier("nightly")

SLAVE = "a/1"
SOME = 40
TICK_S = 0.005
SILENCE_S = 4.0
HOUR_NS = 3_600 * 1_000_000_000
SEGMENT_BYTES = 64 * 1024
YOUNG = {"retention.max_age_ms": 1_800_000, "retention.check_period_ms": 100, "store.segment_bytes": SEGMENT_BYTES}


@contextmanager
def shifted(folder: Path, clocks: Path) -> Iterator[RealGroup]:
    """A group each of whose processes finds in `clocks` how far its wall clock is off."""
    clocks.mkdir()
    with (
        preloading(build_shim(folder, "shifted_clock"), {"SHIFT_FOLDER": f"{clocks}"}),
        real_group(folder, shape(1, master=YOUNG, slave=YOUNG)) as running,
    ):
        yield running


def without_receipt(told: Told) -> list[bytes]:
    return told.bodies(Fate.UNKNOWN) + told.bodies(Fate.NOT_STORED)


def set_clock(clocks: Path, group: RealGroup, name: str, off_ns: int) -> None:
    path = clocks / f"{group.cluster.pid(name)}"
    eventually(path.exists, f"{name} has its clock")
    with path.open("r+b") as file:
        file.write(off_ns.to_bytes(8, "little", signed=True))


def test_wall_clocks_that_jump_by_hours_change_nothing_but_time_stamps(tmp_path: Path) -> None:
    with shifted(tmp_path, tmp_path / "clocks") as group:
        live_with_jumping_clocks(group, History(group), tmp_path / "clocks", replayable())
        demand_all_and_no_step_back(group)
        newest_ns = group.parsed_log(MASTER).records[-1].stored_ms * 1_000_000
        assert newest_ns > time.time_ns() + HOUR_NS * 5 // 6, "the clocks that jumped were not those by which messages are stamped"


def demand_all_and_no_step_back(group: RealGroup) -> None:
    for name in group.copies:
        log = group.parsed_log(name)
        assert (log.start, log.end > 4 * SEGMENT_BYTES) == (0, True), "segments went that are not old"
        assert all(earlier.stored_ms <= later.stored_ms for earlier, later in pairwise(log.records))


def live_with_jumping_clocks(group: RealGroup, history: History, clocks: Path, chance: random.Random) -> None:
    nodes, dropped = (NAMESERVER, MASTER, SLAVE), group.events(MASTER, "slave_dropped")
    with history.reading(group.mq, SLAVE), group.mq.producer(timeout_s=PATIENCE_S) as producer:
        with history.publishing(producer, size=1_000) as stream:
            set_clock(clocks, group, MASTER, HOUR_NS)
            set_clock(clocks, group, SLAVE, -HOUR_NS)
            history.wait_for_more(SOME)
            for _ in range(12):
                set_clock(clocks, group, chance.choice(nodes), chance.randint(-HOUR_NS, HOUR_NS))
                history.wait_for_more(SOME)
            for name in nodes:
                set_clock(clocks, group, name, -HOUR_NS)
            history.wait_for_more(SOME)
        assert {len(receipt.copies) for receipt in stream.receipts} == {2}
        assert group.events(MASTER, "slave_dropped") == dropped

        # Its next life goes on behind what its log says, however early it is by its clock.
        group.cluster.kill(MASTER)
        group.cluster.start_node(MASTER)
        set_clock(clocks, group, MASTER, -HOUR_NS)
        group.cluster.wait_in_sync()
        history.publish(producer, SOME)
    history.check()


def clock_of(clocks: Path, group: RealGroup, name: str) -> int:
    """By how many nanoseconds it is off."""
    return int.from_bytes((clocks / f"{group.cluster.pid(name)}").read_bytes(), "little", signed=True)


@contextmanager
def running_at(clocks: Path, group: RealGroup, rates: Mapping[str, float]) -> Iterator[None]:
    """Their wall clocks run so many times as fast as time does, from what they show now."""
    over, began, first = threading.Event(), time.monotonic(), {name: clock_of(clocks, group, name) for name in rates}

    def run() -> None:
        while not over.wait(TICK_S):
            elapsed_ns = (time.monotonic() - began) * 1_000_000_000
            for name, rate in rates.items():
                set_clock(clocks, group, name, first[name] + int((rate - 1) * elapsed_ns))

    thread = threading.Thread(target=run, name="clocks", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(PATIENCE_S)


def test_skewed_wall_clocks_change_nothing_but_timestamps(tmp_path: Path) -> None:
    """They run ten times as fast, or hardly at all."""
    with shifted(tmp_path, tmp_path / "clocks") as group:
        history, dropped = History(group), group.events(MASTER, "slave_dropped")
        with (
            history.reading(group.mq, SLAVE),
            group.mq.producer(timeout_s=PATIENCE_S) as producer,
            history.publishing(producer, size=1_000) as stream,
        ):
            run_clocks_fast_and_slow(group, history, tmp_path / "clocks")
        assert {len(receipt.copies) for receipt in stream.receipts} == {2}
        assert group.events(MASTER, "slave_dropped") == dropped
        history.check()
        demand_all_and_no_step_back(group)


def run_clocks_fast_and_slow(group: RealGroup, history: History, clocks: Path) -> None:
    for rates in ({MASTER: 10, SLAVE: 0.1, NAMESERVER: 10}, {MASTER: 0.1, SLAVE: 10, NAMESERVER: 0.1}):
        with running_at(clocks, group, rates):
            history.wait_for_more(10 * SOME)
    with running_at(clocks, group, dict.fromkeys((MASTER, SLAVE, NAMESERVER), 3_600)):
        by_their_clocks = "by their clocks what was written first is older than what may be dropped"
        eventually(lambda: min(clock_of(clocks, group, name) for name in group.copies) > 2 * HOUR_NS, by_their_clocks)
        history.wait_for_more(10 * SOME)
    for name in (NAMESERVER, MASTER, SLAVE):
        set_clock(clocks, group, name, -HOUR_NS)
    history.wait_for_more(SOME)


@pytest.fixture
def paused(tmp_path: Path) -> Iterator[RealGroup]:
    """Its streams end after a silence of 4 s, and a slave leaves after two waits of 2 s: the pause is longer, a busy machine's are not."""
    patient = {**QUICK, "replication.ack_timeout_ms": 2_000, "failover.peer_timeout_ms": int(SILENCE_S * 1_000)}
    with real_group(tmp_path, shape(1, master=patient, slave=patient)) as running:
        yield running


def test_a_group_whose_machines_all_stand_still_goes_on_as_if_nothing_had_been(paused: RealGroup) -> None:
    group, history = paused, History(paused)
    ended = group.events(MASTER, "slave_dropped") + group.events(SLAVE, "stream_ended")
    with (
        history.reading(group.mq, SLAVE),
        group.mq.producer(timeout_s=1.0, retry_s=0.2) as producer,
        history.publishing(producer),
    ):
        history.wait_for_more(SOME)
        with group.frozen(SLAVE), group.frozen(MASTER), group.frozen(NAMESERVER):
            began = time.monotonic()
            eventually(lambda: time.monotonic() > began + 2 * SILENCE_S, "more time has passed than anybody is silent who lives")
            assert len(without_receipt(history.told)) >= 24, "three bursts had no answer in time"
        history.wait_for_more(SOME)
    group.cluster.wait_in_sync()  # what came before the master had heard its slave again was refused, and may be unknown for ever
    assert group.events(MASTER, "slave_dropped") + group.events(SLAVE, "stream_ended") == ended
    history.check()
