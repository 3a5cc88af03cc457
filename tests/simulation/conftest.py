"""What stories of the simulator share."""

from collections.abc import Iterator

import pytest

from tests.simulation.service_logs import log_into
from tests.simulation.world import World


@pytest.fixture
def world() -> Iterator[World]:
    """A world whose services may log nothing unexpected."""
    world = World(seed=1)
    log_into(world)
    yield world
    assert world.findings == []
    world.close()
