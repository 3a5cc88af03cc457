"""One real group for all tests of this folder that leave its processes alone, and a library that fails what a process asks of its disk."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.real_group import RealGroup, real_group
from tests.support.tree import ROOT


@pytest.fixture(scope="session")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealGroup]:
    with real_group(tmp_path_factory.mktemp("shared")) as running:
        yield running


@pytest.fixture(scope="session")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """To be preloaded into a process: see its source."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler on PATH to build the failing fdatasync with")
    library = tmp_path_factory.mktemp("shim") / "failing_fdatasync.so"
    source = ROOT / "tests" / "support" / "failing_fdatasync.c"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", library, source, "-ldl"], check=True)
    return library
