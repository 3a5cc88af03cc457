"""A library that harms what a real process asks of its disk."""

from pathlib import Path

import pytest

from tests.support.harming import build_shim


@pytest.fixture(scope="session")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """To be preloaded into a process."""
    return build_shim(tmp_path_factory.mktemp("shim"))
