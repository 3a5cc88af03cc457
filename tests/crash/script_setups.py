"""What stories of the sweep begin with."""

import random

from tests.crash.actor import Actor
from tests.support.stores import Machine

CHUNK_BYTES = 2_500


def nothing(_: Actor) -> None:
    """An empty disk."""


def in_use(actor: Actor) -> None:
    """A master's store with most of a segment, half of it in a checkpoint."""
    actor.open()
    actor.epoch()
    for _ in range(2):
        actor.append(6)
        actor.sync()
        actor.dispatch()
        actor.mark()
    actor.append(4, producer=True, tag="a")
    actor.dispatch()
    actor.checkpoint()
    actor.append(3, topic="events")
    actor.sync()
    actor.dispatch()
    actor.mark()


def master_log() -> bytes:
    """What a master streams: three segments. One queue ends in the first."""
    master = Actor(Machine(random.Random(0)))
    master.open()
    master.epoch()
    master.append(1, topic="early")
    for at in range(6):
        master.append(7, producer=at % 2 == 1, tag="b")
    return master.promises.log


def several_segments(actor: Actor) -> None:
    """All of it is flushed, confirmed and in the queues; one queue ends in the first segment."""
    in_use(actor)
    for _ in range(5):
        actor.append(12, producer=True)
        actor.sync()
        actor.dispatch()
    actor.mark()
