"""`dittomq log …` on a store of ours that is in use: what it tells, what it leaves alone, and how much memory it takes."""

import json
import os
import pty
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from dittomq.cli.app import run
from dittomq.commitlog.disk.storage import OsStorage
from dittomq.commitlog.store import Store, StoreOptions
from tests.support.stores import frame, led
from tests.support.tree import ROOT

MIB = 1024 * 1024
COMMANDS = ["dump", "verify", "stats", "digest"]
# Ends the process at the first thing that would write below the folder, or take a lock anywhere.
WATCHED = """
import fcntl, os, sys
store = os.path.realpath(sys.argv[1])
LOCKS = {fcntl.F_SETLK, fcntl.F_SETLKW, 37, 38}  # and those of open file descriptions
CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.link", "os.symlink", "os.chmod", "os.chown", "os.utime"}
def watch(event, arguments):
    if event == "open":
        path, _, flags = arguments
        forbidden = flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC) and os.path.realpath(str(path)).startswith(store)
    else:
        forbidden = event in {"fcntl.flock", "fcntl.lockf"} or (event == "fcntl.fcntl" and arguments[1] in LOCKS)
        forbidden = forbidden or (event in CHANGES and os.path.realpath(str(arguments[0])).startswith(store))
    if forbidden:
        os.write(2, f"forbidden: {event} {arguments}".encode())
        os._exit(99)
sys.addaudithook(watch)
"""
MEASURED = """
import sys
from dittomq.cli.app import run
code = run(sys.argv[1:])
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))  # not ru_maxrss: that knows the parent's too
print(peak.split()[1], file=sys.stderr)
sys.exit(code)
"""


def python(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, check=False)


def arguments(command: str, folder: Path) -> list[str]:
    return ["log", command, str(folder), *(["-o", f"{folder}.dmd"] if command == "digest" else [])]


def filled(folder: Path, size: int, body: bytes, segment_bytes: int = 16 * MIB) -> Store:
    """A store in use, all of it dispatched."""
    options = StoreOptions(segment_bytes=segment_bytes, queue_file_units=10_000, min_free_bytes=0)
    store = led(OsStorage(folder), options, chance=random.Random(1), wall_ms=1)
    at = 0
    while store.end < size:
        store.append([frame(*[body] * 50, queue=queue) for queue in range(3)], 1_000 + at)
        at += 1
    store.dispatch(store.end)
    store.sync()
    return store


def files(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.tier("test")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_store_in_use_is_read_without_a_lock_and_nothing_in_it_is_written(command: str, tmp_path: Path) -> None:
    folder = tmp_path / "store"
    store = filled(folder, 1_000_000, b"x" * 1_000, MIB)
    before = files(folder)

    done = python(WATCHED + "from dittomq.cli.app import run\nsys.exit(run(sys.argv[2:]))", str(folder), *arguments(command, folder))

    assert done.returncode == 0, done.stderr
    assert files(folder) == before
    store.close(clean=True)


@pytest.mark.parametrize("place", ["commitlog/x.dmd", "x.dmd", "link/x.dmd"])
def test_a_digest_is_never_written_into_the_store(place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "store"
    filled(folder, 100_000, b"x" * 1_000, MIB).close(clean=True)
    before = files(folder)
    (tmp_path / "link").symlink_to(folder / "commitlog")
    output = (tmp_path if place.startswith("link") else folder) / place

    assert run(["log", "digest", str(folder), "-o", str(output)]) == 64

    assert files(folder) == before
    assert "lies in the store" in capsys.readouterr().err


def test_a_digest_takes_the_place_of_a_file_and_of_nothing_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, target, link, pipe = (tmp_path / name for name in ("store", "target", "link", "pipe"))
    filled(folder, 100_000, b"x" * 1_000, MIB).close(clean=True)
    target.write_text("of last night")
    link.symlink_to(target)
    os.mkfifo(pipe)

    assert [run(["log", "digest", str(folder), "-o", str(output)]) for output in (link, pipe, tmp_path, "")] == [0, 64, 64, 64]

    assert link.is_symlink()
    assert target.read_bytes() != b"of last night"
    assert pipe.is_fifo()
    assert [line.rpartition(": ")[2] for line in capsys.readouterr().err.splitlines()] == ["is no file; name one that may be replaced"] * 3


@pytest.mark.parametrize("deed", ["Store.open(OsStorage(folder), StoreOptions(), chance=None, wall_ms=0)", "(folder / 'new').touch()"])
def test_the_watch_on_writes_and_locks_sees_them(deed: str, tmp_path: Path) -> None:
    imports = "from pathlib import Path\nfrom dittomq.commitlog.disk.storage import OsStorage\n"
    imports += "from dittomq.commitlog.store import Store, StoreOptions\n"

    done = python(f"{imports}{WATCHED}folder = Path(sys.argv[1])\n{deed}", str(tmp_path))

    assert (done.returncode, done.stderr[:10]) == (99, "forbidden:")


@pytest.mark.tier("nightly")
@pytest.mark.parametrize("command", COMMANDS)
def test_memory_does_not_grow_with_the_log(command: str, tmp_path: Path) -> None:
    peaks_mib = []
    for size in (24 * MIB, 96 * MIB) if command == "dump" else (48 * MIB, 240 * MIB):
        folder = tmp_path / str(size)
        filled(folder, size, b"x" * 4_000).close(clean=True)

        done = python(MEASURED, *arguments(command, folder))

        assert done.returncode == 0, done.stderr
        peaks_mib.append(int(done.stderr.split()[-1]) // 1024)
    assert peaks_mib[1] < peaks_mib[0] + 24, peaks_mib


@pytest.mark.tier("test")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_terminal_sees_a_progress_bar_and_nothing_else_does(command: str, tmp_path: Path) -> None:
    folder = tmp_path / "store"
    filled(folder, 1_000_000, b"x" * 1_000, MIB).close(clean=True)
    script = "import sys\nfrom dittomq.cli.app import run\nsys.exit(run(sys.argv[1:]))"

    assert python(script, *arguments(command, folder)).stderr == ""
    assert command in shown_on_a_terminal([sys.executable, "-c", script, *arguments(command, folder)])


def test_where_the_records_themselves_go_to_the_terminal_no_bar_gets_between_them(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    filled(folder, 100_000, b"x" * 1_000, MIB).close(clean=True)
    script = "import sys\nfrom dittomq.cli.app import run\nsys.exit(run(sys.argv[1:]))"

    shown = shown_on_a_terminal([sys.executable, "-c", script, "log", "dump", str(folder), "--max", "1"], lines_too=True)

    assert (shown.count("\n"), "\x1b" in shown) == (1, False), shown


def shown_on_a_terminal(command: Sequence[str], *, lines_too: bool = False) -> str:
    """What a process writes to stderr, or all that it writes, when that is a terminal."""
    ours, theirs = pty.openpty()
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TERM": "xterm"}
    with subprocess.Popen(command, env=environment, stdout=theirs if lines_too else subprocess.DEVNULL, stderr=theirs) as process:
        os.close(theirs)
        shown = b""
        try:
            while piece := os.read(ours, 4_096):
                shown += piece
        except OSError:  # the other side is closed
            pass
        assert process.wait(60) == 0
    os.close(ours)
    return shown.decode(errors="replace")


def test_each_command_tells_of_a_damaged_record_what_it_can(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "store"
    store = filled(folder, 200_000, b"x" * 1_000, MIB)
    end = store.end
    size = int.from_bytes(store.read(0, 4), "big")
    store.close(clean=True)
    with (folder / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(7 * size + 500)
        file.write(b"?")

    codes, told = {}, {}
    for command in COMMANDS:
        codes[command] = run([*arguments(command, folder), "--json"])
        told[command] = capsys.readouterr().out

    assert codes == {"dump": 0, "verify": 3, "stats": 3, "digest": 0}
    dumped = [json.loads(line) for line in told["dump"].splitlines()]
    assert [(line["start_offset"], line["problem"]) for line in dumped if line["problem"]] == [
        (7 * size, "its checksum does not match the body")
    ]
    verified = json.loads(told["verify"])
    assert (verified["records"], verified["end_offset"]) == (len(dumped) - 1, end)
    assert [(each["kind"], each["position"]) for each in verified["findings"]] == [("damaged", 7 * size), ("queue gap", 8 * size)]
    counted = json.loads(told["stats"])
    [topic] = counted["topics"]
    assert (topic["topic"], sum(queue["records"] for queue in topic["queues"])) == ("orders", len(dumped) - 1)
    assert json.loads(told["digest"])["end_offset"] == end
