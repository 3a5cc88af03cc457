"""What tests of stores share."""

import random

import pytest

from tests.support.stores import Machine


@pytest.fixture
def machine() -> Machine:
    """A simulated machine with an empty disk."""
    return Machine(random.Random(7))
