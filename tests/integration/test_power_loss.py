"""Power loss under a real process on a real file system: its disk as it is at one moment, without what only the page cache holds."""

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from dittomq.commitlog.store import StopKind
from tests.support.chances import replayable
from tests.support.mounts import new_image
from tests.support.power import SECTOR, Rebooted, after_power_loss, blocks_of, booted, fast_folder
from tests.support.real_store import filled, numbers_in, reopened
from tests.support.store_process import FLUSHED, OPTIONS, fill, open_store
from tests.support.tree import ROOT
from tests.support.waiting import eventually

IMAGE_BYTES = 64 * 1024 * 1024
MOMENTS = 6
AHEAD = 100  # so many syncs it may be ahead of its reader: it writes while it is stopped, and has not ended however late that comes
UNFLUSHED = 20


@contextmanager
def writer(root: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.support.store_process", "stream", f"{root}"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as process:
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
    taken, chance = [], replayable()
    with fast_folder() as memory:
        image = new_image(memory / "image", IMAGE_BYTES)
        with booted(image, tmp_path / "disk") as disk, writer(tmp_path / "disk" / "store") as process:
            assert process.stdin is not None
            assert process.stdout is not None
            for moment in range(MOMENTS):
                wanted = chance.randrange(20, 200)
                process.stdin.write("\n" * (wanted + AHEAD))
                process.stdin.flush()
                acknowledged = [next(process.stdout) for _ in range(wanted)]
                process.send_signal(signal.SIGSTOP)
                eventually(lambda: state_of(process.pid) == "T", "the writer stands still")
                acknowledged += waiting_lines(process.stdout)
                disk.photograph(memory / f"{moment}.img")
                taken.append(int(acknowledged[-1]))
                process.send_signal(signal.SIGCONT)

        for moment, flushed in enumerate(taken):
            with after_power_loss(memory / f"{moment}.img", tmp_path / "disk"):
                judge(tmp_path / "disk" / "store", flushed)


TEARS: dict[str, Callable[[random.Random, int], set[int]]] = {
    "nothing but the beginning": lambda chance, count: set(range(chance.randrange(1, count))),
    "all but the beginning": lambda chance, count: set(range(chance.randrange(1, count), count)),
    "all but one sector": lambda chance, count: set(range(count)) - {chance.randrange(count)},
    "all but 4 KiB": lambda chance, count: set(range(count)) - set(range(start := chance.randrange(count - 8), start + 8)),
    "any": lambda chance, count: set(chance.sample(range(count), count // 2)),
}


@pytest.mark.parametrize("name", TEARS)
def test_a_write_that_power_loss_tears_between_sectors_costs_nothing_flushed_and_its_rest_is_kept(tmp_path: Path, name: str) -> None:
    disk, root = tmp_path / "disk", tmp_path / "disk" / "store"
    segment = root / "commitlog" / f"{OPTIONS.segment_bytes:020d}"
    with fast_folder() as memory:
        image = new_image(memory / "image", IMAGE_BYTES // 4)
        with booted(image, disk) as machine:
            store = filled(root)
            while store.ahead.zero():  # its blocks are there from now on
                pass
            store.sync()
            fill(store, range(FLUSHED, FLUSHED + UNFLUSHED))
            store.close(clean=False)
            machine.photograph(memory / "lost")
            written, blocks = segment.read_bytes(), blocks_of(segment)
        first, stop = store.flushed - OPTIONS.segment_bytes, store.end - OPTIONS.segment_bytes
        sectors = range(first // SECTOR, -(-stop // SECTOR))  # the first one holds flushed bytes too, and the disk writes it whole or not
        with (memory / "lost").open("r+b") as lost:
            for number in TEARS[name](replayable(), len(sectors)):
                at = sectors[number] * SECTOR
                lost.seek(blocks.place(at))
                lost.write(written[at : at + SECTOR])

        with after_power_loss(memory / "lost", disk):
            torn = segment.read_bytes()
            assert torn != written
            judge_torn(root, torn)


def judge_torn(root: Path, torn: bytes) -> None:
    """Whole records count; what lies behind the last one of them is told, and kept in a side file."""
    store, log = reopened(root, Rebooted(root))
    numbers, rest = numbers_in(log), torn[store.end - OPTIONS.segment_bytes :].rstrip(b"\0")
    assert numbers == list(range(len(numbers)))
    assert FLUSHED <= len(numbers) <= FLUSHED + UNFLUSHED
    if rest:
        assert store.recovery_cut is not None
        assert store.recovery_cut.saved_bytes == len(rest)
        assert (root / store.recovery_cut.side_file).read_bytes() == rest
    else:
        assert store.recovery_cut is None
    store.close(clean=False)


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
