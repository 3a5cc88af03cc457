"""A store of a newer dittomq and the programs that may meet it: each refuses it in one sentence, and none changes a byte."""

import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from dittomq.commitlog.disk.storage import OsStorage
from dittomq.commitlog.state import identity
from dittomq.testing.processes import module_environment
from dittomq.version import VERSION
from tests.support.stores import SMALL, frame, led

pytestmark = pytest.mark.tier("nightly")

NEWER = identity.FORMAT + 1
NAMESERVER = 'node.nameservers=["127.0.0.1:1"]'
FREE_PORTS = ["--set", "listen.clients=127.0.0.1:0", "--set", "listen.replication=127.0.0.1:0", "--set", "listen.ops=127.0.0.1:0"]
COMMANDS = {
    "serve master": ["-m", "services.master", "--set", "node.data_dir=STORE", "--set", NAMESERVER, *FREE_PORTS],
    "serve slave": ["-m", "services.slave", "--set", "node.broker_id=1", "--set", "node.data_dir=STORE", "--set", NAMESERVER, *FREE_PORTS],
    "log dump": ["-m", "dittomq.cli", "log", "dump", "STORE"],
    "log verify": ["-m", "dittomq.cli", "log", "verify", "STORE"],
    "log stats": ["-m", "dittomq.cli", "log", "stats", "STORE"],
    "log digest": ["-m", "dittomq.cli", "log", "digest", "STORE", "-o", "OUTSIDE"],
}


@pytest.fixture(scope="module")
def newer_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that a killed process of dittomq 9.4.1 left."""
    folder = tmp_path_factory.mktemp("newer") / "store"
    store = led(OsStorage(folder), SMALL, chance=random.Random(1), wall_ms=0)
    store.append([frame(b"m" * 900)], 1)
    store.sync()
    store.close(clean=False)
    held = identity.load(OsStorage(folder))
    assert held is not None
    identity.save(OsStorage(folder), replace(held, format=NEWER, written_by="9.4.1"))
    return folder


@pytest.mark.parametrize("name", COMMANDS)
def test_a_newer_store_is_refused_by_every_program_and_not_a_byte_of_it_changes(name: str, newer_store: Path, tmp_path: Path) -> None:
    before = contents(newer_store)
    names = {"STORE": str(newer_store), "OUTSIDE": str(tmp_path / "digest"), "node.data_dir=STORE": f"node.data_dir={newer_store}"}
    command = [sys.executable, *(names.get(part, part) for part in COMMANDS[name])]

    ended = subprocess.run(command, env=module_environment(), cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)

    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1].removeprefix(f"dittomq {name}: ") == (
        f"the store {newer_store} cannot be opened: it has format {NEWER} since dittomq 9.4.1 wrote to it, and this is dittomq {VERSION}, "
        f"which understands formats up to {identity.FORMAT}; use dittomq 9.4.1 or a newer one"
    )
    assert "Traceback" not in ended.stderr
    assert contents(newer_store) == before
    assert not (tmp_path / "digest").exists()


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {str(path): (path.read_bytes() if path.is_file() else b"", path.stat().st_mtime_ns) for path in sorted(folder.rglob("*"))}
