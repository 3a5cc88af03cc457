"""The benchmark runs end to end and leaves nothing behind. What it measures is judged by people, never here."""

import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, cast

import pytest

from bench.copying import CopyEnded, bytes_came, wait_for_bytes
from bench.peers.running import running, standing_still, wait_until, with_descendants
from bench.product import Product
from bench.ratios import Figure
from bench.replication.pairs import QUICK, PairBench, figures_of
from bench.store.__main__ import MEASURES
from dittomq.testing.processes import checkout_root

pytestmark = pytest.mark.tier("nightly")


def test_a_quick_benchmark_prints_every_ratio_and_leaves_no_file(tmp_path: Path) -> None:
    figures = _quick_figures("bench", tmp_path)

    assert {figure["goal"] for figure in figures} == {"≥ 0.4", "≥ 0.5", "≤ 2", "-"}
    assert all(0 < figure["ratio"]["min"] <= figure["ratio"]["median"] <= figure["ratio"]["max"] for figure in figures)
    assert list(tmp_path.iterdir()) == []


def test_quick_store_benchmark_prints_every_measure_and_leaves_no_file(tmp_path: Path) -> None:
    figures = _quick_figures("bench.store", tmp_path)

    names = [figure["name"] for figure in figures]
    assert len(names) == len(set(names)) >= len(MEASURES)
    assert all(min(figure["ours"]) > 0 for figure in figures)
    assert list(tmp_path.iterdir()) == []


def test_quick_replication_benchmark_names_peers_that_are_not_installed(tmp_path: Path) -> None:
    """It measures beside those that are installed."""
    ran = _quick("bench.replication", tmp_path, "--only", "least", "--only", "divergence", "--only", "etcd")

    names = [figure["name"] for figure in json.loads(ran.stdout)["figures"]]
    assert names[:2] == ["8 × 256, the least code of the same bytes", "one caller, the least code of the same bytes, p50"]
    for peer in ("divergence", "etcd"):
        assert any(peer in name for name in names) or f"{peer} is left out" in ran.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_benchmark_of_failover_finds_nothing_lost_and_leaves_no_file(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench.failover", "--json", "--dir", str(tmp_path), "--runs", "1"]
    wanted = ["--scenario", "kill", "--scenario", "switchover", "--backend", "nameserver"]
    ran = subprocess.run([*command, *wanted], cwd=checkout_root(), capture_output=True, text=True, timeout=240, check=False)

    assert ran.returncode == 0, ran
    found = json.loads(ran.stdout)["scenarios"]
    assert [(each["scenario"], each["lost"], each["twice"], each["problems"]) for each in found] == [
        ("kill", 0, 0, []),
        ("switchover", 0, 0, []),
    ]
    assert all(each["acknowledged"] > 0 and each["pause_s"]["max"] > 0 for each in found)
    assert list(tmp_path.iterdir()) == []


def test_quick_clients_benchmark_prints_every_measure_and_leaves_no_file(tmp_path: Path) -> None:
    figures = _quick_figures("bench.clients", tmp_path)

    assert all(min(figure["ours"]) > 0 for figure in figures)
    assert list(tmp_path.iterdir()) == []


def test_quick_scale_benchmark_prints_every_measure_and_leaves_no_file(tmp_path: Path) -> None:
    figures = _quick_figures("bench.scale", tmp_path)

    assert {"create_topic", "a commit", "memory of the nameserver"} <= {figure["name"].rpartition(": ")[2] for figure in figures}
    assert list(tmp_path.iterdir()) == []


def test_measures_that_have_the_same_peer_have_folders_of_their_own(tmp_path: Path) -> None:
    async def with_rocketmq(bench: PairBench) -> list[Figure]:
        (bench.folder / "rocketmq").mkdir()
        return []

    bench = PairBench(cast("Product", None), tmp_path, QUICK, lambda _: None)

    for name in ("rocketmq", "new-slave"):
        asyncio.run(figures_of(name, with_rocketmq, bench))

    assert {path.parent.name for path in tmp_path.glob("*/rocketmq")} == {"rocketmq", "new-slave"}


def test_peer_that_is_not_measured_is_suspended_with_all_that_it_started(tmp_path: Path) -> None:
    program = "import subprocess, sys; child = subprocess.Popen([sys.executable, '-c', 'input()'], stdin=subprocess.PIPE); child.wait()"

    with running([sys.executable, "-c", program], tmp_path) as process:
        wait_until(lambda: len(with_descendants([process.pid])) == 2, "the child did not start")
        both = with_descendants([process.pid])
        with standing_still([process.pid]):
            wait_until(lambda: [_state(pid) for pid in both] == ["T", "T"], "they did not stop")
        wait_until(lambda: "T" not in [_state(pid) for pid in both], "they did not go on")


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_wait_for_a_copy_ends_with_the_process_that_makes_it(tmp_path: Path) -> None:
    with running([sys.executable, "-c", ""], tmp_path) as process, pytest.raises(CopyEnded):
        wait_for_bytes(tmp_path / "log", 0, 64, 60.0, ended=lambda: process.poll() is not None)


def test_who_is_told_to_end_while_a_copy_is_waited_for_ends_at_once(tmp_path: Path) -> None:
    async def wait() -> None:
        async with asyncio.timeout(0.01):
            await bytes_came(tmp_path / "log", 0, 64, 60.0)

    began = time.monotonic()
    with pytest.raises(TimeoutError):
        asyncio.run(wait())  # it ends when all its threads have

    assert time.monotonic() - began < 30.0


def _quick_figures(module: str, folder: Path) -> list[dict[str, Any]]:
    figures: list[dict[str, Any]] = json.loads(_quick(module, folder).stdout)["figures"]
    return figures


def _quick(module: str, folder: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    ran = subprocess.run(
        [sys.executable, "-m", module, "--quick", "--json", "--dir", str(folder), *options],
        cwd=checkout_root(),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )

    assert ran.returncode == 0, ran.stderr
    return ran
