"""Releases of Apache RocketMQ as test peers: jars by Maven, our program compiled against them, each once for a checkout."""

import fcntl
import functools
import hashlib
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

VERSIONS = ("5.3.3", "4.9.7")

_SOURCES = Path(__file__).parent / "rocketmq"
_CACHE = Path(__file__).parents[2] / ".tools"
_FETCH_TIMEOUT_S = 900
_COMPILE_TIMEOUT_S = 120
# What RocketMQ reaches into, to unmap files.
_OPENED = ("java.lang", "java.nio", "java.util", "jdk.internal.ref", "sun.nio.ch")
_OPTIONS = (
    "-Xms64m", "-Xmx384m", "-XX:MaxDirectMemorySize=256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
    *(f"--add-{how}=java.base/{package}=ALL-UNNAMED" for package in _OPENED for how in ("opens", "exports")),
    "-Dtls.server.mode=disabled",
    "-Drocketmq.client.logUseSlf4j=true",
    f"-Dlogback.configurationFile={_SOURCES / 'logback.xml'}",
    f"-Drmq.logback.configurationFile={_SOURCES / 'logback.xml'}",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Release:
    """One release, ready to run."""

    version: str
    java: Path
    class_path: str

    def argv(self, home: Path, *arguments: str) -> list[str]:
        """The command that runs the peer; what RocketMQ keeps beside its store goes to `home`."""
        folders = (f"-Duser.home={home}", f"-Drocketmq.home.dir={home}")
        return [str(self.java), *_OPTIONS, *folders, "-cp", self.class_path, "Peer", *arguments]


@functools.cache
def release(version: str) -> Release:
    """Fetch and compile what is not there yet; skips the test where that cannot be."""
    java, compiler, maven = (_tool(name) for name in ("java", "javac", "mvn"))
    pom = _SOURCES / "pom.xml"
    jars = _CACHE / f"rocketmq-{version}-{_digest(pom)}"
    classes = _CACHE / f"rocketmq-peer-{version}-{_digest(pom, *sorted(_SOURCES.glob('*.java')))}"
    class_path = f"{classes}:{jars}/*"

    def fetch(into: Path) -> None:
        goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={into}", f"-Drocketmq.version={version}"]
        _run([maven, "-q", "-B", "-C", "-f", pom, *goal], _FETCH_TIMEOUT_S)

    def compile_peer(into: Path) -> None:
        options: list[str | Path] = ["-nowarn", "-Xlint:-deprecation", "-encoding", "UTF-8", "-cp", f"{jars}/*", "-d", into]
        _run([compiler, *options, *sorted(_SOURCES.glob("*.java"))], _COMPILE_TIMEOUT_S)

    _CACHE.mkdir(exist_ok=True)
    with (_CACHE / "rocketmq.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # test workers make it once between them
        _once(jars, fetch)
        _once(classes, compile_peer)
    return Release(version, java, class_path)


def _once(folder: Path, make: Callable[[Path], None]) -> None:
    if folder.exists():
        return
    fresh = folder.with_name(f"{folder.name}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    make(fresh)
    fresh.rename(folder)


def _tool(name: str) -> Path:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"no {name} on PATH: a real RocketMQ needs a JDK 17 and Maven; on Debian: apt-get install default-jdk-headless maven")
    return Path(found)


def _run(command: list[str | Path], timeout_s: float) -> None:
    try:
        subprocess.run(command, capture_output=True, text=True, check=True, timeout=timeout_s)
    except subprocess.CalledProcessError as error:
        said = (error.stdout + error.stderr).strip()
        pytest.skip(f"{command[0]} could not make the RocketMQ peer: {said[-600:]}")
    except subprocess.TimeoutExpired:
        pytest.skip(f"{command[0]} did not make the RocketMQ peer within {timeout_s:g} s")


def _digest(*files: Path) -> str:
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12]
