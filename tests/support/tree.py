"""The tree that is tested: its root, and the files that belong to it."""

import functools
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@functools.cache
def files(suffix: str = "") -> list[Path]:
    """Every file that is in the project or would be with the next commit, relative to ROOT and in order."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    names = sorted({name for name in listed.split("\0") if name.endswith(suffix) and name})
    return [Path(name) for name in names if (ROOT / name).is_file()]
