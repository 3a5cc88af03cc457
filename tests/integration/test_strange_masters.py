"""Two masters of one group, and a master whose disk is an old one: nothing that was promised goes, and nobody is cut for it."""

import json
import random
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from dittomq.client import NotStored, PutStatus
from dittomq.commitlog.disk.storage import OsStorage
from dittomq.commitlog.state import watermark
from dittomq.errors import NeedsOperator
from dittomq.testing.ports import Ports, choose_ports
from tests.support.command_line import CommandLine
from tests.support.history import History
from tests.support.linked_group import LinkedGroup, linked_group
from tests.support.real_group import MASTER, TOPIC, RealGroup, real_group, shape
from tests.support.second_process import beside, second_command
from tests.support.told import Told, lost_from, wrong_losses, wrong_reads
from tests.support.traffic import Publishing, read_all
from tests.support.waiting import PATIENCE_S, eventually

SOME = 200
SUPERSEDED = 6


@pytest.fixture
def group(tmp_path: Path) -> Iterator[RealGroup]:
    with real_group(tmp_path, shape(2)) as running:
        yield running


def put_an_old_disk_under_the_master(history: History, tmp_path: Path) -> tuple[list[bytes], int, int]:
    """Kill it; of what it has confirmed, up to the second end, its disk lacks these bodies, which lie behind the first."""
    group, cluster = history.group, history.group.cluster
    disk, old = cluster.data_dir(MASTER), tmp_path / "old"
    with group.mq.producer(timeout_s=PATIENCE_S) as producer:  # all of it is stored
        history.publish(producer, SOME)
        kept = group.wait_equal()
        cluster.stop_node(MASTER)
        shutil.copytree(disk, old)
        cluster.start_node(MASTER)
        cluster.wait_in_sync()
        doomed = history.new_messages(SOME)
        Publishing(producer, history.told).publish(doomed)
    confirmed = group.wait_equal()
    cluster.kill(MASTER)
    shutil.rmtree(disk)
    shutil.move(old, disk)
    return [message.body for message in doomed], kept, confirmed


def test_a_master_on_an_old_copy_of_its_disk_copies_its_slaves_before_it_leads_and_cuts_none_of_them(
    group: RealGroup, tmp_path: Path
) -> None:
    cluster, history = group.cluster, History(group)
    with group.mq.producer(timeout_s=PATIENCE_S) as producer:
        _, kept, confirmed = put_an_old_disk_under_the_master(history, tmp_path)

        cluster.start_node(MASTER)

        cluster.wait_in_sync()
        [given_up] = group.events(MASTER, "copies_its_slaves")
        assert given_up["end"] == kept
        assert f"{confirmed:,} bytes to be confirmed and this log agrees with it only up to {kept:,}" in given_up["lacks"]
        history.publish(producer, SOME)
    for name in group.slaves:
        assert group.events(name, "log_cut") == []
    history.check()


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[RealGroup]:
    """A group whose nameserver soon has been up for long enough to say that nobody else leads."""
    with real_group(tmp_path, shape(2, nameserver={"registry.broker_expiry_ms": 3_000})) as running:
        yield running


def test_a_master_that_leads_on_an_old_copy_of_its_disk_takes_no_writes_until_its_operator_accepts_the_loss_that_it_names(
    watched: RealGroup, tmp_path: Path
) -> None:
    group, cluster, history = watched, watched.cluster, History(watched)
    command = CommandLine(tmp_path, DITTOMQ_NAMESERVER=cluster.nameserver)
    with group.mq.producer(timeout_s=1.0, retry_s=1.0, on_weak="return") as producer:
        doomed, kept, confirmed = put_an_old_disk_under_the_master(history, tmp_path)
        before = Told(dict(history.told.outcomes))
        with group.frozen("a/1"), group.frozen("a/2"):  # whoever knows better is silent
            cluster.start_node(MASTER)
            eventually(group.writable, "it leads")
            alone = history.publish(producer, SOME)
            eventually(lambda: history.publish(producer, 1) and group.status().confirmed == group.status().end, "it confirms alone")
        eventually(lambda: "confirmed" in group.status().waiting_for, "its slaves have told it what it lacks")

        assert PutStatus.PUT_OK not in {receipt.status for receipt in alone}
        with pytest.raises(NotStored) as refused:
            producer.publish(TOPIC, b"too late", queue=0)
        assert isinstance(refused.value.cause, NeedsOperator)
        lacks = f"knows {confirmed:,} bytes to be confirmed and this log agrees with it only up to {kept:,}"
        said = command.run("ha-status")
        assert (said.code, f"NO WRITES: a/1 {lacks}" in said.out or f"NO WRITES: a/2 {lacks}" in said.out) == (3, True), said
        without = command.run("role", "lead", MASTER)
        assert (without.code, lacks in without.err) == (1, True), without
        for name in group.slaves:
            assert (group.status(name).end, group.events(name, "log_cut")) == (confirmed, [])
            assert list(wrong_reads(before, read_all(group.mq, name)))[:3] == []

        accepted = command.run("role", "lead", MASTER, "--accept-loss")
        assert (accepted.code, lacks in accepted.out, "--accept-loss" in accepted.out) == (0, True, False), accepted
        cluster.wait_in_sync()
        history.publish(producer, SOME)

    lost = lost_from(history.told, read_all(group.mq, MASTER))
    assert (lost, list(wrong_losses(history.told, lost))) == (doomed, [])
    for name in group.slaves:  # what was cut was kept aside
        [cut], [tail] = group.events(name, "log_cut"), (cluster.data_dir(name) / "dittomq").glob("tail-*")
        assert (cut["to"], cut["end"], tail.stat().st_size) == (kept, confirmed, confirmed - kept)
    for body in lost:
        del history.told.outcomes[body], history.told.holders[body]
    history.check()


@pytest.fixture
def linked(tmp_path: Path) -> Iterator[LinkedGroup]:
    with linked_group(tmp_path, 2, master={"replication.min_in_sync_replicas": 2}) as running:
        yield running


def replacement(group: RealGroup, disk: Path) -> tuple[list[str], Ports]:
    """The command of another master of the group on that disk, and where it listens."""
    _, ports = choose_ports(1, random.SystemRandom(), usual=False)
    flags = {
        "listen.clients": f"127.0.0.1:{ports.clients}",
        "listen.replication": f"127.0.0.1:{ports.replication}",
        "advertise.default": f"127.0.0.1:{ports.clients}",
        "advertise_replication.default": f"127.0.0.1:{ports.replication}",
    }
    return [*second_command(group, MASTER, disk), *(part for key, value in flags.items() for part in ("--set", f"{key}={value}"))], ports


def confirmed_on_disk(group: RealGroup, name: str) -> int:
    """How far a node that has ended had written down that its log is confirmed."""
    kept = watermark.load(OsStorage(group.cluster.data_dir(name)))
    assert kept is not None
    return kept.confirmed


def start_of_epoch(log_file: Path, epoch: int) -> int:
    """Where the master that has written that log file opened the epoch."""
    lines = [json.loads(line) for line in log_file.read_text().splitlines() if line.startswith("{")]
    [start] = [line["start"] for line in lines if (line["event"], line.get("epoch")) == ("epoch_opened", epoch)]
    assert isinstance(start, int)
    return start


def test_a_master_that_stood_still_while_another_took_its_place_confirms_nothing_and_ends(linked: LinkedGroup, tmp_path: Path) -> None:
    group, link, history, disk = linked.group, linked.link, linked.history, tmp_path / "other"
    own, first_epoch = link.upstream, group.status().epoch
    command, ports = replacement(group, disk)
    with (
        history.reading(group.mq, MASTER),
        history.reading(group.mq, "a/1"),
        history.reading(group.mq, "a/2"),
        group.mq.producer(timeout_s=1.0, retry_s=1.0) as producer,
        group.mq.producer(timeout_s=PATIENCE_S) as patient,
        ThreadPoolExecutor(1) as thread,
    ):
        history.publish(producer, SOME)
        history.publish(patient, SOME)
        confirmed = group.wait_equal()
        with ExitStack() as frozen:
            frozen.enter_context(group.frozen(MASTER))
            late = thread.submit(history.publish, patient, SOME)  # who waits for it: it is there when the master goes on
            assert history.publish(producer, SOME) == []
            link.upstream = lambda: ("127.0.0.1", ports.replication or 0)
            link.sever()
            with beside(command, tmp_path / "other.log") as other:
                eventually(lambda: group.mq.admin.list_brokers()[0].epoch > first_epoch, "another master leads")
                eventually(lambda: len(history.publish(producer, SOME)) == SOME, "it takes writes")
                frozen.close()

                assert group.exit_status(MASTER) == SUPERSEDED
                assert other.poll() is None
                assert confirmed <= confirmed_on_disk(group, MASTER) <= start_of_epoch(tmp_path / "other.log", first_epoch + 1)
                assert group.parsed_log(MASTER).end > confirmed, "it has written nothing that it could confirm"
                late.result()
                history.publish(producer, SOME)

        # The new disk is put where the old one was.
        shutil.rmtree(group.cluster.data_dir(MASTER))
        shutil.move(disk, group.cluster.data_dir(MASTER))
        link.upstream = own
        link.sever()
        group.cluster.start_node(MASTER)
        group.cluster.wait_in_sync()
        history.publish(producer, SOME)
    for name in group.slaves:
        assert group.events(name, "log_cut") == []
    history.check()
