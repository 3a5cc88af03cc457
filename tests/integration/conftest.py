"""One real group for all tests of this folder that leave its processes alone, and a library that harms what a process asks of its disk."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.harming import Actors, actors, build_shim
from tests.support.real_group import RealGroup, real_group


@pytest.fixture(scope="session")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealGroup]:
    with real_group(tmp_path_factory.mktemp("shared")) as running:
        yield running


@pytest.fixture(scope="session")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """To be preloaded into a process."""
    return build_shim(tmp_path_factory.mktemp("shim"))


@pytest.fixture(scope="session")
def harmed(shim: Path) -> Iterator[Actors]:
    """Processes that use a store while their disk harms them."""
    with actors(shim) as made:
        yield made
