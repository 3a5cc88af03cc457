"""A library that harms what a real process asks of its disk."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.harming import Actors, actors, build_shim


@pytest.fixture(scope="session")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """To be preloaded into a process."""
    return build_shim(tmp_path_factory.mktemp("shim"))


@pytest.fixture(scope="session")
def harmed(shim: Path) -> Iterator[Actors]:
    """Processes that use a store while their disk harms them."""
    with actors(shim) as made:
        yield made
