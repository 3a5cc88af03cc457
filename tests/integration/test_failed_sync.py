"""A disk that fails an fdatasync once, under a real process: the failure is final, and nothing that was acknowledged is lost."""

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from dittomq.client import Message
from tests.support.real_group import MASTER, RealGroup, real_group
from tests.support.told import Fate, wrong_copies, wrong_reads
from tests.support.traffic import Publishing, messages, read_all
from tests.support.waiting import eventually

SOURCE = Path(__file__).parents[1] / "support" / "failing_fdatasync.c"
INTERNAL = 128
COUNT = 4_000


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler on PATH to build the failing fdatasync with")
    library = tmp_path_factory.mktemp("shim") / "failing_fdatasync.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", library, SOURCE, "-ldl"], check=True)
    return library


@dataclass(frozen=True, slots=True)
class Bench:
    """A group, and a switch for the disk of one node that is started with `restart`."""

    group: RealGroup
    shim: Path
    switch: Path

    def restart(self, name: str, monkeypatch: pytest.MonkeyPatch, *, nth: int) -> None:
        """Start the node anew on a disk whose n-th fdatasync of the commit log after `break_disk` fails."""
        self.group.cluster.stop_node(name)
        with monkeypatch.context() as environment:
            environment.setenv("LD_PRELOAD", str(self.shim))
            environment.setenv("FAIL_UNDER", str(self.group.cluster.data_dir(name) / "commitlog"))
            environment.setenv("FAIL_WHEN", str(self.switch))
            environment.setenv("FAIL_NTH", f"{nth}")
            self.group.cluster.start_node(name)
        self.group.cluster.wait_in_sync()

    def break_disk(self) -> None:
        """From here on fdatasyncs are counted."""
        self.switch.touch()


@pytest.fixture
def bench(shim: Path, tmp_path: Path) -> Iterator[Bench]:
    with real_group(tmp_path) as group:
        yield Bench(group, shim, tmp_path / "broken")


def breaking(bench: Bench, publishing: Publishing, first: int) -> None:
    """Publish; the disk breaks in the middle."""

    def stream() -> Iterator[Message]:
        yield from messages(first, COUNT // 2, size=100)
        bench.break_disk()
        yield from messages(first + COUNT // 2, COUNT // 2, size=100)

    publishing.publish(stream())


@pytest.mark.parametrize("nth", [1, 5])
def test_a_failed_fdatasync_stops_the_master_and_loses_nothing_that_was_acknowledged(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    group = bench.group
    own = group.cluster.data_dir(MASTER) / "dittomq"
    bench.restart(MASTER, monkeypatch, nth=nth)

    with group.mq.producer(retry_s=2.0, max_waiting_bytes=128 * 1024) as producer:
        publishing = Publishing(producer)
        breaking(bench, publishing, 0)
        told = publishing.told

        # It has stopped, and says which disk and what to do; its next start is no ordinary one.
        assert group.exit_status(MASTER) == INTERNAL
        sentence = group.last_words(MASTER)
        assert sentence.startswith(f"dittomq serve master: fdatasync of {group.cluster.data_dir(MASTER)}/commitlog/")
        assert sentence.endswith("failed: [Errno 5] Input/output error; the node stops, check its disk and start it again")
        assert "Traceback" not in group.cluster.log_file(MASTER).read_text()
        assert not (own / "boot").exists()
        assert set(told.outcomes.values()) & set(Fate)

        group.cluster.start_node(MASTER)
        group.cluster.wait_in_sync()
        assert group.events(MASTER, "store_opened")[-1]["stopped"] == "failed fsync"
        publishing.settle()
        assert told.bodies(Fate.UNKNOWN) == []

    end = group.wait_equal()
    for name in group.copies:
        assert list(wrong_reads(told, read_all(group.mq, name)))[:3] == []
    assert list(wrong_copies(group.logs(), end)) == []
    assert (own / "boot").exists()


def test_after_a_failed_fdatasync_the_master_waits_for_every_slave_that_may_know_more(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    group = bench.group
    bench.restart(MASTER, monkeypatch, nth=1)
    with group.mq.producer(retry_s=1.0, max_waiting_bytes=128 * 1024) as producer:
        publishing = Publishing(producer)
        breaking(bench, publishing, 0)
        assert group.exit_status(MASTER) == INTERNAL
        group.cluster.kill("a/2")

        group.cluster.start_node(MASTER)
        waits = "1 more of 2 slaves: confirmed data may be missing here after a failed fsync"
        eventually(lambda: group.status().waiting_for == waits, "the master says what it waits for")
        assert not group.writable()

        group.cluster.start_node("a/2")
        group.cluster.wait_in_sync()
        publishing.settle()
    group.wait_equal()
    assert list(wrong_reads(publishing.told, read_all(group.mq, MASTER)))[:3] == []


def test_a_failed_fdatasync_stops_a_slave_and_the_group_goes_on(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    group = bench.group
    bench.restart("a/1", monkeypatch, nth=3)

    with group.mq.producer() as producer:
        publishing = Publishing(producer)
        breaking(bench, publishing, 0)

    assert group.exit_status("a/1") == INTERNAL
    assert f"fdatasync of {group.cluster.data_dir('a/1')}/commitlog/" in group.last_words("a/1")
    assert not (group.cluster.data_dir("a/1") / "dittomq" / "boot").exists()
    assert not set(publishing.told.outcomes.values()) & set(Fate)
    assert group.status().degraded_bytes == 0
    group.cluster.start_node("a/1")
    group.cluster.wait_in_sync()
    end = group.wait_equal()
    assert list(wrong_reads(publishing.told, read_all(group.mq, "a/1")))[:3] == []
    assert list(wrong_copies(group.logs(), end)) == []
