"""The container engine of the tests' own leaves nothing that they did not start, and harms nothing that they do not know."""

import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.containers import engine
from tests.support.etcd import etcd_program
from tests.support.mounts import demand_root
from tests.support.own_engine import NoEngineError, OwnEngine, answers, own_engine
from tests.support.tree import ROOT
from tests.support.waiting import eventually

USES = """
import sys
from pathlib import Path
from tests.support.own_engine import own_engine
with own_engine(Path(sys.argv[1])) as host:
    print(host, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder of PATH: an engine that never starts."""
    demand_root()
    folder = tmp_path / "programs"
    folder.mkdir()
    for name in ("docker", "dockerd", "mmdebstrap"):
        (folder / name).write_text("#!/bin/sh\necho cannot >&2\nexit 1\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    return folder


@pytest.fixture
def used(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process that uses an engine of its own, and where that answers."""
    command = [sys.executable, "-c", USES, str(tmp_path)]
    user = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with user:
        assert user.stdout is not None
        host = user.stdout.readline().strip()
        if not host:
            pytest.skip(user.communicate()[1].splitlines()[-1])
        try:
            yield user, host
        finally:
            user.kill()


def test_engine_is_missing_by_name_where_a_command_of_it_fails(programs: Path, tmp_path: Path) -> None:
    with pytest.raises(NoEngineError, match=r"'ip'"), own_engine(tmp_path):
        pass


def test_engine_that_does_not_start_leaves_no_namespace(programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{programs}:/usr/sbin:/usr/bin:/sbin:/bin")
    with pytest.raises(NoEngineError, match="cannot"), own_engine(tmp_path):
        pass

    assert not Path("/run/netns", OwnEngine(tmp_path).name).exists()


def test_process_that_got_the_number_of_a_daemon_is_not_ended(tmp_path: Path) -> None:
    demand_root()
    gone = OwnEngine(tmp_path, tmp_path)
    gone.pid_file.parent.mkdir()
    with subprocess.Popen(["sleep", "60"]) as other:
        gone.pid_file.write_text(str(other.pid))

        gone.end()

        assert other.poll() is None
        other.kill()


@pytest.mark.tier("nightly")
def test_engine_and_its_containers_end_with_a_process_that_is_killed(
    used: tuple[subprocess.Popen[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user, host = used
    monkeypatch.setenv("DOCKER_HOST", host)
    with tarfile.open(tmp_path / "image", "w") as archive:
        archive.add(etcd_program(), "etcd")
    engine("import", str(tmp_path / "image"), "etcd")
    container = engine("run", "--detach", "--network", "none", "etcd", "/etcd").stdout.strip()
    pid = engine("inspect", "--format", "{{.State.Pid}}", container).stdout.strip()
    assert Path("/proc", pid).exists()

    user.kill()

    eventually(lambda: not Path("/run/netns", OwnEngine(tmp_path).name).exists(), "its namespace is gone")
    assert not answers(host)
    assert not Path("/proc", pid).exists()
    assert list((tmp_path / "engine" / "containers").iterdir()) == []
