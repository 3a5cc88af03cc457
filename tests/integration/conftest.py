"""One real group for all tests of this folder that leave its processes alone."""

from collections.abc import Iterator

import pytest

from tests.support.real_group import RealGroup, real_group


@pytest.fixture(scope="session")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealGroup]:
    with real_group(tmp_path_factory.mktemp("shared")) as running:
        yield running
