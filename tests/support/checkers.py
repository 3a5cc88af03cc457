"""Programs that check manifests, in an environment of their own in .tools: they want other versions of what the project uses too."""

import fcntl
import functools
import hashlib
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.support.tree import ROOT

_LOCK: Final = ROOT / "deploy" / "k8s" / "tests" / "checkers.lock"
_INSTALL_TIMEOUT_S: Final = 900


@functools.cache
def checker(name: str) -> Path:
    """That one, of those in the lock. The first use installs all of them: 400 MB, some minutes."""
    place = ROOT / ".tools" / f"checkers-{hashlib.sha256(_LOCK.read_bytes()).hexdigest()[:12]}"
    place.parent.mkdir(exist_ok=True)
    with place.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # test workers install them once between them
        if not (place / "installed").exists():
            _run(sys.executable, "-m", "venv", "--clear", str(place))
            pip = (str(place / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
            _run(*pip, "--require-hashes", "--requirement", str(_LOCK))
            (place / "installed").touch()
    return place / "bin" / name


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_INSTALL_TIMEOUT_S, check=False)
    assert done.returncode == 0, f"{command}: {done.stderr[-2000:]}"
