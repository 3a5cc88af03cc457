"""Power loss under a real process on a real file system: its disk as it is at one moment, without what only the page cache holds."""

import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from dittomq.commitlog.storage import OsStorage
from dittomq.commitlog.store import StopKind
from tests.simulation.parser import parse_log
from tests.support.mounts import ext4_device, loop_device, mounted_ext4
from tests.support.store_process import body, open_store
from tests.support.tree import ROOT
from tests.support.waiting import eventually

IMAGE_BYTES = 64 * 1024 * 1024
MOMENTS = 6
UNSYNCED = b"never synced" * 1_000


class Rebooted(OsStorage):
    """The machine has booted since."""

    def boot_id(self) -> str:
        return "another boot"


@contextmanager
def writer(root: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.support.store_process", "stream", f"{root}"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, bufsize=1) as process:
        try:
            yield process
        finally:
            process.kill()


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]


def still(device: Path) -> tuple[int, bool]:
    """How many writes the device has seen, and whether none is under way."""
    fields = Path(f"/sys/block/{device.name}/stat").read_text().split()
    return int(fields[4]), int(fields[8]) == 0


def waiting_lines(pipe: IO[str]) -> list[str]:
    """What a stopped process has printed and nobody has read yet."""
    os.set_blocking(pipe.fileno(), False)
    try:
        return pipe.read().split()
    except TypeError:  # nothing is there
        return []
    finally:
        os.set_blocking(pipe.fileno(), True)


def photograph(image: Path, device: Path, copy: Path) -> None:
    """Copy the disk in a moment in which nothing is written to it."""

    def copied() -> bool:
        before = still(device)
        shutil.copyfile(image, copy)
        return before[1] and still(device) == before

    eventually(copied, "the disk is still while it is copied")


def test_power_loss_at_any_moment_keeps_every_message_that_was_called_flushed(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    memory = Path("/dev/shm") if Path("/dev/shm").is_dir() else tmp_path  # a fast disk makes many moments
    image = memory / f"dittomq-{os.getpid()}.img"
    request.addfinalizer(lambda: image.unlink(missing_ok=True))
    taken, seed = [], os.getpid()
    print(f"seed {seed}")
    chance = random.Random(seed)
    with (
        ext4_device(image, IMAGE_BYTES) as device,
        mounted_ext4(device, tmp_path / "disk"),
        writer(tmp_path / "disk" / "store") as process,
    ):
        assert process.stdout is not None
        (tmp_path / "disk" / "unsynced").write_bytes(UNSYNCED)
        for moment in range(MOMENTS):
            acknowledged = [next(process.stdout) for _ in range(chance.randrange(20, 200))]
            process.send_signal(signal.SIGSTOP)
            eventually(lambda: state_of(process.pid) == "T", "the writer stands still")
            acknowledged += waiting_lines(process.stdout)
            photograph(image, device, tmp_path / f"{moment}.img")
            taken.append(int(acknowledged[-1]))
            process.send_signal(signal.SIGCONT)

    for moment, flushed in enumerate(taken):
        with loop_device(tmp_path / f"{moment}.img") as device, mounted_ext4(device, tmp_path / f"disk-{moment}"):
            judge(tmp_path / f"disk-{moment}", flushed)


def judge(disk: Path, flushed: int) -> None:
    """Start on the disk that is left: all that was called flushed is there, whole, and nothing is bent."""
    unsynced = disk / "unsynced"
    assert not unsynced.exists() or unsynced.read_bytes() != UNSYNCED, "this is no power loss: what was never synced is there"
    storage = Rebooted(disk / "store")
    store = open_store(storage)
    assert store.stopped is StopKind.POWER_LOSS
    store.dispatch(store.end)
    log = parse_log({f"commitlog/{path.name}": path.read_bytes() for path in sorted((disk / "store" / "commitlog").iterdir())})
    assert len(log.records) >= flushed
    assert [record.body for record in log.records] == [body(number) for number in range(len(log.records))]
    for queue in range(3):
        mine = [record.queue_offset for record in log.records if record.queue == queue]
        assert mine == list(range(len(mine)))
        assert store.queue_range("orders", queue) == (0, len(mine))
    end = store.end
    store.close(clean=False)
    again = open_store(storage)
    assert (again.end, again.recovery_cut) == (end, None), "a second recovery changes nothing"
    again.close(clean=True)
