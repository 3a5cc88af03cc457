"""Whole audits on Spark over copies that are served by the product's own audit code."""

import random
from pathlib import Path

import pytest

from dittomq.doors.clock import OsClock
from dittomq.doors.transport import GrpcTransport
from spark.audit.model import Exit, Kind, RunResult, Verdict
from spark.audit.page import page
from spark.audit.report import document
from spark.audit.run import Settings, World, audit
from spark.audit.session import CHECKOUT, SparkRunner
from spark.audit.words import headline, text
from tests.support.audited_cluster import AuditedCluster, ServedCopy, served, with_new_epoch
from tests.support.synthetic_log import SyntheticLog

SEGMENT = 4 * 1024 * 1024


@pytest.fixture(scope="module")
def log() -> SyntheticLog:
    return SyntheticLog(SEGMENT).fill(random.Random(11), 15_000)


def three(log: SyntheticLog) -> list[ServedCopy]:
    return [served(f"a/{number}", bytes(log.data), SEGMENT) for number in range(3)]


def audited(cluster: AuditedCluster, runner: SparkRunner) -> RunResult:
    world = World(GrpcTransport(), OsClock(), random.Random(5))  # the root of a test with real sockets
    return audit(Settings(cluster.nameserver, pause_s=0), world, runner)


def test_equal_copies_pass_and_every_byte_was_compared(log: SyntheticLog, runner: SparkRunner) -> None:
    with AuditedCluster(three(log)) as cluster:
        result = audited(cluster, runner)

    size = len(log.data)
    assert result.exit_status == Exit(0)
    assert headline(document(result, show_bytes=False)) == (f"PASS  a: 3 copies equal, {size:,} of {size:,} bytes compared, 0 not checked")
    assert result.groups[0].records == len(log.records)
    assert result.groups[0].queues == 6


def test_a_flipped_byte_is_found_and_named(log: SyntheticLog, runner: SparkRunner) -> None:
    copies = three(log)
    record = log.records[12_345]
    position = record.body_start + 3
    flipped = bytearray(log.data)
    flipped[position] ^= 0x40
    copies[2].store.data = bytes(flipped)

    with AuditedCluster(copies) as cluster:
        result = audited(cluster, runner)

    assert result.exit_status == Exit.DIVERGED
    (finding,) = result.groups[0].findings
    assert (finding.node, finding.first, finding.kind) == ("a/2", position, Kind.CORRUPT_BODY)
    run = document(result, show_bytes=False)
    named = f"{record.topic} queue {record.queue} offset {record.queue_offset:,}, byte {position:,} (corrupt-body)"
    assert headline(run) == f"DIFFERS  a: 1 message is damaged on a/2: {named}; a/0 and a/1 hold it whole"
    html = page(run, [], "again")
    assert named in html
    assert "<script" not in html
    assert "bytes" not in run["groups"][0]["findings"][0]
    assert named in text(run)


def test_damage_on_the_copy_that_is_read_record_by_record_sets_both_bits(log: SyntheticLog, runner: SparkRunner) -> None:
    copies = three(log)
    position = log.records[100].body_start
    flipped = bytearray(log.data)
    flipped[position] ^= 1
    copies[0].store.data = bytes(flipped)

    with AuditedCluster(copies) as cluster:
        result = audited(cluster, runner)

    assert result.exit_status == Exit.DIVERGED | Exit.DAMAGED
    (damage,) = result.groups[0].damaged
    assert (damage.node, damage.start) == ("a/0", log.records[100].start)


def test_an_unreachable_copy_makes_the_audit_incomplete_not_different(log: SyntheticLog, runner: SparkRunner) -> None:
    copies = three(log)
    copies[1].reachable = False

    with AuditedCluster(copies) as cluster:
        result = audited(cluster, runner)

    assert result.exit_status == Exit.INCOMPLETE
    assert "a/1 is registered and could not be read" in result.groups[0].problems[0]


def test_a_configured_copy_that_is_not_registered_makes_the_audit_incomplete(log: SyntheticLog, runner: SparkRunner) -> None:
    with AuditedCluster(three(log)[:2], slaves_expected=2) as cluster:
        result = audited(cluster, runner)

    assert result.exit_status == Exit.INCOMPLETE
    assert result.groups[0].problems == ("a is configured with 3 copies and 2 are registered",)


def test_an_epoch_opened_during_the_run_makes_it_incomplete(log: SyntheticLog, runner: SparkRunner) -> None:
    copies = three(log)
    copies[0].before_describe = lambda number, copy: with_new_epoch(copy) if number == 2 else None

    with AuditedCluster(copies) as cluster:
        result = audited(cluster, runner)

    assert result.verdict is Verdict.INCOMPLETE
    assert result.groups[0].problems == ("a/0: its epoch changed from 1 to 2 during the run",)


def test_bytes_that_a_disk_does_not_give_are_unreadable_never_different(log: SyntheticLog, runner: SparkRunner) -> None:
    copies = three(log)
    copies[1].store.bad = range(5_000_000, 5_000_001)

    with AuditedCluster(copies) as cluster:
        result = audited(cluster, runner)

    assert result.exit_status == Exit.INCOMPLETE
    assert result.groups[0].findings == ()
    assert any("Input/output error" in problem for problem in result.groups[0].problems)


def test_spark_leaves_nothing_in_the_checkout(runner: SparkRunner) -> None:
    assert runner is not None
    assert not [name for name in ("spark-warehouse", "metastore_db", "derby.log", "artifacts") if (CHECKOUT / name).exists()]


def test_the_page_stands_in_the_order_it_is_read(log: SyntheticLog, runner: SparkRunner, tmp_path: Path) -> None:
    copies = three(log)
    flipped = bytearray(log.data)
    flipped[log.records[7].body_start] ^= 1
    copies[1].store.data = bytes(flipped)

    with AuditedCluster(copies) as cluster:
        html = page(document(audited(cluster, runner), show_bytes=True), [], "dittomq audit run")

    parts = ["DIFFERS", "Do this", "What was compared", "What was not", "Copies", "Map", "Finding 1 of 1", "How we know", "Run again"]
    places = [html.index(part) for part in parts]
    assert places == sorted(places)
    (tmp_path / "audit.html").write_text(html, encoding="utf-8")
