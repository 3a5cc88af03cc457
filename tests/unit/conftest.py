"""What tests share that use a store."""

import random

import pytest

from tests.support.stores import Machine, frame, open_epoch, whole_log


@pytest.fixture
def machine() -> Machine:
    """A simulated machine with an empty disk."""
    return Machine(random.Random(7))


@pytest.fixture
def log() -> bytes:
    """A master's log over several segments."""
    store = Machine(random.Random(1)).open()
    open_epoch(store)
    chance = random.Random(2)
    for at in range(40):
        bodies = [chance.randbytes(chance.randrange(2_500)) for _ in range(3)]
        store.append([frame(*bodies, queue=at % 2, producer="p", first=at * 3)], at)
    return whole_log(store)
