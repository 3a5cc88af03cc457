"""Programs of Debian's packages that tests drive: the machine's, and where it lacks some, unpacked into .tools.

No package is installed: that could start a daemon of the machine's.
"""

import contextlib
import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from tests.support.tree import ROOT

TOOLS: Final = (ROOT / ".tools").resolve()
_PACKAGES: Final = {
    "dockerd": "docker.io",
    "mmdebstrap": "mmdebstrap",
    "containerd": "containerd",
    "runc": "runc",
    "iptables": "iptables",
    "ipset": "ipset",
}
_FETCHES_S: Final = 300
_XTABLES: Final = "xtables-nft-multi"  # iptables and its kin are links to it, which an installation makes


class NoProgramError(Exception):
    """Why there is none here, in words."""


def find_programs(*programs: str, tools: Path = TOOLS) -> None:
    """Have these on PATH, and with them all that tests drive and the machine lacks. Raises NoProgramError."""
    unpacked = [str(_unpacked(tools) / folder) for folder in ("usr/sbin", "usr/bin", "sbin", "bin")]
    of_the_machine = [folder for folder in os.environ["PATH"].split(":") if folder not in unpacked]
    os.environ["PATH"] = ":".join([*of_the_machine, *unpacked])
    with _problems_in_words(), _alone(tools):
        if _missing(programs, os.environ["PATH"]):  # what is unpacked is always all that the machine lacks
            _unpack(_missing(_PACKAGES, ":".join(of_the_machine)), tools)
    if missing := _missing(programs, os.environ["PATH"]):
        raise NoProgramError(f"no program is on PATH that {' and '.join(missing)} should have")


def their_environment(tools: Path = TOOLS) -> dict[str, str]:
    """What the unpacked ones run with: there are their libraries."""
    environment = dict(os.environ)
    if folders := [str(folder) for folder in _unpacked(tools).glob("**/lib/*-linux-gnu*")]:
        environment["LD_LIBRARY_PATH"] = ":".join([*folders, environment.get("LD_LIBRARY_PATH", "")])
    for extensions in _unpacked(tools).glob("**/lib/*-linux-gnu*/xtables"):
        environment["XTABLES_LIBDIR"] = str(extensions)
    return environment


def words_of(problem: OSError | subprocess.SubprocessError) -> str:
    """With the end of what a program that failed has printed."""
    printed = getattr(problem, "stderr", None) or b""
    words = printed.decode(errors="replace") if isinstance(printed, bytes) else printed
    return f"{problem} {words.strip()[-300:]}"


@contextlib.contextmanager
def _problems_in_words() -> Iterator[None]:
    try:
        yield
    except (OSError, subprocess.SubprocessError) as problem:
        raise NoProgramError(f"none can be unpacked: {words_of(problem)}") from problem


def _unpacked(tools: Path) -> Path:
    return tools / "debian"


def _missing(programs: Iterable[str], path: str) -> list[str]:
    """The packages of those that are not there."""
    return [_PACKAGES[program] for program in programs if shutil.which(program, path=path) is None]


@contextlib.contextmanager
def _alone(tools: Path) -> Iterator[None]:
    tools.mkdir(exist_ok=True)
    with (tools / "debian.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _unpack(packages: list[str], tools: Path) -> None:
    """These and what they depend on, where it is not installed. What apt knows of packages remains as it was."""
    apt = shutil.which("apt-get")
    if apt is None:
        raise NoProgramError(f"no apt-get on PATH to fetch {' and '.join(packages)} with")
    fetched, fresh = tools / "debian.fetched", tools / "debian.new"
    for folder in (fetched, fresh):
        shutil.rmtree(folder, ignore_errors=True)
    for folder in (fetched / "lists" / "partial", fetched / "archives" / "partial", fresh):
        folder.mkdir(parents=True)
    options = ["--quiet", "-o", f"Dir::State::lists={fetched / 'lists'}", "-o", f"Dir::Cache={fetched}"]
    for command in (["update"], ["install", "--download-only", "--yes", "--no-install-recommends", *packages]):
        subprocess.run([apt, *options, *command], capture_output=True, text=True, timeout=_FETCHES_S, check=True)
    for archive in fetched.glob("archives/*.deb"):
        subprocess.run(["dpkg-deb", "--extract", str(archive), str(fresh)], capture_output=True, text=True, timeout=60, check=True)
    for every in fresh.glob(f"usr/sbin/{_XTABLES}"):
        for name in (f"{family}{command}" for family in ("iptables", "ip6tables") for command in ("", "-save", "-restore")):
            every.with_name(name).symlink_to(_XTABLES)
    shutil.rmtree(_unpacked(tools), ignore_errors=True)
    fresh.rename(_unpacked(tools))
    shutil.rmtree(fetched)
