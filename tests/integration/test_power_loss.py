"""Power loss under a real process on a real file system: its disk as it is at one moment, without what only the page cache holds."""

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from dittomq.commitlog.store import StopKind
from tests.support.mounts import new_image
from tests.support.power import Rebooted, after_power_loss, booted, fast_folder, photograph
from tests.support.real_store import numbers_in, reopened
from tests.support.store_process import open_store
from tests.support.tree import ROOT
from tests.support.waiting import eventually

IMAGE_BYTES = 64 * 1024 * 1024
MOMENTS = 6


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


def waiting_lines(pipe: IO[str]) -> list[str]:
    """What a stopped process has printed and nobody has read yet."""
    os.set_blocking(pipe.fileno(), False)
    try:
        return pipe.read().split()
    except TypeError:  # nothing is there
        return []
    finally:
        os.set_blocking(pipe.fileno(), True)


def test_power_loss_at_any_moment_keeps_every_message_that_was_called_flushed(tmp_path: Path) -> None:
    taken, seed = [], os.getpid()
    print(f"seed {seed}")
    chance = random.Random(seed)
    with fast_folder() as memory:
        image = new_image(memory / "image", IMAGE_BYTES)
        with booted(image, tmp_path / "disk") as device, writer(tmp_path / "disk" / "store") as process:
            assert process.stdout is not None
            for moment in range(MOMENTS):
                acknowledged = [next(process.stdout) for _ in range(chance.randrange(20, 200))]
                process.send_signal(signal.SIGSTOP)
                eventually(lambda: state_of(process.pid) == "T", "the writer stands still")
                acknowledged += waiting_lines(process.stdout)
                photograph(image, device, memory / f"{moment}.img")
                taken.append(int(acknowledged[-1]))
                process.send_signal(signal.SIGCONT)

        for moment, flushed in enumerate(taken):
            with after_power_loss(memory / f"{moment}.img", tmp_path / "disk"):
                judge(tmp_path / "disk" / "store", flushed)


def judge(root: Path, flushed: int) -> None:
    """Start on the disk that is left: all that was called flushed is there, whole, and nothing is bent."""
    store, log = reopened(root, Rebooted(root))
    assert store.stopped is StopKind.POWER_LOSS
    assert numbers_in(log) == list(range(len(log.records)))
    assert len(log.records) >= flushed
    store.close(clean=False)
    again = open_store(Rebooted(root))
    assert (again.end, again.recovery_cut) == (store.end, None), "a second recovery changes nothing"
    again.close(clean=True)
