"""Programs that are unpacked for tests: all that the machine lacks, each time."""

import os
import shutil
from pathlib import Path

import pytest

from tests.support.debian_programs import NoProgramError, find_programs

APT = """#!/bin/sh
for word; do case $word in Dir::Cache=*) cache=${word#*=};; esac; done
for word; do case $word in docker.io|mmdebstrap|containerd|runc|iptables|ipset) : >"$cache/archives/$word.deb";; esac; done
"""
EXTRACT = """#!/bin/sh
name=${2##*/} name=${name%.deb}
[ "$name" = docker.io ] && name=dockerd
/bin/mkdir -p "$3/usr/bin"
: >"$3/usr/bin/$name"
/bin/chmod 755 "$3/usr/bin/$name"
"""
ALL = ("dockerd", "mmdebstrap", "containerd", "runc", "iptables", "ipset")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder of PATH: it can fetch and extract packages."""
    folder = tmp_path / "machine"
    folder.mkdir()
    for name, script in (("apt-get", APT), ("dpkg-deb", EXTRACT)):
        (folder / name).write_text(script)
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    return folder


def test_one_program_that_is_missing_brings_all_that_the_machine_lacks(machine: Path, tmp_path: Path) -> None:
    shutil.copy(machine / "apt-get", machine / "runc")

    find_programs("dockerd", tools=tmp_path)

    assert [name for name in ALL if (tmp_path / "debian" / "usr" / "bin" / name).exists()] == [name for name in ALL if name != "runc"]
    assert shutil.which("runc") == str(machine / "runc")


def test_what_was_unpacked_before_is_there_after_more_is_unpacked(machine: Path, tmp_path: Path) -> None:
    find_programs("dockerd", tools=tmp_path)
    (tmp_path / "debian" / "usr" / "bin" / "ipset").unlink()

    find_programs("ipset", tools=tmp_path)

    assert [name for name in ALL if shutil.which(name) is None] == []


def test_program_is_missing_by_name_where_nothing_fetches_packages(machine: Path, tmp_path: Path) -> None:
    (machine / "apt-get").unlink()

    with pytest.raises(NoProgramError, match="no apt-get on PATH to fetch"):
        find_programs("ipset", tools=tmp_path)

    assert os.environ["PATH"].startswith(f"{machine}:")
