"""A slave that still catches up is told to lead, whatever it costs: what is called lost is what is lost, and it is kept aside."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from dittomq.client import PutStatus
from tests.support.command_line import CommandLine
from tests.support.harming import harming, preloading
from tests.support.history import History
from tests.support.linked_group import QUICK
from tests.support.real_group import MASTER, RealGroup, real_group, shape
from tests.support.told import lost_from, wrong_losses
from tests.support.traffic import Publishing, read_all
from tests.support.waiting import PATIENCE_S, eventually

MIB = 1024 * 1024
SOME = 40
BACKLOG, SIZE = 800, 10_000  # more than may be on its way to a slave
STRICT = {**QUICK, "replication.min_in_sync_replicas": 2}
FAR = {"replication.window_bytes": MIB, "replication.ha_max_gap_bytes": MIB}
LATE, KEPT_UP = "a/1", "a/2"


@pytest.fixture
def group(tmp_path: Path) -> Iterator[RealGroup]:
    with real_group(tmp_path, shape(2, master={**STRICT, **FAR}, slave=STRICT)) as running:
        yield running


@dataclass(frozen=True, slots=True)
class Stored:
    """A message that was acknowledged, and where its record begins in the log."""

    body: bytes
    start: int


def stored(history: History, count: int, size: int) -> list[Stored]:
    """Publish so many, all of which get a receipt."""
    sent = history.new_messages(count, size=size)
    with history.group.mq.producer(timeout_s=PATIENCE_S) as producer:
        receipts = Publishing(producer, history.told).publish(sent)
    assert {receipt.status for receipt in receipts} == {PutStatus.PUT_OK}
    return [Stored(message.body, receipt.physical_offset) for message, receipt in zip(sent, receipts, strict=True)]


def master_dies_while_one_catches_up(group: RealGroup, history: History, shim: Path, switch: Path) -> list[Stored]:
    """Kill it when both slaves have the first messages and one has all; returns what was acknowledged."""
    group.cluster.stop_node(LATE)
    with preloading(shim, harming(group.cluster.data_dir(LATE) / "commitlog", when=switch, calls="pwrite", nth=2, kind="hang")):
        group.cluster.start_node(LATE)
    group.cluster.wait_in_sync()
    first = stored(history, SOME, SIZE)
    before = group.wait_equal()
    with group.frozen(LATE):
        rest = stored(history, BACKLOG, SIZE)
        switch.touch()
    eventually(lambda: group.status(LATE).end > before, "it has begun to catch up")
    assert group.slave_state(LATE) != "in sync"
    group.cluster.kill(MASTER)
    switch.unlink()
    eventually(lambda: group.status(LATE).waiting_for, "it gets no more")
    return first + rest


@pytest.mark.parametrize("who_has_all", ["answers", "is dead"])
def test_a_slave_that_catches_up_leads_only_by_force_and_what_is_lost_is_what_the_answer_and_the_log_say(
    group: RealGroup, shim: Path, tmp_path: Path, who_has_all: str
) -> None:
    cluster, history, command = group.cluster, History(group), CommandLine(tmp_path, DITTOMQ_NAMESERVER=group.cluster.nameserver)
    acknowledged = master_dies_while_one_catches_up(group, history, shim, tmp_path / "hangs")
    end = group.status(KEPT_UP).end
    if who_has_all == "is dead":
        cluster.kill(KEPT_UP)

    refused = command.run("role", "lead", LATE, "--old-master-is-stopped")
    kept = group.status(LATE).end
    more = f"{KEPT_UP} has {end - kept:,} bytes that {LATE} lacks"
    too_few = "1 of the 2 slaves answer that together hold all that was confirmed"
    missing, may_be_lost = {
        "answers": (more, more),
        "is dead": (f"{too_few}. Start {KEPT_UP}, or add --accept-loss", f"what only slaves hold that are not heard: {KEPT_UP}"),
    }[who_has_all]
    assert (refused.code, missing in refused.err, group.writable(LATE)) == (1, True, False), refused

    forced = command.run("role", "lead", LATE, "--old-master-is-stopped", "--accept-loss")
    assert (forced.code in {0, 3}, f"may be lost: {may_be_lost}" in forced.out) == (True, True), forced
    [promoted] = group.events(LATE, "promoted")
    assert (promoted["end"], promoted["may_be_lost"]) == (kept, may_be_lost)
    for name in filter(lambda name: not cluster.is_alive(name), (MASTER, KEPT_UP)):
        cluster.start_node(name)
    eventually(lambda: group.leads_all(LATE), "both others follow it")
    stored(history, SOME, SIZE)

    doomed = [each.body for each in acknowledged if each.start >= kept]
    lost = lost_from(history.told, read_all(group.mq, LATE))
    assert (lost, list(wrong_losses(history.told, lost)), len(doomed) > SOME) == (doomed, [], True)
    for name in (MASTER, KEPT_UP):  # what was cut was kept aside
        [cut], [tail] = group.events(name, "log_cut"), (cluster.data_dir(name) / "dittomq").glob("tail-*")
        assert (cut["to"], cut["end"], tail.stat().st_size) == (kept, end, end - kept)
    for body in lost:
        del history.told.outcomes[body], history.told.holders[body]
    history.check()
