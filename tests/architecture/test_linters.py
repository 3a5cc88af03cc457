"""The tools that read the tree find nothing. `make lint` runs this file."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.tree import ROOT

_TOOLS = Path(sys.executable).parent


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(["ruff", "check", "--quiet", "--output-format", "concise"], id="ruff"),
        pytest.param(["ruff", "format", "--check"], id="ruff-format"),
        pytest.param(["mypy", "--no-error-summary"], id="mypy"),
        pytest.param(["lint-imports", "--no-logo"], id="import-linter"),
        pytest.param(["buf", "lint"], id="buf"),
    ],
)
def test_the_tree_passes(command: list[str]) -> None:
    tool = _TOOLS / command[0]

    ended = subprocess.run([tool, *command[1:]], cwd=ROOT, capture_output=True, text=True, check=False)

    assert ended.returncode == 0, f"{' '.join(command)}\n{ended.stdout}{ended.stderr}"
